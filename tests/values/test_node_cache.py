"""The cache of decoded nodes is bounded by what its nodes take in memory, those that were written too."""

from __future__ import annotations

import tracemalloc

import pytest

from versioned_state.errors import CorruptObjectError
from versioned_state.objects.store import ObjectStore, Staging
from versioned_state.storage import Memory
from versioned_state.values.cells import pack
from versioned_state.values.trees.nodes import Node, NodeCache, Nodes, Shape, read_node, write_node

LIMIT = 1 << 20


@pytest.mark.parametrize("is_written", [False, True])
def test_a_cache_takes_about_the_memory_that_it_may(is_written):
    cache = NodeCache(LIMIT)
    objects = ObjectStore(Memory())
    tracemalloc.start()
    try:
        for number in range(200):
            nodes = Nodes(objects, staging=Staging(objects), cache=cache)
            leaf = Node(0, [pack(f"{number} {item} " * 100) for item in range(16)])
            if is_written:
                nodes.add(Shape.SEQUENCE, leaf)
            else:
                raw = write_node(Shape.SEQUENCE, leaf)
                nodes.keep(str(number).encode(), read_node(Shape.SEQUENCE, raw), raw, nodes.clears)
            del nodes, leaf
        assert len(cache) < 100
        assert LIMIT / 2 < tracemalloc.get_traced_memory()[0] < LIMIT * 1.25
    finally:
        tracemalloc.stop()


def test_a_shared_node_is_not_taken_for_one_of_another_shape():
    objects = ObjectStore(Memory())
    shared, staging = NodeCache(), Staging(objects)
    first = Nodes(staging, staging=staging, shared=shared)
    address = first.add(Shape.MAP, Node(0, [pack(1)], None, [b"key"]))
    objects.kv.apply({}, {}, objects=staging.sealed())
    assert Nodes(objects, shared=shared).get(Shape.MAP, address).keys == [b"key"]
    assert address in shared
    with pytest.raises(CorruptObjectError, match="expected a node of a sequence"):
        Nodes(objects, shared=shared).get(Shape.SEQUENCE, address)
    address = first.add(Shape.SEQUENCE, Node(0, [pack(1)]))
    objects.kv.apply({}, {}, objects=staging.sealed())
    assert Nodes(objects, shared=shared).get(Shape.SEQUENCE, address).count == 1
    with pytest.raises(CorruptObjectError, match="expected a node of a blob"):
        Nodes(objects, shared=shared).get(Shape.BLOB, address)


def test_what_is_staged_is_shared_once_it_is_said_to_be_stored():
    objects = ObjectStore(Memory())
    shared, staging = NodeCache(), Staging(objects)
    nodes = Nodes(staging, staging=staging, cache=NodeCache(0), shared=shared)
    address = nodes.add(Shape.SEQUENCE, Node(0, [pack(1)]))
    assert nodes.get(Shape.SEQUENCE, address).count == 1
    assert not shared, "read from the staging"
    nodes = Nodes(staging, staging=staging, shared=shared)
    nodes.add(Shape.SEQUENCE, Node(0, [pack(1)]))
    nodes.share(staging, 0)
    assert list(shared) == [address]
    many = Staging(objects)
    nodes.bind(many)
    for number in range(1000):
        nodes.add(Shape.SEQUENCE, Node(0, [pack(number)]))
    nodes.share(many, 0)
    assert list(shared) == [address], "a large commit drives out nothing"
