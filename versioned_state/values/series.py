"""Series: dicts that the engine keeps in a state, each under an engine key, and extends entry by entry. Layer: values.

A series is a map in the order of its names. It has three parts, whatever its size: a tree whose last leaf is complete;
one more leaf with the entries after it; and the newest entries, which are in the cell of the series itself::

    complete   leaves that end at boundaries
    last       groups of entries after them, each of ``GROUP`` bytes or more
    newest     the entries of the group that is still smaller

So an entry at the end costs its own bytes, sometimes a leaf, and a path only if it completes the leaf. The parts depend
on the entries alone, as the leaves of every tree do. An entry of up to ``ELEMENT_INLINE`` bytes is in its leaf, since
it is written once and read with its neighbours. Names are never used twice, so merging two states keeps the entries of
both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple

import msgpack

from versioned_state.errors import CorruptObjectError
from versioned_state.values.cells import Code, array_header, decoded_text, order_key, split_cells
from versioned_state.values.changes.diff import diff_maps
from versioned_state.values.decode.decoder import Decoder
from versioned_state.values.trees.chunker import MapLeafChunker
from versioned_state.values.trees.edit import Edit, append_leaves, edit_map, splice
from versioned_state.values.trees.nodes import Node, Nodes, Shape, extended_leaf, map_leaf, written_entries
from versioned_state.values.trees.references import inlined_cell, tree_cell, tree_of
from versioned_state.values.trees.tree import Tree, empty, find, iter_items, iter_items_back, locate, rank, top_of

GROUP: Final = 1024
"""Bytes of keys and cells with which a group of the newest entries ends; part of the format.

