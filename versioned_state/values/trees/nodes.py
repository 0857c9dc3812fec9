"""The nodes that trees are made of: their bytes, and a cache of decoded ones. Layer: values.

A leaf of a sequence is the MessagePack array of its elements, a leaf of a map the MessagePack map of its entries, so either
decodes in one call. An inner node names its children by address, with how many elements lie under each.
"""

from __future__ import annotations

from collections import OrderedDict
from enum import Enum
from typing import Any, Final

import msgpack

from versioned_state.errors import CorruptObjectError
from versioned_state.objects.address import ADDRESS_SIZE, Address, Kind, address_of
from versioned_state.objects.store import Reader, Staging
from versioned_state.values.cells import array_header, map_header


class Shape(Enum):
    """What a tree holds, which decides how its nodes are cut and written."""

    SEQUENCE = "sequence"
    MAP = "map"
    BLOB = "blob"


_LEAF_KIND: Final = {Shape.SEQUENCE: Kind.SEQUENCE_LEAF, Shape.MAP: Kind.MAP_LEAF, Shape.BLOB: Kind.CHUNK}
_NODE_KIND: Final = {Shape.SEQUENCE: Kind.SEQUENCE_NODE, Shape.MAP: Kind.MAP_NODE, Shape.BLOB: Kind.SEQUENCE_NODE}
_MAX_LEVEL: Final = 64
"""No honest tree is taller: every level at least halves the one below."""


class Node:
    """One decoded node.

    Attributes:
        level: 0 for a leaf.
        items: of a leaf, the cells of its elements or values (of a blob, its one chunk); above, the children's addresses.
        counts: how many elements lie under each item, in bytes for a blob; None in a leaf, where each item is one.
        keys: of a map, the key of each item: in a leaf its own, above the first one under it. None otherwise.
    """

    __slots__ = ("count", "counts", "items", "keys", "level", "raw")

    def __init__(self, level: int, items: list[bytes], counts: list[int] | None = None, keys: list[bytes] | None = None) -> None:
        self.level = level
        self.items = items
        self.counts = counts
        self.keys = keys
        self.count = len(items) if counts is None else sum(counts)
        self.raw: bytes | None = None


def write_node(shape: Shape, node: Node) -> bytes:
    """The raw bytes of a node, kind first; a node keeps them. A leaf of a blob is not written here: it is its chunk."""
    if node.raw is None:
        node.raw = _write(shape, node)
    return node.raw


def _write(shape: Shape, node: Node) -> bytes:
    if node.level:
        body: list[Any] = [node.level, node.counts, b"".join(node.items)]
        if node.keys is not None:
            body.append(node.keys)
        packed: bytes = msgpack.packb(body)
        return bytes((_NODE_KIND[shape],)) + packed
    if shape is Shape.MAP:
        assert node.keys is not None
        parts = [bytes((Kind.MAP_LEAF,)), map_header(len(node.items))]
        for key, cell in zip(node.keys, node.items, strict=True):
            parts.append(msgpack.packb(key))
            parts.append(cell)
        return b"".join(parts)
    return bytes((Kind.SEQUENCE_LEAF,)) + array_header(len(node.items)) + b"".join(node.items)


def read_node(shape: Shape, raw: bytes) -> Node:
    """The node in these raw bytes. Raises ``CorruptObjectError`` where they are none of this shape."""
    kind = raw[0] if raw else None
    try:
        if kind == _LEAF_KIND[shape]:
            return _read_leaf(shape, raw)
        if kind == _NODE_KIND[shape]:
            return _read_inner(shape, raw)
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise CorruptObjectError(address_of(raw).hex(), f"not a node: {error}") from error
    raise CorruptObjectError(address_of(raw).hex(), f"expected a node of a {shape.value}, found kind {kind}")


