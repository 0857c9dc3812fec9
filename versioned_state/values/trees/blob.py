"""Long texts and bytes as chunks: their boundaries, and reading them back. Layer: values.

A chunk of bytes has a fixed size, since arrays and buffers change in place. The content of a chunk of text decides at
which line it ends, so an edit in the middle of a text moves no other boundary.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Final

from xxhash import xxh3_64_intdigest

from versioned_state.errors import CorruptObjectError, LimitExceededError
from versioned_state.objects.address import Address, Kind, address_of, expect
from versioned_state.records import dataclass
from versioned_state.values.cells import MAX_BLOB
from versioned_state.values.trees.edit import Edit, build, splice
from versioned_state.values.trees.nodes import Nodes, Shape
from versioned_state.values.trees.tree import Tree, iter_chunks

CHUNK_BYTES: Final = 1 << 16
"""Bytes of a chunk of binary data."""

TEXT_LEAST: Final = 3072
TEXT_SCALE: Final = 2048
TEXT_GREATEST: Final = 16_384
"""Bytes of a chunk of text, 4.5 KB in the mean.

Chunks are smaller than the leaves of a sequence because they are not stored in segments: a text that grows by a line
writes its last chunk again (docs/design/034).
"""

_PER_BYTE: Final = (1 << 64) // TEXT_SCALE
_PIECE: Final = re.compile(rb"[^\n]{0,511}\n|[^\n]{0,255}[ ,]|[^\n]{1,256}")
"""A line; of one beyond 512 bytes, stretches that end after a blank or comma, or after 256 bytes if there is none."""

_CHUNK = bytes((Kind.CHUNK,))


def binary_spans(size: int) -> Iterator[tuple[int, int]]:
    """Start and end of each chunk of ``size`` bytes."""
    for start in range(0, size, CHUNK_BYTES):
        yield start, min(start + CHUNK_BYTES, size)


def text_spans(data: bytes) -> Iterator[tuple[int, int]]:
    """Start and end of each chunk of a text in UTF-8, by the rule of the leaves of a sequence.

    Cost: one hash a line.
    """
    start = 0
    for end in text_cuts(data):
        yield start, end
        start = end
    if start < len(data):
        yield start, len(data)


def text_cuts(data: bytes) -> Iterator[int]:
    """Yield the boundaries in a text in UTF-8, or in some successive chunks of one."""
    start = 0
    for match in _PIECE.finditer(data):
        end = match.end()
        piece = match.group()
        size = end - start
        if (size >= TEXT_LEAST and xxh3_64_intdigest(piece) < len(piece) * _PER_BYTE) or size >= TEXT_GREATEST:
            yield end
            start = end


def add_chunk(nodes: Nodes, part: bytes | memoryview, known: frozenset[Address] = frozenset()) -> Address:
    """Stage a chunk, unless it is known to be stored. Returns its address."""
    raw = _CHUNK + part
    if known and (address := address_of(raw)) in known:
        return address
    return nodes.add_raw(raw)


@dataclass(frozen=True, slots=True)
class Blob:
    """The tree over some bytes, and its chunks in order, by address and size."""

    tree: Tree
    chunks: list[Address]
    sizes: list[int]


def write_blob(nodes: Nodes, chunks: list[Address], sizes: list[int], old: Blob | None = None) -> Blob:
    """Return the tree over these chunks.

    If a similar ``old`` blob is given, only the nodes above the chunks that differ are written.
    """
    if old is None or len(old.chunks) < 2 or len(chunks) < 2:
        return Blob(build(nodes, Shape.BLOB, 1, Edit(0, 0, list(chunks), sizes)), chunks, sizes)
    edits = _edits(old, chunks, sizes)
    return Blob(splice(nodes, old.tree, edits, level=1) if edits else old.tree, chunks, sizes)


def _edits(old: Blob, chunks: list[Address], sizes: list[int]) -> list[Edit]:
    """Return the edits from a blob's chunks to these: one for each difference if the counts are equal, else one."""
    least = min(len(old.chunks), len(chunks))
    first = next((i for i in range(least) if old.chunks[i] != chunks[i]), least)
    suffix = next((i for i in range(least - first) if old.chunks[-1 - i] != chunks[-1 - i]), least - first)
    end, new_end = len(old.chunks) - suffix, len(chunks) - suffix
    starts = list(accumulate(old.sizes, initial=0))
    if end - first != new_end - first:
        return [Edit(starts[first], starts[end], list(chunks[first:new_end]), sizes[first:new_end])]
    return [
        Edit(starts[i], starts[i + 1], [chunks[i]], [sizes[i]]) for i in range(first, end) if old.chunks[i] != chunks[i]
    ]


def write_spans(
    nodes: Nodes, data: bytes | memoryview, spans: Iterable[tuple[int, int]], old: Blob | None = None
) -> Blob:
    """Return the blob of ``data`` with chunks at these spans.

    The chunks that it shares with ``old`` are stored already.
    """
    view = memoryview(data)
    known = frozenset(old.chunks) if old is not None else frozenset()
    spans = list(spans)
    return write_blob(nodes, [add_chunk(nodes, view[a:b], known) for a, b in spans], [b - a for a, b in spans], old)


def write_bytes(nodes: Nodes, data: bytes | memoryview) -> Tree:
    """Return the tree over bytes, in chunks of the fixed size."""
    if 0 < len(data) <= CHUNK_BYTES:
        return Tree(Shape.BLOB, len(data), nodes.add_raw(_CHUNK + data))
    return write_spans(nodes, data, binary_spans(len(data))).tree


def iter_blob(nodes: Nodes, tree: Tree) -> Iterator[bytes]:
    """Yield the chunks of a blob, in order. The chunks of an inner node are read in one call of the store.

    Raises:
        LimitExceededError: the blob states more than ``MAX_BLOB`` bytes.
        CorruptObjectError: its chunks have more bytes than it states.
    """
    if tree.count > MAX_BLOB:
        raise LimitExceededError(f"a stored value of {tree.count:,} bytes", limit=MAX_BLOB)
    left = tree.count
    for addresses in iter_chunks(nodes, tree):
        raws = nodes.reader.read_many(Address(address) for address in addresses)
        for address in addresses:
            raw = raws[Address(address)]
            expect(raw, Address(address), Kind.CHUNK)
            left -= len(raw) - 1
            if left < 0:
                raise CorruptObjectError(address.hex(), f"a blob of {tree.count:,} bytes has more")
            yield raw[1:]


def read_blob(nodes: Nodes, tree: Tree) -> bytearray:
    """Return all bytes of a blob. Cost: its size."""
    data = bytearray()
    for chunk in iter_blob(nodes, tree):
        data += chunk
    return data
