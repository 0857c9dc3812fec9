"""The nodes of trees: their bytes, and a cache of decoded nodes. Layer: values.

A leaf of a sequence is a MessagePack array of its elements, and a leaf of a map a MessagePack map of its entries, so
each decodes in one call. An inner node names its children by address, with the number of elements under each.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from enum import Enum
from itertools import islice
from operator import lt
from struct import unpack
from threading import RLock
from typing import Any, Final

import msgpack

from versioned_state.errors import CorruptObjectError
from versioned_state.objects.address import ADDRESS_SIZE, Address, Kind, address_of
from versioned_state.objects.envelope import Segmented
from versioned_state.objects.store import KeptObjects, Reader, Staging
from versioned_state.values.cells import array_header, map_header, pack
from versioned_state.values.trees.segments import (
    NO_CUTS,
    NODE_IN_SEGMENTS,
    Cuts,
    cuts_of,
    cuts_of_node,
    leaf_in_segments,
    node_in_segments,
)


class Shape(Enum):
    """The kind of content of a tree, which decides how its nodes are delimited and written."""

    SEQUENCE = "sequence"
    MAP = "map"
    BLOB = "blob"

    # Each value has one member, so identity is enough. The hash of Enum is a Python call, and every read of a node
    # would make it.
    __hash__: Any = object.__hash__


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
        items: of a leaf, the cells of its elements or values (of a blob, its one chunk); above, the children's
            addresses.
        counts: the number of elements under each item, in bytes for a blob, or None in a leaf, whose items are single
            elements.
        keys: for a map, the key of each item: in a leaf its own, above the first one under it. None otherwise.
        is_open: for a node that is new or in segments: whether it is the last of its level and has no boundary at its
            end.
        cuts: for an open node, its known segments that are stored or staged.
        weight: of an open leaf of a sequence that a chunker of this process has made, the weight of its items, so that
            those that are appended need not be weighed and hashed with all before them. 0 for any other node, such as
            one that was read.
    """

    __slots__ = ("count", "counts", "cuts", "is_open", "items", "keys", "level", "raw", "size", "weight")

    def __init__(
        self, level: int, items: list[bytes], counts: list[int] | None = None, keys: list[bytes] | None = None
    ) -> None:
        self.level: Final = level
        self.items: Final = items
        self.counts: Final = counts
        self.keys: Final = keys
        self.count: Final = len(items) if counts is None else sum(counts)
        self.raw: bytes | None = None
        self.size: int = 0  # in a cache
        self.is_open: bool = False
        self.cuts: Cuts = NO_CUTS
        self.weight: int = 0


def write_node(shape: Shape, node: Node) -> bytes:
    """Return the raw bytes of a node, kind first.

    The node keeps them. A leaf of a blob is not written here: it is the chunk itself.
    """
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
        return map_leaf(len(node.items), written_entries(node.keys, node.items))
    return _SEQUENCE_LEAF + array_header(len(node.items)) + b"".join(node.items)


def map_leaf(count: int, entries: bytes) -> bytes:
    """Return the raw bytes of a leaf of a map, from those of its entries."""
    return _MAP_LEAF + map_header(count) + entries


def written_entries(keys: Iterable[bytes], items: Iterable[bytes]) -> bytes:
    """Return the raw bytes of some entries of a leaf of a map. Those of a leaf are those of its parts, joined."""
    parts: list[bytes] = []
    for key, cell in zip(keys, items, strict=True):
        parts += (pack(key), cell)
    return b"".join(parts)


def extended_leaf(leaf: Node, keys: list[bytes], items: list[bytes]) -> Node:
    """Append entries to a leaf of a map. Cost: the new entries, since the bytes of the old ones are reused."""
    node = Node(0, [*leaf.items, *items], None, [*(leaf.keys or ()), *keys])
    raw = write_node(Shape.MAP, leaf)[2 if leaf.count < 16 else 1 + len(map_header(leaf.count)) :]
    node.raw = map_leaf(node.count, raw + written_entries(keys, items))
    return node


def read_node(shape: Shape, raw: bytes) -> Node:
    """Return the node in these raw bytes. Raises ``CorruptObjectError`` if they are not a node of this shape."""
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
    unpack, skip, tell = unpacker.unpack, unpacker.skip, unpacker.tell
    skip()
    cells: list[bytes] = []
    keys: list[bytes] | None = None
    if shape is Shape.MAP:
        keys = []
        for _ in range(unpacker.read_map_header()):
            keys.append(unpack())
            start = tell()
            skip()
            cells.append(raw[start : tell()])
    else:
        count = unpacker.read_array_header()
        start = tell()
        for _ in range(count):
            skip()
            end = tell()
            cells.append(raw[start:end])
            start = end
    if tell() != len(raw):
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
    children = len(counts)
    if not children or len(joined) != ADDRESS_SIZE * children or not _all_ints(map(type, counts)) or min(counts) < 1:
        raise ValueError("its children do not add up")
    keys = None
    if shape is Shape.MAP:
        (keys,) = rest
        if type(keys) is not list or len(keys) != children:
            raise ValueError("its keys do not match its children")
        if not _are_sorted(keys):
            raise ValueError("its keys are not in order")
    node = Node(level, list(unpack(_ADDRESS * children, joined)), counts, keys)
    if type(raw) is Segmented:
        node.is_open, node.cuts = True, cuts_of_node(raw, node.items)
    return node


