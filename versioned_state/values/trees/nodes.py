"""The nodes that trees are made of: their bytes, and a cache of decoded ones. Layer: values.

A leaf of a sequence is the MessagePack array of its elements, a leaf of a map the MessagePack map of its entries, so either
decodes in one call. An inner node names its children by address, with how many elements lie under each.
"""

from __future__ import annotations

from collections import OrderedDict
from enum import Enum
from itertools import islice
from operator import lt
from typing import Any, Final

import msgpack

from versioned_state.errors import CorruptObjectError
from versioned_state.objects.address import ADDRESS_SIZE, Address, Kind, address_of
from versioned_state.objects.envelope import Segmented
from versioned_state.objects.store import KeptObjects, Reader, Staging
from versioned_state.values.cells import array_header, map_header, pack
from versioned_state.values.trees.segments import NO_CUTS, NODE_IN_SEGMENTS, cuts_of, cuts_of_node, leaf_in_segments, node_in_segments


class Shape(Enum):
    """The kind of content of a tree, which decides how its nodes are delimited and written."""

    SEQUENCE = "sequence"
    MAP = "map"
    BLOB = "blob"

    # Each member is the only one of its value. The hash of Enum is a Python call, and every node that is read asks for it.
    __hash__ = object.__hash__


_LEAF_KIND: Final = {Shape.SEQUENCE: Kind.SEQUENCE_LEAF, Shape.MAP: Kind.MAP_LEAF, Shape.BLOB: Kind.CHUNK}
_NODE_KIND: Final = {Shape.SEQUENCE: Kind.SEQUENCE_NODE, Shape.MAP: Kind.MAP_NODE, Shape.BLOB: Kind.SEQUENCE_NODE}
_SEQUENCE_LEAF, _SEQUENCE_NODE = bytes((Kind.SEQUENCE_LEAF,)), bytes((Kind.SEQUENCE_NODE,))
_MAP_LEAF, _MAP_NODE = bytes((Kind.MAP_LEAF,)), bytes((Kind.MAP_NODE,))

_MAX_LEVEL: Final = 64
"""No honest tree is taller: every level at least halves the one below."""


_NODE_COST: Final = 300
_ITEM_COST: Final = 60
"""Bytes that a decoded node takes in memory, and each of its items, besides its raw bytes; measured."""


_MOST_SHARED: Final = 256
"""Objects of a commit up to which its nodes are shared: more than a change of a few places stages."""


class Node:
    """One decoded node.

    Attributes:
        level: 0 for a leaf.
        items: of a leaf, the cells of its elements or values (of a blob, its one chunk); above, the children's addresses.
        counts: how many elements lie under each item, in bytes for a blob; None in a leaf, each of whose items is one element.
        keys: of a map, the key of each item: in a leaf its own, above the first one under it. None otherwise.
        is_open: whether a node, new or in segments, is the last one of its level and has no boundary at its end.
        cuts: of an open node, the segments that are stored or staged, as far as they are known.
    """

    __slots__ = ("count", "counts", "cuts", "is_open", "items", "keys", "level", "raw", "size")

    def __init__(self, level: int, items: list[bytes], counts: list[int] | None = None, keys: list[bytes] | None = None) -> None:
        self.level = level
        self.items = items
        self.counts = counts
        self.keys = keys
        self.count = len(items) if counts is None else sum(counts)
        self.raw: bytes | None = None
        self.size = 0  # in a cache
        self.is_open = False
        self.cuts = NO_CUTS


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
        packed: bytes = pack(body)
        return (_MAP_NODE if shape is Shape.MAP else _SEQUENCE_NODE) + packed
    if shape is Shape.MAP:
        assert node.keys is not None
        parts = [_MAP_LEAF, map_header(len(node.items))]
        for key, cell in zip(node.keys, node.items, strict=True):
            parts += (pack(key), cell)
        return b"".join(parts)
    return _SEQUENCE_LEAF + array_header(len(node.items)) + b"".join(node.items)


