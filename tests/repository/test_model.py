"""A repository against plain dicts, at random: commits, branches, tags, resets, handles, transactions, reopening.

The model of a state is a dict of what ``exact`` says of each value; of a commit, its content and parents; of a branch,
a commit.
"""

from __future__ import annotations

import itertools
import random
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import settings, strategies as st
from hypothesis.internal.conjecture import engine
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.support.exact import clone, exact
from tests.support.handles import RollbackWantedError
from tests.support.mutations import containers, fresh, mutate
from tests.support.state_trees import StateTrees
from tests.support.strategies import make_large
from versioned_state import Commit, Disk, KVStore, Memory, OnMoved, Repository, Versioned
from versioned_state.errors import BranchMovedError, MergeConflictError, RefExistsError, UnknownRevisionError
from versioned_state.repository.history.commit import ROOT_ID
from versioned_state.storage import DiskCache, Encrypted

KEYS = ("a", "b", "é", "")
BRANCHES = ("main", "side", "deep/er")

Content = dict[str, Any]
"""Key to ``exact`` of its value."""


@dataclass
class ModelCommit:
    content: Content
    parents: tuple[str, ...]
    message: str


@dataclass
class Handle:
    """A ``Versioned``, what it should hold, and the references that the caller has kept."""

    state: Versioned
    branch: str
    base: str
    moved: bool = False
    content: Content = field(default_factory=dict)
    held: dict[str, Any] = field(default_factory=dict)


seeds = st.integers(0, 2**32)
places = st.integers(0, 2**16)