def _are_sorted(keys: list[bytes]) -> bool:
    """Return whether these are bytes in rising order.

    Bytes compare with bytes only: a later key of another type raises ``TypeError``.
    """
    return not keys or (type(keys[0]) is bytes and all(map(lt, keys, islice(keys, 1, None))))


_all_ints: Final = frozenset({int}).issuperset

_ADDRESS: Final = f"{ADDRESS_SIZE}s"
"""An address, for ``struct``, which splits the addresses of a node in one call."""


class NodeCache(OrderedDict[bytes, Node]):
    """A least-recently-used cache of decoded nodes by address, up to about ``max_bytes`` of memory.

    Several ``Nodes`` and threads may share a cache, and a node may be in several caches: nodes are never changed.

    Attributes:
        clears: how often the cache was emptied. A node that is read while that happens may be one of those that must
            not stay.
        since: all nodes here existed after this number of gc's ``sweeps`` (see ``GcFence``).
    """

    DEFAULT_BYTES = 1 << 24

    def __init__(self, max_bytes: int | None = None) -> None:
        super().__init__()
        self.max_bytes: int = self.DEFAULT_BYTES if max_bytes is None else max_bytes
        self.size: int = 0
        self.clears: int = 0
        self.since: int = 0
        self._lock = RLock()  # a finalizer that runs within ``keep`` may close a store, and so empty the cache

    def keep(self, address: bytes, node: Node, raw_size: int, clears: int | None = None) -> None:
        """Add a node. Evicts the least recently used ones.

        Args:
            clears: of the cache before the node was read. If it was emptied since, the node is not added.
        """
        if address in self:
            return
        if not node.size:  # if another cache has the node, its size is known
            # The items take about as many bytes as the raw form, which a written node keeps as well.
            node.size = raw_size * (1 if node.raw is None else 2) + _NODE_COST + _ITEM_COST * len(node.items)
        with self._lock:
            if address in self or (clears is not None and clears != self.clears):
                return
            # Counted first, and when it is removed last: after an interrupt the cache counts too much, and not too
            # little.
            self.size += node.size
            self[address] = node
            while self.size > self.max_bytes:
                if not self:
                    self.size = 0
                    return
                self.size -= self.popitem(last=False)[1].size

    def clear(self) -> None:
        with self._lock:
            self.clears += 1
            super().clear()
            self.size = 0

    def advance(self, since: int) -> None:
        """Empty the cache, unless all of its nodes existed after this number of ``sweeps``."""
        with self._lock:
            if since > self.since:
                self.clear()
                self.since = since

    def renew(self) -> None:
        """Begin anew in a forked process: another thread of the parent may have held the lock."""
        self._lock = RLock()
        self.clear()

    def used(self, address: bytes) -> Node | None:
        """Return the node at an address, or None. Marks it as used."""
        node = self.get(address)
        if node is not None:
            try:  # noqa: SIM105 - suppress() takes longer than the rest of this
                self.move_to_end(address)
            except KeyError:
                pass  # another thread has just evicted it
        return node

    def trim(self, max_bytes: int) -> None:
        """Evict the least recently used nodes until at most ``max_bytes`` are left."""
        while self.size > max_bytes and self:
            self.size -= self.popitem(last=False)[1].size


def check_child(parent: Node, index: int, child: Node) -> None:
    """Raise ``CorruptObjectError`` if a node is not the child that its parent describes.

    Without this, a few objects that name each other could pass for any number of entries.
    """
    if (
        child.level != parent.level - 1
        or (parent.counts is not None and child.count != parent.counts[index])
        or (parent.keys is not None and child.keys is not None and child.keys[:1] != [parent.keys[index]])
    ):
        raise CorruptObjectError(
            parent.items[index].hex(), "its level, count or first key is not what the node above it says"
        )