def extended_leaf(leaf: Node, keys: list[bytes], items: list[bytes]) -> Node:
    """A leaf of a map with more entries behind its own. Cost: the new ones; the bytes of the old ones are taken over."""
    own = leaf.keys or []
    node = Node(0, [*leaf.items, *items], None, [*own, *keys])
    parts = [_MAP_LEAF, map_header(node.count), write_node(Shape.MAP, leaf)[1 + len(map_header(len(own))) :]]
    for key, cell in zip(keys, items, strict=True):
        parts += (pack(key), cell)
    node.raw = b"".join(parts)
    return node


def read_node(shape: Shape, raw: bytes) -> Node:
    """The node in these raw bytes. Raises ``CorruptObjectError`` if they are not a node of this shape."""
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
    if keys is not None and not _are_sorted(keys):
        raise ValueError("its keys are not in order")
    node = Node(0, cells, None, keys)
    if type(raw) is Segmented:
        node.is_open, node.cuts = True, cuts_of(raw, cells)
    return node


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
        if not _are_sorted(keys):
            raise ValueError("its keys are not in order")
    node = Node(level, [joined[i : i + ADDRESS_SIZE] for i in range(0, len(joined), ADDRESS_SIZE)], counts, keys)
    if type(raw) is Segmented:
        node.is_open, node.cuts = True, cuts_of_node(raw, node.items)
    return node


def _are_sorted(keys: list[bytes]) -> bool:
    return all(map(lt, keys, islice(keys, 1, None)))


_all_ints: Final = frozenset({int}).issuperset
_all_bytes: Final = frozenset({bytes}).issuperset


class NodeCache(OrderedDict[bytes, Node]):
    """Decoded nodes by address, up to about ``max_bytes`` of memory, the one used last at the end.

    Several ``Nodes``, and threads, may share one, and a node may be in several: it is never changed.
    """

    DEFAULT_BYTES = 1 << 24

    def __init__(self, max_bytes: int | None = None) -> None:
        super().__init__()
        self.max_bytes = self.DEFAULT_BYTES if max_bytes is None else max_bytes
        self.size = 0

    def keep(self, address: bytes, node: Node, raw_size: int) -> None:
        """Add a node. The nodes used longest ago give way to it."""
        if address in self:
            return
        if not node.size:  # another cache that it is in counts with its size
            # The items have about the bytes of the raw form once more, which a node that was written keeps as well.
            node.size = raw_size * (1 if node.raw is None else 2) + _NODE_COST + _ITEM_COST * len(node.items)
        self[address] = node
        self.size += node.size
        while self.size > self.max_bytes:
            try:
                _, old = self.popitem(last=False)
            except KeyError:  # two threads added a node at once, and it was counted twice
                self.size = 0
                return
            self.size -= old.size

    def clear(self) -> None:
        super().clear()
        self.size = 0

    def used(self, address: bytes) -> Node | None:
        """The node at an address, which is the one used last from now on."""
        node = self.get(address)
        if node is not None:
            try:  # noqa: SIM105 - suppress() takes longer than the rest of this
                self.move_to_end(address)
            except KeyError:
                pass  # another thread has just let go of it
        return node

    def trim(self, max_bytes: int) -> None:
        """Let go of the nodes used longest ago, beyond so many bytes."""
        while self.size > max_bytes and self:
            self.size -= self.popitem(last=False)[1].size


def check_child(parent: Node, index: int, child: Node) -> None:
    """Raise ``CorruptObjectError`` if a node is not the child that its parent counts on.

    Without this, a few objects that name each other could pass for any number of entries.
    """
    if (
        child.level != parent.level - 1
        or (parent.counts is not None and child.count != parent.counts[index])
        or (parent.keys is not None and child.keys is not None and child.keys[:1] != [parent.keys[index]])
    ):
        raise CorruptObjectError(parent.items[index].hex(), "its level, count or first key is not what the node above it says")


