"""Instances of ordinary classes refer to each other: what is one stays one, at a cost in proportion to their number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from versioned_state import StateError, Versioned
from versioned_state.values.detection.fingerprinter import Fingerprinter
from versioned_state.values.typed.sharing import find_deep


class Node:
    def __init__(self, name: str, *near: Any) -> None:
        self.name = name
        self.near = list(near)


@dataclass
class Link:
    next: Any = None


def layers(count: int) -> Node:
    """A web in which 5 to the power of ``count`` ways lead from its first instance to the last layer."""
    layer = [Node("end") for _ in range(5)]
    for _ in range(count):
        layer = [Node("inner", *layer) for _ in range(5)]
    return layer[0]


def test_the_fingerprint_of_a_web_costs_its_instances_and_not_the_ways_through_it():
    state = Versioned()
    state["web"] = [layers(40)]
    state.commit()
    assert not state.status()
    state["web"][0].near[4].near[0].near[3].name = "renamed"
    assert [str(change.path) for change in state.status()] == ["web[0].near"]


@pytest.mark.parametrize("held", [b"x", bytearray(b"x")])
def test_a_web_that_holds_bytes_is_told_from_one_that_holds_a_bytearray(held: Any):
    state = Versioned()
    web = layers(30)
    web.near[2].near[1].name = held
    state["web"] = [web]
    state.commit()
    assert not state.status()
    web.near[2].near[1].name = b"x" if type(held) is bytearray else bytearray(b"x")
    assert state.status()


def test_the_content_of_two_equal_webs_is_the_same_and_sharing_is_part_of_it():
    content = Fingerprinter().content
    assert content(layers(20)) == content(layers(20))
    one = Node("one")
    assert content([one, one]) == content([one, one]) != content([one, Node("other")])


def test_an_instance_that_is_a_key_and_a_value_stays_one():
    a, b = Node("a"), Node("b")
    state = Versioned()
    state["graph"] = {"edges": {a: [b], (b, 1): [a]}, "name": "g"}
    state.commit()
    graph = state.checkout("HEAD")["graph"]
    (first, near), (second, back) = graph["edges"].items()
    assert near[0] is second[0]
    assert back[0] is first
    state["graph"]["edges"][a].append(a)
    assert [str(change.path) for change in state.status()] == ["graph.edges"]


def test_an_instance_twice_in_one_key_makes_the_dict_an_object():
    one = Node("one")
    state = Versioned()
    state["pairs"] = [{(one, one): 1}]
    state.commit()
    ((left, right),) = state.checkout("HEAD")["pairs"][0]
    assert left is right


def test_the_deep_parts_of_a_long_chain_are_found_at_the_cost_of_a_walk():
    chain: Any = None
    for _ in range(50_000):
        chain = Link(chain)
    assert list(find_deep(chain, 128).values()) == [chain]
    while chain is not None:  # or it is freed at once, link within link
        chain = chain.next


def test_a_chain_that_is_too_long_to_be_pickled_is_a_typed_error():
    chain: Any = None
    for _ in range(10_000):
        chain = Link(chain)
    state = Versioned()
    state["chain"] = chain
    with pytest.raises(StateError, match="chain"):
        state.commit()
    assert state["chain"] is chain
