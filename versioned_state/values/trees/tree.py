"""Trees of nodes, walked and searched the same way for sequences, maps and blobs. Layer: values.

A tree is a value: an edit returns another tree, which shares all untouched nodes. It is canonical: its nodes depend on
its content alone. Positions are offsets of elements (of bytes in a blob); a map converts a key to an offset first.

The idea is that of the prolly trees of Noms and Dolt: B-trees whose nodes end where their content decides
(``chunker``).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import accumulate, islice
from typing import Final

from versioned_state.errors import CorruptObjectError
from versioned_state.objects.address import address_of
from versioned_state.records import dataclass
from versioned_state.values.trees.nodes import Node, Nodes, Shape, write_node


@dataclass(slots=True, unsafe_hash=True)
class Tree:
    """A tree by its top node, which is inlined (a ``Node``) or an address.

    ``count`` is in elements, or in bytes for a blob.

    A tree is never changed. The class is not frozen, since making a frozen instance takes three times as long, and each
    commit makes several.
    """

    shape: Shape
    count: int
    top: Node | bytes


def empty(shape: Shape) -> Tree:
    """Return the tree that holds nothing."""
    return Tree(shape, 0, Node(0, [], None, [] if shape is Shape.MAP else None))


def same(a: Tree, b: Tree) -> bool:
    """Return whether two trees have the same content: trees are canonical, so equal tops mean equal content."""
    if a is b:
        return True
    if a.shape is not b.shape or a.count != b.count:
        return False
    if isinstance(a.top, Node) and isinstance(b.top, Node):
        return a.top is b.top or write_node(a.shape, a.top) == write_node(b.shape, b.top)
    return a.top == b.top


def as_read(tree: Tree) -> Tree:
    """Return the tree as read from a reference: an inlined top has no segments, since no stored object names them."""
    top = tree.top
    return (
        Tree(tree.shape, tree.count, Node(top.level, top.items, top.counts, top.keys))
        if isinstance(top, Node)
        else tree
    )


def top_of(nodes: Nodes, tree: Tree) -> Node:
    """Return the top node of a tree, checked against its count."""
    top = tree.top if type(tree.top) is Node else nodes.get(tree.shape, tree.top)
    if top.count != tree.count:
        raise CorruptObjectError(
            address_of(write_node(tree.shape, top)).hex(), f"a tree of {tree.count} elements that holds {top.count}"
        )
    return top


def nodes_from(
    nodes: Nodes, shape: Shape, top: Node, level: int, offset: int, end: int | None = None
) -> Iterator[tuple[int, Node]]:
    """Yield the nodes of one level from the one that covers ``offset``, left to right, each with its first offset.

    With ``end``, the nodes up to ``end`` that share a parent are read in one call of the store.

    Raises:
        CorruptObjectError: a node has another level or count than its parent states. So a walk yields as many elements
            as the top states.
    """
    return _visit(nodes, shape, top, 0, (level, offset, end))


def _visit(
    nodes: Nodes, shape: Shape, node: Node, first: int, sought: tuple[int, int, int | None]
) -> Iterator[tuple[int, Node]]:
    """Yield what ``nodes_from`` does under one node with offset ``first``.

    Not a nested function, since its reference cycle would keep a store open.
    """
    level, offset, end = sought
    if node.level == level:
        yield first, node
        return
    assert node.counts is not None
    ends = list(accumulate(node.counts, initial=first))
    index = bisect_right(ends, offset, hi=len(ends) - 1) - 1 if offset > first else 0
    if end is not None and node.level == level + 1:
        nodes.fetch(shape, *node.items[index : bisect_left(ends, end, hi=len(ends) - 1)])
    for at in range(index, len(node.items)):
        yield from _visit(nodes, shape, nodes.child(shape, node, at), ends[at], sought)


def iter_cells(nodes: Nodes, tree: Tree, start: int = 0, end: int | None = None) -> Iterator[bytes]:
    """Yield the cells of a sequence or map at offsets [start, end). Cost: one path, then the leaves that are walked."""
    end = tree.count if end is None else min(end, tree.count)
    if start >= end:
        return
    for first, node in nodes_from(nodes, tree.shape, top_of(nodes, tree), 0, start, end):
        if first >= end:
            return
        yield from node.items[max(start - first, 0) : end - first]


_STRIDE: Final = 32
"""The step of a range up to which its elements are read by a walk: its leaves are the same ones anyway."""

_SHORT: Final = 512
"""Elements up to which the nodes over them are read a level at a time, in one call of the store, and held at once."""


def cells_at(nodes: Nodes, tree: Tree, picked: range) -> list[bytes]:
    """Return the cells of a sequence at the offsets of a rising range, which must exist.

    Cost: the leaves with them, and the paths to these.

    A short range takes one call of the store a level.
    """
    if not picked:
        return []
    if picked.step > _STRIDE:
        return [cell for at in picked for cell in _cells_between(nodes, tree, at, at + 1)]
    start, end = picked[0], picked[-1] + 1
    if end - start <= _SHORT:
        cells = _cells_between(nodes, tree, start, end)
        return cells if picked.step == 1 else cells[:: picked.step]
    return list(islice(iter_cells(nodes, tree, start, end), 0, None, picked.step))


def _cells_between(nodes: Nodes, tree: Tree, start: int, end: int) -> list[bytes]:
    """Return the cells at offsets [start, end), which must exist. Reads the nodes of a level together."""
    row = [(0, top_of(nodes, tree))]
    while row[0][1].level:
        below: list[tuple[int, Node, int]] = []
        for offset, node in row:
            assert node.counts is not None
            at = offset
            for index, count in enumerate(node.counts):
                if at >= end:
                    break
                if at + count > start:
                    below.append((at, node, index))
                at += count
        if len(below) > 1:
            nodes.fetch(tree.shape, *[node.items[index] for _, node, index in below])
        row = [(first, nodes.child(tree.shape, node, index)) for first, node, index in below]
    if len(row) == 1:
        first, leaf = row[0]
        return leaf.items[start - first : end - first]
    return [cell for first, leaf in row for cell in leaf.items[max(start - first, 0) : end - first]]


def iter_items(nodes: Nodes, tree: Tree, start: int = 0, end: int | None = None) -> Iterator[tuple[bytes, bytes]]:
    """Yield keys and cells of a map at offsets [start, end), in the order of the keys.

    Raises:
        CorruptObjectError: the keys of two leaves are not in order. So each leaf is read once, even if a crafted tree
            repeats it.
    """
    end = tree.count if end is None else min(end, tree.count)
    if start >= end:
        return
    last: bytes | None = None
    for first, node in nodes_from(nodes, tree.shape, top_of(nodes, tree), 0, start, end):
        if first >= end:
            return
        a, b = max(start - first, 0), end - first
        keys = node.keys
        assert keys is not None
        if last is not None and keys[0] <= last:
            raise CorruptObjectError("(a map)", "its keys are not in order")
        last = keys[-1]
        yield from zip(keys[a:b], node.items[a:b], strict=True)


_BATCH: Final = 16
_GREATEST_BATCH: Final = 512
"""Items that a walk backwards reads at once: few at first, since most callers want the last ones."""


def iter_items_back(nodes: Nodes, tree: Tree, start: int = 0, end: int | None = None) -> Iterator[tuple[bytes, bytes]]:
    """Yield what ``iter_items`` does, from the last item back."""
    end = tree.count if end is None else min(end, tree.count)
    size = _BATCH
    while end > start:
        first = max(end - size, start)
        yield from reversed(list(iter_items(nodes, tree, first, end)))
        end, size = first, min(2 * size, _GREATEST_BATCH)


def find(nodes: Nodes, tree: Tree, key: bytes) -> bytes | None:
    """Return the cell of a key of a map, or None if the map does not have the key. Cost: one path."""
    node = top_of(nodes, tree)
    while node.level:
        assert node.keys is not None
        node = nodes.child(tree.shape, node, max(bisect_right(node.keys, key) - 1, 0))
    keys = node.keys
    assert keys is not None
    index = bisect_left(keys, key)
    return node.items[index] if index < len(keys) and keys[index] == key else None


def rank(nodes: Nodes, tree: Tree, key: bytes) -> int:
    """Return the offset that a key of a map has, or would have. Cost: one path."""
    return locate(nodes, tree, key)[0]


def locate(nodes: Nodes, tree: Tree, key: bytes) -> tuple[int, bytes | None]:
    """Return the offset that a key has or would have, and its cell or None."""
    node = top_of(nodes, tree)
    offset = 0
    while node.level:
        assert node.keys is not None
        assert node.counts is not None
        index = max(bisect_right(node.keys, key) - 1, 0)
        offset += sum(node.counts[:index])
        node = nodes.child(tree.shape, node, index)
    assert node.keys is not None
    index = bisect_left(node.keys, key)
    if index < len(node.keys) and node.keys[index] == key:
        return offset + index, node.items[index]
    return offset + index, None


def items_between(nodes: Nodes, tree: Tree, start: bytes, end: bytes) -> list[tuple[bytes, bytes]]:
    """Return the keys in [start, end) of a map, in order, and their cells.

    Cost: two paths, then the leaves with these keys.
    """
    top = top_of(nodes, tree)
    keys = top.keys
    if top.level or keys is None:
        return list(iter_items(nodes, tree, rank(nodes, tree, start), rank(nodes, tree, end)))
    low, high = bisect_left(keys, start), bisect_left(keys, end)
    return list(zip(keys[low:high], top.items[low:high], strict=True))


def iter_chunks(nodes: Nodes, tree: Tree) -> Iterator[list[bytes]]:
    """Yield the addresses of a blob's chunks, in order, one list for each inner node."""
    if tree.count:
        yield from _chunk_lists(nodes, tree.top)


def _chunk_lists(nodes: Nodes, top: Node | bytes) -> Iterator[list[bytes]]:
    if isinstance(top, bytes):
        # Only the kind of the top shows whether it is the only chunk or an inner node.
        node = nodes.get(Shape.BLOB, top)
        if not node.level:
            yield [top]
            return
    else:
        node = top
    if node.level == 1:
        yield node.items
        return
    for child in node.items:
        yield from _chunk_lists(nodes, child)
