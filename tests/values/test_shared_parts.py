"""Values with one part at many places: the work is linear in the parts, and endless work is refused at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from tests.support.counted_calls import calls_of
from versioned_state import Versioned
from versioned_state.errors import LimitExceededError
from versioned_state.services.remote import bodies
from versioned_state.values.encode.walks import footprint


@dataclass
class Pair:
    a: Any
    b: Any


class Link:
    def __init__(self, below: Any, shared: Any) -> None:
        self.below, self.shared = below, shared


KINDS: dict[str, Callable[[Any], Any]] = {
    "list": lambda v: [v, v],
    "tuple": lambda v: (v, v),
    "dict": lambda v: {"a": v, "b": v},
    "dataclass": lambda v: Pair(v, v),
    "list of tuple": lambda v: [(v, v)],
    "lone surrogate": lambda v: [v, "\udcff", v],
}


def doubled(kind: str, levels: int) -> Any:
    value: Any = ["x" * 100]
    for _ in range(levels):
        value = KINDS[kind](value)
    return value


@pytest.mark.parametrize("kind", KINDS)
def test_a_part_that_doubles_at_each_level_is_refused(kind: str):
    state = Versioned()
    state["value"] = doubled(kind, 60)
    with pytest.raises(LimitExceededError, match="each shared one counted wherever it is at value") as caught:
        state.commit()
    assert "refer to it by a key" in caught.value.hint
    with pytest.raises(LimitExceededError, match="wherever it is"):
        bodies.encode(doubled(kind, 60))


@pytest.mark.parametrize("kind", KINDS)
def test_few_levels_come_back_as_they_were(kind: str):
    state = Versioned()
    state["value"] = doubled(kind, 11)
    state.commit()
    assert not state.status()
    assert Versioned(state.repository)["value"] == state["value"]
    state["value"] = [doubled(kind, 11), 1]
    state.commit()
    assert Versioned(state.repository)["value"] == state["value"]


def test_a_large_shared_part_is_encoded_once_and_a_change_of_it_is_seen_at_all_places():
    state = Versioned()
    part = [{"n": n} for n in range(2000)]
    state["value"] = {f"place {n}": part for n in range(40)}
    one = Versioned()
    one["value"] = {"place 0": part}
    assert calls_of(state.commit) < 10 * calls_of(one.commit), "not 40 times"  # with the accelerator 7 times, else 4
    part[7]["n"] = -1
    assert len(state.status()) == 40
    state.commit()
    assert Versioned(state.repository)["value"] == state["value"]


def test_a_part_that_a_chain_of_instances_shares_costs_the_chain():
    def chain(length: int) -> Any:
        shared, value = Link(None, None), None
        for _ in range(length):
            value = Link(value, shared)
        return value

    def work(length: int) -> int:
        state = Versioned()
        state["value"] = {"chain": chain(length)}
        return calls_of(state.status, most=3_000_000)

    assert work(240) <= 2.3 * work(120)


@pytest.mark.parametrize("kind", KINDS)
def test_the_memory_that_a_value_takes_is_that_of_its_parts_each_once(kind: str):
    def work(levels: int) -> int:
        value = doubled(kind, levels)
        return calls_of(lambda: footprint(value), most=10_000)

    assert work(60) <= 2.3 * work(30)
    endless: list[Any] = ["x" * 100]
    endless.append(endless)
    calls_of(lambda: footprint(endless), most=100)


def test_a_search_goes_once_through_a_node_that_is_at_many_places():
    def work(elements: int) -> int:
        state = Versioned()
        state["value"] = ["x" * 50] * elements
        state.commit()
        return calls_of(lambda: list(state.repository.grep("nothing has this")), most=500_000)

    assert work(80_000) < 2 * work(20_000)
