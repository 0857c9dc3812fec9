"""Blame: for each part of a value, the commit that it comes from. Layer: repository.

As git does it: every part is handed to the first parent that has it unchanged; what no parent has is the commit's own. Commits are taken
children first, and looked at only as long as anything is left.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Final, NamedTuple

from versioned_state.errors import CorruptObjectError, LimitExceededError, UnknownPathError
from versioned_state.objects.address import Address, Kind, expect
from versioned_state.objects.store import ObjectStore
from versioned_state.repository.history.commit import Commit
from versioned_state.repository.history.graph import Read, parents_of
from versioned_state.repository.inspect.places import Place, Places
from versioned_state.values.cells import Code, code_of, key_of_cell
from versioned_state.values.changes.diff import Replaced, diff_lists, diff_maps
from versioned_state.values.changes.removal import target_of
from versioned_state.values.containers import Container, container_of
from versioned_state.values.decode.decoder import Decoder
from versioned_state.values.keys import is_internal, path_of
from versioned_state.values.paths.path import StatePath
from versioned_state.values.trees.nodes import Shape
from versioned_state.values.trees.references import tree_of
from versioned_state.values.trees.tree import Tree, find, iter_cells, iter_chunks, iter_items, rank, same

MAX_PARTS: Final = 1 << 20
"""Parts of one answer. A crafted list of six nodes can count 10**11 elements."""

MAX_TEXT: Final = 1 << 28
"""Bytes of a text whose lines can be asked about: all of it is held in memory."""

_FEW: Final = 16
"""Keys that are looked up one by one: more are found by what differs between the maps."""


class Blame:
    """A part of a value, and the commit that added it or last changed it.

    Attributes:
        path: where it is: an element of a list, an entry of a dict, or what was asked for, where that has no parts.
        line: of a text of several lines, the number of the line, from 1; otherwise None.
        commit: where it comes from. ``commit.shallow``: or from before, since history was cut there.
    """

    __slots__ = ("_decoder", "_part", "commit", "line", "path")

    def __init__(self, path: StatePath, line: int | None, commit: Commit, part: bytes | str, decoder: Decoder) -> None:
        self.path = path
        self.line = line
        self.commit = commit
        self._part = part
        self._decoder = decoder

    @property
    def value(self) -> Any:
        """The part, read when asked for; of a text the line, without its end. An object shows as ``ObjectInfo``: nothing is unpickled."""
        return self._part if isinstance(self._part, str) else self._decoder.decode(self._part)

    def __repr__(self) -> str:
        where = str(self.path) if self.line is None else f"{self.path}, line {self.line}"
        return f"<Blame {where}: {self.commit.short}>"


def blame(
    commit: Commit,
    path: str | StatePath,
    *,
    objects: ObjectStore,
    read: Read,
    start: int | None = None,
    end: int | None = None,
) -> list[Blame]:
    """Which commit each part of the value at a path comes from, in the order of the parts.

    Args:
        path: an empty one is the whole state, ``@worker`` a namespace.
        start, end: ask only for the parts from ``start`` to before ``end``, both as in a slice: ``start=-50`` for the last 50.

    Raises:
        UnknownPathError: there is nothing there.
    """
    return _Blamer(objects, read).run(commit, path, slice(start, end))


class _Kind(Enum):
    """What parts a value has."""

    ENTRIES = auto()
    ELEMENTS = auto()
    LINES = auto()
    NONE = auto()


class _Run(NamedTuple):
    """So many parts in a row, from ``position`` in one state's list or text on; in the answer they are ``slot`` and what follows it."""

    position: int
    length: int
    slot: int


_Entries = dict[bytes, int]  # of keys, their slots
_Pending = _Entries | list[_Run]


@dataclass(slots=True)
class _Suspect:
    """A commit that has some parts, and they may be its own. Without a ``place``, what it has them in is the root."""

    commit: Commit
    place: Place | None
    pending: _Pending = field(default_factory=list)


