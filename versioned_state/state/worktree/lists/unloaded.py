"""``UnloadedLists``: lists that are read and edited without being loaded. Layer: state.

An element that a caller has read stays in memory while any caller refers to it, and is compared like a loaded value:
changing it in place changes the state. An element that only the worktree refers to is released, and read again when it
is next needed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from versioned_state.state.worktree.entries import IMMUTABLE, UNSTORABLE, Update
from versioned_state.state.worktree.lists.held import are_held, is_held
from versioned_state.state.worktree.lists.pieces import Element, ListEdits, Piece, StagedList, add_piece
from versioned_state.state.worktree.tracked import TrackedKeys
from versioned_state.values.cells import ELEMENT_INLINE
from versioned_state.values.codec.scalars import TooDeepError, is_plain
from versioned_state.values.decode.live import LiveDecoder
from versioned_state.values.detection.baselines import Baseline
from versioned_state.values.detection.groups import GROUP_SIZE, UNKNOWN, Fingerprint
from versioned_state.values.encode.compose import Composer
from versioned_state.values.encode.encoder import Encoder
from versioned_state.values.encode.inline import plain_cell
from versioned_state.values.encode.splices import Replacement, elements_of, splice_list
from versioned_state.values.keys import path_of
from versioned_state.values.trees.tree import Tree, cells_at, iter_cells

_TRIM_AT: Final = 1024
"""The number of elements in memory from which those that only the worktree refers to are released."""

_TREES_KEPT: Final = 8
"""The cells whose trees of elements are cached: those of a few lists, in the head and as they were staged last."""

Values = tuple[int, int, list[Any]]
"""The elements [start, end) of a list, and the values that replace them."""


class UnloadedLists:
    """The lists of a worktree that are not loaded. Keys are root keys. None of them has an entry."""

    def __init__(self, tracked: TrackedKeys, encoder: Encoder, decoder: LiveDecoder) -> None:
        self._tracked = tracked
        self._encoder = encoder
        self._decoder = decoder
        self._nodes = encoder.nodes
        self._composer: Composer | None = None
        self._trees: dict[bytes | None, Tree | None] = {}

    def tree(self, cell: bytes | None) -> Tree | None:
        """Return the elements of a cell, or None if it is not that of a list."""
        if cell not in self._trees:
            self._keep(cell, elements_of(self._nodes, cell))
        return self._trees[cell]

    def _keep(self, cell: bytes | None, tree: Tree | None) -> None:
        if len(self._trees) >= _TREES_KEPT:
            self._trees = {}
        self._trees[cell] = tree

    def _edits(self, key: bytes) -> ListEdits:
        """Return the list under a key. A list that is only read need not be tracked."""
        edits = self._tracked.lists.get(key)
        if edits is None:
            cell = self._tracked.list_cell(key)
            tree = self.tree(cell)
            assert tree is not None, "the key has a list"
            edits = ListEdits(cell, tree.count)
        return edits

    def has(self, key: bytes) -> bool:
        """Return whether a key has a list that can be read in part, or no value.

        A list stored as one object cannot be read in part.
        """
        return key in self._tracked.lists or self.tree(self._tracked.list_cell(key)) is not None

    def length(self, key: bytes) -> int:
        """Return the number of elements."""
        edits = self._tracked.lists.get(key)
        if edits is not None:
            return len(edits)
        tree = self.tree(self._tracked.list_cell(key))
        assert tree is not None, "the key has a list"
        return tree.count

    def version(self, key: bytes) -> object:
        """Return a value that changes if elements are inserted or removed."""
        edits = self._tracked.lists.get(key)
        return (self._tracked.list_cell(key), 0) if edits is None else (edits.cell, edits.version)

    def _stored(self, edits: ListEdits, picked: range) -> list[bytes]:
        tree = self.tree(edits.cell)
        assert tree is not None, "the edits are of a list"
        return cells_at(self._nodes, tree, picked)

    def peek(self, key: bytes, start: int, end: int) -> list[Any]:
        """Return the elements [start, end) for a comparison: those that are not in memory are copies."""
        edits = self._edits(key)
        values: list[Any] = []
        for piece in edits.between(start, end):
            if isinstance(piece, range):
                values += self._decoder.decode_many(self._stored(edits, piece))
            else:
                values += [each.value for each in piece]
        return values

    def read(self, key: bytes, picked: range) -> list[Any]:
        """Return the elements of a rising range.

        Tracks those that can change in place. Cost: a path, and the elements.
        """
        edits = self._edits(key)
        values: list[Any] = []
        read: list[tuple[int, int, list[Element]]] = []
        position, step = picked.start, picked.step
        end = picked[-1] + 1 if picked else position
        while position < end:
            for piece in edits.between(position, end):  # the first element of the piece, then every ``step``-th one
                count = len(range(0, len(piece), step))
                if isinstance(piece, list):
                    values += [element.value for element in piece[::step]]
                else:
                    elements = self._elements(piece[::step], self._stored(edits, piece[::step]))
                    values += [element.value for element in elements]
                    if step == 1 and IMMUTABLE.isdisjoint(map(type, values[-count:])):
                        _add_run(read, position, elements)
                    else:
                        for at, element in zip(range(position, end, step), elements, strict=False):
                            if type(element.value) not in IMMUTABLE:
                                _add_run(read, at, [element])
                position += count * step
                break
        if read:
            self._tracked.changes += 1
            if len(read) == 1:
                edits.replace(*read[0])
            else:
                edits.replace_all(read)
            self._tracked.lists[key] = edits
            if edits.in_memory > max(edits.trim_at, _TRIM_AT):
                self.trim(key)
        return values

    def element(self, at: int | None, cell: bytes) -> Element:
        """Return a stored element. Raises as a read of a state does."""
        return self._made(at, cell, *self._decoder.decode_live(cell))

    def _elements(self, places: range, cells: list[bytes]) -> list[Element]:
        """Return stored elements, by their places and cells, read together."""
        plain = self._decoder.plain_values(cells)
        if plain is not None:
            return list(map(Element, plain, places, cells))
        decoded = self._decoder.decode_live_many(cells)
        return [
            self._made(at, cell, value, base) for at, cell, (value, base) in zip(places, cells, decoded, strict=True)
        ]

    def _made(self, at: int | None, cell: bytes, value: Any, base: Baseline | None) -> Element:
        return Element(value, at, cell, base, None if base is not None else self._fingerprint(value))

    def _fingerprint(self, value: Any) -> Fingerprint:
        """Return the fingerprint of a small value, or None if it is of JSON types or cannot change."""
        if type(value) in IMMUTABLE:
            return None
        try:
            if is_plain(value):
                return None
            fingerprint = self._encoder.fingerprinter.of([value])[0]
        except (TooDeepError, RecursionError):
            return UNKNOWN
        return UNKNOWN if fingerprint is None else fingerprint

    def recall(self, cell: bytes | None, at: int) -> Element:
        """Return an element of the list of a cell, as an element that is not stored in the present list."""
        tree = self.tree(cell)
        assert tree is not None, "the cell is of a list"
        return Element(self._decoder.decode(next(iter_cells(self._nodes, tree, at, at + 1))))

    def replace(self, key: bytes, replacements: list[Values]) -> None:
        """Replace elements by values. A missing key becomes a list. Cost: O(log n), the new values, and the pieces."""
        self._put(key, self._edits(key), replacements)

    def extend(self, key: bytes, values: list[Any]) -> None:
        """Append values. A missing key becomes a list. Cost: the new values."""
        edits = self._edits(key)
        self._put(key, edits, [(len(edits), len(edits), values)])

    def _put(self, key: bytes, edits: ListEdits, replacements: list[Values]) -> None:
        new = [(start, end, [Element(value) for value in values]) for start, end, values in replacements]
        self._tracked.begin(key)
        if len(new) == 1:
            edits.replace(*new[0])
        else:
            edits.replace_all(new)
        edits.version += 1
        self._tracked.track_list(key, edits)
        self._tracked.unfinished.edit = None

    def trim(self, key: bytes) -> None:
        """Release the unchanged elements that only the worktree refers to. Cost: all elements in memory."""
        edits = self._tracked.lists.get(key)
        if edits is None:
            return
        pieces: list[Piece] = []
        for piece in edits.pieces:
            if isinstance(piece, range):
                add_piece(pieces, piece)
                continue
            for element in piece:
                if element.at is None or is_held(element) or not self._is_same(element):
                    add_piece(pieces, [element])
                else:
                    add_piece(pieces, range(element.at, element.at + 1))
        self._tracked.changes += 1
        trimmed = ListEdits(edits.cell, edits.stored, pieces)
        trimmed.trim_at, trimmed.version = 2 * trimmed.in_memory, edits.version
        self._tracked.lists[key] = trimmed

    def _is_same(self, element: Element) -> bool:
        """Return whether an element equals its stored form."""
        try:
            return self._encode(element, "")[0] == element.cell
        except UNSTORABLE:
            return False

    def storable(self, edits: ListEdits) -> ListEdits:
        """Return the list without the elements that cannot be stored."""
        pieces: list[Piece] = []
        for piece in edits.pieces:
            add_piece(
                pieces,
                piece if isinstance(piece, range) else [element for element in piece if self._is_storable(element)],
            )
        return ListEdits(edits.cell, edits.stored, pieces)

    def _is_storable(self, element: Element) -> bool:
        try:
            self._encode(element, "")
        except UNSTORABLE:
            return False
        return True

    def is_unchanged(self, edits: ListEdits) -> bool:
        """Return whether the elements in memory equal their stored form, and no element is missing. Reads nothing."""
        if len(edits) != edits.stored:
            return False
        for piece in edits.pieces:
            if type(piece) is list:
                rest = piece[self._count_as_stored(piece) :]
                if not all(element.at is not None and self._is_same(element) for element in rest):
                    return False
        return True

    def materialize(self, key: bytes, stored: list[Any]) -> list[Any]:
        """Return the list under a key as a Python list, given all stored elements.

        Elements in memory keep their identity.
        """
        values: list[Any] = []
        for piece in self._tracked.lists[key].pieces:
            values += (
                stored[piece.start : piece.stop] if isinstance(piece, range) else [element.value for element in piece]
            )
        return values

    # Staging

    def _encode(self, element: Element, path: str | Callable[[], str]) -> tuple[bytes, Baseline | None, Fingerprint]:
        """Return the cell, the baseline and the fingerprint of an element."""
        fingerprint = element.fingerprint
        if (
            fingerprint is not None
            and element.cell is not None
            and self._encoder.fingerprinter.same(fingerprint, [element.value])
        ):
            return element.cell, None, fingerprint
        is_stored = element.at is not None
        if element.base is None or not is_stored:  # most elements are small JSON values
            cell = plain_cell(element.value)
            if cell is not None and len(cell) <= ELEMENT_INLINE:
                return cell, None, None
        # After a rollback a value may have a baseline whose objects were staged only for the rollback.
        cell, base = self._encoder.encode(
            element.value, element.base if is_stored else None, path, limit=ELEMENT_INLINE
        )
        return cell, base, self._fingerprint(element.value) if base is None else None

    def _spliced(self, cell: bytes | None, replacements: list[Replacement]) -> bytes:
        if cell is not None and not replacements:
            return cell
        if self._composer is None:
            self._composer = Composer(self._nodes)
        new, tree = splice_list(self._composer, cell, replacements, self.tree(cell))
        if tree is not None:
            self._keep(new, tree)
        return new

    def _count_as_stored(self, elements: list[Element]) -> int:
        """Return a number of leading elements that equal their stored form, found by packing all in one call.

        There may be more.
        """
        count = _follow_each_other(elements)
        if count:
            picked = elements[:count]
            if self._encoder.fingerprinter.same_cells(
                [each.cell or b"" for each in picked], [each.value for each in picked]
            ):
                return count
        return 0

    def encode(self, key: bytes, edits: ListEdits) -> Update:
        """Return the cell of a list, and the list relative to this cell.

        Cost: the elements in memory, and a path to each changed one.

        Raises:
            UnserializableValueError, PickleRefusedError, LimitExceededError: an element cannot be stored; the error
                names its path.
        """
        replacements: list[Replacement] = []
        run: list[bytes] = []
        pieces: list[Piece] = []
        moved: dict[int, Element] = {}
        start = position = 0

        def end_run(end: int) -> None:
            nonlocal run
            if run or start < end:
                replacements.append((start, end, run))
                run = []

        for piece in edits.pieces:
            if isinstance(piece, range):
                end_run(piece.start)
                start = piece.stop
                add_piece(pieces, range(position, position + len(piece)))
                position += len(piece)
                continue
            for first in range(0, len(piece), GROUP_SIZE):
                group = piece[first : first + GROUP_SIZE]
                held = are_held(group)  # before new elements refer to these values
                same = self._count_as_stored(group)
                encoded = group[:same]
                if same:
                    at = group[0].at
                    assert at is not None, "it is stored"
                    end_run(at)
                    start = at + same
                    if at != position:
                        encoded = [Element(old.value, position + index, old.cell) for index, old in enumerate(encoded)]
                for index, element in enumerate(group[same:], position + same):
                    cell, base, fingerprint = self._encode(element, partial(_path, key, index))
                    if element.at is not None and cell == element.cell:
                        end_run(element.at)
                        start = element.at + 1
                    else:
                        run.append(cell)
                    encoded.append(Element(element.value, index, cell, base, fingerprint))
                moved.update(zip(map(id, group), encoded, strict=True))
                _add_held(pieces, encoded, held, position)
                position += len(group)
        end_run(edits.stored)
        cell = self._spliced(edits.cell, replacements)
        return Update(cell, staged_list=StagedList(ListEdits(cell, position, pieces), edits.copy(), moved))


def _follow_each_other(elements: list[Element]) -> int:
    """Count the first elements that are stored in succession, as small JSON values or values that cannot change."""
    at = elements[0].at
    if at is None:
        return 0
    count = 0
    for element in elements:
        if element.at != at + count or element.base is not None or element.fingerprint is not None:
            break
        count += 1
    return count


def _add_held(pieces: list[Piece], elements: list[Element], held: list[bool], position: int) -> None:
    """Append pieces for stored elements from a position on.

    An element that only the worktree refers to stays only in the store.
    """
    start, count = 0, len(held)
    for end in range(1, count + 1):
        if end == count or held[end] is not held[start]:
            add_piece(pieces, elements[start:end] if held[start] else range(position + start, position + end))
            start = end


def _path(key: bytes, index: int) -> str:
    return str(path_of(key).index(index))


def _add_run(runs: list[tuple[int, int, list[Element]]], start: int, elements: list[Element]) -> None:
    """Add elements to runs: extend the last run if they follow it, else begin a new one."""
    end = start + len(elements)
    if runs and runs[-1][1] == start:
        first, _, before = runs[-1]
        before += elements
        runs[-1] = first, end, before
    else:
        runs.append((start, end, elements))
