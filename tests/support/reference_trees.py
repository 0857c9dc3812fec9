"""Trees as ``docs/format.md`` has them, built in the plainest way: item by item, level by level, without engine code.

It is the slow twin of ``values/trees``: whatever a tree went through, its nodes must be these. The numbers are read at
each call, so small ones count (``small_nodes``); golden tests pin the real ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import msgpack
from xxhash import xxh3_64_intdigest

from versioned_state import KVStore
from versioned_state.objects.address import Address, Kind, address_of
from versioned_state.objects.store import ObjectStore, Reader
from versioned_state.values.cells import Code, code_of, is_array, payload_of, split_cells, weights_of
from versioned_state.values.trees import blob, chunker
from versioned_state.values.trees.nodes import Shape, write_node
from versioned_state.values.trees.tree import Tree


@dataclass
class _Made:
    """One node: its raw bytes, the elements under it, and its first key."""

    raw: bytes
    count: int
    key: bytes | None = None


def top_raw(shape: Shape, cells: list[bytes], keys: list[bytes] | None = None) -> bytes:
    """Return the raw bytes of the top of the tree over these cells, or over the chunks of a blob."""
    level = 0
    if shape is Shape.BLOB:
        row = [_Made(bytes((Kind.CHUNK,)) + chunk, len(chunk)) for chunk in cells]
    else:
        row = [_leaf(shape, cells[a:b], None if keys is None else keys[a:b]) for a, b in _spans(leaf_ends(cells, keys))]
    if not row:
        return _leaf(Shape.SEQUENCE if keys is None else shape, [], keys).raw
    while len(row) > 1:
        level += 1
        row = [
            _inner(shape, level, row[a:b])
            for a, b in _spans(node_ends([address_of(each.raw)[0] < 256 // chunker.NODE_SCALE for each in row]))
        ]
    return row[0].raw


def _spans(ends: list[bool]) -> Iterator[tuple[int, int]]:
    """Start and end of each run that ends where the rule ends it."""
    start = 0
    for index, is_end in enumerate(ends, 1):
        if is_end or index == len(ends):
            yield start, index
            start = index


def leaf_ends(cells: list[bytes], keys: list[bytes] | None) -> list[bool]:
    if keys is not None:
        return node_ends([xxh3_64_intdigest(key) < (1 << 64) // chunker.NODE_SCALE for key in keys])
    ends, total = [], 0
    for cell in cells:
        (weight,) = weights_of([cell])
        total += weight
        may_end = xxh3_64_intdigest(cell) < weight * ((1 << 64) // chunker.LEAF_SCALE)
        ends.append(total >= chunker.LEAF_GREATEST or (total >= chunker.LEAF_LEAST and may_end))
        total = 0 if ends[-1] else total
    return ends


def node_ends(may_end: list[bool]) -> list[bool]:
    ends, total = [], 0
    for may in may_end:
        total += 1
        ends.append(total >= chunker.NODE_GREATEST or (total >= chunker.NODE_LEAST and may))
        total = 0 if ends[-1] else total
    return ends


def _leaf(shape: Shape, cells: list[bytes], keys: list[bytes] | None) -> _Made:
    packer = msgpack.Packer()
    if shape is Shape.MAP:
        assert keys is not None
        body = b"".join(
            [
                packer.pack_map_header(len(cells)),
                *[msgpack.packb(key) + cell for key, cell in zip(keys, cells, strict=True)],
            ]
        )
        return _Made(bytes((Kind.MAP_LEAF,)) + body, len(cells), keys[0] if keys else None)
    return _Made(bytes((Kind.SEQUENCE_LEAF,)) + packer.pack_array_header(len(cells)) + b"".join(cells), len(cells))


def _inner(shape: Shape, level: int, children: list[_Made]) -> _Made:
    body = [level, [child.count for child in children], b"".join(address_of(child.raw) for child in children)]
    kind = Kind.SEQUENCE_NODE
    if shape is Shape.MAP:
        body.append([child.key for child in children])
        kind = Kind.MAP_NODE
    return _Made(bytes((kind,)) + msgpack.packb(body), sum(child.count for child in children), children[0].key)


def text_chunks(data: bytes) -> list[bytes]:
    """Return the chunks of a text in UTF-8."""
    chunks, current = [], b""
    for piece in blob._PIECE.findall(data):
        current += piece
        may_end = xxh3_64_intdigest(piece) < len(piece) * ((1 << 64) // blob.TEXT_SCALE)
        if len(current) >= blob.TEXT_GREATEST or (len(current) >= blob.TEXT_LEAST and may_end):
            chunks.append(current)
            current = b""
    return [*chunks, current] if current else chunks


def byte_chunks(data: bytes) -> list[bytes]:
    """Return the chunks of bytes."""
    return [data[at : at + blob.CHUNK_BYTES] for at in range(0, len(data), blob.CHUNK_BYTES)]


# Stored trees, read and held against it


@dataclass
class _Content:
    """What the leaves of a stored tree have, and how many levels of nodes there are."""

    cells: list[bytes]
    keys: list[bytes] | None
    levels: int


def assert_canonical(store: KVStore, root: Tree) -> dict[Code | None, int]:
    """Check the canonical form of every tree of a state.

    Return the most levels by kind of tree, with None for the root itself.
    """
    reader = ObjectStore(store)
    raw = raw_of(root, reader)
    content = _content(reader, Shape.MAP, raw, 0)
    assert top_raw(Shape.MAP, content.cells, content.keys) == raw, "the root is not canonical"
    found: dict[Code | None, int] = {None: content.levels}
    for cell in content.cells:
        _check(reader, cell, found)
    return found


def _check(reader: Reader, cell: bytes, found: dict[Code | None, int]) -> None:
    """Hold the trees in a cell to their form, and those in their cells."""
    code = code_of(cell)
    if code == Code.TYPED:
        for part in split_cells(cell)[1:]:
            _check(reader, part, found)
    elif code is None and is_array(cell):
        for part in split_cells(cell):  # a series
            _check(reader, part, found)
    elif code is not None and code >= Code.LIST_TREE:
        parts = msgpack.unpackb(payload_of(cell), strict_map_key=False)
        shape = (
            Shape.MAP
            if code == Code.DICT_TREE
            else Shape.SEQUENCE
            if code in (Code.LIST_TREE, Code.TUPLE_TREE, Code.SET_TREE, Code.FROZENSET_TREE)
            else Shape.BLOB
        )
        content = _check_tree(reader, shape, parts[0], parts[1], code)
        found[Code(code)] = max(found.get(Code(code), 0), content.levels)
        for each in content.cells if shape is not Shape.BLOB else ():
            _check(reader, each, found)
        if code == Code.DICT_TREE and len(parts) > 2:
            order = _check_tree(reader, Shape.SEQUENCE, parts[2], parts[3], code)
            assert parts[2] == parts[0] == len(set(order.cells)), "the order of the keys has each key once"


def _check_tree(reader: Reader, shape: Shape, count: int, top: bytes | list[bytes], code: int) -> _Content:
    raw = top[0] if isinstance(top, list) else reader.read(Address(top))
    content = _content(reader, shape, raw, None)
    if shape is Shape.BLOB:
        whole = b"".join(content.cells)
        content.cells = text_chunks(whole) if code == Code.TEXT else byte_chunks(whole)
        assert count == len(whole)
    else:
        assert count == len(content.cells)
    assert top_raw(shape, content.cells, content.keys) == raw, f"a tree of {count} ({Code(code).name}) is not canonical"
    return content


def _content(reader: Reader, shape: Shape, raw: bytes, level: int | None) -> _Content:
    """Return the content under a node, read without the engine's own reader of nodes."""
    if raw[0] == Kind.CHUNK:
        return _Content([raw[1:]], None, 1)
    unpacker = msgpack.Unpacker(strict_map_key=False)
    unpacker.feed(raw[1:])
    if raw[0] in (Kind.SEQUENCE_LEAF, Kind.MAP_LEAF):
        keys: list[bytes] | None = None if raw[0] == Kind.SEQUENCE_LEAF else []
        cells = []
        for _ in range(unpacker.read_array_header() if keys is None else unpacker.read_map_header()):
            if keys is not None:
                keys.append(unpacker.unpack())
            start = unpacker.tell()
            unpacker.skip()
            cells.append(raw[1 + start : 1 + unpacker.tell()])
        return _Content(cells, keys, 1)
    _, counts, joined, *_ = unpacker.unpack()
    parts = [
        _content(reader, shape, reader.read(Address(joined[at : at + 24])), None) for at in range(0, len(joined), 24)
    ]
    assert counts == [sum(map(len, part.cells)) if shape is Shape.BLOB else len(part.cells) for part in parts], (
        "a wrong count"
    )
    keys = None if parts[0].keys is None else [key for part in parts for key in part.keys or ()]
    return _Content([cell for part in parts for cell in part.cells], keys, 1 + max(part.levels for part in parts))


def raw_of(tree: Tree, reader: Reader) -> bytes:
    """Return the raw bytes of the top of one of the engine's trees."""
    return reader.read(Address(tree.top)) if isinstance(tree.top, bytes) else write_node(tree.shape, tree.top)
