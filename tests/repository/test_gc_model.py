"""Garbage collection against a model, with writers, handles and expiry at random."""

from __future__ import annotations

import random
from contextlib import suppress
from datetime import timedelta
from typing import Any

from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from tests.support.concurrent_stores import ActsBeforeCall
from tests.support.exact import exact
from tests.support.garbage import NOW, assert_whole
from tests.support.strategies import make_large
from versioned_state import Cache, Commit, Memory, OnMoved, Repository, Versioned
from versioned_state.errors import (
    BranchMovedError,
    MissingObjectError,
    RefExistsError,
    UnknownRevisionError,
)
from versioned_state.repository.history.commit import ROOT_ID

KEYS = ("a", "b")
VALUES = tuple(
    make_large(kind, size, seed)
    for seed, (kind, size) in enumerate([("list", 300), ("dict", 200), ("text", 1500), ("nested", 60)])
)
"""Few, so that what was garbage comes back all the time."""

steps = st.tuples(
    st.sampled_from(["put", "append", "commit", "branch", "drop", "tag", "reset", "undo", "create"]),
    st.integers(0, 2**16),
)


class GcMachine(RuleBasedStateMachine):
    """Two handles, each over a repository of its own, and gc, between whose calls they act."""

    def __init__(self) -> None:
        super().__init__()
        self.store = Memory()
        self.now = 1
        self.handles = [
            Versioned(Repository(Cache(self.store) if n else self.store, clock=self.clock)) for n in range(2)
        ]
        self.known: dict[str, Any] = {ROOT_ID: exact({})}
        self.refs: dict[tuple[str, str], str] = {}
        self.commits: list[Commit] = []

    def clock(self) -> int:
        self.now += 1
        return self.now

    @rule(which=st.integers(0, 1), step=steps)
    def act(self, which: int, step: tuple[str, int]) -> None:
        self.do(which, step)

    @rule(
        acts=st.lists(st.tuples(st.integers(1, 30), st.integers(0, 1), steps), max_size=5),
        expire=st.sampled_from([0, 10, 1000]),
    )
    def gc(self, acts: list[tuple[int, int, tuple[str, int]]], expire: int) -> None:
        due = sorted(acts, reverse=True)

        def go_on() -> None:
            while due and due[-1][0] <= between.calls:
                _, which, step = due.pop()
                self.do(which, step)
            between.at = due[-1][0] if due else None

        between = ActsBeforeCall(self.store, go_on, at=due[-1][0] if due else None)
        Repository(between, clock=self.clock).gc(expire=timedelta(microseconds=expire))

    def do(self, which: int, step: tuple[str, int]) -> None:
        what, seed = step
        rng = random.Random(seed)
        handle = self.handles[which]
        if what == "put":
            handle[rng.choice(KEYS)] = rng.choice(VALUES)
        elif what == "append":
            for value in handle.values():
                if isinstance(value, list):
                    value.append(seed % 3)
        elif what == "commit":
            # Where others moved the branch away, and what this handle stood on was collected, what it has not loaded is
            # gone.
            with suppress(BranchMovedError, MissingObjectError):
                handle.discard() if seed % 7 == 0 else handle.commit(on_moved=OnMoved.REPLACE)
                self.note(handle.head, handle)
        else:
            with suppress(BranchMovedError, RefExistsError, UnknownRevisionError, MissingObjectError):
                self.move(handle, what, rng)

    def note(self, commit: Commit, handle: Versioned) -> None:
        if commit.id not in self.known:  # with nothing changed it is the old head, where others may have moved on
            self.refs["branch", handle.branch] = commit.id
            self.known[commit.id] = exact(Repository(self.store).snapshot(commit).copy())
            self.commits.append(commit)

    def move(self, handle: Versioned, what: str, rng: random.Random) -> None:
        repository = handle.repository
        if what in ("reset", "undo"):
            rev = f"main~{rng.randrange(3)}" if what == "reset" else f"main@{{{rng.randrange(4)}}}"
            target = repository.commit(rev)
            handle.discard()
            handle.refresh()
            handle.reset(target)
            self.refs["branch", "main"] = target.id
        elif what in ("branch", "tag"):
            refs = repository.branches if what == "branch" else repository.tags
            self.refs[what, "x"] = refs.create("x", "main").id
        elif what == "create" and self.commits:
            commit = rng.choice(self.commits)  # it may have been collected long ago
            repository.branches.create("x", commit)
            self.refs["branch", "x"] = commit.id
        elif what == "drop":
            name = rng.choice(("branch", "tag"))
            if name == "branch":
                repository.branches.delete("x", force=True)
            else:
                repository.tags.delete("x")
            del self.refs[name, "x"]

    @invariant()
    def what_is_reachable_is_whole(self) -> None:
        assert_whole(self.store)
        repository = Repository(self.store)
        found = {("branch", name): commit.id for name, commit in repository.branches.items()}
        found |= {("tag", name): commit.id for name, commit in repository.tags.items()}
        assert found == {key: id for key, id in self.refs.items() if id != ROOT_ID or key in found}
        for id in set(found.values()):
            assert exact(repository.snapshot(id).copy()) == self.known[id]


def test_gc_never_takes_what_is_reachable():
    default = settings.default
    assert default is not None
    run_state_machine_as_test(GcMachine, settings=settings(stateful_step_count=default.stateful_step_count // 2))


def test_a_dry_run_knows_what_an_earlier_gc_took_for_expired():
    state = Versioned()
    for n in range(2):
        state["n"] = [n] * 500
        state.commit()
    state.reset("HEAD~1")
    state.repository.gc(expire=NOW)
    assert state.repository.gc(dry_run=True).freed == state.repository.gc().freed == 0
