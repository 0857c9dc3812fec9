"""What the methods of a mapping cost: counted in steps at two sizes, for every kind of state."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.support.steps import steps
from versioned_state import State, Versioned


def committed(count: int) -> Versioned:
    state = Versioned()
    state.update({f"k{n:06}": n for n in range(count)})
    state.commit()
    return Versioned(state.repository)


def drain(state: State) -> None:
    while state:
        state.popitem()


def drain_from_the_front(state: State) -> None:
    while state:
        state.pop(next(iter(state.iter_keys("k"))))


STATES: dict[str, Callable[[int], State]] = {"Versioned, committed": committed}

WORK: dict[str, Callable[[State], Any]] = {"popitem until it is empty": drain}


@pytest.mark.parametrize("work", WORK)
@pytest.mark.parametrize("kind", STATES)
def test_work_on_all_keys_is_linear(kind, work):
    """4 times the keys: 4 times the steps, and a little more for deeper trees and sorting."""
    counts = []
    for keys in (250, 1_000):
        state = STATES[kind](keys)
        counts.append(steps(partial(WORK[work], state)))
    assert counts[1] <= 6 * counts[0]
