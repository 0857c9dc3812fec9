"""A call that fails leaves the state as it was before it, whatever was staged then and whatever the call did."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import example, given, settings, strategies as st

from tests.support.exact import exact
from versioned_state import Memory, Versioned, current_state, task
from versioned_state.state.state import State

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


@dataclass
class Plan:
    """A typed value with a part that changes in place."""

    goal: str
    steps: list[str] = field(default_factory=list)


LONG = [{"role": "user", "content": f"message {number}"} for number in range(60)]

BEGINNING: dict[str, Any] = {
    "count": 1,
    "prefs": {"theme": "dark", "size": [1, 2]},
    "messages": LONG,
    "notes": list(range(500)),
    "plan": Plan("travel", ["pack"]),
}


LISTS = ("messages", "notes", "new")


def grow(state: State, key: str, number: int) -> None:
    value = state.get(key)
    if isinstance(value, list):
        value.append(number)
    elif isinstance(value, dict):
        value[f"n{number}"] = [number]
    elif isinstance(value, Plan):
        value.steps.append(str(number))


def deepen(state: State, key: str, number: int) -> None:
    value = state.get(key)
    if isinstance(value, dict) and isinstance(value.get("size"), list):
        value["size"].append(number)
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        value[number % len(value)]["content"] = f"changed {number}"
    elif isinstance(value, Plan):
        value.goal = f"goal {number}"


def shrink(state: State, key: str, _number: int) -> None:
    value = state.get(key)
    if isinstance(value, list | dict) and value:
        del value[0 if isinstance(value, list) else next(iter(value))]


def extend(state: State, key: str, number: int) -> None:
    if key in LISTS:
        state.sequence(key).append(number)  # which does not load the list


def assign(state: State, key: str, number: int) -> None:
    state[key] = [number] if key in LISTS else {"number": number}


def reassign(state: State, key: str, _number: int) -> None:
    if key in state:
        state[key] = copy.deepcopy(state[key])


def remove(state: State, key: str, _number: int) -> None:
    state.pop(key, None)


CHANGES: list[Callable[[State, str, int], None]] = [grow, deepen, shrink, extend, assign, reassign, remove]

changes = st.lists(
    st.tuples(st.sampled_from(CHANGES), st.sampled_from([*BEGINNING, "new"]), st.integers(0, 9)),
    max_size=5,
)


@task
def fail(steps: Any) -> None:
    for change, key, number in steps:
        change(current_state(), key, number)
    raise ValueError("lost")


@settings(deadline=None)
@example(
    loaded=False,
    before=[(extend, "messages", 5)],
    within=[(grow, "messages", 6)],
    after=[(extend, "notes", 7)],
    again=[],
)
@example(
    loaded=True, before=[(deepen, "messages", 5)], within=[(deepen, "messages", 6)], after=[(grow, "plan", 7)], again=[]
)
@given(loaded=st.booleans(), before=changes, within=changes, after=changes, again=changes)
def test_no_staged_change_is_lost_with_a_call_that_fails(
    loaded: bool,  # noqa: FBT001
    before: Any,
    within: Any,
    after: Any,
    again: Any,
):
    store, model = Memory(), Versioned()
    with Versioned(store) as first:
        for each in (first, model):
            each.update(copy.deepcopy(BEGINNING))
            each.commit()
    with Versioned(store) as state:
        for steps, call in ((before, within), (after, again)):
            values = dict(state) if loaded else {}
            for change, key, number in steps:
                change(state, key, number)
                change(model, key, number)
            values = {key: value for key, value in values.items() if state.get(key) is value} if loaded else {}
            with pytest.raises(ValueError, match="lost"):
                fail(call, state=state)
            assert str(state.status()) == str(model.status())
            assert exact(dict(state)) == exact(dict(model))
            assert all(state[key] is value for key, value in values.items() if isinstance(value, list | dict | Plan))
        state.commit()
        assert not state.status()
        assert exact(dict(Versioned(store))) == exact(dict(model))
