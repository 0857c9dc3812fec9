"""``iter_keys`` lists a range of keys in either direction, at the cost of what it lists."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from tests.support.handles import cold
from versioned_state import Live, Memory, Snapshot, State, Versioned
from versioned_state.errors import InvalidArgumentError, LimitExceededError
from versioned_state.storage import Counting

KEYS = ["", "a", "a/1", "a/10", "a/2", "a\0", "b", "é", "\ud800", "\U0001f600"]


def filled(state: State) -> State:
    state.update(dict.fromkeys(KEYS, 1))
    state.namespace("n")["a/3"] = 1
    return state


def staged() -> Versioned:
    """Some of the keys are in the head, some were removed and some added since."""
    state = Versioned()
    state.update(dict.fromkeys([*KEYS[::2], "a/1", "a/1x", "c"], 1))
    state.commit()
    del state["a/1x"], state["c"], state["a/1"]
    filled(state)
    return state


def snapshot() -> Snapshot:
    state = filled(Versioned())
    assert isinstance(state, Versioned)
    return state.checkout(state.commit())


MAPPINGS: dict[str, Callable[[], Any]] = {
    "versioned": lambda: filled(Versioned()),
    "staged": staged,
    "namespace": lambda: filled(Versioned().namespace("outer")),
    "live": lambda: filled(Live()),
    "snapshot": snapshot,
}


@pytest.mark.parametrize("mapping", MAPPINGS)
def test_a_range_is_that_of_the_sorted_keys(mapping):
    found = MAPPINGS[mapping]()
    assert list(reversed(found)) == sorted(KEYS, reverse=True)
    bounds = (None, "", "a/", "a/2", "zz", "\U0001f600")
    for prefix, start, end, reverse, limit in itertools.product(
        ("", "a", "a/1", "q"), bounds, bounds, (False, True), (None, 0, 1, 3, 99)
    ):
        expected = [
            key
            for key in sorted(KEYS)
            if key.startswith(prefix) and (start or "") <= key and (end is None or key < end)
        ]
        expected = (expected[::-1] if reverse else expected)[:limit]
        assert list(found.iter_keys(prefix, start=start, end=end, reverse=reverse, limit=limit)) == expected


@pytest.mark.parametrize("mapping", MAPPINGS)
def test_bad_bounds(mapping):
    found = MAPPINGS[mapping]()
    for bad in ({"limit": -1}, {"limit": "1"}, {"limit": True}):
        with pytest.raises(InvalidArgumentError, match="limit"):
            found.iter_keys(**bad)
    with pytest.raises(TypeError, match="keys of a state must be strings"):
        found.iter_keys(start=1)
    with pytest.raises(LimitExceededError):
        found.iter_keys(end="x" * 5000)


RANGES: list[dict[str, Any]] = [
    {"limit": 20},
    {"limit": 20, "reverse": True},
    {"start": "key/00700", "limit": 20},
    {"start": "key/00700", "end": "key/00720"},
    {"start": "key/00700", "end": "key/00720", "reverse": True},
    {"prefix": "key/0070"},
]


@cache
def stored(size: int) -> Memory:
    store = Memory()
    state = Versioned(store)
    state.update({f"key/{n:05}": n for n in range(size)})
    state.commit()
    return store


@pytest.mark.parametrize("of", ["state", "snapshot"])
@pytest.mark.parametrize("chosen", RANGES, ids=str)
def test_a_range_costs_what_it_lists(chosen, of):
    costs = []
    for size in (1_000, 30_000):
        store = Counting(stored(size))
        state = Versioned(cold(store))
        found = state if of == "state" else state.checkout("HEAD")
        store.reset()
        assert 10 <= len(list(found.iter_keys(**chosen))) <= 20
        costs.append(store.counts.objects_read)
    assert costs[1] <= costs[0] + 8, costs
    assert costs[1] <= 16


def test_a_range_beside_edits():
    rng = random.Random(5)
    state = Versioned()
    keys: set[str] = set()
    for _ in range(60):
        for key in (f"{rng.randrange(300):03}" for _ in range(5)):
            if key in keys and rng.random() < 0.5:
                del state[key]
                keys.discard(key)
            else:
                state[key] = 1
                keys.add(key)
        if rng.random() < 0.3:
            state.commit()
        start, end = sorted(f"{rng.randrange(300):03}" for _ in range(2))
        expected = [key for key in sorted(keys) if start <= key < end]
        assert list(state.iter_keys(start=start, end=end, reverse=True)) == expected[::-1]
        assert list(state.iter_keys(start=start, end=end, limit=4)) == expected[:4]
