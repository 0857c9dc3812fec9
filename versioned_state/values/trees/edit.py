"""Edits of trees. An edit makes a new tree, which shares all untouched nodes with the old one. Layer: values.

A tree is canonical: its nodes depend on its content alone, so an edited tree equals one that was built from the same
content.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from typing import Final

from versioned_state.records import dataclass
from versioned_state.values.keys import ENGINE
from versioned_state.values.trees.chunker import (
    LEAF_LEAST,
    NODE_GREATEST,
    NODE_LEAST,
    Chunker,
    InnerChunker,
    MapLeafChunker,
    SequenceLeafChunker,
    is_open,
)
from versioned_state.values.trees.nodes import Node, Nodes, Shape, write_node
from versioned_state.values.trees.prefetch import fetch_paths
from versioned_state.values.trees.segments import NO_CUTS, Cuts, cuts_before
from versioned_state.values.trees.tree import Tree, empty, iter_cells, locate, top_of

INLINE_TOP: Final = 512
"""Raw bytes up to which a top node lies in its parent instead of being an object of its own.

So a small round is two rows. The engine's own cells in the root of a state do not count.
"""


@dataclass(slots=True)
class Edit:
    """Replace the items at offsets [start, end) of one level. The fields are those of a ``Node``."""

    start: int
    end: int
    items: list[bytes]
    counts: list[int] | None = None
    keys: list[bytes] | None = None


def splice(nodes: Nodes, tree: Tree, edits: list[Edit], *, level: int = 0) -> Tree:
    """Apply edits to the elements of a tree. The edits are in order and do not overlap.

    Cost: the touched leaves, and one path to each; for an empty tree, all elements once.

    Args:
        level: the level of the nodes that hold the edited items: 1 for a blob with several chunks.
    """
    top = top_of(nodes, tree)
    if top.level == 0:
        return _splice_leaf(nodes, tree.shape, top, edits)
    if len(edits) == 1 and tree.shape is not Shape.BLOB:
        row = _replace_in_leaf(nodes, tree, top, edits[0])
        if row is not None:
            return grow(nodes, tree.shape, row)
    total = tree.count
    while True:
        runs = _rechunk(nodes, tree.shape, top, total, level, edits)
        if (
            len(runs) == 1
            and runs[0].start == 0
            and runs[0].end == total
            and (level == top.level or len(runs[0].nodes) < 2)
        ):
            return grow(nodes, tree.shape, runs[0].nodes)
        edits = [_as_edit(nodes, tree.shape, run) for run in runs]
        level += 1


def _splice_leaf(nodes: Nodes, shape: Shape, leaf: Node, edits: list[Edit]) -> Tree:
    """Do ``splice`` for a tree of one leaf, as most states are: chunk it all again, unless a chunker made the leaf."""
    if leaf.weight and len(edits) == 1 and edits[0].start == len(leaf.items):
        return grow(nodes, shape, _appended(shape, leaf, edits[0].items, None, None)[1])
    items, keys = leaf.items.copy(), None if leaf.keys is None else leaf.keys.copy()
    for edit in reversed(edits):
        items[edit.start : edit.end] = edit.items
        if keys is not None and edit.keys is not None:
            keys[edit.start : edit.end] = edit.keys
    return _of_leaf(nodes, shape, items, keys, cuts_before(leaf.cuts, edits[0].start))


def _of_leaf(nodes: Nodes, shape: Shape, items: list[bytes], keys: list[bytes] | None, cuts: Cuts = NO_CUTS) -> Tree:
    """Return the tree of these elements, in one leaf or more. ``cuts`` has the known segments of the first leaf."""
    if not items:
        return empty(shape)
    if len(items) < NODE_LEAST if keys is not None else sum(map(len, items)) < LEAF_LEAST:
        node = Node(0, items, None, keys)  # too few for a boundary
        node.is_open, node.cuts = True, cuts
        return _with_top(nodes, shape, len(items), node)
    chunker = chunker_of(shape, 0)
    row = _split(0, chunker.feed(items, keys), items, None, keys, chunker)
    row[0].cuts = cuts
    return grow(nodes, shape, row)


def _replace_in_leaf(nodes: Nodes, tree: Tree, top: Node, edit: Edit) -> list[Node] | None:
    """Return the new top nodes after an edit within one leaf, as nearly all are, or None if it touches several paths.

    Gives the result of ``_rechunk`` at less cost: the touched nodes are chunked again, and each must end in a boundary,
    or at the end of the tree.
    """
    shape, node, start, end = tree.shape, top, edit.start, edit.end
    path = []
    keys: list[bytes] | None = None
    at_end = True  # nothing follows the node on its level
    while node.level:
        counts = node.counts
        assert counts is not None
        index, last = 0, len(counts) - 1
        while index < last and start >= counts[index]:
            start -= counts[index]
            end -= counts[index]
            index += 1
        path.append((node, index, at_end))
        at_end = at_end and index == last
        node = nodes.child(shape, node, index)
    if end > node.count:
        return None
    if at_end and start == node.count:
        stays, row = _appended(shape, node, edit.items, None, edit.keys)
        if stays:
            return _append_row(nodes, shape, [parent for parent, _, _ in path], row)
    else:
        items = [*node.items[:start], *edit.items, *node.items[end:]]
        keys = None if node.keys is None or edit.keys is None else [*node.keys[:start], *edit.keys, *node.keys[end:]]
        row = _split_at_boundaries(shape, 0, items, None, keys, at_end=at_end)
        if row:
            row[0].cuts = cuts_before(node.cuts, start)
    for parent, index, is_last in reversed(path):
        if not row:
            return None
        if is_last and len(row) == 1 and index == len(parent.items) - 1:
            row = [_with_last(nodes, shape, parent, row[0])]
            continue
        counts = parent.counts
        assert counts is not None
        items = [*parent.items[:index], *[nodes.add(shape, each) for each in row], *parent.items[index + 1 :]]
        counts = [*counts[:index], *[each.count for each in row], *counts[index + 1 :]]
        if parent.keys is not None:
            keys = [*parent.keys[:index], *[each.keys[0] for each in row if each.keys], *parent.keys[index + 1 :]]
        row = _split_at_boundaries(shape, parent.level, items, counts, keys, at_end=is_last)
        if row:
            row[0].cuts = parent.cuts
    return row or None


def _with_last(nodes: Nodes, shape: Shape, parent: Node, child: Node) -> Node:
    """Replace the last child of the last node of a level. It stays one node: a boundary can only follow that child."""
    assert parent.counts is not None
    keys = None if parent.keys is None or child.keys is None else [*parent.keys[:-1], child.keys[0]]
    node = Node(parent.level, [*parent.items[:-1], nodes.add(shape, child)], [*parent.counts[:-1], child.count], keys)
    node.is_open, node.cuts = is_open(node.items), parent.cuts
    return node


def _appended(
    shape: Shape, node: Node, items: list[bytes], counts: list[int] | None, keys: list[bytes] | None
) -> tuple[bool, list[Node]]:
    """Append items to the last node of a level.

    Returns whether the node was complete and stays, and the nodes after it or instead of it.

    Cost: the new items; the old items are not hashed again.
    """
    chunker = chunker_of(shape, node.level)
    resumes = chunker.resume(node.items, node.keys, node.weight)
    sizes = chunker.feed(items, keys)
    if resumes:
        items = [*node.items, *items]
        counts = None if node.counts is None or counts is None else [*node.counts, *counts]
        keys = None if node.keys is None or keys is None else [*node.keys, *keys]
    row = _split(node.level, sizes, items, counts, keys, chunker)
    if resumes and row:
        row[0].cuts = node.cuts
    return not resumes, row


def _append_row(nodes: Nodes, shape: Shape, path: list[Node], row: list[Node]) -> list[Node]:
    """Append a row of nodes to their level. Returns the nodes of the top level.

    Args:
        path: the last node of each level above the row, from the top.
    """
    stays = True
    for parent in reversed(path):
        items: list[bytes] = [nodes.add(shape, each) for each in row]
        counts = [each.count for each in row]
        keys = None if parent.keys is None else [each.keys[0] for each in row if each.keys]
        if not stays:  # the last child of the parent was replaced
            assert parent.counts is not None
            cuts = parent.cuts
            parent = Node(parent.level, parent.items[:-1], parent.counts[:-1], parent.keys and parent.keys[:-1])  # noqa: PLW2901
            parent.cuts = cuts
        stays, row = _appended(shape, parent, items, counts, keys)
    return [*path[:1], *row] if stays else row


def append_leaves(nodes: Nodes, tree: Tree, leaves: list[Node]) -> Tree:
    """Append leaves to a tree whose last leaf is complete. Cost: one path without its leaf, and the new leaves."""
    if not tree.count:
        return grow(nodes, tree.shape, leaves)
    node = top_of(nodes, tree)
    path = []
    while node.level:
        path.append(node)
        if node.level == 1:
            return grow(nodes, tree.shape, _append_row(nodes, tree.shape, path, leaves))
        node = nodes.child(tree.shape, node, len(node.items) - 1)
    return grow(nodes, tree.shape, [node, *leaves])


def _split_at_boundaries(
    shape: Shape, level: int, items: list[bytes], counts: list[int] | None, keys: list[bytes] | None, *, at_end: bool
) -> list[Node]:
    """Split items into nodes.

    Returns none if the last one does not end in a boundary and is not at the end of its level.
    """
    if level and len(items) < NODE_LEAST:
        return [_open(Node(level, items, counts, keys))] if at_end else []  # too few for a boundary
    chunker = chunker_of(shape, level)
    sizes = chunker.feed(items, keys)
    if chunker.pending and not at_end:
        return []
    return _split(level, sizes, items, counts, keys, chunker)


def _split(
    level: int,
    sizes: list[int],
    items: list[bytes],
    counts: list[int] | None,
    keys: list[bytes] | None,
    chunker: Chunker,
) -> list[Node]:
    """Split items into nodes of the given sizes, which the chunker has completed, and an open node of the rest."""
    open_at_end = chunker.pending
    if not sizes and open_at_end:
        node = _open(Node(level, items, counts, keys))
        node.weight = chunker.weight
        return [node]
    nodes = []
    start = 0
    for size in (*sizes, open_at_end) if open_at_end else sizes:
        end = start + size
        nodes.append(
            Node(level, items[start:end], counts and counts[start:end], None if keys is None else keys[start:end])
        )
        start = end
    if open_at_end:
        _open(nodes[-1]).weight = chunker.weight
    return nodes


def _open(node: Node) -> Node:
    """Mark a node as open: it has no boundary at its end."""
    node.is_open = True
    return node


def build(nodes: Nodes, shape: Shape, level: int, edit: Edit) -> Tree:
    """Build a tree from the items of a level.

    The chunks of a blob are the items of level 1, since its leaves are the chunks.
    """
    if not edit.items:
        return empty(shape)
    above = Node(level, [], [] if level else None, [] if shape is Shape.MAP else None)
    (run,) = _rechunk(nodes, shape, above, 0, level, [edit])
    return grow(nodes, shape, run.nodes)


def build_sequence(nodes: Nodes, cells: list[bytes]) -> Tree:
    """Build the tree of these elements."""
    return splice(nodes, empty(Shape.SEQUENCE), [Edit(0, 0, cells)])


def grow(nodes: Nodes, shape: Shape, row: list[Node]) -> Tree:
    """Build a tree from all nodes of a level."""
    if not row:
        return empty(shape)
    if len(row) == 1:
        (top,) = row
        if not top.level or len(top.items) > 1:
            return _with_top(nodes, shape, top.count, top)
    count = sum([node.count for node in row])
    while len(row) > 1:
        level = row[0].level + 1
        above = Node(level, [], [], [] if shape is Shape.MAP else None)
        (run,) = _rechunk(nodes, shape, above, 0, level, [_as_edit(nodes, shape, _Run(0, 0, row))])
        row = run.nodes
    (top,) = row
    while top.level and len(top.items) == 1:
        if shape is Shape.BLOB and top.level == 1:
            return Tree(shape, count, top.items[0])
        top = nodes.get(shape, top.items[0])
    return _with_top(nodes, shape, count, top)


def _with_top(nodes: Nodes, shape: Shape, count: int, top: Node) -> Tree:
    """Return the tree under this node, which is inlined if it is small."""
    return Tree(shape, count, top if fits_inline(shape, top) else nodes.add(shape, top))


def fits_inline(shape: Shape, top: Node) -> bool:
    """Return whether a top node is small enough to be inlined.

    In the root of a state the engine's own cells, which are bounded, do not count.

    Otherwise a few events would make each call of a task write the root as an object of its own.
    """
    size = len(top.raw or write_node(shape, top))
    if size <= INLINE_TOP:
        return True
    if top.level or not top.keys:
        return False
    own = 0
    for key, cell in zip(top.keys, top.items, strict=True):
        if key[:1] != ENGINE:  # these come first
            break
        own += len(cell)
    return own > 0 and size - own <= INLINE_TOP


@dataclass(slots=True)
class _Run:
    """Old nodes of one level, from offset ``start`` to ``end``, and the new nodes that replace them."""

    start: int
    end: int
    nodes: list[Node]


def _as_edit(nodes: Nodes, shape: Shape, run: _Run) -> Edit:
    """Return a run as an edit of the level above."""
    return Edit(
        run.start,
        run.end,
        [nodes.add(shape, node) for node in run.nodes],
        [node.count for node in run.nodes],
        [node.keys[0] for node in run.nodes if node.keys] if shape is Shape.MAP else None,
    )


def chunker_of(shape: Shape, level: int) -> Chunker:
    """Return the chunker of one level of a tree. The chunks of a blob have none."""
    if level:
        return InnerChunker()
    return MapLeafChunker() if shape is Shape.MAP else SequenceLeafChunker()


class _Gathered:
    """Items in the order in which a chunker gets them, and the nodes that it makes of them."""

    def __init__(self, shape: Shape, level: int) -> None:
        self._chunker = chunker_of(shape, level)
        self._level = level
        self._items: list[bytes] = []
        self._counts: list[int] | None = [] if level else None
        self._keys: list[bytes] | None = [] if shape is Shape.MAP else None
        self._sizes: list[int] = []
        self._chunked = 0

    @property
    def at_boundary(self) -> bool:
        """Whether a node ends with the last item fed."""
        self._chunk()
        return self._chunker.pending == 0

    def _chunk(self) -> None:
        fed = self._chunked
        self._chunked = len(self._items)
        self._sizes += self._chunker.feed(self._items[fed:], self._keys and self._keys[fed:])

    def feed(self, items: list[bytes], counts: list[int] | None, keys: list[bytes] | None) -> None:
        self._items += items
        if self._counts is not None and counts is not None:
            self._counts += counts
        if self._keys is not None and keys is not None:
            self._keys += keys

    def feed_node(self, node: Node, first: int, start: int, end: int) -> None:
        """Feed the items at [start, end) of a node whose first offset is ``first``."""
        if start >= end:
            return
        a, b = start - first, end - first
        if node.counts is not None:
            a, b = _index_at(node.counts, a), _index_at(node.counts, b)
        self.feed(node.items[a:b], node.counts and node.counts[a:b], node.keys and node.keys[a:b])

    def nodes(self) -> list[Node]:
        """Return the nodes of all items fed, of which the last node ends with the last item."""
        if self._chunked < len(self._items):
            self._chunk()
        return _split(self._level, self._sizes, self._items, self._counts, self._keys, self._chunker)


def _rechunk(nodes: Nodes, shape: Shape, top: Node, total: int, level: int, edits: list[Edit]) -> list[_Run]:
    """Apply edits to one level. Returns the runs of old nodes that they replace.

    A run begins at the node in which its first edit begins, since the boundary before that node does not depend on
    later items. It ends where a new boundary coincides with an old one after its last edit: from there on, all
    boundaries stay.
    """
    runs = []
    i = 0
    while i < len(edits):
        gathered = _Gathered(shape, level)
        first, node = _node_at(nodes, shape, top, level, min(edits[i].start, total - 1))
        run_start = position = first
        while True:
            end = first + node.count
            while i < len(edits) and (edits[i].start < end or edits[i].start == end == total):
                edit = edits[i]
                i += 1
                gathered.feed_node(node, first, position, edit.start)
                gathered.feed(edit.items, edit.counts, edit.keys)
                position = edit.end
                if position > end:
                    first, node = _node_at(nodes, shape, top, level, min(position, total - 1))
                    end = first + node.count
            gathered.feed_node(node, first, position, end)
            position = end
            if gathered.at_boundary or end >= total:
                break
            first, node = _node_at(nodes, shape, top, level, end)
        runs.append(_Run(run_start, end, gathered.nodes()))
    return runs


def _index_at(counts: list[int], offset: int) -> int:
    """Return the index of the child that begins at an offset.

    There is one, because edits of a level begin and end between its items.
    """
    index = 0
    while offset > 0:
        offset -= counts[index]
        index += 1
    assert offset == 0
    return index


def _node_at(nodes: Nodes, shape: Shape, top: Node, level: int, offset: int) -> tuple[int, Node]:
    """Return the node of a level that covers an offset, and its own first offset. Cost: one path."""
    node, first = top, 0
    while node.level > level:
        assert node.counts is not None
        index = 0
        while offset >= first + node.counts[index]:
            first += node.counts[index]
            index += 1
        node = nodes.child(shape, node, index)
    return first, node


def edit_map(nodes: Nodes, tree: Tree, changes: Mapping[bytes, bytes | None]) -> Tree:
    """Set keys of a map to cells, or remove them if the cell is None.

    Setting a key to its present cell changes nothing.
    """
    if tree.count and len(changes) < NODE_GREATEST:
        top = top_of(nodes, tree)
        if not top.level:
            return _edit_map_leaf(nodes, tree, top, changes)
    edits = []
    if not tree.count:
        keys = sorted(key for key, cell in changes.items() if cell is not None)
        if keys:
            edits.append(Edit(0, 0, [cell for key in keys if (cell := changes[key]) is not None], None, keys))
    else:
        if len(changes) > 1:
            fetch_paths(nodes, tree.top, changes)
        for key in sorted(changes):
            cell = changes[key]
            offset, old = locate(nodes, tree, key)
            if cell == old:
                continue
            end = offset if old is None else offset + 1
            edits.append(Edit(offset, end, [], None, []) if cell is None else Edit(offset, end, [cell], None, [key]))
    return splice(nodes, tree, edits) if edits else tree


def _edit_map_leaf(nodes: Nodes, tree: Tree, leaf: Node, changes: Mapping[bytes, bytes | None]) -> Tree:
    """Do ``edit_map`` for a few changes in a map of one leaf, as most states are."""
    assert leaf.keys is not None
    items, keys = leaf.items.copy(), leaf.keys.copy()
    is_same = True
    for key, cell in changes.items():
        index = bisect_left(keys, key)
        if index < len(keys) and keys[index] == key:
            if cell is None:
                del items[index], keys[index]
            elif cell != items[index]:
                items[index] = cell
            else:
                continue
        elif cell is not None:
            items.insert(index, cell)
            keys.insert(index, key)
        else:
            continue
        is_same = False
    return tree if is_same else _of_leaf(nodes, Shape.MAP, items, keys)


def splice_cells(nodes: Nodes, tree: Tree, replacements: list[tuple[int, int, list[bytes]]]) -> Tree:
    """Replace the elements [start, end) of each triple by its cells.

    Replacing an element by the same cell changes nothing, so an unchanged element that was encoded again touches no
    node.
    """
    edits = []
    for start, end, cells in replacements:
        if start == end:
            if cells:
                edits.append(Edit(start, end, cells))
            continue
        a = 0
        for old in iter_cells(nodes, tree, start, end):
            if a == len(cells) or cells[a] != old:
                break
            a += 1
        b = 0
        if start + a < end and a < len(cells):
            olds = list(iter_cells(nodes, tree, start + a, end))
            while b < len(olds) and b < len(cells) - a and olds[-1 - b] == cells[-1 - b]:
                b += 1
        if start + a < end - b or a + b < len(cells):
            edits.append(Edit(start + a, end - b, cells[a : len(cells) - b]))
    return splice(nodes, tree, edits) if edits else tree
