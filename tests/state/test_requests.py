"""A stateless server's request: open a handle on a branch, read the end of a list, append, commit.

What it asks of the store.
"""

from __future__ import annotations

from functools import lru_cache

import pytest

from versioned_state import KVStore, Memory, Repository, Versioned
from versioned_state.errors import MissingObjectError, StorageError
from versioned_state.storage import Counting, Faulty
from versioned_state.storage.wrappers.counting import Counts

SIZES = (1_000, 20_000)
TEXT = "a message of a session, which is some words long "


def messages(first: int, count: int) -> list[dict[str, object]]:
    return [{"role": "user", "n": n, "content": TEXT * (n % 20)} for n in range(first, first + count)]


@lru_cache(maxsize=1)
def stores() -> dict[int, KVStore]:
    """By length, a store with a list of that length."""
    found: dict[int, KVStore] = {}
    for size in SIZES:
        found[size] = Memory()
        with Versioned(found[size]) as state:
            state["messages"] = messages(0, size)
            state.commit()
    return found


def request(repository: Repository, branch: str = "main") -> None:
    with Versioned(repository, branch=branch) as state:
        list_ = state.sequence("messages")
        last = list_[-20:]
        assert [each["n"] for each in last] == list(range(len(list_) - 20, len(list_)))
        list_.extend(messages(len(list_), 2))
        state.commit()


def of_branch(size: int, name: str) -> Counting:
    store = Counting(stores()[size])
    Repository(store).branches.create(name, "main")
    return store


@pytest.mark.parametrize("size", SIZES)
def test_the_next_request_of_a_session_reads_the_branch_and_writes_the_commit(size):
    store = of_branch(size, "again")
    repository = Repository(store)
    request(repository, "again")
    for _ in range(5):
        store.reset()
        request(repository, "again")
        counts = store.counts
        assert (counts.round_trips, counts.applies, counts.objects_read) == (2, 1, 0), counts
        assert counts.objects_written <= 8


def test_the_first_request_of_a_session_costs_a_call_for_each_level_more_of_a_longer_one():
    found: dict[int, Counts] = {}
    for size in SIZES:
        store = of_branch(size, "first")
        repository = Repository(store)
        store.reset()
        request(repository, "first")
        found[size] = store.counts
    small, large = found[SIZES[0]], found[SIZES[1]]
    assert small.round_trips <= large.round_trips <= small.round_trips + 4, found
    assert large.round_trips <= 10
    assert large.objects_read <= small.objects_read + 8


def test_handles_on_other_branches_find_what_the_branches_have_in_common():
    store = of_branch(SIZES[0], "one")
    repository = Repository(store)
    repository.branches.create("other", "main")
    request(repository, "one")
    store.reset()
    request(repository, "other")
    assert store.counts.round_trips == 2
    with Versioned(repository, branch="one") as one, Versioned(repository, branch="other") as other:
        mine, theirs = one.sequence("messages")[-3], other.sequence("messages")[-3]
        assert mine == theirs
        assert mine is not theirs
        mine["content"] = "changed"
        assert other.sequence("messages")[-3]["content"] != "changed"
        assert not other.status()
        one.discard()


def test_what_no_commit_has_is_not_shared():
    store = Faulty(Memory())
    repository = Repository(store)
    with Versioned(repository) as state:
        state["messages"] = messages(0, 100)
        state.commit()
        state.sequence("messages")[-20:]
        shared = set(repository.database.nodes)
        state.sequence("messages").extend(messages(100, 50))
        store.arm(1)
        with pytest.raises(StorageError):
            state.commit()
        assert set(repository.database.nodes) == shared
        state.commit()
        assert set(repository.database.nodes) > shared


def test_what_was_purged_is_not_answered_from_memory():
    store = Memory()
    here, elsewhere = Repository(store), Repository(store)
    with Versioned(here) as state:
        state["messages"] = messages(0, 300)
        old = state.commit()
    request(here)
    assert here.snapshot(old)["messages"] == messages(0, 300)
    elsewhere.purge("messages")
    with Versioned(here) as state:
        assert "messages" not in state
        state["other"] = 1
        state.commit()  # from here on it is known here that something was deleted
    with Versioned(here) as state:
        assert dict(state) == {"other": 1}
    with pytest.raises(MissingObjectError):
        here.snapshot(old).sequence("messages")[-20:]
