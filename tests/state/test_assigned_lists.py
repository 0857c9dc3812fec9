"""A list assigned anew costs what is new in it: no object that was there is encoded again, wherever it is now."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from tests.support.counted_calls import calls_of
from tests.support.exact import exact
from tests.support.long_runs import first
from versioned_state import Memory, Versioned
from versioned_state.storage import Counting

SIZES = (800, 3_000)
ROUNDS = 2


@dataclass
class Message:
    """An element with fields."""

    n: int
    text: str


MAKE: dict[str, Callable[[int], Any]] = {
    "dict": lambda n: {"n": n, "text": "some words " * 8},
    "class": lambda n: Message(n, "some words " * 8),
    "text": lambda n: f"{n} some words " * 6,
}

ANEW: dict[str, Callable[[list[Any], Callable[[int], Any]], list[Any]]] = {
    "the same": lambda old, make: list(old),
    "appended": lambda old, make: [*old, make(-1)],
    "added": lambda old, make: old + [make(-1)],  # noqa: RUF005 - what callers write
    "trimmed": lambda old, make: old[3:],
    "a window": lambda old, make: [*old[2:], make(-1), make(-2)],
    "at the front": lambda old, make: [make(-1), *old],
    "without some": lambda old, make: [*old[1:500], *old[510:], make(-1)],
    "one replaced, and a window": lambda old, make: [*old[2:700], make(-3), *old[701:], make(-1)],
}


CASES = [(name, "dict", "at a key") for name in ANEW] + [
    ("appended", "class", "at a key"),
    ("a window", "class", "at a key"),
    ("a window", "text", "at a key"),
    ("a window", "dict", "in a dict"),
]


@pytest.mark.parametrize(("name", "kind", "place"), CASES)
def test_a_list_assigned_anew_costs_what_is_new(name, kind, place):
    make = MAKE[kind]
    costs = {}
    for size in SIZES:
        store = Counting(Memory())
        Versioned(store)["list"] = []
        state = Versioned(store)
        values = [make(n) for n in range(size)]
        state["list"] = values if place == "at a key" else {"other": 1, "messages": values}
        state.commit()
        state = Versioned(store)
        for round_ in range(ROUNDS):
            if place == "at a key":
                state["list"] = ANEW[name](state["list"], make)
            else:
                state["list"] = {**state["list"], "messages": ANEW[name](state["list"]["messages"], make)}
            store.reset()
            costs[size, round_] = calls_of(state.commit), store.counts.bytes_written
        assert exact(state.checkout("HEAD")["list"]) == exact(state["list"])
    assert all(written <= 6_000 for _, written in costs.values()), costs
    # An element that is encoded again takes some eight steps, an instance some seventy; a look at where it is takes
    # one.
    for round_ in range(ROUNDS):
        assert costs[SIZES[1], round_][0] <= costs[SIZES[0], round_][0] + 2.2 * (SIZES[1] - SIZES[0]) + 1_500, costs


def test_changes_in_place_of_elements_that_move_are_seen():
    state = Versioned()
    values: list[dict[str, Any]] = [{"n": n} for n in range(1_000)]
    state["list"] = values
    state.commit()
    values[64]["n"] = "first of a group"
    values[500]["n"] = "in the middle"
    state["list"] = [*values[10:], {"n": "new"}]
    changed = {str(change) for change in state.status()}
    assert "~ list[54].n = 64 -> 'first of a group'" in changed
    assert "~ list[490].n = 500 -> 'in the middle'" in changed
    state.commit()
    assert state.checkout("HEAD")["list"] == state["list"]


@pytest.mark.parametrize("seed", first(3, range(6)))
def test_whatever_moves_the_root_is_that_of_the_list(seed):
    rng = random.Random(seed)
    state = Versioned()
    make = rng.choice(list(MAKE.values()))
    state["list"] = [make(n) for n in range(rng.choice([300, 900]))]
    state.commit()
    for round_ in range(8):
        values = state["list"]
        for _ in range(rng.randrange(1, 5)):
            at, end = sorted(rng.randrange(len(values) + 1) for _ in range(2))
            match rng.randrange(6):
                case 0:
                    values = values[at : at + 700] if rng.random() < 0.3 else values[rng.randrange(5) :]
                case 1:
                    values = [*values, *(make(rng.randrange(10**6)) for _ in range(rng.randrange(4)))]
                case 2:
                    values = [*values[end:], *values[:end]]
                case 3:
                    values = [*values[:at], *values[at + 3 :]]
                case 4:
                    values = [*values[:at], *values[at : at + 2], *values[at:]]  # the same objects twice
                case _ if values and not isinstance(values[0], str):
                    part = values[rng.randrange(len(values))]
                    if isinstance(part, dict):
                        part["round"] = round_
                    else:
                        part.text = f"round {round_}"
        if rng.random() < 0.5:
            state["list"] = values
        else:
            state["list"][:] = values
        commit = state.commit()
        fresh = Versioned()
        fresh["list"] = state.checkout(commit)["list"]
        assert exact(fresh["list"]) == exact(state["list"])
        assert fresh.commit().root == state.head.root
