"""Branches as a Hypothesis machine, by two handles, beside gc, prune and purge.

The rules cover their listing, notes, commits together and expiry.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.support.models import run_model
from versioned_state import Disk, Memory, Repository, Versioned
from versioned_state.errors import RefExistsError, UnknownRevisionError, UnmergedBranchError, UnsupportedByStoreError
from versioned_state.storage import KVStore

SECOND = 1_000_000
TTL = 100

NAMES = st.sampled_from(["a", "b", "u/1", "u/2", "u/3"])
VALUES = st.integers(0, 9)


class Branch:
    """What the model knows of one branch."""

    def __init__(self, content: dict[str, int], changed: int, ttl: int) -> None:
        self.content = content
        self.changed = changed
        self.ttl = ttl


class Machine(RuleBasedStateMachine):
    """A repository beside dicts of branches, tags and notes."""

    make: Callable[[], KVStore]

    @initialize()
    def start(self) -> None:
        self.now = 1_700_000_000 * SECOND
        self.store = type(self).make()
        self.repositories = [Repository(self.store, clock=self.tick) for _ in range(2)]
        self.branches: dict[str, Branch] = {}
        self.tags: dict[str, tuple[dict[str, int], int]] = {}
        self.notes: dict[str, dict[str, int]] = {}
        self.collects = self.store.max_expected is None

    def tick(self) -> int:
        self.now += 1
        return self.now

    def teardown(self) -> None:
        self.store.close()

    def commit_on(self, which: int, name: str, key: str, value: int, ttl: int | None) -> Versioned | None:
        state = Versioned(self.repositories[which], branch=name, ttl_seconds=ttl)
        if state.get(key) == value:
            return None
        state[key] = value
        return state

    def committed(self, state: Versioned, ttl: int | None) -> None:
        before = self.branches.get(state.branch)
        kept = ttl if ttl is not None else before.ttl if before else 0
        self.branches[state.branch] = Branch(dict(state), state.head.time, kept)

    @rule(
        which=st.integers(0, 1),
        name=NAMES,
        key=st.sampled_from("xyz"),
        value=VALUES,
        ttl=st.sampled_from([None, None, 0, TTL]),
    )
    def commit(self, which: int, name: str, key: str, value: int, ttl: int | None) -> None:
        state = self.commit_on(which, name, key, value, ttl)
        if state is not None:
            state.commit(meta={"key": key, "value": value})
            self.committed(state, ttl)

    @rule(which=st.integers(0, 1), name=NAMES, value=VALUES, tag=st.sampled_from(["t/1", "t/2"]))
    def commit_with_tag(self, which: int, name: str, value: int, tag: str) -> None:
        state = self.commit_on(which, name, "x", value, None)
        if state is None:
            return
        try:
            commit = state.commit(tag=tag)
        except UnsupportedByStoreError:
            assert not self.collects
            state.discard()
        except RefExistsError:
            assert tag in self.tags
            state.discard()
        else:
            assert tag not in self.tags
            self.tags[tag] = dict(state), commit.time
            self.committed(state, None)

    @rule(names=st.lists(NAMES, min_size=2, max_size=3, unique=True), value=VALUES)
    def commit_together(self, names: list[str], value: int) -> None:
        states = [self.commit_on(0, name, "y", value, None) for name in names]
        changed = [state for state in states if state is not None]
        try:
            Repository.commit_together(changed, "together")
        except UnsupportedByStoreError:
            assert not self.collects
            for state in changed:
                state.discard()
        else:
            for state in changed:
                self.committed(state, None)

    @rule(name=NAMES, source=NAMES)
    def fork(self, name: str, source: str) -> None:
        if source not in self.branches:
            return
        with suppress(RefExistsError):
            self.repositories[1].branches.create(name, source)
            self.branches[name] = Branch(dict(self.branches[source].content), self.now, 0)

    @rule(name=NAMES, force=st.booleans())
    def delete(self, name: str, *, force: bool) -> None:
        try:
            self.repositories[0].branches.delete(name, force=force)
        except UnknownRevisionError:
            assert name not in self.branches
        except UnmergedBranchError:
            assert not force
        else:
            del self.branches[name]

    @rule(tag=st.sampled_from(["t/1", "t/2"]))
    def delete_tag(self, tag: str) -> None:
        with suppress(UnknownRevisionError):
            self.repositories[0].tags.delete(tag)
            del self.tags[tag]

    @rule(which=st.integers(0, 1), name=NAMES, key=st.sampled_from("pq"), value=VALUES)
    def note(self, which: int, name: str, key: str, value: int) -> None:
        if name in self.branches:
            repository = self.repositories[which]
            head = repository.branches[name]
            found = repository.notes.update(head, {key: value})
            assert found == {**self.notes.get(head.id, {}), key: value}
            self.notes[head.id] = found

    @rule(seconds=st.sampled_from([1, TTL // 2, TTL * 2, 400]))
    def sleep(self, seconds: int) -> None:
        self.now += seconds * SECOND

    @rule()
    def expire(self) -> None:
        gone = self.repositories[1].expire()
        assert sorted(gone) == sorted(
            name
            for name, branch in self.branches.items()
            if branch.ttl and branch.changed + branch.ttl * SECOND <= self.now
        )
        for name in gone:
            del self.branches[name]

    @precondition(lambda self: self.collects)
    @rule(expire=st.sampled_from([timedelta(0), timedelta(days=30)]))
    def gc(self, expire: timedelta) -> None:
        self.repositories[0].gc(expire=expire)
        left = set(self.repositories[0].notes)
        assert left <= set(self.notes)
        self.notes = {id: note for id, note in self.notes.items() if id in left}

    @rule(name=NAMES)
    def prune(self, name: str) -> None:
        self.repositories[0].prune(keep_last=1, branches=name)

    @precondition(lambda self: self.collects)
    @rule(name=NAMES)
    def purge_branch(self, name: str) -> None:
        self.repositories[0].purge(branches=name)
        self.branches.pop(name, None)
        left = set(self.repositories[0].notes)
        self.notes = {id: note for id, note in self.notes.items() if id in left}

    @invariant()
    def all_is_listed(self) -> None:
        for repository in self.repositories:
            infos = list(repository.branches.iter_info())
            assert [info.name for info in infos] == sorted(self.branches)
            for info in infos:
                branch = self.branches[info.name]
                assert dict(repository.snapshot(info.head)) == branch.content
                assert info.changed == branch.changed
                assert (info.expires is not None) == bool(branch.ttl)
                assert repository.notes.get(info.head, {}) == self.notes.get(info.head.id, {})
            order = sorted(self.branches, key=lambda name: (self.branches[name].changed, name), reverse=True)
            assert [info.name for info in repository.branches.iter_info(by="changed")] == order
            assert [info.name for info in repository.branches.iter_info(by="changed", reverse=True, prefix="u/")] == [
                name for name in order[::-1] if name.startswith("u/")
            ]
            assert {info.name: dict(repository.snapshot(info.head)) for info in repository.tags.iter_info()} == {
                name: content for name, (content, _) in self.tags.items()
            }

    @invariant()
    def the_store_is_sound(self) -> None:
        assert self.repositories[0].fsck().ok


def test_in_memory(long_run):
    run_model(Machine, Memory, 400 if long_run else 8, 60 if long_run else 25)


def test_on_disk(long_run, tmp_path):
    made = itertools.count()
    run_model(Machine, lambda: Disk(tmp_path / str(next(made))), 100 if long_run else 3, 50 if long_run else 20)


@pytest.mark.parametrize("kind", ["redis", "postgres", "s3"])
def test_on_a_server(kind, request, long_run):
    run_model(
        Machine, request.getfixturevalue(f"{kind}_server").fresh_store, 20 if long_run else 1, 30 if long_run else 8
    )
