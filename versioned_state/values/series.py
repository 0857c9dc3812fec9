"""Series: dicts of the engine's own beside a state, one under each engine key, whose entries are added one by one. Layer: values.

A series is a map in the order of its names in two parts, whatever its size: a tree whose last leaf is complete, and the entries behind it,
which are one leaf more. So an entry that comes last costs that leaf, and a path only where it completes the leaf; and the parts follow
from the entries alone, as the leaves of every tree do. An entry up to ``ELEMENT_INLINE`` bytes lies in its leaf, since it is written once
and read with its neighbours. Names are unique for ever, so two states are merged by taking the entries of both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple

import msgpack

from versioned_state.errors import CorruptObjectError
from versioned_state.values.cells import Code, array, order_key, split_cells
from versioned_state.values.changes.diff import diff_maps
from versioned_state.values.decode.decoder import Decoder
from versioned_state.values.trees.chunker import MapLeafChunker
from versioned_state.values.trees.edit import Edit, edit_map, splice
from versioned_state.values.trees.nodes import Nodes, Shape
from versioned_state.values.trees.references import tree_cell, tree_of
from versioned_state.values.trees.tree import Tree, empty, find, iter_items, locate, rank

_BATCH: Final = 16
_GREATEST_BATCH: Final = 512
"""Entries that a walk backwards reads at once: few at first, since most callers want the newest."""


_EMPTY: Final = empty(Shape.MAP)


class Parts(NamedTuple):
    """The two parts of a series: the entries in complete leaves, and those behind them."""

    complete: Tree
    last: Tree


def parts_of(cell: bytes | None) -> Parts:
    """The parts of a series; of none, two empty trees. Raises ``CorruptObjectError``."""
    if cell is None:
        return Parts(_EMPTY, _EMPTY)
    with suppress(ValueError, TypeError, IndexError, msgpack.UnpackException):
        trees = [tree_of(each, Code.DICT_TREE) for each in split_cells(cell)]
        if len(trees) == 2 and trees[0] is not None and trees[1] is not None:
            return Parts(trees[0], trees[1])
    raise CorruptObjectError("(a series)", "it is not two dicts in trees of their own")


def extend_series(nodes: Nodes, cell: bytes | None, entries: Mapping[str, bytes]) -> bytes:
    """The cell of a series with more entries. Cost: a leaf for those that come last, now and then a path; else the paths to them."""
    parts = parts_of(cell)
    cells: dict[bytes, bytes | None] = {order_key(name, b""): entries[name] for name in entries}
    keys = sorted(cells)
    if not keys or not _come_last(nodes, parts, keys[0]):
        return _cell_of(_split(nodes, edit_map(nodes, _whole(nodes, parts), cells)))
    leaf = nodes.get(Shape.MAP, parts.last.top)
    return _cell_of(
        _append(
            nodes, parts.complete, [*(leaf.keys or ()), *keys], [*leaf.items, *(cell for key in keys if (cell := cells[key]) is not None)]
        )
    )


def _come_last(nodes: Nodes, parts: Parts, key: bytes) -> bool:
    """Whether a key is behind all entries, as those of a series in order of time are."""
    tree = parts.last if parts.last.count else parts.complete
    return not tree.count or locate(nodes, tree, key) == (tree.count, None)


def _append(nodes: Nodes, complete: Tree, keys: list[bytes], items: list[bytes]) -> Parts:
    """The parts of a series with these entries behind the complete leaves."""
    chunker = MapLeafChunker()
    full = sum(chunker.feed(items, keys))
    if full:
        complete = splice(nodes, complete, [Edit(complete.count, complete.count, items[:full], None, keys[:full])])
    last = splice(nodes, _EMPTY, [Edit(0, 0, items[full:], None, keys[full:])]) if len(keys) > full else _EMPTY
    return Parts(complete, last)


def _whole(nodes: Nodes, parts: Parts) -> Tree:
    """All entries as one tree. Cost: a path."""
    if not parts.last.count:
        return parts.complete
    leaf = nodes.get(Shape.MAP, parts.last.top)
    return splice(nodes, parts.complete, [Edit(parts.complete.count, parts.complete.count, leaf.items, None, leaf.keys)])


def _split(nodes: Nodes, tree: Tree) -> Parts:
    """The parts of a series, from all its entries as one tree. Cost: a path."""
    if not tree.count:
        return Parts(_EMPTY, _EMPTY)
    node = nodes.get(Shape.MAP, tree.top)
    while node.level:
        node = nodes.child(Shape.MAP, node, len(node.items) - 1)
    assert node.keys is not None
    before = tree.count - len(node.items)
    complete = splice(nodes, tree, [Edit(before, tree.count, [], None, [])])
    return _append(nodes, complete, node.keys, node.items)


def _cell_of(parts: Parts) -> bytes:
    return array(tree_cell(Code.DICT_TREE, tree) for tree in parts)


def merge_series(nodes: Nodes, base: bytes | None, ours: bytes | None, theirs: bytes | None) -> bytes | None:
    """The series with the changes of both sides. Of two cells for one name the lesser stands, so it does not matter which side is ours."""
    if ours == base:
        return theirs
    was, own, other = (_whole(nodes, parts_of(cell)) for cell in (base, ours, theirs))
    changes: dict[bytes, bytes | None] = {}
    for name, old, new in diff_maps(nodes, was, other):
        mine = find(nodes, own, name)
        if mine == old or (mine is not None and new is not None and new < mine):
            changes[name] = new
    merged = _split(nodes, edit_map(nodes, own, changes))
    return _cell_of(merged) if merged.complete.count or merged.last.count else None


class Series:
    """Reads a series. Cost: one path, and the entries that are taken. Not for two threads at once."""

    def __init__(self, nodes: Nodes, cell: bytes | None, decoder: Decoder) -> None:
        self._nodes = nodes
        self._parts = parts_of(cell)
        self._decoder = decoder

    def decode(self, cell: bytes) -> Any:
        """The value of an entry. Raises as a read of a state does."""
        return self._decoder.decode(cell)

    def __len__(self) -> int:
        return self._parts.complete.count + self._parts.last.count

    def find(self, name: str) -> bytes | None:
        """The cell of an entry, or None."""
        key = order_key(name, b"")
        found = (find(self._nodes, tree, key) for tree in reversed(self._parts) if tree.count)
        return next((cell for cell in found if cell is not None), None)

    def iter_entries(self, since: str = "", *, reverse: bool = False) -> Iterator[tuple[str, bytes]]:
        """The entries from a name on, in the order of their names or from the last one back to that name."""
        for tree in reversed(self._parts) if reverse else self._parts:
            start = rank(self._nodes, tree, order_key(since, b"")) if since and tree.count else 0
            yield from self._back(tree, start) if reverse else self._on(tree, start)

    def _on(self, tree: Tree, start: int) -> Iterator[tuple[str, bytes]]:
        for name, cell in iter_items(self._nodes, tree, start):
            yield _name_of(name), cell

    def _back(self, tree: Tree, start: int) -> Iterator[tuple[str, bytes]]:
        end, size = tree.count, _BATCH
        while end > start:
            first = max(end - size, start)
            for name, cell in reversed(list(iter_items(self._nodes, tree, first, end))):
                yield _name_of(name), cell
            end, size = first, min(2 * size, _GREATEST_BATCH)


def _name_of(key: bytes) -> str:
    return key[1:].decode("utf-8", "surrogatepass")
