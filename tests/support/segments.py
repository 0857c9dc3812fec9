"""Leaves in segments, as ``docs/format.md`` has them, without the code that writes them.

The numbers are read at each call, so small ones count (``small_nodes``).
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.support.reference_trees import leaf_ends, node_ends
from versioned_state import KVStore
from versioned_state.objects.address import Address, Kind, address_of
from versioned_state.objects.envelope import segments_in, unseal
from versioned_state.objects.keys import address_in
from versioned_state.objects.store import ObjectStore
from versioned_state.values.trees import chunker, segments
from versioned_state.values.trees.nodes import Shape, read_node


def own_bytes(stored: bytes) -> bytes:
    """Return the raw bytes that an envelope has itself: all of them, or those that its segments do not have."""
    names = segments_in(stored)
    return unseal(bytes((stored[0] - 2,)) + stored[3 + 24 * len(names) :]) if names else unseal(stored)


def runs_of(cells: list[bytes]) -> list[bytes]:
    """Return the contents of the segments of an open leaf with these cells."""
    small, run = [], b""
    for cell in cells:
        run += cell
        if len(run) >= segments.SEGMENT_LEAST:
            small.append(run)
            run = b""
    found = []
    for start in range(0, len(small), segments.RUN):
        some = small[start : start + segments.RUN]
        found += [b"".join(some)] if len(some) == segments.RUN and sum(map(len, some)) <= segments.RUN_MOST else some
    return found


def segments_due(raw: bytes) -> list[Address]:
    """Return the segments that an object with these raw bytes is to be stored in."""
    if raw[0] == Kind.SEQUENCE_NODE and len(raw) >= segments.NODE_IN_SEGMENTS:
        node = read_node(Shape.SEQUENCE, raw)
        *_, is_whole = node_ends([item[0] < 256 // chunker.NODE_SCALE for item in node.items])
        return [] if is_whole else [address_of(b"\x15" + b"".join(node.items[:-1]))]
    if raw[0] != Kind.SEQUENCE_LEAF or len(raw) < segments.LEAF_IN_SEGMENTS:
        return []
    cells = read_node(Shape.SEQUENCE, raw).items
    *_, is_whole = leaf_ends(cells, None)
    return [] if is_whole else [address_of(b"\x15" + run) for run in runs_of(cells)]


def in_segments(store: KVStore) -> Iterator[tuple[str, list[Address]]]:
    """Yield the keys of all objects that are in segments, and their segments."""
    for key, stored in store.items("o/"):
        if names := segments_in(stored):
            yield key, names


def assert_forms(store: KVStore) -> int:
    """Check that every leaf is stored in the form that its content asks for, and return how many are in segments."""
    objects = ObjectStore(store)
    count = 0
    for key, stored in list(store.items("o/")):
        raw = objects.read(address_in(key))
        names = segments_in(stored)
        assert names == segments_due(raw), key
        count += bool(names)
    return count
