"""What a store across a network is asked: calls are round trips, and they do not grow with the state."""

from __future__ import annotations

import itertools

import pytest

from benchmarks import data
from tests.support.handles import committed
from versioned_state import Memory, Repository, Versioned
from versioned_state.repository.history.graph import jump_height
from versioned_state.storage import Counting


@pytest.fixture(scope="module")
def store():
    """A state with 1,000 messages of 1 KB and some rounds behind it."""
    store = Memory()
    state = committed(store, messages=data.sample().messages(992))
    for start in range(992, 1000, 2):
        state["messages"] += data.sample().messages(2, start=start)
        state.commit()
    return store


def test_a_round_is_one_round_trip(store):
    counting = Counting(store)
    state = Versioned(counting)
    state["messages"].append("a first one reads what it touches")
    state.commit()
    counting.reset()
    for n in range(20):
        state["messages"] += [{"role": "user", "content": f"{n}" * 500}, {"role": "assistant", "content": "x" * 500}]
        state.commit()
        counts = counting.counts
        assert counts.applies == n + 1
        # An old commit, whose jump a new one takes over, is read at the most, and then kept.
        assert counts.round_trips <= n + 3
        assert counts.objects_read <= 2


def test_the_first_round_after_loading_reads_the_end_of_the_list_and_a_commit(store):
    counting = Counting(store)
    state = Versioned(counting)
    state["messages"].append("new")
    counting.reset()
    state.commit()
    assert counting.counts.applies == 1
    assert counting.counts.round_trips <= 3


def test_a_cold_checkout_reads_the_ref_the_commit_and_one_batch_a_level(store):
    counting = Counting(store)
    repository = Repository(counting)
    counting.reset()
    assert len(repository.snapshot("main")["messages"]) >= 1000
    assert counting.counts.round_trips <= 6


def test_a_full_id_is_read_at_once(store):
    commit = Repository(store).commit("main")
    counting = Counting(store)
    repository = Repository(counting)
    counting.reset()
    assert repository.commit(commit.id) == commit
    assert counting.counts.round_trips == 1


def test_a_diff_reads_both_sides_of_a_level_at_once():
    store = Counting(Memory())
    state = Versioned(store)
    state.update({f"key_{n:05}": n for n in range(5000)})
    first = state.commit()
    state["key_02500"] = 0
    second = state.commit()
    repository = Repository(store)
    repository.database.forget()
    store.reset()
    assert [str(change.path) for change in repository.diff(first, second)] == ["key_02500"]
    assert store.counts.get_manys == store.counts.round_trips <= 5
    assert store.counts.objects_read <= 10


def test_many_changes_are_looked_up_and_merged_a_level_at_a_time():
    store = Counting(Memory())
    state = Versioned(store)
    state.update({f"key_{n:05}": n for n in range(5000)})
    base = state.commit()
    state.fork("theirs").close()
    for branch, remainder in (("theirs", 3), ("main", 7)):
        state.switch(branch)
        for n in range(remainder, 5000, 250):
            state[f"key_{n:05}"] = -n
        state.commit()
    repository = Repository(store)
    store.reset()
    assert len(repository.diff(base, "theirs")) == 20
    assert store.counts.round_trips <= 10
    with Versioned(repository) as merged:
        store.reset()
        merged.merge("theirs")
        assert store.counts.round_trips <= 22
        assert [merged["key_00003"], merged["key_00007"]] == [-3, -7]


def test_heights_of_jumps():
    """As the definition has it: two jumps of one length are joined by the next commit's into one."""
    heights = [0]
    for height in range(1, 2000):
        parent = height - 1
        middle = heights[parent]
        joined = middle and parent - middle == middle - heights[middle]
        heights.append(heights[middle] if joined else parent)
    heights[1] = 0
    assert [jump_height(height) for height in itertools.islice(itertools.count(), 2000)] == heights


def test_a_diff_of_edits_far_apart_reads_nothing_between_them():
    store = Counting(Memory())
    state = committed(store, messages=data.sample().messages(10_000))
    first = state.head
    objects = sum(1 for _ in store.keys("o/"))
    state["messages"][5]["new"] = 1
    state["messages"].append("last")
    second = state.commit()
    repository = Repository(store)
    store.reset()
    assert [str(change.path) for change in repository.diff(first, second)] == ["messages[5].new", "messages[10000]"]
    assert store.counts.objects_read <= 30 < objects / 20
