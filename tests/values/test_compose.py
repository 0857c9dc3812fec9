"""A value has one cell at each place: whatever its form, it is brought into the very bytes that the encoder writes."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from tests.support.codec import new_nodes
from tests.support.mutations import sample
from tests.support.small_nodes import SMALL, WIDER, small_nodes
from versioned_state import Versioned, register
from versioned_state.values import cells as grammar
from versioned_state.values.cells import ELEMENT_INLINE, ENTRY_INLINE, Code
from versioned_state.values.codec.pickles import PicklePolicy
from versioned_state.values.containers import container_of, order_keys
from versioned_state.values.encode.compose import Composer
from versioned_state.values.encode.encoder import Encoder
from versioned_state.values.trees.tree import iter_cells, iter_items


class Pickled:
    def __init__(self, size: int) -> None:
        self.text = "x" * size


class Registered:
    def __init__(self, data: Any) -> None:
        self.data = data


register(Registered, "tests.values.test_compose.Registered", lambda value: value.data, Registered)


@pytest.fixture
def encoder() -> Encoder:
    return Encoder(new_nodes(), PicklePolicy("allow", private=True))


@pytest.fixture
def composer(encoder: Encoder) -> Composer:
    return Composer(encoder.nodes, encoder.policy)


def value_of(seed: int) -> Any:
    rng = random.Random(seed)
    value = sample(rng, rng.choice([1, 5, 30, 200]))
    match seed % 9:
        case 0:
            return {"object": Pickled(rng.choice([10, 100, 3000, 9000])), "value": value}
        case 1:
            return [np.arange(rng.choice([3, 20, 60, 500, 900])), value]
        case 2:
            return {"registered": Registered(value), "other": [Registered("x" * rng.choice([5, 120, 200, 4090, 5000]))]}
        case 3:
            return {
                "text": "é" * rng.choice([60, 130, 2100]),
                "bytes": bytes(rng.choice([100, 200, 5000])),
                "value": value,
            }
    return value


@pytest.mark.parametrize("limits", [{}, SMALL, WIDER], ids=["real", "small", "wider"])
def test_any_form_is_brought_into_any_other(encoder, composer, limits, long_run):
    with small_nodes(limits):
        for seed in range(5000 if long_run else 15 if limits else 40):
            compare_forms(encoder, composer, value_of(seed))


def compare_forms(encoder: Encoder, composer: Composer, value: Any) -> None:
    """Bring each form of a value into the forms for other places."""
    whole = encoder.encode_inline(value, "a value")
    in_dict, in_list = encoder.encode_at(value, grammar.ENTRY_INLINE), encoder.encode_at(value, grammar.ELEMENT_INLINE)
    small = len(whole) <= grammar.ELEMENT_INLINE
    for cell in (in_dict, in_list, *([whole] if small else [])):
        assert composer.fit(cell, grammar.ENTRY_INLINE) == in_dict, repr(value)[:200]
        assert composer.fit(cell, grammar.ELEMENT_INLINE) == in_list, repr(value)[:200]
        assert composer.inline(cell) == (whole if small else None), repr(value)[:200]
    assert not small or composer.same(in_dict, in_list)
    opened = container_of(composer.nodes, in_dict)
    if type(value) is dict and opened is not None:
        keys, cells = order_keys(composer.nodes, opened), dict(iter_items(composer.nodes, opened.tree))
        assert composer.dict_of({key: cells[key] for key in keys}, grammar.ENTRY_INLINE) == in_dict, repr(value)[:200]
        large = composer.container(in_dict, large=True)
        assert large is not None
        assert composer.dict_cell(large.tree, keys, grammar.ENTRY_INLINE) == in_dict, repr(value)[:200]
    elif type(value) is list and opened is not None:
        assert composer.list_of(list(iter_cells(composer.nodes, opened.tree)), grammar.ENTRY_INLINE) == in_dict, repr(
            value
        )[:200]
        large = composer.container(in_dict, large=True)
        assert large is not None
        assert composer.list_cell(large.tree, grammar.ELEMENT_INLINE) == in_list, repr(value)[:200]


@pytest.mark.parametrize("count", [0, 3, 50, 3000])
@pytest.mark.parametrize("kind", [set, frozenset])
def test_sets(encoder, composer, kind, count):
    value = kind(f"element {n}" for n in range(count))
    code = Code.SET if kind is set else Code.FROZENSET
    cells = [encoder.encode_inline(part, "an element") for part in value]
    for limit in (ENTRY_INLINE, ELEMENT_INLINE):
        assert composer.set_of(code, cells, limit) == encoder.encode_at(value, limit)


def test_another_form_is_no_change():
    """What stands in a small dict has another form when that has grown, and is what it was."""
    state = Versioned()
    state["value"] = {"text": "x" * 300, "list": list(range(100)), "tuple": tuple(range(60)), "in": {"text": "y" * 200}}
    first = state.commit()
    state["value"]["large"] = "z" * 3900
    second = state.commit()
    assert [str(change.path) for change in state.diff(first, second)] == ["value.large"]
    assert [str(change.path) for change in state.diff(second, first)] == ["value.large"]
