"""What holds before a run, and what must hold after it."""

from __future__ import annotations

import math
import random
from collections import Counter
from datetime import timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from tests.simulation import environment
from tests.simulation.model import Operation, records_of
from tests.simulation.scheduler import Process
from tests.simulation.store import Connection, Content, Faults, raw_of
from versioned_state import Repository, Versioned
from versioned_state.errors import MergeConflictError, MissingObjectError, StateError, UnknownRevisionError
from versioned_state.repository.history.commit import ROOT_ID
from versioned_state.services.agent_state import VersionedStateService
from versioned_state.services.memory import VersionedMemoryService
from versioned_state.services.session_history.session_history_service import VersionedSessionHistoryService

if TYPE_CHECKING:
    from tests.simulation.run import World

NOW = timedelta(0)


@lru_cache(maxsize=1)
def _base() -> Content:
    """A store with three branches, much of whose content is equal, and commits that only reflogs lead to."""
    from tests.simulation.operations.agents import SHARED
    from tests.simulation.scheduler import Scheduler

    content = Content()
    scheduler = Scheduler(random.Random(0), 0.0)
    scheduler.now -= 3600 * 1_000_000
    with environment.world(scheduler, 0):
        repository = Repository(Connection(content, scheduler, Process("base"), Faults(random.Random(0), (), 0, 0)))
        for number, branch in enumerate(("main", "a", "b")):
            with Versioned(repository, branch=branch) as handle:
                handle["log"] = []
                handle["L"] = list(SHARED[number])
                handle.commit("1")
                handle["x"] = list(SHARED[0])
                handle.commit("2")
                if branch == "a":
                    handle["y"] = list(SHARED[2])
                    handle.commit("3")
                    handle.undo()
        scheduler.quiet = True
        scheduler.spawn("base", Process("base"), lambda: environment.run_coroutine(_begin_sessions(repository)))
        scheduler.run()
    return content


async def _begin_sessions(repository: Repository) -> None:
    """Sessions of three rounds and of one."""
    from tests.simulation.operations.services import BEGUN, USER

    states = VersionedStateService(repository)
    history = VersionedSessionHistoryService(repository, create_missing=True)
    await states.start()
    await history.start()
    for session, rounds in BEGUN.items():
        for number in rounds:
            await states.save_state(USER, _first(number), session)
        await history.create_session(USER, session)


def _first(number: int) -> dict[str, Any]:
    from tests.simulation.operations.agents import SHARED

    return {"word": f"first {number}", "L": list(SHARED[number])}


def prepare(world: World) -> None:
    """Give the store its content."""
    base = _base()
    environment._World.scheduler = world.scheduler  # the content is made once, in a run of its own
    environment._World.rng.seed(f"{world.plan.seed} surroundings")
    world.content.objects.update(base.objects)
    world.content.mutable.update(base.mutable)
    world.content.ordered.extend(base.ordered)


def check(world: World) -> None:
    """Check everything, in a fiber of its own."""
    errors: list[str] = []

    def run() -> None:
        try:
            _check(world)
        except Exception as error:  # noqa: BLE001 - it is the result of the run
            import traceback

            errors.append("the checks: " + "".join(traceback.format_exception(error)[-14:]))

    scheduler = world.scheduler
    scheduler.quiet = True
    scheduler.spawn("check", Process("check"), run)
    scheduler.run()
    world.model.failures += errors


def _check(world: World) -> None:
    model = world.model
    repository = Repository(world.connection())
    _whole(world, repository, "after the run")
    if model.failures:
        return
    names = _tokens(world, repository).keys()
    _followers(world, repository)
    _services(world, repository)
    _secrets(world)
    _records(world, repository)
    _handles(world)
    if model.failures:
        return
    # A handle whose transaction was rolled back in doubt has taken its commit back by now.
    fresh = Repository(world.connection())
    before = {name: fresh.snapshot(name).get("log", []) for name in names}
    try:
        repository.gc(expire=NOW, force=True)
    except StateError as error:
        model.fail(f"gc after the run: {type(error).__name__}: {error}")
        return
    fresh = Repository(world.connection())
    _whole(world, fresh, "after gc")
    _unfinished_purges(world, fresh)
    if model.failures:
        return
    gone = {request.branch for request, _ in model.repaid}
    for name, log in before.items():
        if name in gone:
            continue
        try:
            now = fresh.snapshot(name).get("log")
        except UnknownRevisionError:
            model.fail(f"branch {name} is gone after gc")
            continue
        if now is None or Counter(log) - Counter(now):
            model.fail(f"{name}: the log was {log} before gc, and is {now}")


