"""The feed of changes as a Hypothesis machine: writers' clocks differ, watches live or go on at a cursor, beside gc."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tests.support.models import run_model
from tests.support.stores import OneCondition
from versioned_state import Disk, Memory, Repository, Versioned
from versioned_state.errors import RefExistsError, UnknownRevisionError
from versioned_state.repository.names.watching import Watch
from versioned_state.storage import KVStore

SECOND = 1_000_000
LAG = 60
SKEWS = st.integers(-LAG // 2 + 1, LAG // 2 - 1)

NAMES = st.sampled_from(["a", "b", "u/1", "u/2", "u/3"])
WRITERS = st.integers(0, 1)


class Follower:
    """What somebody knows who follows a watch: the heads by the names of the branches."""

    def __init__(
        self, repository: Repository, prefix: str = "", after: str | None = "", known: dict[str, str] | None = None
    ) -> None:
        self.repository, self.prefix = repository, prefix
        self.known = {} if known is None else known
        self.is_new = True
        self.watch: Watch = repository.watch(prefix, after=after, timeout=0, lag=LAG)
        self.cursor = self.watch.cursor

    def follow(self, most: int | None = None) -> bool:
        """Take moves, at most so many. Return whether there are no more."""
        times = []
        for number, move in enumerate(self.watch):
            if number == most:
                return False  # one that was taken, and is not handled: the cursor before it is the one to go on from
            assert move.name.startswith(self.prefix)
            if move.id is None:
                self.known.pop(move.name, None)
            else:
                self.known[move.name] = move.id
            self.cursor = move.cursor
            times.append(move.time)
        assert times == sorted(times)
        self.is_new = False
        return True

    def again(self) -> Follower:
        """One that has only the cursor, as after a restart of the program."""
        return Follower(self.repository, self.prefix, self.cursor, self.known)


class Machine(RuleBasedStateMachine):
    """Branches moved by two writers, and followers of all of them, and of those with a prefix."""

    make: Callable[[], KVStore]

    @initialize(
        skews=st.tuples(SKEWS, SKEWS, SKEWS),
        step=st.sampled_from([0, 1, SECOND]),
        made=st.integers(0, 3),
        data=st.data(),
    )
    def start(self, skews: tuple[int, int, int], step: int, made: int, data: st.DataObject) -> None:
        self.now, self.step = 1_700_000_000 * SECOND, step
        self.store = type(self).make()
        self.repositories = [Repository(self.store, clock=self.clock(skew)) for skew in skews]
        self.number = 0
        self.collects = self.store.max_expected is None
        for _ in range(made):
            self.commit(0, data.draw(NAMES))
            self.now += data.draw(st.sampled_from([0, 1, LAG, 1000])) * SECOND
        watcher = self.repositories[2]
        known = {name: head.id for name, head in watcher.branches.items()}
        self.followers = [Follower(watcher), Follower(watcher, "u/"), Follower(watcher, "", None, known)]
        self.followers[2].is_new = False

    def clock(self, skew: int) -> Callable[[], int]:
        def tick() -> int:
            self.now += self.step
            return self.now + skew * SECOND

        return tick

    def teardown(self) -> None:
        self.store.close()

    @rule(which=WRITERS, name=NAMES)
    def commit(self, which: int, name: str) -> None:
        self.number += 1
        state = Versioned(self.repositories[which], branch=name)
        state["n"] = self.number
        state.commit(str(self.number))

    @rule(which=WRITERS, name=NAMES, back=st.integers(1, 2))
    def reset(self, which: int, name: str, back: int) -> None:
        with suppress(UnknownRevisionError):
            Versioned(self.repositories[which], branch=name).reset(f"{name}~{back}")

    @rule(which=WRITERS, name=NAMES, at=NAMES)
    def fork(self, which: int, name: str, at: str) -> None:
        with suppress(RefExistsError, UnknownRevisionError):
            self.repositories[which].branches.create(name, at=at)

    @rule(which=WRITERS, name=NAMES)
    def delete(self, which: int, name: str) -> None:
        with suppress(UnknownRevisionError):
            self.repositories[which].branches.delete(name, force=True)

    @rule(which=WRITERS, name=NAMES, to=NAMES)
    def rename(self, which: int, name: str, to: str) -> None:
        with suppress(RefExistsError, UnknownRevisionError):
            self.repositories[which].branches.rename(name, to)

    @rule(seconds=st.sampled_from([1, LAG // 2, LAG * 2, 400]))
    def sleep(self, seconds: int) -> None:
        self.now += seconds * SECOND

    @precondition(lambda self: self.collects)
    @rule(expire=st.sampled_from([timedelta(0), timedelta(days=30)]))
    def gc(self, expire: timedelta) -> None:
        self.follow()  # what gc removes of a deleted branch is all that tells of its deletion
        self.repositories[0].gc(expire=expire)

    @rule(name=NAMES)
    def prune(self, name: str) -> None:
        self.repositories[0].prune(keep_last=1, branches=name)

    @rule(which=st.integers(0, 2), most=st.integers(0, 2))
    def restart(self, which: int, most: int) -> None:
        """A follower that has handled a part of what there is is started again."""
        self.followers[which].follow(most)
        self.followers[which] = self.followers[which].again()

    @rule()
    def follow(self) -> None:
        heads = {name: head.id for name, head in self.repositories[2].branches.items()}
        for follower in self.followers:
            assert follower.follow()
            assert follower.known == {name: id for name, id in heads.items() if name.startswith(follower.prefix)}


def test_in_memory(long_run):
    run_model(Machine, Memory, 1000 if long_run else 25, 40 if long_run else 25)


def test_without_an_index(long_run):
    run_model(Machine, OneCondition, 500 if long_run else 10, 40 if long_run else 25)


def test_on_disk(long_run, tmp_path):
    made = itertools.count()
    run_model(Machine, lambda: Disk(tmp_path / str(next(made))), 100 if long_run else 3, 50 if long_run else 20)


@pytest.mark.parametrize("kind", ["redis", "postgres", "s3"])
def test_on_a_server(kind, request, long_run):
    run_model(
        Machine, request.getfixturevalue(f"{kind}_server").fresh_store, 20 if long_run else 2, 30 if long_run else 10
    )