class _Blamer:
    """One question."""

    def __init__(self, objects: ObjectStore, read: Read) -> None:
        self._read = read
        self._places = Places(objects)
        self._nodes = self._places.nodes
        self._kind = _Kind.NONE
        self._suspects: dict[str, dict[Any, _Suspect]] = {}
        self._heap: list[tuple[int, str]] = []
        self._found: dict[int, Commit] = {}
        self._texts = _Texts(self._places)

    def run(self, commit: Commit, path: str | StatePath, parts: slice) -> list[Blame]:
        place, listed = self._list(commit, path, parts)
        pending: _Pending
        if self._kind is _Kind.ENTRIES:
            pending = {part.key: slot for slot, part in enumerate(listed)}
        else:
            pending = [_Run(listed[0].position, len(listed), 0)] if listed else []
        self._hand(commit, place, pending)
        while self._heap:
            _, id = heapq.heappop(self._heap)
            for suspect in self._suspects.pop(id).values():
                self._settle(suspect)
        decoder = self._places.decoder
        return [Blame(part.path, part.line, self._found[slot], part.part, decoder) for slot, part in enumerate(listed)]

    # The parts of the value that was asked for

    def _list(self, commit: Commit, path: str | StatePath, parts: slice) -> tuple[Place | None, list[_Part]]:
        """Where the value is (None: it is the root, or a namespace), and those of its parts that were asked for."""
        if not path:
            start, end = b"", None
        else:
            target = target_of(path)
            start, end = target.start, target.end
            if target.steps or end == start + b"\0":
                place = self._places.find(commit.tree, path_of(start) / StatePath(target.steps))
                return place, self._list_place(commit, place, parts)
        self._kind = _Kind.ENTRIES
        low = rank(self._nodes, commit.tree, start)
        high = None if end is None else rank(self._nodes, commit.tree, end)
        entries = [(key, cell) for key, cell in iter_items(self._nodes, commit.tree, low, high) if not is_internal(key)]
        if path and not entries:
            raise UnknownPathError(str(path), at=commit.short)
        return None, [_Part(path_of(key), cell, key=key) for key, cell in entries[parts]]

    def _list_place(self, commit: Commit, place: Place, parts: slice) -> list[_Part]:
        path, cell = place.path, place.cell
        if cell is None:
            raise UnknownPathError(str(path), at=commit.short)
        opened = container_of(self._nodes, cell)
        lines = self._texts.lines(cell) if opened is None else None
        if opened is not None and opened.tree.count:
            if opened.tree.shape is Shape.SEQUENCE:
                self._kind = _Kind.ELEMENTS
                wanted = _bounded(range(opened.tree.count)[parts], path)
                cells = iter_cells(self._nodes, opened.tree, wanted.start, wanted.stop)
                return [_Part(path.index(at), cell, position=at) for at, cell in zip(wanted, cells, strict=True)]
            self._kind = _Kind.ENTRIES
            return [
                _Part(self._places.decoder.entry_path(path, key), cell, key=key)
                for key, cell in self._iter_entries(opened, _bounded(range(opened.tree.count)[parts], path))
            ]
        if lines is not None and len(lines) > 1:
            self._kind = _Kind.LINES
            return [_Part(path, lines[at], position=at, line=at + 1) for at in range(len(lines))[parts]]
        return [_Part(path, cell)][parts]

    def _iter_entries(self, opened: Container, wanted: range) -> Iterator[tuple[bytes, bytes]]:
        """Those entries of a dict, in their order."""
        if opened.order is None:
            yield from iter_items(self._nodes, opened.tree, wanted.start, wanted.stop)
            return
        if isinstance(opened.order, Tree):
            keys: Iterable[bytes] = (key_of_cell(cell) for cell in iter_cells(self._nodes, opened.order, wanted.start, wanted.stop))
        else:
            keys = opened.order[wanted.start : wanted.stop]
        for key in keys:
            cell = find(self._nodes, opened.tree, key)
            if cell is None:
                raise CorruptObjectError("(a dict)", "the order of its keys has one that is not among its entries")
            yield key, cell

    # The walk

    def _hand(self, commit: Commit, place: Place | None, pending: _Pending) -> None:
        """Have a commit answer for some parts. Several children may hand it some."""
        if not pending:
            return
        at = self._suspects.get(commit.id)
        if at is None:
            at = self._suspects[commit.id] = {}
            heapq.heappush(self._heap, (-commit.generation, commit.id))
        suspect = at.setdefault(place and place.steps, _Suspect(commit, place, {} if isinstance(pending, dict) else []))
        if isinstance(pending, dict):
            assert isinstance(suspect.pending, dict)
            suspect.pending = suspect.pending | pending if suspect.pending else pending
        else:
            assert isinstance(suspect.pending, list)
            suspect.pending += pending

    def _settle(self, suspect: _Suspect) -> None:
        """Hand a commit's parts to its parents, as far as they have them; what is left is its own."""
        commit = suspect.commit
        earlier: list[tuple[Commit, Place | None]] = []
        for parent in parents_of(commit, self._read):
            place = None
            if suspect.place is None:
                is_same = same(parent.tree, commit.tree)
            else:
                place = self._places.before(suspect.place, parent.tree, later=commit.tree)
                if place is None or place.cell is None:
                    continue
                is_same = self._places.same(place, suspect.place)
            if is_same:
                self._hand(parent, place, suspect.pending)
                return
            earlier.append((parent, place))
        left = suspect.pending
        for parent, place in earlier:
            handed, left = self._split(parent, place, suspect, left)
            self._hand(parent, place, handed)
            if not left:
                return
        for slot in _slots(left):
            self._found[slot] = commit

    def _split(self, parent: Commit, place: Place | None, suspect: _Suspect, pending: _Pending) -> tuple[_Pending, _Pending]:
        """Those parts that a parent has as they are, and the others."""
        if isinstance(pending, dict):
            return self._split_entries(self._map(parent, place), self._map(suspect.commit, suspect.place), pending)
        old = None if place is None else place.cell
        new = None if suspect.place is None else suspect.place.cell
        assert old is not None
        assert new is not None
        parts = None
        if self._kind is _Kind.ELEMENTS:
            parts = self._places.replaced(old, new)
        elif self._kind is _Kind.LINES:
            before, after = self._texts.lines(old), self._texts.lines(new)
            assert after is not None
            parts = None if before is None else list(diff_lists(before, after))
        return ([], pending) if parts is None else _split_runs(pending, parts)

    def _map(self, commit: Commit, place: Place | None) -> Tree | None:
        """The entries of the root, or of the dict at a place; None where there is another value."""
        if place is None:
            return commit.tree
        opened = None if place.cell is None else container_of(self._nodes, place.cell)
        return None if opened is None or opened.tree.shape is not Shape.MAP else opened.tree

    def _split_entries(self, old: Tree | None, new: Tree | None, pending: _Entries) -> tuple[_Entries, _Entries]:
        if old is None or new is None or not old.count:
            return {}, pending
        # What a dict stands in may have grown, and its entries have other forms since.
        is_same = self._places.composer.same
        if len(pending) > _FEW:
            changed = (key for key, a, b in diff_maps(self._nodes, old, new) if key in pending and not is_same(a, b))
        else:
            changed = (key for key in pending if not is_same(find(self._nodes, old, key), find(self._nodes, new, key)))
        left = {key: pending[key] for key in changed}
        for key in left:
            del pending[key]
        return pending, left


