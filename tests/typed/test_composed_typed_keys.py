"""A dict with typed keys that a merge, revert or removal puts together has the cell of a state without that history."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

import pytest

from versioned_state import Repository, Versioned
from versioned_state.storage import Memory


class Color(Enum):
    RED = 1
    BLUE = 2


@dataclass(frozen=True)
class Point:
    x: int
    name: str = ""


def content(size: int) -> dict[Any, Any]:
    return {
        Color.RED: "r" * size,
        Point(1, "p"): [1],
        (Point(2), Color.BLUE): {},
        "plain": 0,
        frozenset({Point(3)}): Point(4),
    }


@pytest.mark.parametrize("size", [1, 300, 6000])
def test_a_merge_of_a_dict_with_typed_keys(size: int):
    state = Versioned()
    state["d"] = content(size)
    state.commit()
    other = state.fork("other")
    other["d"]["plain"] = 1
    other["d"][Point(9)] = 9
    other.commit()
    state["d"][Color.RED] += "x"
    del state["d"][(Point(2), Color.BLUE)]
    state.commit()
    live = state["d"]
    state.merge("other")
    assert not state.status()
    assert state["d"] is live
    expected = content(size)
    del expected[(Point(2), Color.BLUE)]
    expected |= {Color.RED: expected[Color.RED] + "x", "plain": 1, Point(9): 9}
    assert live == expected
    scratch = Versioned()
    scratch["d"] = expected
    assert scratch.commit().root == state.head.root


@pytest.mark.parametrize("size", [1, 300, 6000])
def test_a_removal_in_a_dict_with_typed_keys(size: int):
    store = Memory()
    state = Versioned(store)
    state["d"] = content(size)
    state.commit()
    state.close()
    Repository(store).purge("d.plain")
    expected = content(size)
    del expected["plain"]
    again = Versioned(store)
    assert again["d"] == expected
    scratch = Versioned()
    scratch["d"] = expected
    assert scratch.commit().root == again.head.root


class Ordinary:
    pass


def test_a_field_that_a_policy_brings_back_stands_in_its_place():
    state = Versioned()
    state["o"] = Ordinary()
    state["o"].b, state["o"].c = 1, 1
    state.commit()
    other = state.fork("other")
    other["o"].b = 2
    other.commit()
    del state["o"].b
    state["o"].c = 3
    state.commit()
    state.merge("other", policies={"o.b": "theirs"})
    scratch = Versioned()
    scratch["o"] = Ordinary()
    scratch["o"].b, scratch["o"].c = 2, 3
    assert scratch.commit().root == state.head.root