Measured on calls of tasks with two to four events: with larger groups, most calls that complete no leaf write no object
of the series either, and the commits are larger.
"""


class Part(NamedTuple):
    """A part of a series, with its cell."""

    tree: Tree
    cell: bytes


_HEADER: Final = array_header(3)


class Parts(NamedTuple):
    """A series, by its three parts."""

    complete: Part
    last: Part
    newest: Part

    @property
    def cell(self) -> bytes:
        """The cell of the series."""
        return _HEADER + self.complete.cell + self.last.cell + self.newest.cell

    @property
    def total(self) -> int:
        """The number of entries."""
        return sum(part.tree.count for part in self)


_EMPTY: Final = empty(Shape.MAP)


def _part(tree: Tree) -> Part:
    return Part(tree, tree_cell(Code.DICT_TREE, tree))


_NONE: Final = _part(_EMPTY)
EMPTY: Final = Parts(_NONE, _NONE, _NONE)
"""A series without entries."""


def parts_of(cell: bytes | None) -> Parts:
    """Return the parts of a series, which are empty if there is no cell. Raises ``CorruptObjectError``."""
    if cell is None:
        return EMPTY
    with suppress(ValueError, TypeError, IndexError, msgpack.UnpackException):
        parts = [Part(tree, each) for each in split_cells(cell) if (tree := tree_of(each, Code.DICT_TREE)) is not None]
        if len(parts) == 3 and (found := Parts(*parts)).cell == cell:
            return found
    raise CorruptObjectError("(a series)", "it is not three dicts in trees of their own")


class GrowingSeries:
    """A series as its writer keeps it between two commits. Never changes: ``extended`` returns another one.

    The newest group is not a node here. Most new entries complete neither a group nor a leaf: then the bytes of that
    group grow, and nothing else is made.

    Args:
        complete, last: these parts.
        group: the cells of the newest entries by key, in order.
        last_key: the key of the last entry of all, or None if there is none, or it is not known.
        like: a series with the same two parts, and the bytes of ``group`` in a leaf, if they are known.

    Attributes:
        cell: the cell of the series.
    """

    __slots__ = ("_before", "_complete", "_group", "_last", "_last_key", "_raw", "cell")

    def __init__(
        self,
        complete: Part,
        last: Part,
        group: dict[bytes, bytes],
        last_key: bytes | None,
        like: tuple[GrowingSeries, bytes] | None = None,
    ) -> None:
        self._complete = complete
        self._last = last
        self._group = group
        self._last_key = last_key
        if like is None:
            self._before = _HEADER + complete.cell + last.cell
            self._raw = written_entries(group, group.values())
        else:
            self._before, self._raw = like[0]._before, like[1]
        count = len(group)
        self.cell = self._before + inlined_cell(Code.DICT_TREE, count, map_leaf(count, self._raw))

    @property
    def parts(self) -> Parts:
        """The three parts of the series."""
        newest = Tree(Shape.MAP, len(self._group), Node(0, [*self._group.values()], None, [*self._group]))
        return Parts(self._complete, self._last, _part(newest))

    def extended(self, nodes: Nodes, entries: Mapping[str, bytes]) -> GrowingSeries:
        """Return the series with more entries.

        Cost: their bytes, and sometimes a leaf or a path, if they come last, or else the paths to them.
        """
        if not entries:
            return self
        # The keys of sorted names, which are in UTF-8, are sorted too.
        added = {order_key(name, b""): entries[name] for name in sorted(entries)}
        keys, items = [*added], [*added.values()]
        last_key = self._last_key
        if not (self._come_last(nodes, keys[0]) if last_key is None else last_key < keys[0]):
            return _split(nodes, edit_map(nodes, _whole(nodes, self.parts), added))
        return self._appended(nodes, keys, items)

    def _appended(self, nodes: Nodes, keys: list[bytes], items: list[bytes]) -> GrowingSeries:
        """Return the series with entries that come after all others."""
        chunker = MapLeafChunker()
        chunker.pending = self._last.tree.count + len(self._group)
        sizes = chunker.feed(items, keys)  # of the leaves that the new entries complete
        group = self._group | dict(zip(keys, items, strict=True))
        if sizes or sum(map(len, group)) + sum(map(len, group.values())) >= GROUP:
            return self._regrouped(nodes, sizes, [*group], [*group.values()])
        raw = self._raw + written_entries(keys, items)
        return GrowingSeries(self._complete, self._last, group, keys[-1], (self, raw))

    def _come_last(self, nodes: Nodes, key: bytes) -> bool:
        """Return whether a key comes after all entries, as new keys of a series in order of time do."""
        if self._last.tree.count:
            keys = _leaf_of(nodes, self._last).keys
            return not keys or keys[-1] < key
        tree = self._complete.tree
        return not tree.count or locate(nodes, tree, key) == (tree.count, None)

    def _regrouped(self, nodes: Nodes, sizes: list[int], keys: list[bytes], items: list[bytes]) -> GrowingSeries:
        """Return the series with other entries after its first two parts: these complete leaves, or at least a group.

        Args:
            sizes: the sizes of the leaves that they complete. The first leaf begins with the last part.
        """
        complete, last, last_key = self._complete, self._last, keys[-1]
        if sizes:
            first = sizes[0] - last.tree.count
            begun = extended_leaf(_leaf_of(nodes, last), keys[:first], items[:first])
            leaves, done = leaves_of(keys[first:], items[first:], sizes[1:])
            keys, items = keys[first + done :], items[first + done :]
            complete, last = _stored(nodes, append_leaves(nodes, complete.tree, [begun, *leaves])), _NONE
        grouped = size_of_groups(keys, items)
        if grouped:
            leaf = extended_leaf(_leaf_of(nodes, last), keys[:grouped], items[:grouped])
            last = _stored(nodes, Tree(Shape.MAP, leaf.count, leaf))
            keys, items = keys[grouped:], items[grouped:]
        return GrowingSeries(complete, last, dict(zip(keys, items, strict=True)), last_key)


def series_of(nodes: Nodes, cell: bytes | None) -> GrowingSeries:
    """Return a series by its cell, to be extended. It is empty if there is none. Raises ``CorruptObjectError``."""
    complete, last, newest = parts_of(cell)
    leaf = _leaf_of(nodes, newest)
    keys = leaf.keys or []
    return GrowingSeries(complete, last, dict(zip(keys, leaf.items, strict=True)), keys[-1] if keys else None)


def _leaf_of(nodes: Nodes, part: Part) -> Node:
    """Return the one leaf of a part."""
    top = part.tree.top
    leaf = top if type(top) is Node and top.count == part.tree.count else top_of(nodes, part.tree)
    if leaf.level:
        raise CorruptObjectError("(a series)", "its last entries are not one leaf")
    return leaf


def _appended_to(nodes: Nodes, part: Part, keys: list[bytes], items: list[bytes]) -> tuple[list[bytes], list[bytes]]:
    """Return the keys and items of a part of one leaf, followed by these."""
    if not part.tree.count:
        return keys, items
    leaf = _leaf_of(nodes, part)
    return [*(leaf.keys or ()), *keys], [*leaf.items, *items]


def leaves_of(keys: list[bytes], items: list[bytes], sizes: list[int]) -> tuple[list[Node], int]:
    """Return the leaves of these sizes, and how many entries are in them. Each entry is copied once."""
    leaves, done = [], 0
    for size in sizes:
        leaves.append(Node(0, items[done : done + size], None, keys[done : done + size]))
        done += size
    return leaves, done


def size_of_groups(keys: list[bytes], items: list[bytes]) -> int:
    """Return how many of some entries, which follow a complete group, are in complete groups."""
    size = end = 0
    for index, (key, item) in enumerate(zip(keys, items, strict=True), 1):
        size += len(key) + len(item)
        if size >= GROUP:
            size, end = 0, index
    return end


def _stored(nodes: Nodes, tree: Tree) -> Part:
    """Return a part whose top is always an object: later commits that do not change it store only its address."""
    if not tree.count:
        return _NONE
    return _part(Tree(tree.shape, tree.count, nodes.add(tree.shape, tree.top)) if isinstance(tree.top, Node) else tree)


def _whole(nodes: Nodes, parts: Parts) -> Tree:
    """Return all entries as one tree. Cost: a path."""
    keys, items = _appended_to(nodes, parts.last, *_appended_to(nodes, parts.newest, [], []))
    tree = parts.complete.tree
    return splice(nodes, tree, [Edit(tree.count, tree.count, items, None, keys)]) if keys else tree


def _split(nodes: Nodes, tree: Tree) -> GrowingSeries:
    """Return a series from all its entries as one tree. Cost: a path."""
    if not tree.count:
        return GrowingSeries(_NONE, _NONE, {}, None)
    node = nodes.get(Shape.MAP, tree.top)
    while node.level:
        node = nodes.child(Shape.MAP, node, len(node.items) - 1)
    assert node.keys is not None
    before = tree.count - len(node.items)
    complete = splice(nodes, tree, [Edit(before, tree.count, [], None, [])])
    return GrowingSeries(_stored(nodes, complete), _NONE, {}, None)._appended(nodes, node.keys, node.items)


def merge_series(nodes: Nodes, base: bytes | None, ours: bytes | None, theirs: bytes | None) -> bytes | None:
    """Merge the changes of both sides.

    If a name has two cells, the smaller cell is kept, so it does not matter which side is ours.
    """
    if ours == base:
        return theirs
    was, own, other = (_whole(nodes, parts_of(cell)) for cell in (base, ours, theirs))
    changes: dict[bytes, bytes | None] = {}
    for name, old, new in diff_maps(nodes, was, other):
        mine = find(nodes, own, name)
        if mine == old or (mine is not None and new is not None and new < mine):
            changes[name] = new
    merged = edit_map(nodes, own, changes)
    return _split(nodes, merged).cell if merged.count else None


def new_entries(nodes: Nodes, old: bytes | None, new: bytes | None) -> Iterator[tuple[str, bytes]]:
    """Yield the entries that a series has gained, in order. Cost: the leaves that differ, and the newest entries."""
    if old == new:
        return
    before, after = parts_of(old), parts_of(new)
    found = {
        key: cell for key, _, cell in diff_maps(nodes, before.complete.tree, after.complete.tree) if cell is not None
    }
    for part in (after.last, after.newest):
        found.update(iter_items(nodes, part.tree))
    for key in sorted(found):
        if all(not part.tree.count or find(nodes, part.tree, key) is None for part in before):
            yield _name_of(key), found[key]


class Series:
    """A series, to be read. Cost: one path, and the entries that are taken. Not for two threads at once."""

    def __init__(self, nodes: Nodes, cell: bytes | None, decoder: Decoder) -> None:
        self._nodes = nodes
        self._parts = parts_of(cell)
        self._decoder = decoder

    def decode(self, cell: bytes) -> Any:
        """Return the value of an entry. Raises as a read of a state does."""
        return self._decoder.decode(cell)

    def __len__(self) -> int:
        return self._parts.total

    def find(self, name: str) -> bytes | None:
        """Return the cell of an entry, or None."""
        key = order_key(name, b"")
        found = (find(self._nodes, tree, key) for tree, _ in reversed(self._parts) if tree.count)
        return next((cell for cell in found if cell is not None), None)

    def iter_entries(self, since: str = "", *, reverse: bool = False) -> Iterator[tuple[str, bytes]]:
        """Yield the entries from a name on, in the order of their names or from the last one back to that name."""
        for tree, _ in reversed(self._parts) if reverse else self._parts:
            start = rank(self._nodes, tree, order_key(since, b"")) if since and tree.count else 0
            for name, cell in (iter_items_back if reverse else iter_items)(self._nodes, tree, start):
                yield _name_of(name), cell


def _name_of(key: bytes) -> str:
    return decoded_text(key[1:])
