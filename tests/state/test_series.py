"""The engine's series beside a state: entries join the next commit, merge without conflict, and are in no diff."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import pytest

from tests.support.faults import attempts
from tests.support.handles import committed
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


@pytest.mark.parametrize("others", [False, True])
@pytest.mark.parametrize("fault", [Fault.BEFORE, Fault.AFTER])
def test_a_commit_after_one_that_failed_extends_the_entries_of_the_head(fault: Fault, *, others: bool):
    """Each staging remembers the series that it made, and the next one begins with it only if the head has it."""
    for attempt in attempts(fault):
        store = Faulty(Memory())
        state = Versioned(store)
        add(state, "a", 1)
        state.commit("first")
        add(state, "b", 2)
        with attempt.on(store):
            state.commit("second")
        if others:
            other = Versioned(store)
            add(other, "x", 8)
            state._handle.pending.add(b"eothers", "y", state._worktree.encode_inline(9, "an entry"))
            other.commit("of another handle")
        state.status()
        add(state, "c", 3)
        state.commit("third")
        add(state, "d", 4)
        state.commit("fourth")
        expected = {"a": 1, "b": 2, "c": 3, "d": 4} | ({"x": 8} if others else {})
        assert entries(state) == expected == entries(Versioned(store))


def test_a_series_that_a_failed_commit_had_and_the_next_one_has_not_is_that_of_the_head():
    store = Faulty(Memory())
    state = Versioned(store)
    other = b"eothers"

    def add_other(name: str) -> None:
        state._handle.pending.add(other, name, state._worktree.encode_inline(name, "an entry"))

    add(state, "a", 1)
    add_other("A")
    state.commit("first")
    add(state, "b", 2)
    add_other("withdrawn")
    store.arm(1, fault=Fault.BEFORE)
    with pytest.raises(StorageError):
        state.commit("second")
    store.arm(None)
    state._handle.pending.discard(other, "withdrawn")
    state.commit("third")
    add(state, "c", 3)
    add_other("B")
    state.commit("fourth")
    assert entries(state) == {"a": 1, "b": 2, "c": 3}
    assert [name for name, _ in state.checkout("HEAD").series(other).iter_entries()] == ["A", "B"]


class Interrupted(dict[bytes, dict[str, bytes]]):
    """New entries of which the first series is staged before an interrupt comes."""

    def items(self) -> Iterator[tuple[bytes, dict[str, bytes]]]:  # type: ignore[override]
        yield from islice(super().items(), 1)
        raise KeyboardInterrupt


def test_an_interrupt_between_two_series_leaves_that_of_the_head():
    state = Versioned()
    add(state, "a", 1)
    state.commit("first")
    with pytest.raises(KeyboardInterrupt):
        state._worktree.stage(pending=Interrupted({KEY: {"lost": state._worktree.encode_inline(0, "an entry")}}))
    add(state, "b", 2)
    state.commit("second")
    assert entries(state) == {"a": 1, "b": 2}


@pytest.mark.parametrize("fault", [Fault.BEFORE, Fault.AFTER])
def test_discard_and_a_failed_commit_lose_no_entry(fault: Fault):
    for attempt in attempts(fault):
        store = Faulty(Memory())
        state = committed(store, x=1)
        add(state, "a", 1)
        state["x"] = 2
        with attempt.on(store):
            state.commit()
        state.discard()
        state.commit()
        assert entries(state) == {"a": 1}
    assert attempt.number > 1


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
