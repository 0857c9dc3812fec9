"""Long values with the real limits of nodes: three and four levels, by single steps at both ends and in the middle.

The sizes between are the matter of ``test_sizes``, where nodes are small.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.checked_states import assert_same, root_from_scratch
from tests.support.long_runs import first
from tests.support.reference_trees import assert_canonical, raw_of, top_raw
from tests.support.small_nodes import SMALL, WIDER, small_nodes
from versioned_state import Memory, Repository, Versioned
from versioned_state.objects.store import ObjectStore, Staging
from versioned_state.values.cells import Code, pack
from versioned_state.values.trees.edit import Edit, splice
from versioned_state.values.trees.nodes import Nodes, Shape
from versioned_state.values.trees.tree import empty, iter_cells

STEPS = 5
"""Commits at one place between two comparisons with the whole value built anew."""


def message(number: int) -> dict[str, Any]:
    return {"role": "user" if number % 2 else "assistant", "content": f"message {number} " + "words " * (number % 20)}


def of_list(state: Any) -> Any:
    return state["v"]


def of_sequence(state: Any) -> Any:
    return state.sequence("v") if isinstance(state, Versioned) else state["v"]


def insert(values: Any, at: int, number: int) -> None:
    values.insert(at, message(number))


def remove(values: Any, at: int, number: int) -> None:
    del values[min(at, len(values) - 1)]


def assign(values: Any, at: int, number: int) -> None:
    values[min(at, len(values) - 1)] = message(number)


@pytest.mark.parametrize(
    ("size", "of"), first(3, [(2_000, of_list), (2_000, of_sequence), (21_000, of_list), (21_000, of_sequence)])
)
def test_single_steps_in_a_long_list(size: int, of: Callable[[Any], Any]):
    store = Memory()
    state = Versioned(store, pickle="refuse")
    model: dict[str, Any] = {"v": [message(number) for number in range(size)]}
    state["v"] = [message(number) for number in range(size)]
    state.commit()
    number = size
    for step in (insert, remove, assign):
        for at in (0, size // 2, size):
            for _ in range(STEPS):
                before = state.head
                step(of(state), at, number)
                step(of(model), at, number)
                number += 1
                state.commit()
                assert 1 <= len(state.diff(before, "HEAD")) <= 2
        state = Versioned(store, pickle="refuse")
        assert_same(dict(Repository(store).snapshot("main")), model)
        assert state.head.root == root_from_scratch(model)
    assert assert_canonical(store, state.head.tree)[Code.LIST_TREE] == (2 if size == 2_000 else 3)


def test_single_steps_in_a_long_dict():
    store = Memory()
    state = Versioned(store, pickle="refuse")
    model: dict[str, Any] = {"v": {f"key {number:06}": number for number in range(21_000)}}
    state["v"] = dict(model["v"])
    state.commit()
    for turn, prefix in enumerate(["a", "key 010000", "z"]):
        for number in range(4):
            for each in (state, model):
                each["v"][f"{prefix}{number:03}"] = number
            state.commit()
            for each in (state, model):
                del each["v"][f"key {10_000 * turn + number:06}"]
            state.commit()
        assert state.head.root == root_from_scratch(model)
        state = Versioned(store, pickle="refuse")
    assert_same(dict(Repository(store).snapshot("main")), model)
    assert assert_canonical(store, state.head.tree)[Code.DICT_TREE] >= 4


@pytest.mark.parametrize("shape", [Shape.SEQUENCE, Shape.MAP])
def test_a_long_walk_of_single_steps(shape: Shape, long_run: bool):  # noqa: FBT001 - a fixture
    """Appends, inserts, removals and replacements, one at a time: a million in the long run, with small nodes."""
    steps = 1_000_000 if long_run else 3_000
    for limits in (SMALL, WIDER):
        with small_nodes(limits):
            walk(shape, random.Random(f"{shape} {len(limits)}"), steps // 2)


def walk(shape: Shape, rng: random.Random, steps: int) -> None:
    cells: list[bytes] = []
    keys: list[int] = []  # there is room between two of them

    def edit(start: int, end: int, first: int, last: int) -> Edit:
        return Edit(
            start, end, cells[first:last], None, list(map(key_in, keys[first:last])) if shape is Shape.MAP else None
        )

    staging = Staging(ObjectStore(Memory()))
    nodes, tree = Nodes(staging, staging=staging), empty(shape)
    aim = 0
    for step in range(steps):
        if step % 200 == 0:
            aim = rng.choice([0, 5, 20, 80, 300])
        if step % 2_000 == 0:  # begin anew, so that memory stays flat and keys have room
            staging = Staging(ObjectStore(Memory()))
            keys = [(number + 1) * (1 << 400) // (len(keys) + 1) for number in range(len(keys))]
            nodes = Nodes(staging, staging=staging)
            tree = splice(nodes, empty(shape), [edit(0, 0, 0, len(cells))])
        size = len(cells)
        at = rng.choice([0, size, size, size // 2, rng.randrange(size + 1)])
        grows = rng.random() < (0.7 if size < aim else 0.3)
        end = at if grows and rng.random() < 0.8 else min(size, at + 1)
        low, high = keys[at - 1] if at else 0, keys[end] if end < size else 1 << 400
        if high - low < 2:
            continue
        cells[at:end] = [pack("x" * rng.randrange(30) + str(step))] if grows else []
        keys[at:end] = [(low + high) // 2] if grows else []
        tree = splice(nodes, tree, [edit(at, end, at, at + grows)])
        assert tree.count == len(cells)
        if step % 40 == 0 or step == steps - 1:
            assert raw_of(tree, staging) == top_raw(
                shape, cells, list(map(key_in, keys)) if shape is Shape.MAP else None
            )
            assert list(iter_cells(nodes, tree)) == cells


def key_in(number: int) -> bytes:
    return number.to_bytes(51, "big")
