"""One change, at one path, for people and programs, and runs of changes folded into one line. Layer: repository."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from versioned_state.repository.views.json_form import json_value
from versioned_state.repository.views.line_diff import array_lines, changed_part, text_lines
from versioned_state.repository.views.preview import Preview
from versioned_state.repository.views.render import WIDTH, one_line
from versioned_state.values.changes.diff import CellChange, ChangeKind
from versioned_state.values.decode.decoder import Decoder
from versioned_state.values.paths.path import Index, Key, StatePath
from versioned_state.values.trees.nodes import Nodes

SIGNS: Final = {"added": "+", "removed": "-", "changed": "~"}

_FOLDED: Final = 10
"""Changes in a row from which they are folded."""


class Change:
    """One change, at one path.

    Attributes:
        path: where: the old index of an element that was removed; of every other, the new one.
        kind: ``"added"``, ``"removed"`` or ``"changed"``.
        reordered: the entries of the dict at ``path`` are the same, in another order; ``old`` and ``new`` are then
            lists of its keys.
        given: the pydantic model at ``path`` was given other fields, the rest are defaults; ``old`` and ``new`` are
            then lists of the names in ``model_fields_set``. Fields that were assigned count as given, and do not show.
    """

    __slots__ = ("_cells", "_decoder", "_nodes", "given", "kind", "path", "reordered")

    def __init__(self, cells: CellChange, nodes: Nodes, decoder: Decoder) -> None:
        self._cells = cells
        self._nodes = nodes
        self._decoder = decoder
        self.path: Final = cells.path
        self.kind: ChangeKind = cells.kind
        self.given: Final = cells.given
        self.reordered: Final = cells.keys is not None and not cells.given

    @property
    def old(self) -> Any:
        """The value before, read on access, or None if there was none.

        An object is shown as ``ObjectInfo``: nothing is unpickled.
        """
        if self._cells.keys is not None:
            return self._cells.keys[0]
        return None if self._cells.old is None else self._decoder.decode(self._cells.old)

    @property
    def new(self) -> Any:
        """The value after, likewise."""
        if self._cells.keys is not None:
            return self._cells.keys[1]
        return None if self._cells.new is None else self._decoder.decode(self._cells.new)

    @property
    def cells(self) -> CellChange:
        """Both sides as they are stored."""
        return self._cells

    @property
    def nodes(self) -> Nodes:
        """The nodes by which its values are read, for the layers above."""
        return self._nodes

    def lines(self) -> list[tuple[str, str]]:
        """Return the lines of a text, or the elements of an array, that differ, or nothing for any other change.

        Each is a ``"-"`` or ``"+"`` and the line; an ``"@"`` says where a stretch of them begins, or how many elements
        differ. Cost: of a text or array above a megabyte, what differs, and of a text no more than is shown; the rest
        of it is only measured.
        """
        old, new = self._cells.old, self._cells.new
        if old is None or new is None:
            return []
        return text_lines(self._nodes, self._decoder, old, new) or array_lines(self._nodes, self._decoder, old, new)

    def to_json(self) -> dict[str, Any]:
        """Return path, kind, and both sides in JSON types."""
        entry: dict[str, Any] = {"path": str(self.path), "kind": self.kind}
        if self.reordered:
            entry["reordered"] = True
        if self.given:
            entry["given"] = True
        if self.kind != "added":
            entry["old"] = json_value(self.old)
        if self.kind != "removed":
            entry["new"] = json_value(self.new)
        return entry

    def __str__(self) -> str:
        """Return the change on one line, or on one for each line that differs.

        Cost: the characters shown, however large the values are.
        """
        start = f"{SIGNS[self.kind]} {self.path}"
        if self._cells.keys is not None and self.given:
            old, new = map(one_line, self._cells.keys)
            return f"{start} was given only {new}" if old == new else f"{start} was given {old} -> {new}"
        if self._cells.keys is not None:
            return f"{start} keys in another order: {one_line(self._cells.keys[1])}"
        lines = self.lines()
        if lines:
            return start + "".join(f"\n    {mark} {one_line(line, quote=False)}" for mark, line in lines)
        return f"{start} = {' -> '.join(self.previews())}"

    def previews(self, *, width: int = WIDTH) -> list[str]:
        """Return the old value and the new one, whichever there are, each on one line.

        Of long texts, the part that differs.

        Cost: the ``width`` characters that are shown, and of two texts up to a megabyte both.
        """
        preview = Preview(self._nodes, self._decoder)
        old, new = self._cells.old, self._cells.new
        if old is not None and new is not None and (parts := changed_part(self._decoder, old, new, width)):
            return parts
        return [preview.one_line(cell, width=width) for cell in (self._cells.old, self._cells.new) if cell is not None]

    def __repr__(self) -> str:
        return f"<Change {self.kind} {self.path}>"


@dataclass(frozen=True, slots=True)
class ChangeRun:
    """Changes of one kind, of neighbouring elements of a list or entries of a dict, folded into one.

    Attributes:
        path: that of the list or dict.
        first, last: the paths of the first change and the last one.
        count: how many there are.
    """

    kind: ChangeKind
    path: StatePath
    first: StatePath
    last: StatePath
    count: int

    def __str__(self) -> str:
        start, end = self.first.steps[-1], self.last.steps[-1]
        if isinstance(start, Index) and isinstance(end, Index):
            return f"{SIGNS[self.kind]} {self.path}[{start.index}…{end.index}]: {self.count:,} elements"
        return f"{SIGNS[self.kind]} {self.first} … {StatePath(self.last.steps[-1:])}: {self.count:,} entries"

    def to_json(self) -> dict[str, Any]:
        """Return the run in JSON types."""
        return {"kind": self.kind, "first": str(self.first), "last": str(self.last), "count": self.count}


def fold(changes: Sequence[Change]) -> Iterator[Change | ChangeRun]:
    """Yield the changes, with ten or more in a row of one kind and one container folded. Cost: no value is read."""
    start = 0
    ends = [index for index, (a, b) in enumerate(pairwise(changes), 1) if not _continues(a, b)]
    for end in [*ends, len(changes)]:
        if end - start >= _FOLDED:
            first, last = changes[start], changes[end - 1]
            yield ChangeRun(first.kind, StatePath(first.path.steps[:-1]), first.path, last.path, end - start)
        else:
            yield from changes[start:end]
        start = end


def _continues(a: Change, b: Change) -> bool:
    """Return whether ``b`` is the next of a run that has ``a``: the list's next element, or another dict entry."""
    if a.kind != b.kind or a.cells.keys is not None or b.cells.keys is not None:
        return False
    if len(a.path) != len(b.path) or a.path.steps[:-1] != b.path.steps[:-1]:
        return False
    x, y = a.path.steps[-1], b.path.steps[-1]
    if isinstance(x, Index):
        return isinstance(y, Index) and y.index == x.index + 1
    return isinstance(x, Key) and isinstance(y, Key)