def _whole(world: World, repository: Repository, when: str) -> None:
    """Every ref leads to commits that can be read, with the content that they were acknowledged with."""
    model = world.model
    report = repository.fsck()
    if not report.ok:
        model.fail(f"{when}, fsck: " + "; ".join(str(finding) for finding in report.findings[:3]))
        return
    _index(world, repository, when)
    seen: set[str] = set()
    for refs in (repository.branches, repository.tags):
        for name in list(refs):
            for commit in repository.log(refs[name]):
                if commit.id in seen or commit.id == ROOT_ID:
                    break
                seen.add(commit.id)
                known = model.contents.get(commit.id)
                if known is None:
                    continue
                snapshot = repository.snapshot(commit)
                for key, value in known.items():
                    if snapshot.get(key) != value:
                        model.fail(
                            f"{when}, commit {commit.short} of {name}: {key} is {snapshot.get(key)!r:.200}, "
                            f"and was {value!r:.200}"
                        )


def _index(world: World, repository: Repository, when: str) -> None:
    """Each index of meta finds what a listing of all refs finds."""
    for key in repository.database.fence.refresh().searchable:
        for refs in (repository.branches, repository.tags):
            found: dict[Any, list[str]] = {}
            for info in refs.iter_info():
                if key in info.meta:
                    found.setdefault(info.meta[key], []).append(info.name)
            for value, names in found.items():
                indexed = [info.name for info in refs.iter_info(where={key: value})]
                if indexed != names:
                    world.model.fail(f"{when}, the index has {key}={value!r} of {indexed}, and it is that of {names}")


def _followers(world: World, repository: Repository) -> None:
    """Who has followed a watch knows every head, unless purge has replaced commits.

    What gc erased of a deleted branch tells nobody, and of one that was renamed neither the old name nor the new one.
    """
    operations = world.model.operations
    if any("purge" in each.name for each in operations):
        return
    erasing = [each.end for each in operations if each.name.startswith(("gc", "prune", "retain"))]
    renamed = {
        each.detail.partition(" to ")[2]
        for each in operations
        if each.name == "rename" and any(end >= each.start for end in erasing)
    }
    for actor, followed in world.model.followed.items():
        site = world.sites[followed.site]
        watch = None if site.process.is_dead else site.watches.get(actor)
        followed.take(watch or repository.watch(after=followed.cursor, timeout=0, lag=world.lag))
        for name, head in repository.branches.items():
            if followed.heads.get(name) != head.id and name not in renamed:
                world.model.fail(
                    f"{actor} has followed {name} to {followed.heads.get(name)}, and its head is {head.id}"
                )


def _tokens(world: World, repository: Repository) -> dict[str, list[str]]:  # noqa: C901 - one promise after another
    """Words of acknowledged commits are in the logs of their branches once, all others at most once."""
    model = world.model
    logs: dict[str, list[str]] = {}
    for name in repository.branches:
        log = repository.snapshot(name).get("log")
        if log is None:
            continue
        logs[name] = log
        # a commit that replaced others has words of a line that is not behind it
        if not model.repeated and not model.replaced:
            twice = [word for word, count in Counter(log).items() if count > 1]
            if twice:
                model.fail(f"{name}: {twice} are in the log more than once: {log}")
        fence = repository.snapshot(name).get("fence", [])
        if not model.copied and not model.may_be_undone(name, 0) and fence != sorted(fence):
            model.fail(f"{name}: holders of the lock committed out of order: {fence}")
    for token in model.tokens.values():
        if " " in token.place or not token.acked or model.may_be_undone(token.place, token.start):
            continue
        if token.word not in logs.get(token.place, ()):
            model.fail(
                f"{token.word} was acknowledged on {token.place} at step {token.start}, "
                f"and is not in {logs.get(token.place)}"
            )
    if not model.copied:
        for batch, words in model.together:
            places = batch.detail.split()
            if any(model.may_be_undone(place, 0) for place in places):
                continue
            there = [word in logs.get(place, ()) for word, place in zip(words, places, strict=True)]
            acked = [model.tokens[word].acked for word in words]
            if len(set(there)) > 1 and len(set(acked)) > 1:
                model.fail(f"{words} were committed together to {batch.detail}: there are {there}")
    for name, (commit, start) in model.tags.items():
        if model.may_be_undone(f"tag {name}", start) or model.undoing.get("keys"):
            continue
        found = repository.tags.get(name)
        if found is None or found.id != commit:
            model.fail(
                f"tag {name} of {commit[:10]} is gone"
                if found is None
                else f"tag {name} of {commit[:10]} is at {found.short}"
            )
    return logs


