"""Planted cells and nodes that no writer writes: each read is a typed error, at no more cost than what is stored."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgpack
import pytest
from hypothesis import given, strategies as st

from tests.support.codec import Codec, new_nodes
from versioned_state import Memory
from versioned_state.errors import CorruptObjectError, LimitExceededError, StateError
from versioned_state.objects.store import ObjectStore
from versioned_state.storage.wrappers.counting import Counting
from versioned_state.values.cells import MAX_DEPTH, MAX_ELEMENTS, Code, array, extension, pack, typed_cell
from versioned_state.values.codec.pickles import PicklePolicy
from versioned_state.values.containers import container_of, sequence_of
from versioned_state.values.decode.decoder import may_have_timestamp
from versioned_state.values.decode.live import LiveDecoder
from versioned_state.values.detection.fingerprinter import Fingerprinter
from versioned_state.values.paths.lookup import find_cell
from versioned_state.values.paths.path import Index, Key
from versioned_state.values.trees.nodes import Node, Nodes, Shape
from versioned_state.values.trees.references import tree_cell
from versioned_state.values.trees.tree import Tree, find, iter_cells, iter_items, rank


def tagged(cell: bytes) -> bytes:
    return typed_cell(pack("nobody"), None, cell)


TIMESTAMP = msgpack.packb(msgpack.Timestamp(1, 2))
PLANTED = {
    "fraction": extension(Code.FRACTION, array([pack(1), pack(0)])),
    "set of lists": extension(Code.SET, array([b"\x91\x01"])),
    "dict with a list for a key": b"\x81\x91\x01\x02",
    "zone outside": extension(Code.ZONEINFO, b"../../etc/passwd"),
    "absolute zone": extension(Code.ZONEINFO, b"/etc/passwd"),
    "zone with a NUL": extension(Code.ZONEINFO, b"UTC\0"),
    "timestamp": TIMESTAMP,
    "timestamp in a list": b"\x92\x01" + TIMESTAMP,
    "timestamp in a typed value": tagged(TIMESTAMP),
    "another's extension": b"\xd4\x63\x01",
    "date": extension(Code.DATE, array([pack(1), pack(13), pack(1)])),
    "decimal": extension(Code.DECIMAL, b"1,5"),
    "cut short": b"\x95\x01",
    "a head without data": typed_cell(pack("nobody"), None, b""),
    "a head alone": extension(Code.TYPED, array([pack("nobody")])),
    "a head with too much": typed_cell(pack("nobody"), None, b"\x01\x02"),
    "a head in a list of three": b"\x93" + extension(Code.TYPED, array([pack("nobody")])) + b"\x01\x02",
    "a head in the second place": b"\x92\x01" + extension(Code.TYPED, array([pack("nobody")])),
    "a head without a name": b"\x92" + extension(Code.TYPED, array([])) + b"\x01",
    "a head with a number for a name": typed_cell(pack(1), None, b"\x01"),
    "a head with an empty name": typed_cell(pack(""), None, b"\x01"),
    "a head with notes that are a list": typed_cell(pack("nobody"), b"\x91\x01", b"\x01"),
    "a head that is not an array": b"\x92" + extension(Code.TYPED, b"\x01") + b"\x01",
    "a head with a head for a name": typed_cell(extension(Code.TYPED, array([pack("nobody")])), None, b"\x01"),
    "a head with a typed value for notes": typed_cell(pack("nobody"), tagged(b"\x80"), b"\x01"),
}
DEEP = {
    "lists": b"\x91" * (MAX_DEPTH + 1) + b"\xc0",
    "dicts": b"\x81\xa1a" * 1000 + b"\xc0",
    "beside others": b"\x92\x01" * 500 + b"\xc0",
    "in a typed value": tagged(b"\x91" * 1000 + b"\xc0"),
}


def reads(codec: Codec) -> Iterator[Callable[[bytes], Any]]:
    yield codec.decode
    yield LiveDecoder(Nodes(codec.objects), PicklePolicy("allow", private=True), Fingerprinter()).decode_live


@pytest.mark.parametrize("name", PLANTED)
@pytest.mark.parametrize("where", ["alone", "in a leaf", "in a stored leaf"])
def test_a_cell_that_does_not_decode_is_a_typed_error(name: str, where: str):
    codec = Codec()
    cell = PLANTED[name]
    if where != "alone":
        cell = in_a_list(codec, cell, 1 if where == "in a leaf" else 600)
    for read in reads(codec):
        with pytest.raises(CorruptObjectError, match=r"does not decode|not a node"):
            read(cell)


@pytest.mark.parametrize("name", DEEP)
def test_a_cell_that_is_too_deep_is_refused(name: str):
    for read in reads(Codec()):
        with pytest.raises(LimitExceededError, match="depth"):
            read(DEEP[name])


def test_a_deep_cell_in_a_leaf_is_refused_where_values_are_only_looked_at():
    codec = Codec()
    with pytest.raises(LimitExceededError, match="depth"):
        codec.decode(in_a_list(codec, DEEP["lists"], 600))


@pytest.mark.parametrize(
    "cell", [b"\x95\x01", b"\x85\xa1a", extension(Code.TUPLE, b"\x95\x01"), extension(Code.LIST_TREE, b"\x01")]
)
def test_a_path_into_a_malformed_cell_is_a_typed_error(cell: bytes):
    nodes = Nodes(Codec().objects)
    with pytest.raises(CorruptObjectError):
        find_cell(nodes, cell, [Key("a") if cell[0] == 0x85 else Index(0)])
    with pytest.raises(CorruptObjectError):
        (sequence_of(nodes, cell), container_of(nodes, cell))  # whichever reads it


def in_a_list(codec: Codec, cell: bytes, count: int) -> bytes:
    nodes = new_nodes(codec.objects)
    leaf = Node(0, [*[pack("x" * 5)] * (count - 1), cell])
    reference = tree_cell(
        Code.LIST_TREE, Tree(Shape.SEQUENCE, count, leaf if count < 50 else nodes.add(Shape.SEQUENCE, leaf))
    )
    codec.kv.apply({}, {}, objects=nodes.staging.sealed())
    return reference


# Nodes that name one child many times


def fan(shape: Shape, levels: int, count: int | None = None) -> tuple[Counting, Tree]:
    """Return a tree of one node a level, each of which names the node below 40 times.

    ``count`` is the stated number of elements.
    """
    kv = Counting(Memory())
    nodes = new_nodes(ObjectStore(kv))
    keys = [b"ka%03d" % number for number in range(40)] if shape is Shape.MAP else None
    node = Node(0, [b"\xc0"] * 40, None, keys)
    for level in range(1, levels + 1):
        # Its keys rise, as a map's must; but they are not those of the child.
        node = Node(level, [nodes.add(shape, node)] * 40, [node.count] * 40, keys)
    tree = Tree(shape, node.count if count is None else count, nodes.add(shape, node))
    kv.apply({}, {}, objects=nodes.staging.sealed())
    kv.reset()
    return kv, tree


def test_a_map_that_names_one_child_many_times_is_corrupt():
    for levels in (1, 4):
        kv, tree = fan(Shape.MAP, levels)
        nodes = Nodes(ObjectStore(kv))
        with pytest.raises(CorruptObjectError):
            list(iter_items(nodes, tree))
        for look in (find, rank):
            with pytest.raises(CorruptObjectError):
                look(nodes, tree, b"ka039")
        for read in reads(Codec(kv)):
            with pytest.raises(StateError):
                read(tree_cell(Code.DICT_TREE, tree))
        assert kv.counts.objects_read < 40


def test_a_list_says_no_more_elements_than_it_holds():
    kv, tree = fan(Shape.SEQUENCE, 2, count=40**3 + 1)
    with pytest.raises(CorruptObjectError):
        list(iter_cells(Nodes(ObjectStore(kv)), tree))
    for read in reads(Codec(kv)):
        with pytest.raises(CorruptObjectError):
            read(tree_cell(Code.LIST_TREE, tree))


def test_a_list_of_more_elements_than_any_is_refused_before_it_is_read():
    kv, tree = fan(Shape.SEQUENCE, 5)
    assert tree.count > MAX_ELEMENTS
    for read in (*reads(Codec(kv)), lambda cell: sequence_of(Nodes(ObjectStore(kv)), cell)):
        with pytest.raises(LimitExceededError):
            read(tree_cell(Code.LIST_TREE, tree))
    assert kv.counts.objects_read == 0


def test_a_list_that_repeats_one_element_is_read():
    codec = Codec()
    assert codec.decode(codec.encode([None] * 100_000)) == [None] * 100_000


@pytest.mark.parametrize("size", [4, 8, 12])
def test_each_form_of_a_timestamp_is_suspected(size):
    lengths = (b"\xc7" + size.to_bytes(1, "big"), b"\xc8" + size.to_bytes(2, "big"), b"\xc9" + size.to_bytes(4, "big"))
    for header in (*lengths, {4: b"\xd6", 8: b"\xd7"}.get(size, lengths[0])):
        packed = b"\x92\xa1a" + header + b"\xff" + bytes(size)
        assert type(msgpack.unpackb(packed)[1]) is msgpack.Timestamp
        assert may_have_timestamp(packed)
    assert not may_have_timestamp(msgpack.packb(["ÿ", 255, 0xFFFF, -1, 1.5]))


@given(st.lists(st.sampled_from([0xFF, 0xD6, 0xD7, 0x04, 0x08, 0x0C, 0x00, 0x61]), max_size=12).map(bytes))
def test_a_timestamp_is_suspected_wherever_a_search_for_each_header_finds_one(packed):
    headers = (b"\xd6\xff", b"\xd7\xff", b"\x04\xff", b"\x08\xff", b"\x0c\xff")
    assert may_have_timestamp(packed) == any(header in packed for header in headers)