class RepositoryMachine(RuleBasedStateMachine):
    handles = Bundle("handles")

    def __init__(self) -> None:
        super().__init__()
        self.store = self.make_store()
        self.now = 0
        self.commits: dict[str, ModelCommit] = {ROOT_ID: ModelCommit({}, (), "")}
        self.order = [ROOT_ID]
        self.branches: dict[str, str] = {}
        self.tags: dict[str, str] = {}
        self.roots: dict[str, str] = {}
        self.opened: list[Handle] = []
        self.repository = self.open()

    def make_store(self) -> KVStore:
        return Memory()

    def clock(self) -> int:
        self.now += 1
        return self.now

    def open(self) -> Repository:
        return Repository(self.store, clock=self.clock)

    def teardown(self) -> None:
        self.store.close()

    # Handles

    @initialize(target=handles)
    def first(self) -> Handle:
        return self.handle("main")

    @precondition(lambda self: len(self.opened) < 4)
    @rule(target=handles, branch=st.sampled_from(BRANCHES), anew=st.booleans())
    def open_handle(self, branch: str, anew: bool) -> Handle:  # noqa: FBT001
        if anew:
            self.repository = self.open()
        return self.handle(branch)

    def handle(self, branch: str) -> Handle:
        base = self.branches.get(branch, ROOT_ID)
        handle = Handle(
            Versioned(self.repository, branch=branch), branch, base, content=dict(self.commits[base].content)
        )
        assert handle.state.head.id == base
        self.opened.append(handle)
        return handle

    # Changes

    @rule(handle=handles, key=st.sampled_from(KEYS), seed=seeds)
    def assign(self, handle: Handle, key: str, seed: int) -> None:
        value = handle.held[key] = fresh(random.Random(seed))
        handle.state[key] = value
        handle.content[key] = exact(value)

    @rule(
        handle=handles, key=st.sampled_from(KEYS), kind=st.sampled_from(["list", "dict", "nested", "text"]), seed=seeds
    )
    def assign_large(self, handle: Handle, key: str, kind: str, seed: int) -> None:
        value = handle.held[key] = make_large(kind, 300, seed)
        handle.state[key] = value
        handle.content[key] = exact(value)

    @rule(handle=handles, key=st.sampled_from(KEYS), seed=seeds)
    def mutate(self, handle: Handle, key: str, seed: int) -> None:
        if key in handle.content:
            value = handle.held[key] = handle.state[key]
            if any(containers(value)):
                mutate(random.Random(seed), value)
            handle.content[key] = exact(value)

    @rule(handle=handles, key=st.sampled_from(KEYS))
    def delete(self, handle: Handle, key: str) -> None:
        if key in handle.content:
            del handle.state[key], handle.content[key]
            handle.held.pop(key, None)
        else:
            with pytest.raises(KeyError):
                del handle.state[key]

    @rule(handle=handles, key=st.sampled_from(KEYS), seed=seeds)
    def append_to_a_sequence(self, handle: Handle, key: str, seed: int) -> None:
        if handle.content.get(key, ("list", ()))[0] == "list":
            value = fresh(random.Random(seed))
            handle.state.sequence(key).append(value)
            handle.content[key] = ("list", (*handle.content.get(key, ("list", ()))[1], exact(value)))

    @rule(handle=handles, seed=seeds)
    def several_changes(self, handle: Handle, seed: int) -> None:
        """More of the same in one step, so that one follows the other in ways that are rare otherwise."""
        rng = random.Random(seed)
        for _ in range(4):
            self.some_changes(handle, rng)

    @rule(handle=handles, key=st.sampled_from(KEYS))
    def assign_an_equal_value(self, handle: Handle, key: str) -> None:
        if key in handle.content:
            value = handle.held[key] = clone(handle.state[key])
            handle.state[key] = value

    @rule(handle=handles, key=st.sampled_from(KEYS))
    def release(self, handle: Handle, key: str) -> None:
        if handle.state.release(key):
            handle.held.pop(key, None)

    # Rounds

    def changes(self, handle: Handle) -> Content:
        """The changes of a handle since its base. None stands for a removed key."""
        base = self.commits[handle.base].content
        keys = base.keys() | handle.content.keys()
        return {key: handle.content.get(key) for key in keys if base.get(key) != handle.content.get(key)}

    def merged(self, handle: Handle) -> Content | None:
        """Our changes on top of the head of the branch, or None for a conflict."""
        merged, conflicts = self.merge(handle)
        return None if conflicts else merged

    def merge(self, handle: Handle) -> tuple[Content, set[str]]:
        """The same, and the keys of the conflicts.

        What both changed is merged by ``merge_trees``, whose laws have tests of their own.
        """
        head = self.branches.get(handle.branch, ROOT_ID)
        base, theirs = self.commits[handle.base].content, self.commits[head].content
        merged, conflicts = dict(theirs), set()
        for key, changed in self.changes(handle).items():
            value = changed
            if theirs.get(key) not in (base.get(key), value):
                repository = self.open()
                sides = [repository.snapshot(repository.commit(id)) for id in (handle.base, head)]
                b, t = ({key: side[key]} if key in side else {} for side in sides)
                state, found = StateTrees().merge(
                    b, {key: clone(handle.state[key])} if key in handle.content else {}, t
                )
                conflicts |= {key} if found else set()
                value = exact(state[key]) if key in state else None
            if value is None:
                merged.pop(key, None)
            else:
                merged[key] = value
        return merged, conflicts

    def is_behind(self, handle: Handle) -> bool:
        return self.branches.get(handle.branch, ROOT_ID) != handle.base

    def landed(self, handle: Handle, commit: Commit, content: Content) -> None:
        """A new commit is the head of a branch, and where the handle stands."""
        parent = self.branches.get(handle.branch, ROOT_ID)
        assert commit.parents == (parent,)
        assert commit.id not in self.commits
        self.commits[commit.id] = ModelCommit(dict(content), (parent,), commit.message)
        self.order.append(commit.id)
        self.branches[handle.branch] = handle.base = commit.id
        handle.content = dict(content)

    @rule(handle=handles, on_moved=st.sampled_from(OnMoved), allow_empty=st.booleans())
    def commit(self, handle: Handle, on_moved: OnMoved, allow_empty: bool) -> None:  # noqa: FBT001
        before, mine = handle.base, dict(handle.content)
        behind, merged, changes = self.is_behind(handle), self.merged(handle), self.changes(handle)
        theirs = self.commits[self.branches.get(handle.branch, ROOT_ID)].content

        def call() -> Commit:
            return handle.state.commit(f"commit {len(self.order)}", on_moved=on_moved, allow_empty=allow_empty)

        if not changes and not allow_empty:
            assert call().id == before
        elif not behind:
            self.landed(handle, call(), mine)
        elif on_moved is OnMoved.REFUSE:
            with pytest.raises(BranchMovedError) as moved:
                call()
            assert (moved.value.expected, moved.value.actual) == (before, self.branches.get(handle.branch, ROOT_ID))
        elif on_moved is OnMoved.REPLACE:
            self.landed(handle, call(), mine)
        elif merged is None:
            with pytest.raises(MergeConflictError) as conflict:
                call()
            wanted = self.merge(handle)[1]
            assert {part.path.steps[0].key for part in conflict.value.conflicts} == wanted
        elif merged == theirs and not allow_empty:
            # The others have made the very same change: there need not be anything to add.
            commit = call()
            if commit.id == self.branches.get(handle.branch, ROOT_ID):
                handle.base, handle.content = commit.id, dict(merged)
            else:
                self.landed(handle, commit, merged)
        else:
            self.landed(handle, call(), merged)
        self.forget(handle)

    def forget(self, handle: Handle) -> None:
        """References to keys that are gone, or whose type changed, are detached."""
        held = handle.held
        handle.held = {
            key: value
            for key, value in held.items()
            if key in handle.content and handle.content[key][0] == exact(value)[0]
        }

    @rule(handle=handles)
    def refresh(self, handle: Handle) -> None:
        merged = self.merged(handle)
        if merged is None:
            with pytest.raises(MergeConflictError):
                handle.state.refresh()
        else:
            assert handle.state.refresh().id == self.branches.get(handle.branch, ROOT_ID)
            handle.base, handle.content = handle.state.head.id, merged
        self.forget(handle)

    @rule(handle=handles)
    def discard(self, handle: Handle) -> None:
        handle.state.discard()
        handle.content = dict(self.commits[handle.base].content)
        self.forget(handle)
        self.drop_replaced(handle)

    def drop_replaced(self, handle: Handle) -> None:
        """After an undo the value from before is back: a reference to one that had replaced it is nobody's."""
        handle.held = {key: value for key, value in handle.held.items() if handle.state[key] is value}

    @rule(handle=handles, place=places)
    def reset(self, handle: Handle, place: int) -> None:
        target = self.order[place % len(self.order)]
        known = self.branches.get(handle.branch)
        if self.is_behind(handle) and target != handle.base:
            with suppress(BranchMovedError):
                handle.state.reset(target)
                # Where the branch happens to stand there already, nothing has to be moved.
                assert known == target
                handle.base, handle.content = target, dict(self.commits[target].content)
                self.forget(handle)
                self.drop_replaced(handle)
            return
        if self.is_behind(handle):
            return
        assert handle.state.reset(target).id == target
        if target != ROOT_ID or known is not None:
            self.branches[handle.branch] = target
        handle.base, handle.content = target, dict(self.commits[target].content)
        self.forget(handle)
        self.drop_replaced(handle)

    @rule(handle=handles, seed=seeds, fails=st.sampled_from(["inside", "no", "nested"]))
    def transaction(self, handle: Handle, seed: int, fails: str) -> None:
        rng = random.Random(seed)
        before = dict(handle.content)
        held = dict(handle.held)
        if fails == "inside":
            with suppress(RollbackWantedError), handle.state.transaction("never"):
                self.some_changes(handle, rng)
                raise RollbackWantedError
            handle.content, handle.held = before, held
            self.forget(handle)
            self.drop_replaced(handle)
            return
        merged = None
        try:
            with handle.state.transaction(f"commit {len(self.order)}"):
                self.some_changes(handle, rng)
                if fails == "nested":
                    outer, held_outer = dict(handle.content), dict(handle.held)
                    with suppress(RollbackWantedError), handle.state.transaction():
                        self.some_changes(handle, rng)
                        raise RollbackWantedError
                    handle.content, handle.held = outer, held_outer
                    self.drop_replaced(handle)
                merged, changes = self.merged(handle), self.changes(handle)
        except MergeConflictError:
            assert merged is None
            handle.content, handle.held = before, held
            self.forget(handle)
            self.drop_replaced(handle)
        else:
            assert merged is not None or not changes
            head = handle.state.head
            if head.id not in self.commits:
                assert merged is not None
                self.landed(handle, head, merged)
            elif merged is not None and changes:
                handle.base, handle.content = head.id, merged
            self.forget(handle)

    def some_changes(self, handle: Handle, rng: random.Random) -> None:
        for _ in range(rng.randrange(1, 4)):
            key = rng.choice(KEYS)
            step = rng.choice(
                (
                    self.assign,
                    self.mutate,
                    self.mutate,
                    self.delete,
                    self.append_to_a_sequence,
                    self.assign_an_equal_value,
                )
            )
            if step in (self.delete, self.assign_an_equal_value):
                step(handle, key)
            else:
                step(handle, key, rng.randrange(2**32))
            self.handles_have_the_keys_that_they_should_have()

    # Refs

    @rule(name=st.sampled_from(BRANCHES), place=places)
    def create_branch(self, name: str, place: int) -> None:
        at = self.order[place % len(self.order)]
        if name in self.branches:
            with pytest.raises(RefExistsError):
                self.repository.branches.create(name, at)
        else:
            assert self.repository.branches.create(name, at).id == at
            self.branches[name] = at

    @rule(name=st.sampled_from(["v1", "v2"]), place=places)
    def create_tag(self, name: str, place: int) -> None:
        at = self.order[place % len(self.order)]
        if name in self.tags:
            with pytest.raises(RefExistsError):
                self.repository.tags.create(name, at)
        else:
            self.repository.tags.create(name, at)
            self.tags[name] = at

    @rule(name=st.sampled_from(["v1", "v2"]))
    def delete_tag(self, name: str) -> None:
        if name in self.tags:
            assert self.repository.tags.delete(name).id == self.tags.pop(name)
        else:
            with pytest.raises(UnknownRevisionError):
                self.repository.tags.delete(name)

    # The past

    @rule(place=places)
    def read_the_past(self, place: int) -> None:
        id = self.order[place % len(self.order)]
        snapshot = self.repository.snapshot(id)
        content = {key: exact(value) for key, value in snapshot.items()}
        assert content == self.commits[id].content
        assert list(snapshot) == sorted(content)
        root = self.repository.commit(id).root
        assert self.roots.setdefault(repr(sorted(content.items())), root) == root, "same content, same root"

    @precondition(lambda self: len(self.order) > 1)
    @rule(place=places, other=places)
    def compare_two(self, place: int, other: int) -> None:
        a, b = self.order[place % len(self.order)], self.order[other % len(self.order)]
        old, new = self.commits[a].content, self.commits[b].content
        changed = {key for key in old.keys() | new.keys() if old.get(key) != new.get(key)}
        assert {change.path.steps[0].key for change in self.repository.diff(a, b)} == changed  # type: ignore[union-attr]
        common = self.ancestors(a) & self.ancestors(b)
        best = max(common, key=lambda id: len(self.ancestors(id)))
        assert self.repository.merge_base(a, b).id == best
        line = self.line(a)
        assert self.repository.commit(f"{a}~{other % len(line)}").id == line[other % len(line)]

    def line(self, id: str) -> list[str]:
        line = [id]
        while parents := self.commits[line[-1]].parents:
            line.append(parents[0])
        return line

    def ancestors(self, id: str) -> set[str]:
        return set(self.line(id))

    @rule(name=st.sampled_from(BRANCHES))
    def log(self, name: str) -> None:
        if name in self.branches:
            line = self.line(self.branches[name])
            assert [(commit.id, commit.message) for commit in self.repository.log(name, include_root=True)] == [
                (id, self.commits[id].message) for id in line
            ]

    # What always holds

    @rule(handle=handles)
    def look(self, handle: Handle) -> None:
        state = handle.state
        assert {key: exact(state[key]) for key in state} == handle.content
        assert {change.path.steps[0].key for change in state.status()} == set(self.changes(handle))  # type: ignore[union-attr]
        assert state.head.id == handle.base

    @rule(handle=handles)
    def references_hold(self, handle: Handle) -> None:
        for key, value in handle.held.items():
            if isinstance(value, (list, dict, set, bytearray)):
                assert handle.state[key] is value, key

    @invariant()
    def handles_have_the_keys_that_they_should_have(self) -> None:
        for handle in self.opened:
            assert list(handle.state) == sorted(handle.content)
            assert len(handle.state) == len(handle.content)

    @invariant()
    def refs_are_where_they_should_be(self) -> None:
        assert {name: commit.id for name, commit in self.repository.branches.items()} == self.branches
        assert {name: commit.id for name, commit in self.repository.tags.items()} == self.tags


