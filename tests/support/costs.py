"""The public calls that ask the store, each made on what was just opened, so that its requests can be counted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from versioned_state import (
    Diff,
    EventSourced,
    Memory,
    Repository,
    Signer,
    StateMachine,
    Versioned,
    Workspace,
    checkpoint,
    effect,
    effects,
    emit,
    events,
    files_of,
    forget_effect,
    parallel,
    roll_back_effects,
    settle_effect,
    task,
    view,
)
from versioned_state.agents.modules import StateModule, VersionedSession
from versioned_state.errors import StateError
from versioned_state.storage import Counting, Counts
from versioned_state.storage.base import KVStore

KEY = Signer.generate().public_key


@dataclass
class Room:
    """A store with ``size`` commits, keys, branches, tags and notes, opened anew."""

    store: Counting
    repository: Repository
    state: Versioned
    size: int
    folder: Path

    def other(self) -> Versioned:
        """Another handle on the branch, with a commit that this one does not have."""
        other = Versioned(self.store.store)
        other["theirs"] = 1
        other.commit("theirs")
        return other


def fill(store: KVStore, size: int) -> None:
    """The branch ``side`` leaves ``main`` three commits before its head, and has one of its own."""
    clock = partial(next, count(1_700_000_000_000_000, 60_000_000))
    state = Versioned(store, clock=clock)
    repository = state.repository
    state["list"] = [{"n": n, "text": f"message {n} " * 9} for n in range(4 * size)]
    state["empty"] = []
    for n in range(size):
        state[f"key {n:04}"] = {"n": n}
    state.commit("first", meta={"n": -1})
    for n in range(size):
        state["step"] = n
        state["list"].append({"n": n})
        if n == size - 3:
            side = state.fork("side")
            side["side"] = 1
            side.commit("side")
            side.close()
        commit = state.commit(f"step {n}", meta={"n": n})
        repository.branches.create(f"session/{n:04}", commit)
        repository.tags.create(f"tag/{n:04}", commit)
        repository.notes[commit] = {"n": n}
        repository.records[f"tag/{n:04}"] = {"n": n}
        effect(f"mail/{n:04}", int, state=state)
    repository.branches.delete("session/0000")
    state.close()


def opened(content: dict[str, bytes], size: int, folder: Path) -> Room:
    memory = Memory()
    memory.set_many(content)
    store = Counting(memory)
    repository = Repository(store, clock=partial(next, count(1_800_000_000_000_000, 1_000_000)))
    return Room(store, repository, Versioned(repository), size, folder)


Call = Callable[[Room], Callable[[], object]]
"""Prepares a call; what it gives makes it."""


def on(act: Callable[[Room], object]) -> Call:
    return lambda room: lambda: act(room)


def staged(act: Callable[[Versioned], object]) -> Call:
    """Return a call on a state that has a small change of a new key."""
    return after(lambda state: state.update(new=[1]), act)


def after(first: Callable[[Versioned], object], act: Callable[[Versioned], object]) -> Call:
    def prepare(room: Room) -> Callable[[], object]:
        first(room.state)
        return lambda: act(room.state)

    return prepare


def of(act: Callable[[Versioned], object]) -> Call:
    return lambda room: lambda: act(room.state)


def behind(act: Callable[[Versioned], object]) -> Call:
    """Return a call of a handle whose branch another one has moved."""

    def prepare(room: Room) -> Callable[[], object]:
        room.state["new"] = [1]
        room.other()
        return lambda: act(room.state)

    return prepare


def transaction(state: Versioned) -> None:
    with state.transaction():
        state["new"] = 1


def locked(state: Versioned) -> None:
    with state.lock():
        pass


@task
def nothing(state: Any) -> None:
    state["new"] = 1


@task
def with_checkpoint(state: Any) -> None:
    state["new"] = 1
    checkpoint()


@task
def with_event(state: Any) -> None:
    state["new"] = 1
    emit(Said("hello"))


@dataclass
class Said:
    text: str


def together(room: Room) -> Callable[[], object]:
    other = Versioned(room.repository, branch="side")
    room.state["new"], other["new"] = 1, 1
    return lambda: room.repository.commit_together([room.state, other])


def expiring(room: Room) -> Callable[[], object]:
    old = Versioned(
        Repository(room.store.store, clock=lambda: 1_700_000_000_000_000), branch="session/expired", ttl_seconds=1
    )
    old["n"] = 1
    old.commit()
    return room.repository.expire


def in_doubt(act: Callable[[Versioned], object]) -> Call:
    def prepare(room: Room) -> Callable[[], object]:
        with suppress(ZeroDivisionError, StateError):
            effect("pay", lambda: 1 / 0, state=Versioned(room.store.store))
        return lambda: act(room.state)

    return prepare


class Module(StateModule):
    def __init__(self) -> None:
        super().__init__()
        self.n = 0
        self.register_state("n")


def session(act: Callable[[VersionedSession, Module], Any]) -> Call:
    def prepare(room: Room) -> Callable[[], object]:
        module = Module()
        asyncio.run(VersionedSession(room.store.store).save_session_state("one", module=module))
        module.n = 1
        there = VersionedSession(room.repository)
        return lambda: asyncio.run(act(there, module))

    return prepare


def sourced(act: Callable[[EventSourced[Any]], object]) -> Call:
    def prepare(room: Room) -> Callable[[], object]:
        writer = Versioned(room.store.store, branch="main")
        account = EventSourced(writer, lambda value, event: value + event, initial=0, key="account")
        for n in range(room.size):
            account.append(n)
        writer.commit()
        room.state.refresh()
        own = EventSourced(room.state, lambda value, event: value + event, initial=0, key="account")
        return lambda: act(own)

    return prepare


def diffed(act: Callable[[Diff], object]) -> Call:
    return lambda room: partial(act, room.repository.diff("HEAD~1", "HEAD"))


def in_folder(act: Callable[[Workspace], object]) -> Call:
    """Return a call of a workspace of one file, whose head has another content."""

    def prepare(room: Room) -> Callable[[], object]:
        workspace = Workspace(room.state, room.folder)
        (room.folder / "a.py").write_text("a = 1\n")
        room.state.commit("a file")
        (room.folder / "a.py").write_text("a = 2\n")
        return lambda: act(workspace)

    return prepare


def machine(state: Versioned) -> None:
    StateMachine(state, "order", initial="new", transitions={("new", "pay"): "paid"}).transition("pay")


CALLS: dict[str, dict[str, Call]] = {
    "Versioned": {
        "Versioned": lambda room: lambda: Versioned(room.repository, branch="side"),
        "state[key]": of(lambda s: s["key 0001"]),
        "state[key] = value": of(lambda s: s.__setitem__("new", 1)),
        "iter_keys": of(lambda s: list(s.iter_keys("key"))),
        "at": of(lambda s: s.at("list[0].n")),
        "copy": of(lambda s: s.copy()),
        "status": staged(lambda s: str(s.status())),
        "commit": staged(lambda s: s.commit()),
        "commit, of a branch that has moved": behind(lambda s: s.commit()),
        "commit with tag": staged(lambda s: s.commit(tag="t")),
        "commit with parent": staged(lambda s: s.commit(parent="HEAD~1")),
        "discard": staged(lambda s: s.discard()),
        "transaction": of(transaction),
        "lock": of(locked),
        "checkout": of(lambda s: s.checkout("tag/0001")),
        "diff": of(lambda s: str(s.diff("HEAD~1", "HEAD"))),
        "log": of(lambda s: list(s.log())),
        "grep": of(lambda s: list(s.grep("message 1"))),
        "bisect": of(lambda s: s.bisect("tag/0000", "HEAD", lambda past: past["step"] > 1)),
        "blame": of(lambda s: list(s.blame("list"))),
        "history": of(lambda s: list(s.history("list[0]"))),
        "reset": of(lambda s: s.reset("HEAD~1")),
        "refresh": behind(lambda s: s.refresh()),
        "merge": of(lambda s: s.merge("side")),
        "cherry_pick": of(lambda s: s.cherry_pick("side")),
        "revert": of(lambda s: s.revert("HEAD")),
        "rebase": of(lambda s: s.rebase("side")),
        "squash": of(lambda s: s.squash("HEAD~2")),
        "undo": after(lambda s: s.reset("HEAD~1"), lambda s: s.undo()),
        "redo": after(lambda s: (s.reset("HEAD~1"), s.undo()), lambda s: s.redo()),
        "rollback": of(lambda s: s.rollback()),
        "restore": of(lambda s: s.restore("step", "HEAD~1")),
        "apply": lambda room: partial(room.state.apply, room.repository.diff("HEAD", "HEAD~1").to_patch()),
        "switch": of(lambda s: s.switch("side")),
        "fork": of(lambda s: s.fork("new")),
        "sequence": of(lambda s: s.sequence("list")),
        "namespace": of(lambda s: s.namespace("worker")),
        "namespaces": of(lambda s: s.namespaces()),
        "release": after(lambda s: s["list"], lambda s: s.release("list")),
        "close": of(lambda s: s.close()),
    },
    "Snapshot": {
        "at": lambda room: partial(room.state.checkout("HEAD").at, "list[0].n"),
        "keys_at": lambda room: partial(room.state.checkout("HEAD").keys_at, "list"),
        "diff": lambda room: partial(
            lambda a, b: str(a.diff(b)), room.state.checkout("HEAD~1"), room.state.checkout("HEAD")
        ),
        "sequence": lambda room: partial(room.state.checkout("HEAD").sequence, "list"),
        "preview": lambda room: partial(room.state.checkout("HEAD").preview, "list"),
        "iter_keys": lambda room: partial(lambda s: list(s.iter_keys("key")), room.state.checkout("HEAD")),
        "namespace": lambda room: partial(room.state.checkout("HEAD").namespace, "worker"),
        "namespaces": lambda room: room.state.checkout("HEAD").namespaces,
        "copy": lambda room: room.state.checkout("HEAD").copy,
    },
    "Repository": {
        "Repository": lambda room: lambda: Repository(room.store),
        "commit": on(lambda room: room.repository.commit("tag/0001")),
        "snapshot": on(lambda room: room.repository.snapshot("tag/0001")),
        "diff": on(lambda room: str(room.repository.diff("tag/0001", "tag/0002"))),
        "merge_base": on(lambda room: room.repository.merge_base("main", "side")),
        "log": on(lambda room: list(room.repository.log())),
        "watch": on(lambda room: list(room.repository.watch(timeout=0))),
        "grep": on(lambda room: list(room.repository.grep("message 1"))),
        "bisect": on(lambda room: room.repository.bisect("tag/0000", "main", lambda past: past["step"] > 1)),
        "merge_policies": on(lambda room: room.repository.merge_policies),
        "set_merge_policy": on(lambda room: room.repository.set_merge_policy("list", "append")),
        "blame": on(lambda room: list(room.repository.blame("list"))),
        "history": on(lambda room: list(room.repository.history("list[0]"))),
        "read": on(lambda room: room.repository.read("tag/0001")),
        "reflog": on(lambda room: list(room.repository.reflog("session/0000"))),
        "parents": lambda room: partial(room.repository.parents, room.repository.commit("main")),
        "prune": on(lambda room: room.repository.prune(keep_last=2, branches="main")),
        "purge": on(lambda room: room.repository.purge("step")),
        "gc": on(lambda room: room.repository.gc()),
        "upgrade, nothing to do": on(lambda room: room.repository.upgrade()),
        "expire, nothing to do": on(lambda room: room.repository.expire()),
        "expire": expiring,
        "fsck": on(lambda room: room.repository.fsck()),
        "index_meta": on(lambda room: room.repository.index_meta("n")),
        "verify": on(lambda room: room.repository.verify(keys=[KEY])),
        "stamp": on(lambda room: room.repository.stamp("main")),
        "stats": on(lambda room: room.repository.stats()),
        "default_branch": on(lambda room: room.repository.default_branch()),
        "commit_together": together,
        "close": on(lambda room: room.repository.close()),
    },
    "Branches and tags": {
        "branches[name]": on(lambda room: room.repository.branches["side"]),
        "branches.create": on(lambda room: room.repository.branches.create("new", "tag/0001")),
        "branches.delete": on(lambda room: room.repository.branches.delete("session/0001")),
        "branches.delete, with force": on(lambda room: room.repository.branches.delete("side", force=True)),
        "branches.delete_with_inner": on(lambda room: room.repository.branches.delete_with_inner("side")),
        "branches.rename": on(lambda room: room.repository.branches.rename("side", "new")),
        "branches.deleted": on(lambda room: list(room.repository.branches.deleted())),
        "branches.compare": on(lambda room: list(room.repository.branches.compare())),
        "branches.search": on(lambda room: room.repository.branches.search("session/0001")),
        "branches.iter_info": on(lambda room: list(room.repository.branches.iter_info(limit=20))),
        "tags[name]": on(lambda room: room.repository.tags["tag/0001"]),
        "tags.create": on(lambda room: room.repository.tags.create("new")),
        "tags.delete": on(lambda room: room.repository.tags.delete("tag/0001")),
        "tags.get_many": on(lambda room: room.repository.tags.get_many(["tag/0001", "tag/0002"])),
        "tags.delete_many with a prefix": on(lambda room: room.repository.tags.delete_many(prefix="tag/")),
        "tags.copy": on(lambda room: room.repository.tags.copy("tag/", "copy/")),
        "tags.deleted": on(lambda room: list(room.repository.tags.deleted())),
        "tags.annotation": on(lambda room: room.repository.tags.annotation("tag/0001")),
        "tags.iter_info": on(lambda room: list(room.repository.tags.iter_info(limit=20))),
    },
    "Diff": {
        "read_all": diffed(lambda diff: diff.read_all()),
        "folded": diffed(lambda diff: list(diff.folded())),
        "under": diffed(lambda diff: list(diff.under("list"))),
        "stat": diffed(lambda diff: diff.stat()),
        "to_json": diffed(lambda diff: diff.to_json()),
        "to_patch": diffed(lambda diff: diff.to_patch()),
        "lines": diffed(lambda diff: [change.lines() for change in diff]),
    },
    "Workspaces": {
        "Workspace": lambda room: lambda: Workspace(room.state, room.folder),
        "status": in_folder(lambda workspace: str(workspace.status())),
        "at": in_folder(lambda workspace: dict(workspace.at("HEAD"))),
        "restore": in_folder(lambda workspace: workspace.restore("a.py", overwrite=True)),
        "keep": in_folder(lambda workspace: workspace.keep()),
        "close": in_folder(lambda workspace: workspace.close()),
        "files_of": lambda room: (
            in_folder(lambda _workspace: None)(room),
            lambda: dict(files_of(room.state.checkout("HEAD"))),
        )[1],
    },
    "Notes": {
        "notes[rev]": on(lambda room: room.repository.notes["tag/0001"]),
        "notes[rev] = …": on(lambda room: room.repository.notes.__setitem__("tag/0001", {"a": 1})),
        "del notes[rev]": on(lambda room: room.repository.notes.__delitem__("tag/0001")),
        "notes.update": on(lambda room: room.repository.notes.update("tag/0001", {"a": 1})),
        "notes.remove": on(lambda room: room.repository.notes.remove("tag/0001", "n")),
        "notes.of": lambda room: partial(room.repository.notes.of, [room.repository.commit("tag/0001")]),
        "iteration": on(lambda room: list(room.repository.notes)),
    },
    "Named records": {
        "records[name]": on(lambda room: room.repository.records["tag/0001"]),
        "records.update": on(lambda room: room.repository.records.update({"a": {"n": 1}, "b": {"n": 2}})),
        "records.setdefault": on(lambda room: room.repository.records.setdefault("a", {"n": 1})),
        "records.create": on(lambda room: room.repository.records.create("a", {"n": 1})),
        "records.edit": on(
            lambda room: room.repository.records.edit("tag/0001", lambda found: {**(found or {}), "a": 1})
        ),
        "records.get_many": on(lambda room: room.repository.records.get_many(["tag/0001", "tag/0002"])),
        "records.iter_items": on(lambda room: list(room.repository.records.iter_items("tag/"))),
        "records.delete_many with a prefix": on(lambda room: room.repository.records.delete_many(prefix="tag/")),
    },
    "Tasks and events": {
        "a call of a task": of(lambda s: nothing(state=s)),
        "checkpoint": of(lambda s: with_checkpoint(state=s)),
        "emit": of(lambda s: with_event(state=s)),
        "events": after(lambda s: [with_event(state=s) for _ in range(3)], lambda s: list(events(s))),
        "book.on": of(lambda s: nothing.on(s)()),
        "book.stream": of(lambda s: list(nothing.stream(state=s))),
        "parallel": of(lambda s: parallel(s, [partial(nothing), partial(nothing)])),
        "view": of(view),
    },
    "Effects": {
        "effect": of(lambda s: effect("mail", int, state=s)),
        "effect, done before": of(lambda s: effect("mail/0001", int, state=s)),
        "effects": of(lambda s: list(effects(s))),
        "settle_effect": in_doubt(lambda s: settle_effect(s, "pay")),
        "forget_effect": in_doubt(lambda s: forget_effect(s, "pay")),
        "roll_back_effects": after(
            lambda s: effect("trip", str, 1, state=s, on_rollback=print), lambda s: roll_back_effects(s, to="HEAD")
        ),
    },
    "Event sourcing": {
        "append": sourced(lambda account: account.append(1)),
        "value": sourced(lambda account: account.value),
        "replay": sourced(lambda account: account.replay()),
        "check": sourced(lambda account: account.check()),
    },
    "State machines": {"transition": of(machine)},
    "Modules and sessions": {
        "save_session_state": session(lambda there, module: there.save_session_state("one", module=module)),
        "load_session_state": session(lambda there, module: there.load_session_state("one", module=module)),
        "state": lambda room: lambda: VersionedSession(room.repository).state("one"),
    },
}
"""By section of the reference, and the name of the call there."""


def measure(size: int, folder: Path) -> dict[tuple[str, str], Counts]:
    """Return the requests of each call on a store of that size."""
    memory = Memory()
    fill(memory, size)
    content = dict(memory.items())
    found = {}
    for section, calls in CALLS.items():
        for name, prepare in calls.items():
            room = opened(content, size, folder / f"{section} {name}")
            act = prepare(room)
            room.store.reset()
            act()
            found[section, name] = room.store.counts
    return found
