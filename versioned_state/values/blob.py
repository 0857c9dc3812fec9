"""Long texts and bytes as chunks: where they are cut, and how they are read back. Layer: values.

Bytes are cut at a fixed size, since what changes in an array or a buffer changes in place. Text is cut at line ends that its
own content chooses, so an edit in the middle moves no cut but its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from xxhash import xxh3_64_intdigest

from versioned_state.objects.address import Address, Kind, address_of, expect
from versioned_state.values.chunker import LEAF_GREATEST, LEAF_LEAST, LEAF_SCALE
from versioned_state.values.nodes import Nodes, Shape
from versioned_state.values.tree import Edit, Tree, build, iter_chunks

CHUNK_BYTES: Final = 1 << 16
"""Bytes of a chunk of binary data."""

_MARK: Final = (1 << 64) // LEAF_SCALE
_PIECE: Final = re.compile(rb"[^\n]{0,511}\n|[^\n]{0,255}[ ,]|[^\n]{1,256}")
"""A line; of a line beyond 512 bytes, stretches that end after a blank or comma, or after 256 bytes where there is none."""

_CHUNK = bytes((Kind.CHUNK,))


def binary_cuts(size: int) -> Iterator[tuple[int, int]]:
    """Start and end of each chunk of ``size`` bytes."""
    for start in range(0, size, CHUNK_BYTES):
        yield start, min(start + CHUNK_BYTES, size)


def text_cuts(data: bytes) -> Iterator[tuple[int, int]]:
    """Start and end of each chunk of a text in UTF-8. The rule is that of the leaves of a sequence. Cost: one hash a line."""
    start = 0
    for match in _PIECE.finditer(data):
        end = match.end()
        piece = match.group()
        size = end - start
        if (size >= LEAF_LEAST and xxh3_64_intdigest(piece) < len(piece) * _MARK) or size >= LEAF_GREATEST:
            yield start, end
            start = end
    if start < len(data):
        yield start, len(data)


def add_chunk(nodes: Nodes, part: bytes | memoryview, known: frozenset[Address] = frozenset()) -> Address:
    """Stage a chunk, unless it is known to be stored; its address."""
    raw = _CHUNK + part
    if known and (address := address_of(raw)) in known:
        return address
    return nodes.add_raw(raw)


def write_blob(nodes: Nodes, addresses: list[Address], sizes: list[int]) -> Tree:
    """The tree over these chunks."""
    return build(nodes, Shape.BLOB, 1, Edit(0, 0, list(addresses), sizes))


def write_cuts(
    nodes: Nodes, data: bytes | memoryview, cuts: Iterable[tuple[int, int]], known: frozenset[Address] = frozenset()
) -> tuple[Tree, frozenset[Address]]:
    """The tree over the chunks of ``data``, of which the ``known`` ones are stored already; and the addresses of its chunks."""
    view = memoryview(data)
    cuts = list(cuts)
    addresses = [add_chunk(nodes, view[a:b], known) for a, b in cuts]
    return write_blob(nodes, addresses, [b - a for a, b in cuts]), frozenset(addresses)


def write_bytes(nodes: Nodes, data: bytes | memoryview) -> Tree:
    """The tree over bytes, cut at the fixed size."""
    return write_cuts(nodes, data, binary_cuts(len(data)))[0]


def iter_blob(nodes: Nodes, tree: Tree) -> Iterator[bytes]:
    """The chunks of a blob, in order; an inner node's are read in one call of the store."""
    for addresses in iter_chunks(nodes, tree):
        raws = nodes.reader.read_many(Address(address) for address in addresses)
        for address in addresses:
            raw = raws[Address(address)]
            expect(raw, Address(address), Kind.CHUNK)
            yield raw[1:]


def read_blob(nodes: Nodes, tree: Tree) -> bytearray:
    """All of a blob. Cost: its size, twice over while a chunk is copied."""
    data = bytearray()
    for chunk in iter_blob(nodes, tree):
        data += chunk
    return data