class Nodes:
    """Nodes by address: a bounded cache of decoded nodes over a reader, and the staging area for new ones.

    Cost of a cached node: one dict lookup. Not for two threads at once.

    Args:
        cache: has what was read or staged here; a cache of its own by default.
        shared: a cache with others, behind that one. It gets the nodes that were read, and those that ``share`` names.
    """

    def __init__(
        self, reader: Reader, *, staging: Staging | None = None, cache: NodeCache | None = None, shared: NodeCache | None = None
    ) -> None:
        self.reader: Reader = reader
        self._staging = staging
        self._cache = NodeCache() if cache is None else cache
        self._shared = shared

    def bind(self, staging: Staging) -> None:
        """Go on with another overlay over the same store. Cached nodes stay: an address means the same everywhere."""
        self.reader = self._staging = staging

    @property
    def held_bytes(self) -> int:
        """Bytes of memory that the decoded nodes and the staged objects take, about. Cost: O(1)."""
        return self._cache.size + (0 if self._staging is None else self._staging.held_bytes)

    def trim(self, max_bytes: int) -> None:
        """Keep decoded nodes of at most so many bytes, those that were used last. Cost: those that go."""
        self._cache.trim(max_bytes)

    @property
    def staging(self) -> Staging:
        """Where new objects go."""
        assert self._staging is not None, "these nodes are for reading"
        return self._staging

    def keep_objects(self) -> None:
        """Keep in memory whatever is read from now on."""
        if not isinstance(self.reader, KeptObjects):
            self.reader = KeptObjects(self.reader)
            self._cache, self._shared = NodeCache(), None  # a node of a shared cache would be let go of

    def get(self, shape: Shape, top: Node | bytes) -> Node:
        """The node at an address; an inlined one is passed through."""
        if type(top) is Node:
            return top
        assert isinstance(top, bytes)
        node = self._cache.used(top)
        if node is None:
            node = self._from_shared(shape, top)
        if node is None:
            raw = self.reader.read(Address(top))
            node = read_node(shape, raw)
            if shape is not Shape.BLOB or node.level:
                self._keep_read(top, node, raw)
        return node

    def _from_shared(self, shape: Shape, address: bytes) -> Node | None:
        shared = self._shared
        node = None if shared is None else shared.used(address)
        if node is None or (node.keys is None) is (shape is Shape.MAP):  # a map's node that a crafted list names is not one of a list
            return None
        self._cache.keep(address, node, 0)
        return node

    def _keep_read(self, address: bytes, node: Node, raw: bytes) -> None:
        self._cache.keep(address, node, len(raw))
        if self._shared is not None and (self._staging is None or address not in self._staging):
            self._shared.keep(address, node, len(raw))

    def share(self, staged: Staging) -> None:
        """Put the nodes of a staging that is in the store by now into the shared cache: the next reader is likely to want them.

        Those of a large commit stay out: they would drive out what others use.
        """
        if self._shared is not None and len(staged) <= _MOST_SHARED:
            for address in staged.addresses():
                if (node := self._cache.get(address)) is not None:
                    self._shared.keep(address, node, 0)

    def child(self, shape: Shape, parent: Node, index: int) -> Node:
        """The child of an inner node, checked against the level, count and key that the node gives it."""
        child = self.get(shape, parent.items[index])
        check_child(parent, index, child)
        return child

    def fetch(self, shape: Shape, *tops: Node | bytes) -> None:
        """Read these nodes in one call of the store, for ``get`` to find them in the cache."""
        wanted = [
            Address(top) for top in tops if isinstance(top, bytes) and top not in self._cache and self._from_shared(shape, top) is None
        ]
        if len(wanted) > 1:
            for address, raw in self.reader.read_many(wanted).items():
                self._keep_read(address, read_node(shape, raw), raw)

    def add(self, shape: Shape, node: Node) -> Address:
        """Stage a new node; its address. An open node of a sequence goes to the store in segments."""
        raw = node.raw or write_node(shape, node)
        staging = self._staging
        assert staging is not None, "these nodes are for reading"
        if node.is_open and node.keys is None and len(raw) >= NODE_IN_SEGMENTS:
            cut = node_in_segments if node.level else leaf_in_segments
            raw, node.cuts, segments = cut(raw, node.items, node.cuts)
            for segment, part in segments:
                staging.add(part, segment)
        else:
            node.cuts = NO_CUTS  # those of the node that it was before
        address = staging.add(raw)
        self._cache.keep(address, node, len(raw))
        return address

    def add_raw(self, raw: bytes) -> Address:
        """Stage an object that is not a node: a chunk, a packed value."""
        return self.staging.add(raw)

    def keep(self, address: bytes, node: Node, raw: bytes) -> None:
        """Have a node that was read in another way at hand for ``get``."""
        self._keep_read(address, node, raw)
