"""What the methods of a mapping cost: counted in steps at two sizes, for every kind of state."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.support.counted_calls import calls_of
from versioned_state import Live, State, Versioned


def committed(count: int) -> Versioned:
    state = Versioned()
    state.update({f"k{n:06}": n for n in range(count)})
    state.commit()
    return Versioned(state.repository)


def given(state: State, count: int) -> State:
    state.update({f"k{n:06}": n for n in range(count)})
    return state


def half_committed(count: int) -> State:
    """Keys of the head between keys that were added since, and every fifth removed."""
    state = committed(count)
    state.update({f"k{n:06}x": n for n in range(count)})
    for n in range(0, count, 5):
        del state[f"k{n:06}"]
    return state


def in_namespace(count: int) -> State:
    """Between keys of other namespaces, which are nobody's business."""
    state = Versioned()
    for name in ("a", "b", "c"):
        given(state.namespace(name), count)
    state.commit()
    return state.namespace("b")


STATES: dict[str, Callable[[int], State]] = {
    "committed": committed,
    "given": lambda count: given(Versioned(), count),
    "half committed": half_committed,
    "namespace": in_namespace,
    "Live": lambda count: given(Live(), count),
    "namespace of Live": lambda count: given(Live().namespace("a"), count),
}


def drain(state: State) -> None:
    while state:
        state.popitem()


def shuffle_the_end(state: State) -> None:
    """What an agent's stack does: pop some, push others."""
    for n in range(len(state)):
        key, value = state.popitem()
        if n % 3:
            state[f"{key[:-1]}~{n:06}"] = value


WORK: dict[str, Callable[[State], Any]] = {
    "popitem until it is empty": drain,
    "popitem and new keys": shuffle_the_end,
    "clear": lambda state: state.clear(),
    "pop each": lambda state: [state.pop(key) for key in list(state)],
    "setdefault of each and of others": lambda state: [state.setdefault(key + "!", 1) for key in list(state)],
    "items": lambda state: list(state.items()),
    "values": lambda state: list(state.values()),
    "update": lambda state: state.update({f"new {n}": n for n in range(len(state))}),
}


@pytest.mark.parametrize("work", WORK)
@pytest.mark.parametrize("kind", STATES)
def test_work_on_all_keys_is_linear(kind, work):
    """4 times the keys: 4 times the steps, and a little more for deeper trees and sorting."""
    counts = []
    for keys in (100, 400):
        state = STATES[kind](keys)
        counts.append(calls_of(partial(WORK[work], state)))
    assert counts[1] <= 6 * counts[0]
