"""The cache of decoded nodes is bounded by what its nodes take in memory, those that were written too."""

from __future__ import annotations

import tracemalloc

import pytest

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
                nodes.keep(str(number).encode(), read_node(Shape.SEQUENCE, raw), raw)
            del nodes, leaf
        assert len(cache) < 100
        assert LIMIT / 2 < tracemalloc.get_traced_memory()[0] < LIMIT * 1.25
    finally:
        tracemalloc.stop()
