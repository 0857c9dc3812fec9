"""What agents do: edits and commits of handles, merges, moves of branches, tags, notes, tasks, effects, locks.

Branches are few and their content is much the same, so that actors meet. The list ``log`` of each branch has the words
of all who commit.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from tests.simulation import environment
from tests.simulation.model import Followed, Operation, Token, records_of
from tests.simulation.operations.kinds import Dice, Kind, Refused, table
from versioned_state import Versioned, checkpoint, current_state, effect, parallel, task
from versioned_state.errors import (
    CommitInDoubtError,
    EffectInDoubtError,
    MergeConflictError,
    StateError,
    UnknownRevisionError,
)
from versioned_state.repository.merging.policies import Policy

if TYPE_CHECKING:
    from tests.simulation.run import Runner
    from versioned_state.repository.committing import OnMovedOption

BRANCHES = ("main", "a", "b")
TAGS = ("t0", "t1")
KEYS = ("x", "y", "L")


def shared(number: int) -> list[str]:
    """Return one of a few lists, each of several objects. The agents of all branches write the same ones."""
    rng = random.Random(number)
    return [f"{number} {n} {rng.getrandbits(800):x}" for n in range(36)]


SHARED = tuple(shared(number) for number in range(6))
POLICIES: dict[str, Policy] = {"**": "theirs", "log": "append", "fence": "append"}


def _branch(rng: Dice) -> str:
    return rng.place(BRANCHES)


def _stage(runner: Runner, handle: Versioned, rng: Dice) -> str:
    """Change some keys, append a word to the log, and return it."""
    for _ in range(rng.randrange(3)):
        key = rng.choice(KEYS)
        kind = rng.randrange(5)
        if kind < 3:
            handle[key] = list(rng.place(SHARED[::-1]))
        elif kind == 3 and type(handle.get(key)) is list:
            handle[key].append(rng.randrange(4))
        else:
            handle[key] = rng.randrange(3)
    new = runner.world.word()
    _pend(runner, handle, new)
    if "log" in handle:
        handle["log"].append(new)
    else:
        handle["log"] = [new]
    return new


def _pend(runner: Runner, handle: Versioned, word: str) -> None:
    runner.model.tokens[word] = Token(word, handle.branch, runner.world.scheduler.steps)
    runner.site.pending.setdefault(id(handle), []).append(word)


def _acked(runner: Runner, operation: Operation, handle: Versioned) -> None:
    """A commit was acknowledged: all that the handle had staged is there."""
    for word in runner.site.pending.pop(id(handle), ()):
        token = runner.model.tokens[word]
        token.acked, token.start = True, operation.start if token.tried is None else token.tried
        # An earlier batch that was in doubt or cut off was not made, or was: now the word has a commit of its own.
        runner.model.together = [
            batch for batch in runner.model.together if batch[0] is operation or word not in batch[1]
        ]
    _remember(runner, handle)


def _remember(runner: Runner, handle: Versioned) -> None:
    head = handle.head
    tracked = {key: copy.deepcopy(handle[key]) for key in ("log", *KEYS) if key in handle}
    runner.model.contents.setdefault(head.id, tracked)


@contextmanager
def _trying(runner: Runner, operation: Operation, handle: Versioned) -> Iterator[None]:
    """Run a block that commits: if it fails, what the handle had staged may have landed since the operation began."""
    try:
        yield
    except BaseException:
        for word in runner.site.pending.get(id(handle), ()):
            token = runner.model.tokens[word]
            token.tried = operation.start if token.tried is None else token.tried
        raise


def _dropped(runner: Runner, handle: Versioned) -> None:
    runner.site.pending.pop(id(handle), None)


def _writing(runner: Runner, operation: Operation, branch: str) -> Versioned:
    """Note that an operation writes to a branch, and return the handle for it."""
    operation.detail = branch
    handle = runner.handle(branch)
    runner.model.write(operation, branch)
    return handle


def edit(runner: Runner, rng: Dice, operation: Operation) -> None:
    handle = runner.handle(_branch(rng))
    operation.detail = handle.branch
    _stage(runner, handle, rng)


def commit(runner: Runner, rng: Dice, operation: Operation) -> None:
    handle = _writing(runner, operation, _branch(rng))
    if rng.random() < 0.8:
        _stage(runner, handle, rng)
    with _trying(runner, operation, handle):
        _commit(runner, rng, operation, handle)


def _commit(runner: Runner, rng: Dice, operation: Operation, handle: Versioned) -> None:
    how: OnMovedOption = rng.choice(("merge", "merge", "merge", "refuse", "replace"))
    before = handle.head
    if how == "replace":
        operation.detail += " replacing"
        runner.model.undo(operation, [handle.branch])
        runner.model.replaced.append(operation)
    try:
        made = handle.commit(
            on_moved=how, policies=dict(POLICIES) if rng.random() < 0.9 else None, meta={"by": runner.actor.name[-1]}
        )
    except MergeConflictError as error:
        merge = error.merge
        if rng.random() < 0.5 and all(str(conflict.path) in KEYS for conflict in merge.conflicts):
            for conflict in merge.conflicts:
                merge.resolve(conflict.path, rng.choice((1, list(SHARED[0]))))
            runner.model.undo(operation, [handle.branch])
            merge.commit()
            _acked(runner, operation, handle)
        return
    if how == "replace" and (made == before or made.parents == (before.id,)):
        runner.model.undoing[handle.branch].remove(operation)  # nobody had moved the branch
        runner.model.replaced.remove(operation)
    _acked(runner, operation, handle)


def index_meta(runner: Runner, rng: Dice, operation: Operation) -> None:
    operation.detail = key = rng.choice(("by", "round"))
    runner.repository.index_meta(key)


def commit_with_tag(runner: Runner, rng: Dice, operation: Operation) -> None:
    branch, tag = _branch(rng), rng.choice(TAGS)
    handle = _writing(runner, operation, branch)
    operation.detail += f" {tag}"
    runner.model.copy(operation, branch)
    _stage(runner, handle, rng)
    with _trying(runner, operation, handle):
        made = handle.commit(tag=tag, policies=dict(POLICIES), meta={"by": tag})
    runner.model.tags[tag] = made.id, operation.start
    _acked(runner, operation, handle)


def commit_onto(runner: Runner, rng: Dice, operation: Operation) -> None:
    """Commit onto a parent of the own line, or of another: the branch leaves what it had, and its reflog keeps that."""
    model = runner.model
    branch, onto = _branch(rng), rng.choice(("HEAD", "HEAD~1", "HEAD~2", "HEAD@{1}", _branch(rng)))
    handle = _writing(runner, operation, branch)
    operation.detail += f" {onto}"
    model.copied = model.repeated = True
    model.copy(operation, branch, onto)
    model.undo(operation, [branch])
    model.replaced.append(operation)
    if rng.random() < 0.8:
        _stage(runner, handle, rng)
    note = runner.world.word()
    with _trying(runner, operation, handle):
        made = handle.commit(parent=onto, note={note: 1}, on_moved=rng.choice(("merge", "refuse")))
    model.notes[note] = made.id, operation
    _acked(runner, operation, handle)


def record(runner: Runner, rng: Dice, operation: Operation) -> None:
    """Write a record of a branch, whether the branch is there or not."""
    branch, word = _branch(rng), runner.world.word()
    name = f"{branch}/{word}"
    operation.detail = name
    records = runner.repository.records
    if rng.random() < 0.5:
        records[name] = {"word": word}
    else:
        assert records.setdefault(name, {"word": word}) == {"word": word}
    runner.model.records[name] = branch, word, operation


def erase_records(runner: Runner, rng: Dice, operation: Operation) -> None:
    branch = _branch(rng)
    operation.detail = branch
    runner.model.undo(operation, [records_of(branch)])
    runner.model.erased_records.append((branch, operation))
    runner.repository.records.delete_many(prefix=f"{branch}/")


def transaction(runner: Runner, rng: Dice, operation: Operation) -> None:
    handle = _writing(runner, operation, _branch(rng))
    fails = rng.random() < 0.2
    staged = None
    try:
        with _trying(runner, operation, handle), handle.transaction(policies=dict(POLICIES)):
            staged = _stage(runner, handle, rng)
            if fails:
                raise Refused("rolled back")
    except BaseException:
        # A commit in doubt may have them, and nothing else.
        kept = runner.site.pending.get(id(handle), [])
        kept[:] = [word for word in kept if word != staged]
        raise
    _acked(runner, operation, handle)


def sequence(runner: Runner, rng: Dice, operation: Operation) -> None:
    handle = _writing(runner, operation, _branch(rng))
    word = runner.world.word()
    _pend(runner, handle, word)
    if "log" not in handle:
        handle["log"] = []
    handle.sequence("log").append(word)
    if rng.random() < 0.8:
        with _trying(runner, operation, handle):
            handle.commit(policies=dict(POLICIES))
        _acked(runner, operation, handle)


def refresh(runner: Runner, rng: Dice, operation: Operation) -> None:
    handle = runner.handle(_branch(rng))
    operation.detail = handle.branch
    handle.refresh(policies={"**": rng.choice(("ours", "theirs")), "log": "append"} if rng.random() < 0.8 else None)


def discard(runner: Runner, rng: Dice, operation: Operation) -> None:
    handle = runner.handle(_branch(rng))
    operation.detail = handle.branch
    _dropped(runner, handle)
    handle.discard()


def close(runner: Runner, rng: Dice, operation: Operation) -> None:
    branch = _branch(rng)
    handle = runner.site.handles.pop((runner.actor.name, branch), None)
    operation.detail = branch
    if handle is not None:
        _dropped(runner, handle)
        handle._close(warning=False)


def read(runner: Runner, rng: Dice, operation: Operation) -> None:
    handle = runner.handle(_branch(rng))
    operation.detail = handle.branch
    if rng.random() < 0.5:
        dict(handle)
    else:
        undoing, is_head = runner.model.undoing, True
        try:
            for each in runner.repository.log(handle.branch, limit=4):
                dict(runner.repository.snapshot(each))
                is_head = False
        except StateError:
            pruned = undoing.get(f"history {handle.branch}") or undoing.get("history *")
            if not (undoing.get(handle.branch) or (pruned and not is_head)):
                raise
            raise Refused("the commit may have been deleted meanwhile") from None


def _moving(
    runner: Runner, rng: Dice, operation: Operation, run: Callable[[Versioned, str], object], *, replaces: bool = False
) -> None:
    branch, other = _branch(rng), _branch(rng)
    operation.detail = f"{branch} {other}"
    handle = runner.handle(branch)
    runner.model.write(operation, branch)
    runner.model.carry(operation, branch)
    if replaces:
        runner.model.undo(operation, [branch])
        runner.model.replaced.append(operation)
    runner.model.copied = True
    runner.model.copy(operation, other)
    before = runner.site.pending.get(id(handle))
    run(handle, other)
    if before:
        _remember(runner, handle) if not handle.status() else None
    else:
        _remember(runner, handle)


def merge(runner: Runner, rng: Dice, operation: Operation) -> None:
    policies: Any = {"**": rng.choice(("ours", "theirs")), "log": "append"} if rng.random() < 0.8 else None
    _moving(
        runner,
        rng,
        operation,
        lambda handle, other: handle.merge(other, policies=policies, fast_forward=rng.random() < 0.7),
    )


def cherry_pick(runner: Runner, rng: Dice, operation: Operation) -> None:
    runner.model.repeated = True
    _moving(runner, rng, operation, lambda handle, other: handle.cherry_pick(other, policies=POLICIES))


def revert(runner: Runner, rng: Dice, operation: Operation) -> None:
    runner.model.repeated = True
    _moving(runner, rng, operation, lambda handle, _: handle.revert("HEAD", policies={"**": "ours"}), replaces=True)


def rebase(runner: Runner, rng: Dice, operation: Operation) -> None:
    runner.model.repeated = True
    _moving(runner, rng, operation, lambda handle, other: handle.rebase(other, policies=POLICIES), replaces=True)


def squash(runner: Runner, rng: Dice, operation: Operation) -> None:
    runner.model.repeated = True
    _moving(runner, rng, operation, lambda handle, _: handle.squash("HEAD~2"))


def _going_back(runner: Runner, rng: Dice, operation: Operation, run: Callable[[Versioned], object]) -> None:
    branch = _branch(rng)
    operation.detail = branch
    handle = runner.handle(branch)
    runner.model.undo(operation, [branch])
    _dropped(runner, handle)  # first: if the call fails, they may be gone already
    run(handle)


def undo(runner: Runner, rng: Dice, operation: Operation) -> None:
    _going_back(runner, rng, operation, lambda handle: (handle.discard(), handle.undo()))


def redo(runner: Runner, rng: Dice, operation: Operation) -> None:
    _going_back(runner, rng, operation, lambda handle: (handle.discard(), handle.redo()))


def rollback(runner: Runner, rng: Dice, operation: Operation) -> None:
    _going_back(runner, rng, operation, lambda handle: handle.rollback(1))


def reset(runner: Runner, rng: Dice, operation: Operation) -> None:
    runner.model.copied = True
    other = rng.choice(("HEAD~1", "HEAD~2", "HEAD@{1}", _branch(rng)))
    runner.model.copy(operation, other)
    _going_back(runner, rng, operation, lambda handle: handle.reset(other))


def restore(runner: Runner, rng: Dice, operation: Operation) -> None:
    branch, other = _branch(rng), rng.choice(("HEAD~1", "HEAD", _branch(rng)))
    operation.detail = f"{branch} {other}"
    handle = runner.handle(branch)
    runner.model.copy(operation, other)
    handle.restore(rng.choice(KEYS), at=other)
    if rng.random() < 0.5:
        runner.model.write(operation, branch)
        with _trying(runner, operation, handle):
            handle.commit(policies=dict(POLICIES))
        _acked(runner, operation, handle)


def fork(runner: Runner, rng: Dice, operation: Operation) -> None:
    branch = rng.choice((*BRANCHES, "c", "d", f"f{runner.world.word()}"))
    at = rng.choice((_branch(rng), _branch(rng), "main~1", "a@{1}", "b@{1}", "t0"))
    operation.detail = f"{branch} at {at}"
    runner.model.copied = True
    runner.model.copy(operation, at.partition("~")[0].partition("@")[0])
    runner.model.write(operation, branch)
    made = runner.repository.branches.create(branch, at=at)
    operation.detail += f" = {made.short}"


def fork_handle(runner: Runner, rng: Dice, operation: Operation) -> None:
    source, branch = _branch(rng), rng.choice((*BRANCHES, "c", "d"))
    operation.detail = f"{branch} of {source}"
    runner.model.copied = True
    runner.model.copy(operation, source)
    runner.model.write(operation, branch)
    runner.handle(source).fork(branch)


def tag(runner: Runner, rng: Dice, operation: Operation) -> None:
    name, at = rng.choice(TAGS), _branch(rng)
    operation.detail = f"{name} at {at}"
    runner.model.copy(operation, at)
    made = runner.repository.tags.create(name, at=at)
    runner.model.tags[name] = made.id, operation.start


def delete_tag(runner: Runner, rng: Dice, operation: Operation) -> None:
    name = rng.choice(TAGS)
    operation.detail = name
    runner.model.undo(operation, [f"tag {name}"])
    runner.repository.tags.delete(name)


def note(runner: Runner, rng: Dice, operation: Operation) -> None:
    at = _branch(rng)
    operation.detail = at
    runner.repository.notes.update(at, {runner.world.word(): 1})


def delete(runner: Runner, rng: Dice, operation: Operation) -> None:
    branch = _branch(rng)
    operation.detail = branch
    runner.model.undo(operation, [branch, records_of(branch)])
    runner.repository.branches.delete(branch, force=rng.random() < 0.8)


def rename(runner: Runner, rng: Dice, operation: Operation) -> None:
    old, new = _branch(rng), rng.choice((*BRANCHES, "c"))
    operation.detail = f"{old} to {new}"
    runner.model.undo(operation, [old, new, records_of(old), records_of(new)])
    runner.model.copied = True
    runner.model.copy(operation, old)
    runner.model.write(operation, new)
    runner.repository.branches.rename(old, new)


def together(runner: Runner, rng: Dice, operation: Operation) -> None:
    first, second = rng.sample(BRANCHES, 2)
    operation.detail = f"{first} {second}"
    handles = [runner.handle(first), runner.handle(second)]
    runner.model.write(operation, first, second)
    words = [_stage(runner, handle, rng) for handle in handles]
    batch = (operation, words)
    runner.model.together.append(batch)
    try:
        with ExitStack() as trying:
            for handle in handles:
                trying.enter_context(_trying(runner, operation, handle))
            runner.repository.commit_together(handles, policies=POLICIES)
    except CommitInDoubtError:
        raise
    except StateError:
        # nothing was committed, and each handle may commit its word by itself later
        runner.model.together.remove(batch)
        raise
    for handle in handles:
        _acked(runner, operation, handle)


def lock(runner: Runner, rng: Dice, operation: Operation) -> None:
    handle = _writing(runner, operation, _branch(rng))
    try:
        with handle.lock(ttl=rng.choice((0.05, 1.0, 30.0)), wait=0.5) as held:
            fence = handle.setdefault("fence", [])
            fence.append(held.token)
            environment._sleep(rng.choice((0.0, 0.02, 2.0)))
            _stage(runner, handle, rng)
            handle.commit(policies=dict(POLICIES))
    except StateError:
        # What was staged under the lock must not be committed without it.
        runner.site.handles.pop((runner.actor.name, handle.branch), None)
        _dropped(runner, handle)
        handle._close(warning=False)
        runner.closed.append(handle)
        raise
    _acked(runner, operation, handle)


def expiring(runner: Runner, rng: Dice, operation: Operation) -> None:
    branch = _branch(rng)
    operation.detail = branch
    runner.model.write(operation, branch)
    runner.model.undo(Operation("", "expiry", "", 0), [branch, records_of(branch)])
    handle = Versioned(runner.repository, branch=branch, ttl_seconds=rng.choice((0.05, 5.0)))
    word = runner.world.word()
    runner.model.tokens[word] = Token(word, branch, operation.start)
    handle["ttl"] = word
    handle.commit(policies=dict(POLICIES))


@task
def work(word: str, shared_list: list[str], fails: bool, pauses: bool) -> str:  # noqa: FBT001 - a task of the simulation
    state = current_state()
    state.setdefault("log", []).append(word)
    if pauses:
        checkpoint("halfway")
    state["x"] = shared_list
    if fails:
        raise Refused("the task failed")
    return word


def run_task(runner: Runner, rng: Dice, operation: Operation) -> None:
    branch = _branch(rng)
    handle = runner.handle(branch)
    runner.model.write(operation, branch)
    word = runner.world.word()
    operation.detail = f"{branch} {word}"
    token = runner.model.tokens[word] = Token(word, branch, operation.start)
    fails, shared_list, pauses = rng.random() < 0.2, list(rng.place(SHARED[::-1])), rng.random() < 0.4
    try:
        with _trying(runner, operation, handle):  # its commits have what was staged before
            assert work(word, shared_list, fails, pauses, state=handle, key=rng.choice((None, word))) == word
    except Refused:
        if pauses:  # its checkpoint stands
            token.acked = True
            _acked(runner, operation, handle)
        raise
    token.acked = True
    _acked(runner, operation, handle)


def run_effect(runner: Runner, rng: Dice, operation: Operation) -> None:
    key = rng.choice(("e0", "e1"))
    handle = runner.handle(_branch(rng))
    operation.detail = key
    model = runner.model

    def act() -> str:
        model.effects[key] = model.effects.get(key, 0) + 1
        if model.effects[key] > 1:
            model.fail(f"the effect {key} was carried out {model.effects[key]} times")
        environment._sleep(0.0)
        return key

    try:
        found = effect(key, act, state=handle)
    except EffectInDoubtError:
        raise Refused("in doubt") from None
    assert found == key


def run_parallel(runner: Runner, rng: Dice, operation: Operation) -> None:
    branch = _branch(rng)
    handle = runner.handle(branch)
    operation.detail = branch
    runner.model.write(operation, branch)
    # Its forks stand on the head of its beginning. If that is squashed meanwhile, a list that an earlier commit has
    # replaced differs on both sides from their base, and the policy for conflicts chooses one.
    runner.model.carry(operation, branch)
    words = [runner.world.word() for _ in range(2)]
    tokens = [Token(word, branch, operation.start) for word in words]
    runner.model.tokens.update({token.word: token for token in tokens})
    calls = [partial(work, word, list(SHARED[0]), rng.random() < 0.1, False) for word in words]
    with _trying(runner, operation, handle):
        parallel(handle, calls, policies=dict(POLICIES))
    for token in tokens:
        token.acked = True
    _acked(runner, operation, handle)


def clock(runner: Runner, rng: Dice, operation: Operation) -> None:
    seconds = rng.choice((1, 61, 3600, 86_400 * 31))
    operation.detail = f"+{seconds} s"
    runner.world.scheduler.now += seconds * 1_000_000


def other_handle(runner: Runner, rng: Dice, operation: Operation) -> None:
    """A fresh handle reads, so that the process learns of sweeps."""
    branch = rng.choice((*BRANCHES, "side"))
    operation.detail = branch
    with Versioned(runner.repository, branch=branch) as handle:
        handle["side"] = runner.world.word()
        runner.model.write(operation, branch)
        handle.commit(policies=dict(POLICIES))


def secret(runner: Runner, rng: Dice, operation: Operation) -> None:
    """Commit a value that no other branch has, and let the handle go."""
    branch = _branch(rng)
    rng_of_it = random.Random(f"{runner.world.plan.seed} {runner.world.word()}")
    word = f"secret-{rng_of_it.getrandbits(160):x}"
    operation.detail = f"{branch} {word}"
    runner.model.secrets[word] = branch
    runner.model.write(operation, branch)
    with Versioned(runner.repository, branch=branch) as handle:
        handle["secret"] = [word, *(f"{n} {rng_of_it.getrandbits(400):x}" for n in range(rng.choice((1, 20))))]
        handle.commit(policies=dict(POLICIES))


def gone(runner: Runner, rng: Dice, operation: Operation) -> None:
    branch = _branch(rng)
    handle = runner.handle(branch)
    operation.detail = branch
    if handle.pop(rng.choice(KEYS), None) is None:
        raise UnknownRevisionError(branch)


def follow(runner: Runner, rng: Dice, operation: Operation) -> None:
    """Take the moves of branches that this actor's watch finds; after a cut-off, from the last one that was handled."""
    actor = runner.actor.name
    followed = runner.model.followed.setdefault(actor, Followed(runner.actor.site))
    watch = runner.site.watches.pop(actor, None)
    if watch is None or rng.random() < 0.2:
        watch = runner.repository.watch(after=followed.cursor, timeout=0, lag=runner.world.lag)
    operation.detail = f"behind {followed.cursor}"
    followed.take(watch)
    runner.site.watches[actor] = watch


AGENT: dict[str, Kind] = table(
    (commit, 8), (edit, 3), (refresh, 2), (discard, 1), (close, 1), (read, 1), (merge, 2), cherry_pick, revert, rebase,
    squash, (undo, 2), redo, rollback, (reset, 2), restore, (fork, 3), fork_handle, tag, delete_tag, note, (delete, 2),
    rename, together, lock, expiring, (run_task, 2), run_effect, run_parallel, clock, (other_handle, 2), secret, gone,
    (sequence, 2), transaction, commit_with_tag, (commit_onto, 2), (record, 2), erase_records, follow, (index_meta, 2),
    always=("commit",),
)  # fmt: skip
