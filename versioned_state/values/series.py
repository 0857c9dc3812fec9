"""Series: dicts of the engine's own beside a state, one under each engine key, whose entries are added one by one. Layer: values.

A series is a large dict in the order of its names, whatever its size: an entry is added at the cost of a path, and an entry up to
``ELEMENT_INLINE`` bytes lies in its leaf, since an entry is written once and read with its neighbours. Names are unique for ever, so two
states are merged by taking the entries of both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

from versioned_state.errors import CorruptObjectError
from versioned_state.values.cells import Code, order_key
from versioned_state.values.changes.diff import diff_maps
from versioned_state.values.decode.decoder import Decoder
from versioned_state.values.trees.edit import Edit, edit_map, splice
from versioned_state.values.trees.nodes import Nodes, Shape
from versioned_state.values.trees.references import tree_cell, tree_of
from versioned_state.values.trees.tree import Tree, empty, find, iter_items, locate, rank

_BATCH: Final = 16
_GREATEST_BATCH: Final = 512
"""Entries that a walk backwards reads at once: few at first, since most callers want the newest."""


def tree_of_series(cell: bytes | None) -> Tree:
    """The entries of a series; of none, the empty tree. Raises ``CorruptObjectError``."""
    if cell is None:
        return empty(Shape.MAP)
    with suppress(ValueError, TypeError, IndexError):
        tree = tree_of(cell, Code.DICT_TREE)
        if tree is not None:
            return tree
    raise CorruptObjectError("(a series)", "it is not a dict in a tree of its own")


def extend_series(nodes: Nodes, cell: bytes | None, entries: Mapping[str, bytes]) -> bytes:
    """The cell of a series with more entries. Cost: a path for those that are neighbours."""
    tree = tree_of_series(cell)
    items = sorted((order_key(name, b""), entry) for name, entry in entries.items())
    if tree.count and items and locate(nodes, tree, items[0][0]) == (tree.count, None):  # behind the last one, as time has them
        keys, cells = [key for key, _ in items], [entry for _, entry in items]
        tree = splice(nodes, tree, [Edit(tree.count, tree.count, cells, None, keys)])
    else:
        tree = edit_map(nodes, tree, dict(items))
    return tree_cell(Code.DICT_TREE, tree)


def merge_series(nodes: Nodes, base: bytes | None, ours: bytes | None, theirs: bytes | None) -> bytes | None:
    """The series with the changes of both sides. Of two cells for one name the lesser stands, so it does not matter which side is ours."""
    if ours == base:
        return theirs
    was, own, other = (tree_of_series(cell) for cell in (base, ours, theirs))
    changes: dict[bytes, bytes | None] = {}
    for name, old, new in diff_maps(nodes, was, other):
        mine = find(nodes, own, name)
        if mine == old or (mine is not None and new is not None and new < mine):
            changes[name] = new
    merged = edit_map(nodes, own, changes)
    return tree_cell(Code.DICT_TREE, merged) if merged.count else None


class Series:
    """Reads a series. Cost: one path, and the entries that are taken. Not for two threads at once."""

    def __init__(self, nodes: Nodes, cell: bytes | None, decoder: Decoder) -> None:
        self._nodes = nodes
        self._tree = tree_of_series(cell)
        self._decoder = decoder

    def decode(self, cell: bytes) -> Any:
        """The value of an entry. Raises as a read of a state does."""
        return self._decoder.decode(cell)

    def __len__(self) -> int:
        return self._tree.count

    def find(self, name: str) -> bytes | None:
        """The cell of an entry, or None."""
        return find(self._nodes, self._tree, order_key(name, b"")) if self._tree.count else None

    def iter_entries(self, since: str = "", *, reverse: bool = False) -> Iterator[tuple[str, bytes]]:
        """The entries from a name on, in the order of their names or from the last one back to that name."""
        tree = self._tree
        start = rank(self._nodes, tree, order_key(since, b"")) if since and tree.count else 0
        if not reverse:
            for name, cell in iter_items(self._nodes, tree, start):
                yield _name_of(name), cell
            return
        end, size = tree.count, _BATCH
        while end > start:
            first = max(end - size, start)
            for name, cell in reversed(list(iter_items(self._nodes, tree, first, end))):
                yield _name_of(name), cell
            end, size = first, min(2 * size, _GREATEST_BATCH)


def _name_of(key: bytes) -> str:
    return key[1:].decode("utf-8", "surrogatepass")
