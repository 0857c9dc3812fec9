"""``PathTracer``, which traces a path in the state of a commit into earlier states. Layer: repository.

Keys are the same in every state. An element of a list is traced to its index before other elements were inserted or
removed, as ``diff`` aligns the two lists; an inserted element has no earlier index.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import Final

from versioned_state.objects.store import ObjectStore, Staging
from versioned_state.values.cells import ENTRY_INLINE, Code
from versioned_state.values.changes.diff import Replaced, diff_sequences
from versioned_state.values.containers import container_of, guarded, is_large, sequence_of
from versioned_state.values.encode.compose import Composer
from versioned_state.values.keys import path_of, root_key_of
from versioned_state.values.paths.lookup import find_part, offset_of
from versioned_state.values.paths.path import Index, StatePath, Step
from versioned_state.values.trees.edit import Edit, edit_map, splice
from versioned_state.values.trees.nodes import Node, Nodes, Shape
from versioned_state.values.trees.references import tree_of
from versioned_state.values.trees.tree import Tree, find


@dataclass(frozen=True, slots=True)
class TracedPath:
    """A path in one state, and the cells on the way.

    Attributes:
        root_key, steps: the path; indexes count from the start of their list.
        cells: that of the root key, then the one that each step leads to, as far as there are any.
    """

    root_key: bytes
    steps: tuple[Step, ...]
    cells: tuple[bytes, ...]

    @property
    def cell(self) -> bytes | None:
        """The cell that the path leads to, or None if nothing is there."""
        return self.cells[-1] if len(self.cells) > len(self.steps) else None

    @property
    def path(self) -> StatePath:
        return path_of(self.root_key) / StatePath(self.steps)

    @property
    def can_follow(self) -> bool:
        """Whether the path has a meaning in an earlier state: every index in it leads to an element."""
        return not _has_index(self.steps[max(len(self.cells) - 1, 0) :])


class PathTracer:
    """A tracer of paths through the trees of one store. Nothing is unpickled. Not for two threads at once."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects
        staging = Staging(objects)
        self.nodes: Final = Nodes(staging, staging=staging)
        self.composer: Final = Composer(self.nodes)
        self.decoder: Final = self.composer.decoder
        self._appended = 1

    def find(self, tree: Tree, path: StatePath) -> TracedPath:
        """Return a path in a state, whether or not anything is there. Cost: one path down each tree on the way."""
        root_key, rest = root_key_of(path)
        cell = find(self.nodes, tree, root_key)
        steps: list[Step] = []
        cells = [] if cell is None else [cell]
        for step in rest.steps:
            if len(cells) > len(steps):
                found, cell = self._step(cells[-1], step)
                cells += [] if cell is None else [cell]
                steps.append(found)
            else:
                steps.append(step)
        return TracedPath(root_key, tuple(steps), tuple(cells))

    def before(self, traced: TracedPath, tree: Tree, *, later: Tree) -> TracedPath | None:
        """Return the path that a path of the ``later`` state had in an earlier one.

        Returns None if the path leads into an element inserted since. Cost: the differences on the path; nodes that are
        equal, or that ``_expect_root`` has predicted, are not read.
        """
        # Drop the nodes that were predicted wrongly for the last state; correct predictions are in the store.
        self.nodes.bind(Staging(self._objects))
        self._expect_root(traced, tree, later)
        cell = find(self.nodes, tree, traced.root_key)
        cells = [] if cell is None else [cell]
        if cells and traced.cells:
            self._learn(cells[0], traced.cells[0])
        steps: list[Step] = []
        for depth, step in enumerate(traced.steps):
            rest = traced.steps[depth:]
            if len(cells) == depth:
                return None if _has_index(rest) else TracedPath(traced.root_key, (*steps, *rest), tuple(cells))
            if cells[depth : depth + 1] == list(traced.cells[depth : depth + 1]):
                return TracedPath(traced.root_key, (*steps, *rest), (*cells, *traced.cells[depth + 1 :]))
            before = (
                self._index_before(cells[depth], traced.cells[depth], step.index) if isinstance(step, Index) else step
            )
            if before is None:
                return None
            cell = self._step(cells[depth], before)[1]
            cells += [] if cell is None else [cell]
            steps.append(before)
        return TracedPath(traced.root_key, tuple(steps), tuple(cells))

    def same(self, a: TracedPath, b: TracedPath) -> bool:
        """Return whether the values at two paths are the same. Two absent ones are."""
        return guarded(self.composer.same, a.cell, b.cell)

    def replaced(self, old: bytes, new: bytes) -> list[Replaced] | None:
        """Return the elements replaced from one list to another, by their cells, or None if one is not a list.

        Cost: what differs.
        """
        # A small list may hold its elements in another form than a large one does.
        large = any(is_large(self.nodes, cell) for cell in (old, new))
        a, b = self.composer.container(old, large=large), self.composer.container(new, large=large)
        if a is None or b is None or a.tree.shape is not Shape.SEQUENCE or b.tree.shape is not Shape.SEQUENCE:
            return None
        self._expect_list(b.tree, a.tree.count)
        return list(diff_sequences(self.nodes, a.tree, b.tree))

    # Steps

    def _step(self, cell: bytes, step: Step) -> tuple[Step, bytes | None]:
        """Return a step with its index counted from the start, and the cell that it leads to, or None."""
        if isinstance(step, Index):
            tree = sequence_of(self.nodes, cell)
            index = None if tree is None else offset_of(step, tree.count)
            if index is not None:
                step = Index(index)
        return step, find_part(self.nodes, cell, step)

    def _index_before(self, old: bytes, new: bytes, index: int) -> Index | None:
        parts = self.replaced(old, new)
        if parts is None:
            # An element of a tuple keeps its index.
            before, after = (sequence_of(self.nodes, cell) for cell in (old, new))
            if before is None and after is None:  # so does an element of an array
                return Index(index)
            are_tuples = (
                before is not None
                and after is not None
                and all(container_of(self.nodes, cell) is None for cell in (old, new))
            )
            return Index(index) if are_tuples and before is not None and index < before.count else None
        shift = 0
        for part in parts:
            if index < part.new_start:
                break
            if index < part.new_end:
                at = part.old_start + index - part.new_start  # changed in place, as ``diff`` shows it
                return Index(at) if at < part.old_end else None
            shift = part.old_end - part.new_end
        return Index(index + shift)

    # Predicting an earlier state. Nodes are found by their hash: a correctly predicted node need not be read, and a
    # wrong prediction is never looked up. Most lists are only appended to, so tracing a message reads little more than
    # the commits.

    def _expect_root(self, traced: TracedPath, tree: Tree, later: Tree) -> None:
        """Stage the nodes that an earlier state has if only the end of the list at the root key is new since."""
        elements = tree_of(traced.cells[0], Code.LIST_TREE) if traced.cells else None
        if elements is None or not self._differ(tree, later, traced.root_key):
            return
        earlier = self._expect_list(elements, elements.count - self._appended)
        if earlier is not None:
            edit_map(self.nodes, later, {traced.root_key: self.composer.list_cell(earlier, ENTRY_INLINE)})

    def _expect_list(self, tree: Tree, count: int) -> Tree | None:
        """Predict a list that had ``count`` elements. A list that was longer cannot be predicted."""
        if not 0 < count < tree.count:
            return None
        return splice(self.nodes, tree, [Edit(count, tree.count, [])])

    def _differ(self, a: Tree, b: Tree, key: bytes) -> bool:
        """Return whether two large states may differ at a key, as far as their top nodes tell."""
        tops = [self.nodes.get(tree.shape, tree.top) for tree in (a, b)]
        return tops[0].level > 0 and tops[0].level == tops[1].level and _child(tops[0], key) != _child(tops[1], key)

    def _learn(self, old: bytes, new: bytes) -> None:
        """Predict that earlier commits appended as many elements as this one."""
        before, after = guarded(tree_of, old, Code.LIST_TREE), guarded(tree_of, new, Code.LIST_TREE)
        if old != new and before is not None and after is not None:
            self._appended = max(after.count - before.count, 1)


def _child(node: Node, key: bytes) -> bytes:
    assert node.keys is not None
    return node.items[max(bisect_right(node.keys, key) - 1, 0)]


def _has_index(steps: tuple[Step, ...]) -> bool:
    return any(isinstance(step, Index) for step in steps)
