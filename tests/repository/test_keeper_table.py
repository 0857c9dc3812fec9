"""The table of keepers is relied on only while it holds: an object that comes back may refer to others than before."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

from tests.support.garbage import assert_whole, contents
from tests.support.histories import Clock
from tests.support.worlds import is_fast
from versioned_state import Cache, KVStore, Memory, Repository, Versioned
from versioned_state.errors import StateError, StorageError, StorageFullError
from versioned_state.objects.keys import GC, GC_MARKS, KEEPER_PAGES, KEEPERS
from versioned_state.storage.wrapper import Wrapper
from versioned_state.storage.wrappers.faulty import InjectedCrash

NOW = timedelta(0)


class BeforePages(Wrapper):
    """A store that acts when a gc is about to write its marks, or its table after all garbage was deleted."""

    def __init__(self, store: KVStore, act: Callable[[], None], *, pages: str = KEEPER_PAGES) -> None:
        super().__init__(store)
        self._act = act
        self._pages = pages

    def apply(
        self,
        expected: Mapping[str, bytes | None],
        puts: Mapping[str, bytes],
        deletes: Collection[str] = (),
        *,
        objects: Mapping[str, bytes] | None = None,
    ) -> bool:
        if any(key.startswith(self._pages) for key in puts):
            self._act()
        return super().apply(expected, puts, deletes, objects=objects)


def dies() -> None:
    raise StorageError("the connection is gone")


def has_no_room() -> None:
    raise StorageFullError("no room", limit=1)


def pruned(store: KVStore, *, reset: bool = True) -> tuple[Repository, list[Any]]:
    """A branch whose older commits the last gc deleted, its commits, and a repository whose cache still has them."""
    repository = Repository(store, clock=Clock())
    other = Versioned(repository, branch="other")
    other["x"] = 1
    other.commit()
    bob = Versioned(repository, branch="bob")
    made = []
    for n in range(5):
        bob["n"] = [f"{n} {i}" for i in range(100)]
        made.append(bob.commit())
    cached = Repository(Cache(store), clock=Clock(1_750_000_000_000_000))
    for commit in cached.log("bob"):
        cached.database.objects.read(commit.address)
        cached.snapshot(commit).copy()
    repository.prune(keep_last=2, branches="bob", expire=NOW)
    repository.gc(expire=NOW)
    assert store.get(KEEPERS)
    if reset:
        bob.reset("other")
    return cached, made


@pytest.mark.parametrize("fails", [dies, has_no_room])
def test_commits_that_come_back_with_more_history_keep_it(fails):
    """The table of the first gc has them without their parents, which were cut off."""
    store = Memory()
    cached, made = pruned(store)
    with suppress(StateError):
        Repository(BeforePages(store, fails), clock=Clock(1_760_000_000_000_000)).gc(expire=NOW)
    cached.branches.create("alice", made[-1])
    cached.branches.create("carol", made[1])
    assert_whole(store)
    before = {name: each for name, each in contents(store).items() if name != "carol"}
    assert len(before["alice"]) == 5
    assert not is_fast(Repository(store, clock=Clock(1_770_000_000_000_000)).purge(branches="carol"))
    assert_whole(store)
    assert contents(store) == before


def test_a_gc_that_was_delayed_does_not_write_over_the_table_of_another_one(monkeypatch):
    """Both go on with the marks of one slice."""
    monkeypatch.setattr("versioned_state.repository.history.reach.BATCH", 2)
    store = Memory()
    repository = Repository(store, clock=Clock())
    for name in ("alice", "bob"):
        state = Versioned(repository, branch=name)
        state["n"] = [name, *range(300)]
        state.commit()
    assert not repository.gc(time_limit=1e-9).finished
    tables: list[dict[str, bytes]] = []

    def others_take_its_place() -> None:
        if not tables:
            assert Repository(store, clock=Clock(1_770_000_000_000_000)).gc(time_limit=1000, force=True).finished
            tables.append(dict(store.items(KEEPERS)))

    with pytest.raises(StateError, match="took this one's place"):
        Repository(BeforePages(store, others_take_its_place), clock=Clock(1_760_000_000_000_000)).gc(time_limit=1000)
    assert tables[0].items() <= dict(store.items(KEEPERS)).items()
    assert is_fast(Repository(store, clock=Clock(1_780_000_000_000_000)).purge(branches="alice"))
    assert_whole(store)


def test_no_table_outlives_the_record_of_gc():
    """Refs that moved while it was lost are known to nobody, whatever number later gcs reach."""
    store = Memory()
    repository = Repository(store, clock=Clock())
    for name in ("alice", "bob"):
        state = Versioned(repository, branch=name)
        state["n"] = [name] * 300
        state.commit()
    repository.gc()
    store.delete(GC)
    bob = Versioned(Repository(store, clock=Clock(1_750_000_000_000_000)), branch="bob")
    bob["n"] = ["alice"] * 300
    bob.commit()
    for n in range(4):
        with suppress(StorageError):
            Repository(BeforePages(store, dies), clock=Clock(1_760_000_000_000_000 + n * 10**12)).gc()
    assert not is_fast(Repository(store, clock=Clock(1_790_000_000_000_000)).purge(branches="alice"))
    assert_whole(store)


def keys_of_tables(keys: Iterable[str]) -> set[str]:
    return {key.rpartition("/")[0] for key in keys}


def test_only_one_table_is_kept():
    store = Memory()
    cached, _ = pruned(store)
    with suppress(StateError):
        Repository(BeforePages(store, has_no_room), clock=Clock(1_760_000_000_000_000)).gc()
    assert len(keys_of_tables(store.keys(KEEPER_PAGES))) <= 1
    for n in range(3):
        cached.branches.create(f"b{n}", "other")
        Repository(store, clock=Clock(1_770_000_000_000_000 + n * 10**12)).gc()
        assert len(keys_of_tables(store.keys(KEEPER_PAGES))) == 1


def test_the_marks_of_slices_do_not_outlive_objects_that_a_whole_gc_deleted(monkeypatch):
    """They say that the references of a commit are marked, which then came back with more of its history."""
    monkeypatch.setattr("versioned_state.repository.history.reach.BATCH", 2)
    store = Memory()
    repository = Repository(store, clock=Clock())
    cached, made = pruned(store, reset=False)
    garbage = Versioned(repository, branch="garbage")
    garbage["n"] = list(range(1000))
    garbage.commit()
    repository.branches.delete("garbage", force=True)
    count = sum(1 for _ in store.keys("o/"))
    while sum(1 for _ in store.keys("o/")) == count:  # until everything is marked, and some garbage is gone
        assert not repository.gc(expire=NOW, time_limit=1e-9).finished
    Versioned(repository, branch="bob").reset("other")
    with suppress(StorageError):
        Repository(BeforePages(store, dies), clock=Clock(1_760_000_000_000_000)).gc(expire=NOW)
    Versioned(cached, branch="bob").reset(made[-1])
    assert_whole(store)
    before_it = contents(store)
    assert len(before_it["bob"]) == 5
    while not Repository(store, clock=Clock(1_770_000_000_000_000)).gc(time_limit=1000).finished:
        pass
    assert_whole(store)
    assert contents(store) == before_it


def test_a_slice_that_was_delayed_does_not_mix_its_marks_with_those_of_another_one(monkeypatch):
    monkeypatch.setattr("versioned_state.repository.history.reach.BATCH", 2)
    store = Memory()
    pruned(store)
    marks: list[dict[str, bytes]] = []

    def others_take_its_place() -> None:
        if not marks:
            assert not Repository(store, clock=Clock(1_770_000_000_000_000)).gc(time_limit=1e-9, force=True).finished
            marks.append(dict(store.items(GC_MARKS)))

    late = BeforePages(store, others_take_its_place, pages=GC_MARKS)
    with pytest.raises(StateError, match="took this one's place"):
        Repository(late, clock=Clock(1_760_000_000_000_000)).gc(time_limit=1e-9)
    assert dict(store.items(GC_MARKS)) == marks[0]


class _FailsAtDeletion(Wrapper):
    """Fails before the first batch that deletes an object, as a gc killed after removing records of deleted refs."""

    def apply(self, expected: Any, puts: Any, deletes: Any = (), *, objects: Any = None) -> bool:
        if any(key.startswith("o/") for key in deletes):
            raise InjectedCrash
        return super().apply(expected, puts, deletes, objects=objects)


@pytest.mark.parametrize("how", ["gc", "a slice of gc", "purge"])
def test_a_branch_of_the_group_that_went_without_a_new_table(how, monkeypatch):
    """The old table gives a fork's commit to the branch that is gone, and the one below to the group being erased."""
    monkeypatch.setattr("versioned_state.repository.history.reach.BATCH", 2)
    store = Memory()
    repository = Repository(store, clock=Clock())
    with Versioned(repository, branch="u/s") as state:
        state["x"] = list(range(500))
        state.commit()
        with state.fork("u/r") as other:
            other["y"] = 1
            head = other.commit()
    repository.branches.delete("u/r", force=True)
    repository.gc()
    repository.branches.create("w", head)
    dies = Repository(_FailsAtDeletion(store), clock=Clock(1_800_000_000_000_000))
    with suppress(InjectedCrash):
        if how == "purge":
            dies.purge(branches="u/r", thorough=True)
        else:
            dies.gc(expire=NOW, time_limit=1e-9 if how == "a slice of gc" else None)
    assert "u/r" not in repository.branches.deleted()
    report = Repository(store, clock=Clock(1_900_000_000_000_000)).purge(branches="u/*")
    assert_whole(store)
    assert "u/s" in report.branches
    assert list(Repository(store).branches) == ["w"]