def _read_leaf(shape: Shape, raw: bytes) -> Node:
    if shape is Shape.BLOB:
        chunk = raw[1:]
        return Node(0, [chunk], [len(chunk)])
    unpacker = msgpack.Unpacker(None, max_buffer_size=len(raw), strict_map_key=False)
    unpacker.feed(raw)
    unpacker.skip()
    cells: list[bytes] = []
    keys: list[bytes] | None = None
    if shape is Shape.MAP:
        keys = []
        for _ in range(unpacker.read_map_header()):
            key = unpacker.unpack()
            if type(key) is not bytes:
                raise ValueError(f"a key of type {type(key).__name__}")
            keys.append(key)
            start = unpacker.tell()
            unpacker.skip()
            cells.append(raw[start : unpacker.tell()])
    else:
        count = unpacker.read_array_header()
        start = unpacker.tell()
        for _ in range(count):
            unpacker.skip()
            end = unpacker.tell()
            cells.append(raw[start:end])
            start = end
    if unpacker.tell() != len(raw):
        raise ValueError("bytes after its end")
    return Node(0, cells, None, keys)


def _read_inner(shape: Shape, raw: bytes) -> Node:
    level, counts, joined, *rest = msgpack.unpackb(memoryview(raw)[1:], strict_map_key=False)
    if type(level) is not int or not 1 <= level <= _MAX_LEVEL or type(counts) is not list or type(joined) is not bytes:
        raise ValueError("its fields are not those of an inner node")
    if not counts or len(joined) != ADDRESS_SIZE * len(counts) or not _all_ints(map(type, counts)) or min(counts) < 1:
        raise ValueError("its children do not add up")
    keys = None
    if shape is Shape.MAP:
        (keys,) = rest
        if type(keys) is not list or len(keys) != len(counts) or not _all_bytes(map(type, keys)):
            raise ValueError("its keys do not match its children")
    return Node(level, [joined[i : i + ADDRESS_SIZE] for i in range(0, len(joined), ADDRESS_SIZE)], counts, keys)


_all_ints: Final = frozenset({int}).issuperset
_all_bytes: Final = frozenset({bytes}).issuperset


class NodeCache(OrderedDict[bytes, Node]):
    """At ``most`` so many decoded nodes by address, the one used last at the end.

    Several ``Nodes``, and threads, may share one: a node is never changed.
    """

    def __init__(self, most: int = 1024) -> None:
        super().__init__()
        self.most = most


class Nodes:
    """Nodes by address: a bounded cache of decoded ones over a reader, and where a writer puts new ones.

    Cost of a cached node: one dict lookup. Not for two threads at once.
    """

    def __init__(self, reader: Reader, *, staging: Staging | None = None, cache: NodeCache | None = None) -> None:
        self.reader: Reader = reader
        self._staging = staging
        self._cache = NodeCache() if cache is None else cache

    def bind(self, staging: Staging) -> None:
        """Go on with another overlay over the same store. What is cached stays: an address means the same everywhere."""
        self.reader = self._staging = staging

    @property
    def staging(self) -> Staging:
        """Where new objects go."""
        assert self._staging is not None, "these nodes are for reading"
        return self._staging

    def get(self, shape: Shape, top: Node | bytes) -> Node:
        """The node at an address; an inlined one is passed through."""
        if type(top) is Node:
            return top
        assert isinstance(top, bytes)
        node = self._cache.get(top)
        if node is None:
            node = read_node(shape, self.reader.read(Address(top)))
            if shape is not Shape.BLOB or node.level:
                self.keep(top, node)
        else:
            try:  # noqa: SIM105 - suppress() takes longer than the rest of this
                self._cache.move_to_end(top)
            except KeyError:
                pass  # another thread has just let go of it
        return node

    def fetch(self, shape: Shape, *tops: Node | bytes) -> None:
        """Read these nodes in one call of the store, for ``get`` to find them in the cache."""
        wanted = [Address(top) for top in tops if isinstance(top, bytes) and top not in self._cache]
        if len(wanted) > 1:
            for address, raw in self.reader.read_many(wanted).items():
                self.keep(address, read_node(shape, raw))

    def add(self, shape: Shape, node: Node) -> Address:
        """Stage a new node; its address."""
        address = self.staging.add(write_node(shape, node))
        self.keep(address, node)
        return address

    def add_raw(self, raw: bytes) -> Address:
        """Stage an object that is no node: a chunk, a packed value."""
        return self.staging.add(raw)

    def keep(self, address: bytes, node: Node) -> None:
        """Have a node that was read in another way at hand for `get`."""
        cache = self._cache
        cache[address] = node
        if len(cache) > cache.most:
            cache.popitem(last=False)