def _services(world: World, repository: Repository) -> None:
    """What services acknowledged is there once."""
    if not any(actor.kind in ("service", "server") for actor in world.plan.actors):
        return
    environment.run_coroutine(_ask_services(world, repository))


async def _ask_services(world: World, repository: Repository) -> None:  # noqa: C901 - one promise after another
    from tests.simulation.operations.services import BEGUN, SESSIONS, USER

    model = world.model
    states = VersionedStateService(repository)
    history = VersionedSessionHistoryService(repository, create_missing=False)
    memory = VersionedMemoryService(repository)
    for service in (states, history, memory):
        await service.start()
    for session in SESSIONS:
        place = f"state {session}"
        rounds = await states.list_rounds(USER, session)
        found = {}
        for number in rounds:
            try:
                found[number] = await states.export_state(USER, session, number)
            except (StateError, KeyError) as error:
                model.fail(
                    f"round {number} of {session} is listed in {rounds}, and cannot be read: "
                    f"{type(error).__name__}: {error}"
                )
                continue
            if found[number] is None:
                model.fail(f"round {number} of {session} is listed in {rounds}, and cannot be read")
                continue
            possible = [
                *map(_first, (1, 2, 3)),
                *model.rounds.get((session, number), ()),
                *model.rounds.get((session, -1), ()),
            ]
            if model.undoing.get("keys"):  # a key was purged from all states
                continue
            if found[number] not in possible:
                model.fail(f"round {number} of {session} is {found[number]!r:.200}, which nobody saved")
        numbers: dict[int, Any] = {}
        for where, number, state, start in model.acked_rounds:
            if where != place or model.may_be_undone(place, start):
                continue
            if number not in rounds and model.undoing.get("history *"):  # pruned by hand
                continue
            if number not in rounds:
                model.fail(f"round {number} of {session} was acknowledged at step {start}, and is not in {rounds}")
            elif model.undoing.get("keys"):  # a key was purged from all states
                continue
            elif len(model.rounds[session, number]) == 1 and number not in (1, 2, 3) and found.get(number) != state:
                model.fail(f"round {number} of {session} was {state!r:.100}, and is {found.get(number)!r:.100}")
            numbers[number] = state
        keep = min(model.kept.get(place, [0]))
        others = [*model.undoing.get(place, ()), *model.undoing.get("history *", ())]
        if keep and not world.faults.happened and all(each.name == "retain" for each in others):
            ever = {*BEGUN[session], *rounds, *(number for where, number, *_ in model.acked_rounds if where == place)}
            lost = [number for number in sorted(ever)[-keep:] if number not in rounds]
            if lost:
                model.fail(f"the last {keep} rounds of {session} are always kept, and {lost} are not in {rounds}")
        stored = await history.get_session(USER, session)
        texts = [] if stored is None else [_text(message) for message in stored.messages]
        _count(world, f"history {session}", texts)
    listed = await memory.list_memory(USER, {"page_size": 10_000})
    words = [_text(message) for message in listed]
    for session in SESSIONS:
        mine = [
            word
            for word in words
            if (token := model.tokens.get(word or "")) is not None and token.place == f"memory {session}"
        ]
        _count(world, f"memory {session}", mine)


def _text(message: Any) -> str:
    text: str = message.get_text_content()
    return text


def _count(world: World, place: str, texts: list[Any]) -> None:
    model = world.model
    counted = Counter(texts)
    for token in model.tokens.values():
        if token.place != place:
            continue
        count = counted[token.word]
        if count > 1:
            model.fail(f"{token.word} is in {place} {count} times: {texts}")
        elif count == 0 and token.acked and not model.may_be_undone(place, token.start):
            model.fail(f"{token.word} was acknowledged in {place} at step {token.start}, and is not there: {texts}")
        elif count and token.word in model.refused:
            model.fail(f"{token.word} was refused, and is in {place}")