class DiskMachine(RepositoryMachine):
    """The same on a file, which is closed and opened again at any time."""

    folder: ClassVar[Path]

    def make_store(self) -> KVStore:
        self.path = Path(tempfile.mkdtemp()) / "store"
        return Disk(self.path)

    def open(self) -> Repository:
        # Older handles go on over a connection of their own.
        return Repository(Disk(self.path), clock=self.clock)

    def teardown(self) -> None:
        super().teardown()
        self.repository.close()
        shutil.rmtree(self.path.parent)


class Shared(RepositoryMachine):
    """Over one store that all handles share, as machines share a server."""

    make: ClassVar[Callable[[], KVStore]]

    def make_store(self) -> KVStore:
        return type(self).make()

    def open(self) -> Repository:
        return Repository(self.store, clock=self.clock, pickle="allow")


@pytest.mark.parametrize("machine", [RepositoryMachine, DiskMachine], ids=["memory", "disk"])
def test_a_repository_is_what_the_model_says(machine, monkeypatch):
    # Long enough to see what is wrong, and short enough for the whole run not to be ended as one that hangs.
    monkeypatch.setattr(engine, "MAX_SHRINKING_SECONDS", 60)
    examples = settings().max_examples
    run_state_machine_as_test(
        machine, settings=settings(max_examples=2 * examples if machine is RepositoryMachine else examples // 2)
    )


@pytest.mark.parametrize("backend", ["diskcache", "encrypted", "redis", "postgres", "s3"])
def test_a_repository_is_what_the_model_says_over(backend, request, tmp_path, monkeypatch):
    """The same over every other store, with fewer examples: what a store promises has tests of its own."""
    monkeypatch.setattr(engine, "MAX_SHRINKING_SECONDS", 60)
    number = itertools.count()
    make: Callable[[], KVStore]
    if backend == "encrypted":
        make = lambda: Encrypted(Memory(), bytes(32))  # noqa: E731
    elif backend == "diskcache":
        make = lambda: DiskCache(tmp_path / str(next(number)))  # noqa: E731
    else:
        make = request.getfixturevalue(f"{backend}_server").fresh_store
    machine = type("Machine", (Shared,), {"make": staticmethod(make)})
    run_state_machine_as_test(
        machine, settings=settings(max_examples=max(3, settings().max_examples // 12), stateful_step_count=30)
    )
