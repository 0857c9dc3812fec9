"""Each rule of a stored node: bytes that break it alone are refused, with the rule in the message."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest

from tests.support.codec import Codec, new_nodes
from versioned_state.errors import CorruptObjectError
from versioned_state.objects.address import ADDRESS_SIZE, Kind
from versioned_state.objects.envelope import join, segment_of, segments_in
from versioned_state.values.cells import Code, array_header, map_header, pack
from versioned_state.values.trees.nodes import Node, Shape, read_node
from versioned_state.values.trees.references import tree_cell
from versioned_state.values.trees.tree import Tree

ADDRESS = bytes(ADDRESS_SIZE)


def leaf(*keys: Any) -> bytes:
    return bytes((Kind.MAP_LEAF,)) + map_header(len(keys)) + b"".join(pack(key) + b"\x01" for key in keys)


def inner(kind: Kind, level: Any, counts: Any, addresses: Any, *more: Any) -> bytes:
    packed: bytes = msgpack.packb([level, counts, addresses, *more])
    return bytes((kind,)) + packed


def of_map(*keys: Any, children: int = 2) -> bytes:
    return inner(Kind.MAP_NODE, 1, [1] * children, ADDRESS * children, list(keys))


SEQUENCE = Kind.SEQUENCE_NODE
ORDER, FIELDS, SUM = "its keys are not in order", "its fields are not those", "its children do not add up"
DAMAGED: dict[str, tuple[Shape, bytes, str]] = {
    "a leaf's keys in falling order": (Shape.MAP, leaf(b"sb", b"sa"), ORDER),
    "a leaf's key twice": (Shape.MAP, leaf(b"sa", b"sa"), ORDER),
    "a leaf's only key as text": (Shape.MAP, leaf("sa"), ORDER),
    "a leaf's second key as text": (Shape.MAP, leaf(b"sa", "sb"), "not supported between"),
    "bytes after a leaf": (Shape.MAP, leaf(b"sa") + b"\x01", "bytes after its end"),
    "bytes after a leaf of a list": (
        Shape.SEQUENCE,
        bytes((Kind.SEQUENCE_LEAF,)) + array_header(1) + b"\x01\x02",
        "after its end",
    ),
    "a leaf cut short": (Shape.SEQUENCE, bytes((Kind.SEQUENCE_LEAF,)) + array_header(2) + b"\x01", "not a node"),
    "level 0": (Shape.SEQUENCE, inner(SEQUENCE, 0, [1], ADDRESS), FIELDS),
    "a level beyond all": (Shape.SEQUENCE, inner(SEQUENCE, 65, [1], ADDRESS), FIELDS),
    "a level that is true": (Shape.SEQUENCE, inner(SEQUENCE, True, [1], ADDRESS), FIELDS),
    "counts that are no list": (Shape.SEQUENCE, inner(SEQUENCE, 1, 1, ADDRESS), FIELDS),
    "addresses that are text": (Shape.SEQUENCE, inner(SEQUENCE, 1, [1], "a" * ADDRESS_SIZE), FIELDS),
    "no child": (Shape.SEQUENCE, inner(SEQUENCE, 1, [], b""), SUM),
    "more counts than addresses": (Shape.SEQUENCE, inner(SEQUENCE, 1, [1, 1], ADDRESS), SUM),
    "half an address": (Shape.SEQUENCE, inner(SEQUENCE, 1, [1], ADDRESS[:-1]), SUM),
    "a child of nothing": (Shape.SEQUENCE, inner(SEQUENCE, 1, [1, 0], ADDRESS * 2), SUM),
    "a count that is true": (Shape.SEQUENCE, inner(SEQUENCE, 1, [True], ADDRESS), SUM),
    "fewer keys than children": (Shape.MAP, of_map(b"sa"), "its keys do not match"),
    "keys that are no list": (Shape.MAP, inner(Kind.MAP_NODE, 1, [1], ADDRESS, b"s"), "its keys do not match"),
    "no keys": (Shape.MAP, inner(Kind.MAP_NODE, 1, [1], ADDRESS), "not enough values"),
    "children's keys in falling order": (Shape.MAP, of_map(b"sb", b"sa"), ORDER),
    "a child's only key as text": (Shape.MAP, of_map("sa", children=1), ORDER),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_node_that_breaks_one_rule_is_refused(name: str) -> None:
    shape, raw, told = DAMAGED[name]
    with pytest.raises(CorruptObjectError, match=told):
        read_node(shape, raw)


def test_the_nodes_from_which_the_damaged_ones_differ_are_read() -> None:
    assert read_node(Shape.MAP, leaf(b"sa", b"sb")).keys == [b"sa", b"sb"]
    assert read_node(Shape.MAP, of_map(b"sa", b"sb")).keys == [b"sa", b"sb"]
    assert read_node(Shape.SEQUENCE, inner(SEQUENCE, 64, [1, 2], ADDRESS * 2)).count == 3


def test_a_list_whose_leaves_hold_more_than_was_counted_is_refused_before_they_are_all_read() -> None:
    codec = Codec()
    nodes = new_nodes(codec.objects)
    leaves = [nodes.add(Shape.SEQUENCE, Node(0, [pack(number)] * 1000)) for number in range(3)]
    top = nodes.add(Shape.SEQUENCE, Node(1, [bytes(each) for each in leaves], [1, 1, 1]))
    codec.kv.apply({}, {}, objects=nodes.staging.sealed())
    with pytest.raises(CorruptObjectError, match="1000 elements where 3 were counted"):
        codec.decode(tree_cell(Code.LIST_TREE, Tree(Shape.SEQUENCE, 3, top)))


@pytest.mark.parametrize("head", [0, 200])
def test_an_object_in_segments_with_a_head_of_another_size_is_refused(head: int) -> None:
    stored = bytes((2, 1, head)) + ADDRESS + bytes((Kind.SEQUENCE_LEAF,)) + array_header(1) + b"\x01"
    names = segments_in(stored)
    with pytest.raises(ValueError, match="an object of its kind is not stored in segments"):
        join(stored, names, {names[0]: segment_of(b"\x01")})
