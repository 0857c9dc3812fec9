"""A path in the state of a commit, followed into the states before it. Layer: repository.

Keys are the same everywhere. An element of a list is followed to where it was before others were put in or taken out beside it, as
``diff`` aligns the two; an element that was put in has nothing before it.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from versioned_state.objects.store import ObjectStore, Staging
from versioned_state.values.cells import ENTRY_INLINE, Code, code_of
from versioned_state.values.changes.diff import Replaced, diff_sequences
from versioned_state.values.containers import container_of, sequence_of
from versioned_state.values.encode.compose import Composer
from versioned_state.values.keys import path_of, root_key_of
from versioned_state.values.paths.lookup import find_part, offset_of
from versioned_state.values.paths.path import Index, StatePath, Step
from versioned_state.values.trees.nodes import Node, Nodes, Shape
from versioned_state.values.trees.references import tree_of
from versioned_state.values.trees.tree import Edit, Tree, edit_map, find, splice


@dataclass(frozen=True, slots=True)
class Place:
    """A path in one state, and what is there.

    Attributes:
        root_key, steps: the path; indexes count from the start of their list.
        cells: what lies on the way: that of the root key, then what each step leads to. They end where there is nothing.
    """

    root_key: bytes
    steps: tuple[Step, ...]
    cells: tuple[bytes, ...]

    @property
    def cell(self) -> bytes | None:
        """What the path leads to, or None where that is nothing."""
        return self.cells[-1] if len(self.cells) > len(self.steps) else None

    @property
    def path(self) -> StatePath:
        return path_of(self.root_key) / StatePath(self.steps)

    @property
    def can_follow(self) -> bool:
        """Whether one can say what the path means in an earlier state: no index leads into what is not there."""
        return not _has_index(self.steps[max(len(self.cells) - 1, 0) :])


class Places:
    """Finds places in the trees of one store. Nothing is unpickled. Not for two threads at once."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects
        staging = Staging(objects)
        self.nodes = Nodes(staging, staging=staging)
        self.composer = Composer(self.nodes)
        self.decoder = self.composer.decoder
        self._appended = 1

    def find(self, tree: Tree, path: StatePath) -> Place:
        """The place of a path in a state, be there something or not. Cost: one path down each tree on the way."""
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
        return Place(root_key, tuple(steps), tuple(cells))

    def before(self, place: Place, tree: Tree, *, later: Tree) -> Place | None:
        """What a place of the ``later`` state is in an earlier one; None: it is in an element that was put in since.

        Cost: what differs on the way; nothing is read that is equal, or turns out as expected (``_expect_root``).
        """
        # What was expected of the state before this one, and is not so, is let go. What is so is in the store.
        self.nodes.bind(Staging(self._objects))
        self._expect_root(place, tree, later)
        cell = find(self.nodes, tree, place.root_key)
        cells = [] if cell is None else [cell]
        if cells and place.cells:
            self._learn(cells[0], place.cells[0])
        steps: list[Step] = []
        for depth, step in enumerate(place.steps):
            rest = place.steps[depth:]
            if len(cells) == depth:
                return None if _has_index(rest) else Place(place.root_key, (*steps, *rest), tuple(cells))
            if cells[depth : depth + 1] == list(place.cells[depth : depth + 1]):
                return Place(place.root_key, (*steps, *rest), (*cells, *place.cells[depth + 1 :]))
            before = self._index_before(cells[depth], place.cells[depth], step.index) if isinstance(step, Index) else step
            if before is None:
                return None
            cell = self._step(cells[depth], before)[1]
            cells += [] if cell is None else [cell]
            steps.append(before)
        return Place(place.root_key, tuple(steps), tuple(cells))

    def same(self, a: Place, b: Place) -> bool:
        """Whether one value is at both, or nothing at either."""
        return self.composer.same(a.cell, b.cell)

    def replaced(self, old: bytes, new: bytes) -> list[Replaced] | None:
        """What was replaced from one list to another, by their cells; None where one is no list. Cost: what differs."""
        # A small list may hold its elements in another form than a large one does.
        large = any(code_of(cell) in (Code.LIST_TREE, Code.DICT_TREE) for cell in (old, new))
        a, b = self.composer.container(old, large=large), self.composer.container(new, large=large)
        if a is None or b is None or a.tree.shape is not Shape.SEQUENCE or b.tree.shape is not Shape.SEQUENCE:
            return None
        self._expect_list(b.tree, a.tree.count)
        return list(diff_sequences(self.nodes, a.tree, b.tree))

    # Steps

    def _step(self, cell: bytes, step: Step) -> tuple[Step, bytes | None]:
        """A step from a cell, its index counted from the start; and the cell that it leads to, if there is one."""
        if isinstance(step, Index):
            tree = sequence_of(self.nodes, cell)
            index = None if tree is None else offset_of(step, tree.count)
            if index is not None:
                step = Index(index)
        return step, find_part(self.nodes, cell, step)

    def _index_before(self, old: bytes, new: bytes, index: int) -> Index | None:
        parts = self.replaced(old, new)
        if parts is None:
            # The elements of tuples are what their index says.
            before, after = (sequence_of(self.nodes, cell) for cell in (old, new))
            are_tuples = before is not None and after is not None and all(container_of(self.nodes, cell) is None for cell in (old, new))
            return Index(index) if are_tuples and before is not None and index < before.count else None
        shift = 0
        for part in parts:
            if index < part.new_start:
                break
            if index < part.new_end:
                at = part.old_start + index - part.new_start  # changed in its place, as ``diff`` shows it
                return Index(at) if at < part.old_end else None
            shift = part.old_end - part.new_end
        return Index(index + shift)

    # What is expected of an earlier state. Nodes are found by their hash, so one that is expected and right need not be read; and one
    # that is wrong is never asked for. Most lists are only appended to, and so a look back at a message reads little but the commits.

    def _expect_root(self, place: Place, tree: Tree, later: Tree) -> None:
        """Have those nodes of an earlier state at hand that it has if nothing but the end of the list at the root key is new since."""
        elements = tree_of(place.cells[0], Code.LIST_TREE) if place.cells else None
        if elements is None or not self._differ(tree, later, place.root_key):
            return
        earlier = self._expect_list(elements, elements.count - self._appended)
        if earlier is not None:
            edit_map(self.nodes, later, {place.root_key: self.composer.list_cell(earlier, ENTRY_INLINE)})

    def _expect_list(self, tree: Tree, count: int) -> Tree | None:
        """The same for a list that had so many elements; a list that was longer cannot be foreseen."""
        if not 0 < count < tree.count:
            return None
        return splice(self.nodes, tree, [Edit(count, tree.count, [])])

    def _differ(self, a: Tree, b: Tree, key: bytes) -> bool:
        """Whether what two large roots have at a key may differ, as far as their tops tell."""
        tops = [self.nodes.get(tree.shape, tree.top) for tree in (a, b)]
        return tops[0].level > 0 and tops[0].level == tops[1].level and _child(tops[0], key) != _child(tops[1], key)

    def _learn(self, old: bytes, new: bytes) -> None:
        """What was appended last is what will be expected next."""
        before, after = tree_of(old, Code.LIST_TREE), tree_of(new, Code.LIST_TREE)
        if old != new and before is not None and after is not None:
            self._appended = max(after.count - before.count, 1)


def _child(node: Node, key: bytes) -> bytes:
    assert node.keys is not None
    return node.items[max(bisect_right(node.keys, key) - 1, 0)]


def _has_index(steps: tuple[Step, ...]) -> bool:
    return any(isinstance(step, Index) for step in steps)