def _bounded(parts: range, path: StatePath) -> range:
    if len(parts) > MAX_PARTS:
        error = LimitExceededError(f"blame of {len(parts):,} parts", limit=MAX_PARTS, path=str(path))
        error.hint = "ask for some of them: start= and end=, such as start=-100"
        raise error
    return parts


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of the value: a cell, or the line of a text; and its position or key there."""

    path: StatePath
    part: bytes | str
    position: int = 0
    key: bytes = b""
    line: int | None = None


def _slots(pending: _Pending) -> Iterator[int]:
    if isinstance(pending, dict):
        yield from pending.values()
    else:
        for run in pending:
            yield from range(run.slot, run.slot + run.length)


def _split_runs(runs: list[_Run], parts: list[Replaced]) -> tuple[list[_Run], list[_Run]]:
    """The runs that were there before, with their positions then; and those that were put in since, with their positions now."""
    starts = [part.new_start for part in parts]
    before: list[_Run] = []
    new: list[_Run] = []
    for run in runs:
        position, end = run.position, run.position + run.length
        index = bisect_right(starts, position) - 1
        while position < end:
            part = parts[index] if index >= 0 else Replaced(0, 0, 0, 0)
            slot = run.slot + position - run.position
            if position < part.new_end:
                stop = min(end, part.new_end)
                new.append(_Run(position, stop - position, slot))
            else:
                stop = min([end, *starts[index + 1 : index + 2]])
                before.append(_Run(position - part.new_end + part.old_end, stop - position, slot))
            position = stop
            while index + 1 < len(parts) and starts[index + 1] <= position:
                index += 1
    return before, new


class _Texts:
    """Texts by line. Of a text, only those chunks are read that the one before did not have."""

    def __init__(self, places: Places) -> None:
        self._nodes = places.nodes
        self._decoder = places.decoder
        self._lines: dict[bytes, list[str] | None] = {}
        self._chunks: dict[Address, bytes] = {}

    def lines(self, cell: bytes) -> list[str] | None:
        """The lines of a text, without their ends; None for every other value."""
        kept = self._lines
        if cell not in kept:
            # Two, since a text is compared with the one before it.
            self._lines = {key: kept[key] for key in list(kept)[-1:]} | {cell: self._read(cell)}
        return self._lines[cell]

    def _read(self, cell: bytes) -> list[str] | None:
        code = code_of(cell)
        if code == Code.TEXT:
            text = self._join(cell)
        elif code is None and (0xA0 <= cell[0] <= 0xBF or 0xD9 <= cell[0] <= 0xDB):
            text = self._decoder.decode(cell)
        else:
            return None
        lines = text.split("\n")
        return lines[:-1] if len(lines) > 1 and not lines[-1] else lines

    def _join(self, cell: bytes) -> str:
        tree = tree_of(cell)
        assert tree is not None
        if tree.count > MAX_TEXT:
            raise LimitExceededError(f"blame of a text of {tree.count:,} bytes", limit=MAX_TEXT)
        known, chunks, size = self._chunks, {}, 0
        data = bytearray()
        for row in iter_chunks(self._nodes, tree):
            addresses = list(map(Address, row))
            raws = self._nodes.reader.read_many([address for address in dict.fromkeys(addresses) if address not in known])
            for address in addresses:
                raw = known.get(address) or raws[address]
                expect(raw, address, Kind.CHUNK)
                chunks[address] = raw
                size += len(raw) - 1
                if size > tree.count:  # before memory is taken for it
                    raise CorruptObjectError(address.hex(), f"a text of {tree.count:,} bytes has more")
                data += raw[1:]
        self._chunks = chunks
        try:
            return data.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError as error:
            raise CorruptObjectError("(a text)", f"it does not decode: {error}") from error
