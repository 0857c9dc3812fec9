"""A conflict is reported without asking the store for values, and a policy decides at the conflict's deepest path."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from tests.support.outage import Outage
from versioned_state import Memory, Repository, Versioned
from versioned_state.errors import MergeConflictError
from versioned_state.storage import Counting, InjectedFaultError


def diverged(size: int) -> Memory:
    """A store whose two branches appended to a list of this size and changed a dict, in different keys and in one."""
    store = Memory()
    state = Versioned(store)
    state["log"] = [f"line {n}" for n in range(size)]
    state["plan"] = {"goal": "fly", "steps": 1, "when": "now"}
    state.commit("begin")
    side = state.fork("side")
    state["log"].append("ours")
    state["plan"].update(goal="swim", steps=2)
    state.commit("ours")
    side["log"].append("theirs")
    side["plan"].update(goal="walk", when="later")
    side.commit("theirs")
    return store


def conflict_over(store: Any) -> MergeConflictError:
    state = Versioned(store)
    with pytest.raises(MergeConflictError) as caught:
        state.merge("side")
    return caught.value


def test_a_conflict_is_printed_with_its_path_and_values():
    assert "plan.goal: base 'fly', ours 'swim', theirs 'walk'" in map(str, conflict_over(diverged(3)).conflicts)
    with Versioned(Memory()) as state, state.fork("side") as side:
        state["a\x1b"] = [1] * 1000
        state.commit()
        side["a\x1b"] = None
        side.commit()
        (conflict,) = conflict_over(state.repository.store).conflicts
        assert str(conflict).startswith('["a\\u001b"]: base <missing>, ours [1, 1,')
        assert str(conflict).endswith(", theirs None")
        assert len(str(conflict)) < 250


def test_a_conflict_is_reported_at_the_cost_of_finding_it():
    small, large = Counting(diverged(2_000)), Counting(diverged(40_000))
    for store in (small, large):
        error = conflict_over(store)
        assert [str(conflict.path) for conflict in error.conflicts] == ["log", "plan.goal"]
        assert error.conflicts[0].both_appended
        assert "'log': 'append'" in error.hint
    assert large.counts.objects_read < small.counts.objects_read + 40
    assert conflict_over(Counting(diverged(2_000))).conflicts[0].ours[-1] == "ours"


def test_a_store_that_fails_after_the_merge_does_not_replace_the_conflict():
    store = diverged(2_000)
    counting = Counting(store)
    conflict_over(counting)
    reads = counting.counts.gets + counting.counts.get_manys
    faulty = Outage(store, calls=sys.maxsize)
    faulty.arm(reads + 1)
    error = conflict_over(faulty)
    assert "log" in str(error)
    with pytest.raises(InjectedFaultError):
        _ = error.conflicts[0].ours


@pytest.mark.parametrize(("side", "goal", "last"), [("ours", "swim", "ours"), ("theirs", "walk", "theirs")])
def test_a_side_taken_everywhere_keeps_what_does_not_conflict(side, goal, last):
    for policies in ({"**": side}, {"plan": side, "log": side}, {"plan.*": side, "log": side}):
        state = Versioned(diverged(100))
        state.merge("side", policies=policies)
        assert dict(state["plan"]) == {"goal": goal, "steps": 2, "when": "later"}
        assert state["log"][-2:] == ["line 99", last]
        assert Repository(state.repository.store).fsck().ok