def _records(world: World, repository: Repository) -> None:
    """A record is there until somebody deletes it or its branch, and a note as long as its commit.

    A call that had read a commit before it was swept may bring it back, without its note.
    """
    model = world.model
    found = dict(repository.records.items())
    for name, (branch, word, operation) in model.records.items():
        if name in found:
            if found[name] != {"word": word}:
                model.fail(f"the record {name} is {found[name]}")
            # The first sending of a write that arrives when the second is deleted cannot be told from a new write.
            is_late = f"record/{name}" in world.content.came_late
            if not is_late and any(
                each == branch and operation.end < erasing.start and erasing.outcome == "done"
                for each, erasing in model.erased_records
            ):
                model.fail(f"the record {name} is there, and was deleted with the other records of {branch}")
        elif not model.may_be_undone(records_of(branch), operation.start):
            model.fail(f"the record {name} is gone")
    renamed = any(each.name == "rename" for each in model.operations)
    for branch, purging in model.purged if not renamed else ():
        for name, (owner, _, operation) in model.records.items():
            if owner == branch and operation.end < purging.start and name in found:
                model.fail(
                    f"the record {name} is there, though {branch} was purged at steps {purging.start} to {purging.end}"
                )
    there = {commit.id for name in repository.branches for commit in repository.log(name)} if model.notes else set()
    for word, (commit, _) in model.notes.items():
        if (
            commit in there
            and word not in repository.notes.get(commit, {})
            and f"o/{commit}" not in world.content.swept
        ):
            model.fail(f"the note {word} of {commit[:10]} is gone")


def _secrets(world: World) -> None:
    """The store has no bytes of an erased branch, unless somebody has taken them elsewhere or written them again."""
    model = world.model
    if not model.purged or not model.secrets:
        return
    payload = b"\n".join(raw_of(value) for value in world.content.objects.values())
    for word, branch in model.secrets.items():
        if word.encode() not in payload:
            continue
        for purged, operation in model.purged:
            if purged != branch or model.copying.get(branch) or model.copied:
                continue
            writes = model.writes.get(branch, ())
            own = [each for each in writes if word in each.detail]
            if (
                all(each.end < operation.start for each in writes if each.end >= operation.start or each in own)
                and own
                and not world.faults.happened
            ):
                model.fail(
                    f"{word} of {branch} is in the store, "
                    f"though {branch} was purged at steps {operation.start} to {operation.end}"
                )


def _unfinished_purges(world: World, repository: Repository) -> None:
    """A purge that was cut off is finished by the next one, which reports all of it."""
    model = world.model
    for request in list(model.owed):
        began = world.scheduler.steps + 1
        for each, operation in model.purges:
            if each == request and math.isinf(operation.end):
                operation.end = operation.start  # it is dead
        try:
            report = request.run(repository)
        except StateError as error:
            model.fail(
                f"{request} had not finished, and repeated after the run it raised {type(error).__name__}: {error}"
            )
            continue
        model.pay(request, None, report, began, began)
        if request.branch is not None:
            operation = Operation("check", "purge", request.branch, began, began)
            model.repaid.append((request, operation))
            if not any(
                handle.branch == request.branch for site in world.sites.values() for handle in site.handles.values()
            ):
                model.purged.append((request.branch, operation))
    _secrets(world)
    if model.repaid:
        _whole(world, Repository(world.connection()), "after the purges that had not finished")


def _handles(world: World) -> None:
    """Handles that are alive agree with a fresh read once they have let their changes go, and can commit."""
    model = world.model
    for site in world.sites.values():
        if site.process.is_dead:
            continue
        for (actor, branch), handle in site.handles.items():
            name = f"the handle of {actor} on {branch}"
            try:
                try:
                    handle.commit(policies={"**": "ours", "log": "append"})
                except (MergeConflictError, StateError) as error:
                    if _is_damage(error) and not _is_erased(error, handle, world):
                        raise
                if handle.branch not in Repository(world.connection()).branches:
                    continue
                try:
                    handle.discard()
                except MissingObjectError as error:
                    if not _is_erased(error, handle, world):
                        raise
                    handle.refresh(policies={"**": "theirs"})
                    handle.discard()
                handle.refresh()
                fresh = dict(Repository(world.connection()).snapshot(handle.branch))
                live = dict(handle)
                if live != fresh:
                    model.fail(f"{name} has {live!r:.300}, and the store {fresh!r:.300}")
                    continue
                handle["last"] = actor
                head = handle.commit("last")
                if dict(Repository(world.connection()).snapshot(head)) != dict(handle):
                    model.fail(f"{name} has committed something other than it has")
            except Exception as error:  # noqa: BLE001 - it is the result
                import traceback

                model.fail(
                    f"{name} cannot go on: {type(error).__name__}: {error}\n"
                    + "".join(traceback.format_exception(error)[-8:])
                )


def _is_erased(error: BaseException, handle: Versioned, world: World) -> bool:
    """Whether a handle misses what it read at a commit that is no longer the head: the error says to refresh."""
    branches = Repository(world.connection()).branches
    return isinstance(error, MissingObjectError) and handle.head != branches.get(handle.branch)


def _is_damage(error: BaseException) -> bool:
    from versioned_state.errors import CorruptObjectError, CorruptRefError, MissingObjectError

    return isinstance(error, (MissingObjectError, CorruptObjectError, CorruptRefError))
