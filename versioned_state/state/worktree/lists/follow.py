"""Lists that are not loaded follow the head: their elements in memory move, and get the new content in place.

Layer: state.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple

from versioned_state.errors import MissingObjectError, StateError, StorageError
from versioned_state.state.worktree.entries import UNSTORABLE
from versioned_state.state.worktree.in_place import Claims, replace_content
from versioned_state.state.worktree.lists.pieces import Element, ListEdits, Piece, add_piece
from versioned_state.state.worktree.lists.unloaded import UnloadedLists
from versioned_state.state.worktree.tracked import TrackedKeys
from versioned_state.values.changes.diff import Replaced, diff_sequences
from versioned_state.values.decode.live import LiveDecoder
from versioned_state.values.detection.fingerprinter import Fingerprinter
from versioned_state.values.trees.nodes import Nodes
from versioned_state.values.trees.tree import Tree, iter_cells


class Following(NamedTuple):
    """The plan for one list. Nothing is changed yet.

    Attributes:
        edits: the list as it will be, relative to the list in the head.
        patches: the elements whose values will get the content of their cells.
    """

    edits: ListEdits
    patches: list[tuple[Element, Any]]


class ListFollower:
    """Moves of the elements in memory to their places in another list.

    Cost: these elements, and the differences between the lists.
    """

    def __init__(
        self,
        tracked: TrackedKeys,
        lists: UnloadedLists,
        nodes: Nodes,
        decoder: LiveDecoder,
        fingerprinter: Fingerprinter,
    ) -> None:
        self._tracked = tracked
        self._lists = lists
        self._nodes = nodes
        self._decoder = decoder
        self._fingerprinter = fingerprinter

    def plan(self, key: bytes, cell: bytes, head_cell: bytes | None) -> Following | None:
        """Plan the list of ``cell`` over a head that has ``head_cell``, and read its elements.

        Returns None if one of them is not a list.

        Raises:
            StateError: an uncommitted element cannot be read.
        """
        target, head = self._lists.tree(cell), self._lists.tree(head_cell)
        if target is None or head is None:
            return None
        placed = self._placed(key, target)
        patches: list[tuple[Element, Any]] = []
        pieces: list[Piece] = []
        places = sorted(placed)
        end = Replaced(head.count, head.count, target.count, target.count)
        old = new = 0
        for part in [*diff_sequences(self._nodes, head, target), end]:
            shift = old - new
            for place in places[bisect_left(places, new) : bisect_left(places, part.new_start)]:
                element = self._moved(placed[place], place, target, place + shift, patches)
                if element is not None:
                    add_piece(pieces, range(new + shift, place + shift))
                    add_piece(pieces, [element])
                    new = place + 1
            add_piece(pieces, range(new + shift, part.old_start))
            for place, part_cell in enumerate(
                iter_cells(self._nodes, target, part.new_start, part.new_end), part.new_start
            ):
                held = placed.get(place)
                element = None if held is None else self._moved(held, place, target, None, patches)
                add_piece(pieces, [self._lists.element(None, part_cell) if element is None else element])
            old, new = part.old_end, part.new_end
        return Following(ListEdits(head_cell, head.count, pieces), patches)

    def _placed(self, key: bytes, target: Tree) -> dict[int, tuple[Element, bool]]:
        """Return the elements in memory that are, or become, elements of another list, by their places in it."""
        edits = self._tracked.lists.get(key)
        if edits is None:
            return {}
        try:
            try:
                now = self._lists.encode(key, edits)
            except UNSTORABLE:
                now = self._lists.encode(key, self._lists.storable(edits))
            stored, source = self._lists.tree(edits.cell), self._lists.tree(now.cell)
            assert stored is not None
            assert source is not None
            since = list(diff_sequences(self._nodes, stored, target))
            parts = list(diff_sequences(self._nodes, source, target))
        except MissingObjectError:  # gc has collected the list that the edits are relative to
            return {}
        assert now.staged_list is not None
        moved = now.staged_list.moved
        placed: dict[int, tuple[Element, bool]] = {}
        changed = []
        for element in edits.elements():
            if (new := moved.get(id(element))) is None:
                continue  # the element cannot be stored
            assert new.at is not None
            before, present = None if element.at is None else _place(since, element.at), _place(parts, new.at)
            if before is not None and before[1]:
                placed[before[0]] = new, new.cell == element.cell
            elif present is not None and present[1]:
                placed.setdefault(present[0], (new, True))
            else:
                changed.append((new, before or present))
        for new, place in changed:  # the elements that replace it
            if place is not None:
                placed.setdefault(place[0], (new, False))
        return placed

    def _moved(
        self, held: tuple[Element, bool], place: int, target: Tree, at: int | None, patches: list[tuple[Element, Any]]
    ) -> Element | None:
        """Return an element at its new place, or None if its content there cannot be read.

        ``at`` is its index in the head.
        """
        element, is_same = held
        if is_same:
            return Element(element.value, at, element.cell, element.base, element.fingerprint)
        (cell,) = iter_cells(self._nodes, target, place, place + 1)
        try:
            new = self._lists.element(at, cell)
        except StorageError:
            raise
        except StateError:
            if at is None:
                raise
            return None  # reading it raises the error
        patches.append((new, element.value))
        return new

    def apply(self, key: bytes, following: Following, claimed: Claims) -> None:
        """Carry out a plan. After an interrupt, repeating it with a new plan gives the same result."""
        edits, patches = following
        patched = {id(element) for element, _ in patches}
        claimed.update((id(element.value), element.value) for element in edits.elements() if id(element) not in patched)
        for element, value in patches:
            first = [element.value]
            element.value = replace_content(value, partial(self._fresh, first, element), self._fingerprinter, claimed)
        self._tracked.replace_list(key, edits)

    def _fresh(self, first: list[Any], element: Element) -> Any:
        assert element.cell is not None
        return first.pop() if first else self._decoder.decode_live(element.cell)[0]


def _place(parts: list[Replaced], at: int) -> tuple[int, bool] | None:
    """Return an element's place in another sequence and whether it is unchanged there, or None if it was removed."""
    index = bisect_right(parts, at, key=attrgetter("old_end"))
    if index < len(parts) and parts[index].old_start <= at:
        part = parts[index]
        place = part.new_start + at - part.old_start
        return (place, False) if place < part.new_end else None
    return at + (parts[index - 1].new_end - parts[index - 1].old_end if index else 0), True
