"""``branches.delete_with_inner``: a branch, and those below its name, go together with all that belongs to them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.outage import Outage
from tests.support.stores import OneCondition
from versioned_state import KVStore, Memory, Repository, Versioned
from versioned_state.errors import InvalidArgumentError, StateError
from versioned_state.objects.keys import LOCKS, lock_key
from versioned_state.storage import Counting, Fault, Wrapper

BRANCHES = ["a", "a/b", "a/b/c", "a0", "ab", "b"]
INNER = ["a", "a/b", "a/b/c"]


def made(store: KVStore, branches: list[str] = BRANCHES) -> Repository:
    repository = Repository(store)
    for name in branches:
        state = Versioned(repository, branch=name)
        state["name"] = name
        state.commit(name)
        repository.records[name] = {"of": name}
        repository.records[f"{name}/%/record"] = {"of": name}
    return repository


def left(repository: Repository) -> tuple[list[str], list[str]]:
    return sorted(repository.branches), sorted(repository.records)


EXPECTED = ["a0", "ab", "b"], sorted(name + end for name in ("a0", "ab", "b") for end in ("", "/%/record"))


@pytest.mark.parametrize("kind", [Memory, OneCondition])
def test_they_go_with_their_records_and_locks(kind: type[Memory]):
    repository = made(kind())
    store = repository.database.store
    for name in ("a/b", "b"):
        store.set(lock_key(name), b"a lock")
    assert sorted(repository.branches.delete_with_inner("a")) == INNER
    assert left(repository) == EXPECTED
    assert list(store.keys(LOCKS)) == [lock_key("b")]
    store.delete(lock_key("b"))
    assert repository.branches.delete_with_inner("a") == []
    assert repository.fsck().ok
    assert repository.branches.create("a/b", "a/b@{1}").message == "a/b", "the reflog keeps it"


def test_records_without_a_branch_go_too():
    repository = made(Memory())
    repository.branches.delete_with_inner("a")
    repository.records.update({"a": {}, "a/later": {}})
    assert repository.branches.delete_with_inner("a") == []
    assert left(repository) == EXPECTED
    store = Counting(repository.database.store)
    assert Repository(store).branches.delete_with_inner("a") == []
    assert store.counts.applies == 0, "there was nothing to delete"


def test_the_requests_are_the_same_for_any_number():
    def requests(count: int) -> tuple[int, int]:
        store = Counting(Memory())
        repository = made(store, ["a", *(f"a/{n}" for n in range(count))])
        store.reset()
        assert len(repository.branches.delete_with_inner("a")) == count + 1
        return store.counts.round_trips, store.counts.applies

    assert requests(0) == requests(1) == requests(50) == (4, 1)


@pytest.mark.parametrize("calls", [1, 2])
@pytest.mark.parametrize("fault", list(Fault))
def test_a_failure_at_any_call_leaves_all_or_none_and_the_same_call_again_ends_it(fault: Fault, calls: int):
    for at in range(1, 15):
        store = Memory()
        before = left(made(store))
        faulty = Outage(store, calls=calls)
        branches = Repository(faulty).branches
        faulty.arm(at, fault=fault)
        try:
            assert sorted(branches.delete_with_inner("a")) == INNER
        except StateError:
            assert left(Repository(store)) in (before, EXPECTED)
        else:
            assert left(Repository(store)) == EXPECTED
        fired = faulty.fired
        faulty.arm(None)
        branches.delete_with_inner("a")
        assert left(Repository(store)) == EXPECTED
        if not fired:
            return
    raise AssertionError("the call never went through without a fault")


def test_a_commit_that_comes_in_between_is_deleted_too():
    class Between(Wrapper):
        due = False

        def apply(self, *args: Any, **options: Any) -> bool:
            if self.due:
                self.due = False
                state["late"] = True
                state.commit("late")
            return super().apply(*args, **options)

    store = Memory()
    state = Versioned(made(store), branch="a/b")
    between = Between(store)
    repository = Repository(between)
    between.due = True
    assert sorted(repository.branches.delete_with_inner("a")) == INNER
    assert left(repository) == EXPECTED
    assert repository.branches.create("back", "a/b@{1}").message == "late"


@pytest.mark.parametrize("name", [None, "", 3])
def test_a_name_is_a_text(name: Any):
    with pytest.raises(InvalidArgumentError):
        made(Memory()).branches.delete_with_inner(name)
