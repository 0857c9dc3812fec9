"""A list edited by position has the cell of one built from scratch, whatever its length and form before and after."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.support.codec import new_nodes
from tests.support.exact import exact
from tests.support.small_nodes import SMALL, WIDER, Limits, small_nodes
from versioned_state.values import cells as grammar
from versioned_state.values.cells import MAX_ELEMENTS, Code
from versioned_state.values.encode.compose import Composer
from versioned_state.values.encode.encoder import Encoder
from versioned_state.values.encode.splices import Replacement, elements_of, splice_list
from versioned_state.values.trees.nodes import Shape
from versioned_state.values.trees.references import count_of, tree_cell
from versioned_state.values.trees.tree import Tree, same


def value(rng: random.Random) -> Any:
    number = rng.randrange(10**6)
    return rng.choice(
        [
            number,
            "text " * rng.choice([1, 20, 300, 2_000]),
            {"n": number, "tags": ["a"] * rng.randrange(3)},
            [number] * rng.choice([1, 50, 3_000]),
            b"bytes" * rng.choice([1, 2_000]),
            (number, {number}),
        ]
    )


@pytest.mark.parametrize("limits", [{}, SMALL, WIDER], ids=["real", "small", "wider"])
def test_the_cell_is_that_of_the_list(limits: Limits, long_run: bool):  # noqa: FBT001 - a fixture
    with small_nodes(limits):
        for seed in range(400 if long_run else 3 if limits else 7):
            edit_and_compare(random.Random(seed))


def edit_and_compare(rng: random.Random) -> None:
    ours = new_nodes()
    encoder, composer = Encoder(ours), Composer(ours)
    values = [value(rng) for _ in range(rng.choice([0, 1, 3, 30, 400]))]
    cell: bytes | None = encoder.encode(values, None, "list")[0] if values or rng.random() < 0.5 else None
    tree = elements_of(ours, cell)
    for _ in range(6):
        places = sorted(rng.randrange(len(values) + 1) for _ in range(2 * rng.choice([0, 1, 1, 2, 5])))
        spans = list(zip(places[::2], places[1::2], strict=True))
        if rng.random() < 0.7:
            spans = [(start, min(end, start + 3)) for start, end in spans]
        news = [[value(rng) for _ in range(rng.choice([0, 1, 3, 60 if rng.random() < 0.2 else 2]))] for _ in spans]
        spans_news = [(start, end, new) for (start, end), new in zip(spans, news, strict=True) if start < end or new]
        replacements: list[Replacement] = [
            (start, end, [encoder.encode(each, None, "element", limit=grammar.ELEMENT_INLINE)[0] for each in new])
            for start, end, new in spans_news
        ]
        cell, tree = splice_list(composer, cell, replacements, tree if len(values) % 2 else None)
        for start, end, new in reversed(spans_news):
            values[start:end] = new
        assert cell == Encoder(new_nodes()).encode(values, None, "list")[0]
        found = elements_of(ours, cell)
        assert tree is None or (found is not None and same(tree, found))
        tree = elements_of(ours, cell)
        assert tree is not None
        assert tree.count == len(values)
        assert exact(composer.decoder.decode(cell)) == exact(values)


def test_a_reference_tells_its_count_without_its_nodes():
    for count in (0, 1, 127, 128, 255, 256, 65_535, 65_536, MAX_ELEMENTS):
        cell = tree_cell(Code.LIST_TREE, Tree(Shape.SEQUENCE, count, bytes(24)))
        assert (count_of(cell, Code.LIST_TREE), count_of(cell, Code.TUPLE_TREE)) == (count, None)
