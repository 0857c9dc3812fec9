"""The engine's series beside a state: entries that the next commit takes along, merged without conflict, hidden from diffs."""

from __future__ import annotations

import itertools
from contextlib import suppress

import pytest

from versioned_state import Memory, Repository, Versioned
from versioned_state.errors import MergeConflictError, StorageError
from versioned_state.storage import Counting, Fault, Faulty
from versioned_state.values.cells import ELEMENT_INLINE

KEY = b"eentries"


def add(state: Versioned, name: str, value: object) -> None:
    state._handle.pending.add(KEY, name, state._worktree.encode_inline(value, "an entry"))


def entries(state: Versioned) -> dict[str, object]:
    series = state.checkout("HEAD").series(KEY)
    return {name: series.decode(cell) for name, cell in series.iter_entries()}


def test_a_commit_takes_the_pending_entries_and_no_status_shows_them():
    state = Versioned()
    add(state, "a", {"n": 1})
    assert not state.status()
    commit = state.commit("round 1")
    assert entries(state) == {"a": {"n": 1}}
    assert state.commit() == commit, "they are committed once"
    assert not state.diff(commit.parents[0], commit)
    assert list(state) == []


def test_a_large_entry_comes_back_and_lies_in_a_tree_of_its_own():
    state = Versioned()
    text = "".join(chr(97 + i % 26) for i in range(3 * ELEMENT_INLINE))
    add(state, "a", [text, {"deep": [1, 2]}])
    state.commit()
    assert entries(state) == {"a": [text, {"deep": [1, 2]}]}


@pytest.mark.parametrize("fault", [Fault.BEFORE, Fault.AFTER])
def test_discard_and_a_failed_commit_lose_no_entry(fault: Fault):
    for k in itertools.count(1):
        store = Faulty(Memory())
        state = Versioned(store)
        state["x"] = 1
        state.commit()
        add(state, "a", 1)
        state["x"] = 2
        store.arm(k, fault=fault)
        with suppress(StorageError):
            state.commit()
        fired = store.fired
        store.arm(None)
        state.discard()
        state.commit()
        assert entries(state) == {"a": 1}
        if not fired:
            break
    assert k > 1


@pytest.mark.parametrize("policies", [{}, {"**": "theirs"}, {"**": "ours"}])
def test_entries_of_both_sides_are_merged_in_order_whatever_the_policies(policies):
    repository = Repository(Memory())
    one, two = Versioned(repository), Versioned(repository)
    for at, state in enumerate([one, two, one, two, two]):
        add(state, f"{at}", at)
        state[f"k{at}"] = at
        state.commit(policies=policies)
    one.refresh(policies=policies)
    assert list(entries(one).items()) == [(str(at), at) for at in range(5)]
    assert entries(two) == entries(one)


def test_a_conflict_of_the_user_keeps_the_entries_pending():
    repository = Repository(Memory())
    one, two = Versioned(repository), Versioned(repository)
    one["k"], two["k"] = 1, 2
    add(one, "a", 1)
    add(two, "b", 2)
    one.commit()
    with pytest.raises(MergeConflictError):
        two.commit()
    two.commit(policies={"k": "ours"})
    assert entries(two) == {"a": 1, "b": 2}


def test_a_merge_of_branches_has_the_entries_of_both_and_live_values_stay():
    state = Versioned()
    state["log"] = log = ["one"]
    add(state, "a", 1)
    state.commit()
    fork = state.fork("what-if")
    add(fork, "c", 3)
    fork["log"].append("two")
    fork.commit()
    add(state, "b", 2)
    state.commit()
    state.merge("what-if")
    assert entries(state) == {"a": 1, "b": 2, "c": 3}
    assert state["log"] is log == ["one", "two"]


def test_entries_of_one_name_on_both_sides_merge_the_same_way_round():
    results = []
    for order in ((1, 2), (2, 1)):
        repository = Repository(Memory())
        one, two = Versioned(repository), Versioned(repository)
        add(one, "a", order[0])
        add(two, "a", order[1])
        one.commit()
        two.commit()
        results.append(entries(two))
    assert results[0] == results[1]


def test_backwards_and_since():
    state = Versioned()
    for at in range(100):
        add(state, f"{at:03}", at)
    state.commit()
    series = state.checkout("HEAD").series(KEY)
    assert len(series) == 100
    assert [name for name, _ in series.iter_entries("097")] == ["097", "098", "099"]
    assert [name for name, _ in series.iter_entries("097", reverse=True)] == ["099", "098", "097"]
    assert [series.decode(cell) for _, cell in series.iter_entries(reverse=True)] == list(range(99, -1, -1))
    assert series.find("050") is not None
    assert series.find("x") is None


def test_an_entry_costs_a_path_whatever_the_length():
    costs = {}
    for count in (100, 20_000):
        store = Counting(Memory())
        state = Versioned(store)
        for at in range(count):
            add(state, f"{at:08}", ["event", at, "x" * 150])
        state.commit()
        fresh = Versioned(store)
        store.reset()
        add(fresh, "99999999", 1)
        fresh.commit()
        costs[count] = store.counts
    assert costs[20_000].objects_read - costs[100].objects_read <= 4
    assert costs[20_000].objects_written - costs[100].objects_written <= 4