class Nodes:
    """Nodes by address: a bounded cache of decoded nodes over a reader, and the staging area for new ones.

    Cost of a cached node: one dict lookup. Not for two threads at once.

    Args:
        cache: holds the nodes that were read or staged here; by default a new one. Others may use it too if nothing is
            staged here.
        shared: a second cache, which others use too. It gets the nodes that were read from the store, and those that
            ``share`` names.
    """

    def __init__(
        self,
        reader: Reader,
        *,
        staging: Staging | None = None,
        cache: NodeCache | None = None,
        shared: NodeCache | None = None,
    ) -> None:
        self.reader: Reader = reader
        self._staging = staging
        self._cache = NodeCache() if cache is None else cache
        self._shared = shared
        self._common = self._cache if shared is None else shared  # the cache that others may empty while a node is read

    @property
    def clears(self) -> int:
        """The number of times the shared cache was emptied, to be read before a node that ``keep`` gets."""
        return self._common.clears

    def bind(self, staging: Staging) -> None:
        """Use another overlay over the same store from now on.

        Cached nodes stay valid: an address has one content everywhere.
        """
        self.reader = self._staging = staging

    @property
    def held_bytes(self) -> int:
        """Approximate bytes of memory of the decoded nodes and the staged objects. Cost: O(1)."""
        return self._cache.size + (0 if self._staging is None else self._staging.held_bytes)

    def trim(self, max_bytes: int) -> None:
        """Evict the least recently used nodes until at most ``max_bytes`` are left. Cost: the evicted nodes."""
        self._cache.trim(max_bytes)

    @property
    def staging(self) -> Staging:
        """The staging for new objects."""
        assert self._staging is not None, "these nodes are for reading"
        return self._staging

    def keep_objects(self) -> None:
        """Keep in memory all objects that are read from now on."""
        if not isinstance(self.reader, KeptObjects):
            self.reader = KeptObjects(self.reader)
            self._cache, self._shared = NodeCache(), None  # a shared cache would evict nodes
            self._common = self._cache

    def get(self, shape: Shape, top: Node | bytes) -> Node:
        """Return the node at an address, or an inlined node as it is."""
        if type(top) is Node:
            return top
        assert isinstance(top, bytes)
        node = self._cache.used(top)
        if node is None:
            node = self._from_shared(shape, top)
        if node is None:
            clears = self._common.clears
            raw = self.reader.read(Address(top))
            node = read_node(shape, raw)
            if shape is not Shape.BLOB or node.level:
                self.keep(top, node, raw, clears)
        return node

    def _from_shared(self, shape: Shape, address: bytes) -> Node | None:
        shared = self._shared
        node = None if shared is None else shared.used(address)
        # A crafted list may name a node of a map, and a crafted text a leaf of a list: chunks are never here.
        if node is None or (node.keys is None) is (shape is Shape.MAP) or (shape is Shape.BLOB and not node.level):
            return None
        self._cache.keep(address, node, 0)
        return node

    def keep(self, address: bytes, node: Node, raw: bytes, clears: int) -> None:
        """Put a node that was just read into the caches. ``clears``: as it was before that."""
        shared, staging = self._shared, self._staging
        if shared is None:
            self._cache.keep(address, node, len(raw), clears)
            return
        self._cache.keep(address, node, len(raw))
        if staging is None or not (address in staging or staging.store.from_memory):
            shared.keep(address, node, len(raw), clears)

    def share(self, staged: Staging, sweeps: int) -> None:
        """Put the nodes of a staging now in the store into the shared cache: the next reader is likely to need them.

        Leaves out the nodes of a large commit, which would evict the nodes that others use.

        Args:
            sweeps: the number of gc's ``sweeps`` after which they were stored. If another one is known by now, they may
                be gone.
        """
        shared, own, addresses = self._shared, self._cache, staged.addresses()
        if shared is None or len(addresses) > _MOST_SHARED:
            return
        clears = shared.clears
        if sweeps == shared.since:
            for address in addresses:
                if address in own:
                    shared.keep(address, own[address], 0, clears)

    def child(self, shape: Shape, parent: Node, index: int) -> Node:
        """Return the child of an inner node, checked against the level, count and key that the inner node states."""
        child = self.get(shape, parent.items[index])
        check_child(parent, index, child)
        return child

    def fetch(self, shape: Shape, *tops: Node | bytes) -> None:
        """Read these nodes into the cache in one call of the store."""
        wanted = [
            Address(top)
            for top in tops
            if isinstance(top, bytes) and top not in self._cache and self._from_shared(shape, top) is None
        ]
        if len(wanted) > 1:
            clears = self._common.clears
            for address, raw in self.reader.read_many(wanted).items():
                self.keep(address, read_node(shape, raw), raw, clears)

    def get_all(self, shape: Shape, addresses: Iterable[bytes]) -> list[Node]:
        """Return the nodes at some addresses, in their order.

        Those that are in no cache are read in one call of the store.
        """
        used = self._cache.used
        found = {address: used(address) or self._from_shared(shape, address) for address in addresses}
        wanted = [Address(address) for address, node in found.items() if node is None]
        if wanted:
            clears = self._common.clears
            for address, raw in self.reader.read_many(wanted).items():
                found[address] = node = read_node(shape, raw)
                self.keep(address, node, raw, clears)
        return [node for node in found.values() if node is not None]

    def add(self, shape: Shape, node: Node) -> Address:
        """Stage a new node. Returns its address. An open node of a sequence is stored in segments."""
        raw = node.raw or write_node(shape, node)
        staging = self._staging
        assert staging is not None, "these nodes are for reading"
        if node.is_open and node.keys is None and len(raw) >= NODE_IN_SEGMENTS:
            cut = node_in_segments if node.level else leaf_in_segments
            raw, node.cuts, segments = cut(raw, node.items, node.cuts)
            for segment, part in segments:
                staging.add(part, segment)
        else:
            node.cuts = NO_CUTS  # these were the cuts of the node before its edit
        address = staging.add(raw)
        self._cache.keep(address, node, len(raw))
        return address

    def add_raw(self, raw: bytes) -> Address:
        """Stage an object that is not a node: a chunk, a packed value."""
        return self.staging.add(raw)
