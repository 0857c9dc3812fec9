"""Which elements of an unloaded list count as held, and the pieces made of them: at once as one by one."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

import pytest

from versioned_state.state.worktree.lists.held import are_held, is_held
from versioned_state.state.worktree.lists.pieces import Element, Piece, add_piece
from versioned_state.state.worktree.lists.unloaded import _add_held


class Tag:
    """A class of a user."""

    def __init__(self) -> None:
        self.words = ["a"]


VALUES: dict[str, Callable[[], Any]] = {
    "a message": lambda: {"role": "user", "content": "hello " * 3, "n": 7, "at": None},
    "an empty dict": dict,
    "keys that are not strings": lambda: {1: "a", (2,): "b", b"c": 1.5},
    "a dict with a list": lambda: {"role": "user", "parts": ["a", {"b": 1}]},
    "a key that holds a part": lambda: {(frozenset((1,)),): "a"},
    "a list": lambda: ["a", 1],
    "a set": lambda: {1, 2},
    "a text": lambda: "text",
    "an instance": Tag,
}


def places() -> list[tuple[str, Callable[[Any], Any]]]:
    return [
        ("nothing", lambda _: None),
        ("the value", lambda value: value),
        ("a part", lambda value: next(iter(value.values()), None) if type(value) is dict else None),
        ("the last part", lambda value: [*value.values()][-1:] if type(value) is dict else None),
        ("a key", lambda value: next(iter(value), None) if type(value) is dict else None),
    ]


@pytest.mark.parametrize("kinds", [["a message"], *itertools.combinations(VALUES, 2)], ids=" and ".join)
def test_elements_are_held_together_as_each_alone(kinds):
    for (_, first), (_, second) in itertools.product(places(), repeat=2):
        elements = [Element(VALUES[kind]()) for kind in kinds * 3]
        kept = [first(elements[0].value), second(elements[-1].value)]
        assert are_held(elements) == [is_held(element) for element in elements]
        del kept
    elements = [Element(VALUES[kind]()) for kind in kinds * 3]
    assert any(are_held(elements)) is False, "nothing refers to them"


def test_a_message_is_held_by_whoever_refers_to_it():
    elements = [Element(VALUES["a message"]()) for _ in range(5)]
    kept = elements[2].value
    assert are_held(elements) == [False, False, True, False, False]
    del kept
    assert are_held(elements) == [False] * 5


def test_runs_of_held_elements_are_the_pieces_of_each():
    rng = random.Random(1)
    for _ in range(300):
        held = [rng.random() < rng.choice([0, 0.2, 0.5, 0.9, 1]) for _ in range(rng.randrange(1, 9))]
        elements = [Element({"n": n}) for n in range(len(held))]
        position = rng.randrange(3)
        before: list[Piece] = rng.choice([[], [range(position)], [[Element({})]]]) if position else []
        one_by_one, at_once = (
            [piece.copy() if isinstance(piece, list) else piece for piece in before] for _ in range(2)
        )
        for at, (element, each_held) in enumerate(zip(elements, held, strict=True), position):
            add_piece(one_by_one, [element] if each_held else range(at, at + 1))
        _add_held(at_once, elements, held, position)
        assert at_once == one_by_one
