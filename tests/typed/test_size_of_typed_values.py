"""Instances take hardly more room than equal dicts: the names of their types weigh nothing where trees are cut."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import pydantic
import pytest

from versioned_state import Memory, Versioned
from versioned_state.objects.envelope import segments_in
from versioned_state.storage import Counting
from versioned_state.values.cells import fits, weights_of


class Role(enum.Enum):
    USER = "user"
    ASSISTANT = "assistant"


@dataclass
class Message:
    role: Role
    content: str
    step: int


class Model(pydantic.BaseModel):
    role: Role
    content: str
    step: int
    note: str | None = None


def fields(number: int) -> dict[str, Any]:
    return {
        "role": Role.USER if number % 2 else Role.ASSISTANT,
        "content": f"message {number}: see you at {number % 24}",
        "step": number,
    }


def as_dict(number: int) -> dict[str, Any]:
    return {**asdict(Message(**fields(number))), "role": fields(number)["role"].value}


def stored(value: dict[str, Any]) -> tuple[int, int]:
    """The nodes of a state in a store, and the bytes of all its objects. A leaf in segments is one node."""
    store = Memory()
    with Versioned(store) as state:
        state.update(value)
        state.commit()
        objects = [found for _, found in store.items("o/")]
    segments = {name for found in objects for name in segments_in(found)}
    return len(objects) - len(segments), sum(map(len, objects))


@pytest.mark.parametrize(
    "make", [lambda n: Message(**fields(n)), lambda n: Model(**fields(n))], ids=["dataclass", "model"]
)
@pytest.mark.parametrize(
    ("count", "keep"),
    # The end of a list is kept in segments, which compress less: in a short list it is a large part of the whole.
    [(10_000, lambda values: {"list": values}), (1_000, lambda values: {f"k{n:04}": v for n, v in enumerate(values)})],
    ids=["list", "keys"],
)
def test_many_instances_take_as_many_nodes_as_dicts(
    make: Callable[[int], Any], count: int, keep: Callable[[list[Any]], dict[str, Any]]
):
    nodes, size = stored(keep([as_dict(n) for n in range(count)]))
    typed_nodes, typed_size = stored(keep([make(n) for n in range(count)]))
    assert typed_nodes <= 1.3 * nodes
    assert typed_size <= 1.4 * size


def test_a_small_model_under_a_key_lies_in_the_root():
    store = Counting(Memory())
    with Versioned(store) as state:
        for number in range(30):
            state[f"k{number}"] = as_dict(number)
        state.commit()
        store.reset()
        state["k7"] = Model(**fields(7))
        state.commit()
        written = store.counts.objects_written
        store.reset()
        state["k7"] = as_dict(8)
        state.commit()
        assert written == store.counts.objects_written


def test_bytes_that_look_like_a_head_do_not_weigh_less_than_a_quarter():
    cell = b"\x92\xc7\x05\x15\x91\xa3a:b" + b"\xc4\xff" + b"\x92\xc7\xff\x15\x91" * 51
    assert list(weights_of([cell])) == [len(cell) // 4]
    assert not fits(cell, len(cell) // 4 - 1)
