"""``ListEdits``: a list that is not loaded, as runs of stored elements and elements in memory. Layer: state.

::

    stored    0 1 2 3 4 5 6 7 8 9 ...                        n
    pieces    range(0, 3)  [3, new, 5]  range(6, n)  [appended]

Here elements 3 and 5 were read, 4 was replaced, and one was appended.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate
from typing import Any, Final, NamedTuple

from versioned_state.values.detection.baselines import Baseline
from versioned_state.values.detection.groups import Fingerprint


class Element:
    """An element in memory.

    Attributes:
        value: the object that callers refer to.
        at: the index of the element in the stored list; None if it is not stored there.
        cell: its cell in the stored list.
        base: its baseline, if it is large.
        fingerprint: its fingerprint, if it is small and not of JSON types; its cell may differ from one encoding to the
            next.
    """

    __slots__ = ("at", "base", "cell", "fingerprint", "value")

    def __init__(
        self,
        value: Any,
        at: int | None = None,
        cell: bytes | None = None,
        base: Baseline | None = None,
        fingerprint: Fingerprint = None,
    ) -> None:
        self.value: Any = value
        self.at: Final = at
        self.cell: bytes | None = cell
        self.base: Baseline | None = base
        self.fingerprint: Fingerprint = fingerprint


Piece = range | list[Element]
"""Indices of stored elements, or elements in memory. No piece is empty, and no two lists are neighbours."""


class ListEdits:
    """The pieces of a list. Stored elements keep their order.

    Attributes:
        cell: the cell of the stored list; None if there is none.
        stored: the number of its elements.
        pieces: changed or replaced by a single assignment, so an interrupt comes either before or after an edit.
        trim_at: the number of elements in memory at which elements that only the worktree refers to are released.
        version: the number of edits that inserted or removed elements.
    """

    __slots__ = ("_ends", "cell", "pieces", "stored", "trim_at", "version")

    def __init__(self, cell: bytes | None, stored: int, pieces: list[Piece] | None = None, *, trim_at: int = 0) -> None:
        self.cell: bytes | None = cell
        self.stored: Final = stored
        self.pieces: list[Piece] = ([range(stored)] if stored else []) if pieces is None else pieces
        self.trim_at: int = trim_at
        self.version: int = 0
        self._ends: list[int] | None = None

    def _end_of_pieces(self) -> list[int]:
        ends = self._ends
        if ends is None:
            ends = self._ends = list(accumulate(map(len, self.pieces)))
        return ends

    def __len__(self) -> int:
        ends = self._end_of_pieces()
        return ends[-1] if ends else 0

    @property
    def is_as_stored(self) -> bool:
        """Whether no element was added, replaced or removed. Elements that were read may have changed in place."""
        return len(self) == self.stored and all(element.at is not None for element in self.elements())

    @property
    def is_idle(self) -> bool:
        """Whether no element is in memory, and the list is as stored."""
        return self.cell is not None and self.pieces == ([range(self.stored)] if self.stored else [])

    @property
    def in_memory(self) -> int:
        """The number of elements in memory."""
        return sum(len(piece) for piece in self.pieces if isinstance(piece, list))

    def elements(self) -> Iterator[Element]:
        """Iterate over the elements in memory, in order."""
        for piece in self.pieces:
            if isinstance(piece, list):
                yield from piece

    def copy(self) -> list[Piece]:
        """Return the pieces as they are now."""
        return [piece.copy() if isinstance(piece, list) else piece for piece in self.pieces]

    def between(self, start: int, end: int) -> Iterator[Piece]:
        """Iterate over the parts of pieces in [start, end), in order."""
        if start >= end:
            return
        ends = self._end_of_pieces()
        index = bisect_left(ends, start + 1)
        position = ends[index - 1] if index else 0
        while position < end and index < len(self.pieces):
            piece = self.pieces[index]
            yield piece[max(start - position, 0) : end - position]
            position = ends[index]
            index += 1

    def replace(self, start: int, end: int, elements: list[Element]) -> None:
        """Replace the elements at [start, end) by others."""
        ends = self._end_of_pieces()
        index = bisect_left(ends, start)
        if (
            index < len(ends)
            and ends[index] == start
            and isinstance(self.pieces[index], range)
            and index + 1 < len(ends)
        ):
            index += 1
        if index < len(ends):
            piece = self.pieces[index]
            first = ends[index] - len(piece)
            if isinstance(piece, list) and end <= ends[index] and len(piece) + len(elements) > end - start:
                self._ends = None
                piece[start - first : end - first] = elements
                return
        self._replace_between(start, end, elements)

    def _replace_between(self, start: int, end: int, elements: list[Element]) -> None:
        """Do as ``replace``, at any place.

        Cost: the touched pieces and their neighbours, and a copy of the references to the others.
        """
        ends, pieces = self._end_of_pieces(), self.pieces
        low = bisect_right(ends, start)
        high = max(bisect_left(ends, end), low)
        around: list[Piece] = []
        for piece in pieces[max(low - 1, 0) : low]:
            add_piece(around, piece)
        if low < len(pieces):
            add_piece(around, pieces[low][: start - (ends[low] - len(pieces[low]))])
        add_piece(around, elements)
        if high < len(pieces):
            add_piece(around, pieces[high][end - (ends[high] - len(pieces[high])) :])
        for piece in pieces[high + 1 : high + 2]:
            add_piece(around, piece)
        self._ends = None
        self.pieces = [*pieces[: max(low - 1, 0)], *around, *pieces[high + 2 :]]

    def replace_all(self, replacements: Iterable[tuple[int, int, list[Element]]]) -> None:
        """Do as ``replace`` at several places, which are in order and do not overlap."""
        pieces: list[Piece] = []
        position = 0
        for start, end, elements in replacements:
            for piece in self.between(position, start):
                add_piece(pieces, piece)
            add_piece(pieces, elements)
            position = end
        for piece in self.between(position, len(self)):
            add_piece(pieces, piece)
        self._ends = None
        self.pieces = pieces


def add_piece(pieces: list[Piece], piece: Piece) -> None:
    """Append a piece. If it continues a list at the end of ``pieces``, extend that list."""
    if not piece:
        return
    last = pieces[-1] if pieces else None
    if isinstance(piece, list):
        if isinstance(last, list):
            last += piece
        else:
            pieces.append(piece.copy())
    elif isinstance(last, range) and last.stop == piece.start:
        pieces[-1] = range(last.start, piece.stop)
    else:
        pieces.append(piece)


class StagedList(NamedTuple):
    """A staged list.

    Attributes:
        edits: the list relative to its new cell. Elements that only the worktree referred to are no longer in memory.
        pieces: the staged pieces, relative to the old cell.
        moved: by the id of each element in ``pieces``, the element relative to the new cell.
    """

    edits: ListEdits
    pieces: list[Piece]
    moved: dict[int, Element]

    def rebase(self, now: ListEdits, recall: Callable[[int], Element]) -> ListEdits:
        """Make a list that was edited after staging relative to the new cell.

        Args:
            now: the list, relative to the old cell.
            recall: reads a stored element by its old index.
        """
        kept: list[tuple[range, int]] = []  # old indices, and how far they have moved
        position = 0
        for piece in self.pieces:
            if isinstance(piece, range):
                kept.append((piece, position - piece.start))
            position += len(piece)
        pieces: list[Piece] = []
        for piece in now.pieces:
            if isinstance(piece, list):
                add_piece(pieces, [self.moved.get(id(element)) or _new(element) for element in piece])
                continue
            at = piece.start
            for old, shift in kept:
                first, last = max(old.start, piece.start), min(old.stop, piece.stop)
                if first < last:
                    add_piece(pieces, [recall(index) for index in range(at, first)])
                    add_piece(pieces, range(first + shift, last + shift))
                    at = last
            add_piece(pieces, [recall(index) for index in range(at, piece.stop)])
        return ListEdits(self.edits.cell, self.edits.stored, pieces, trim_at=now.trim_at)


def _new(element: Element) -> Element:
    """Return an element without a place in the stored list."""
    return Element(element.value)
