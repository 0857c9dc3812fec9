"""The difference between two states: a ``Diff`` of ``Change``s, for people and programs. Layer: repository."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cached_property
from typing import Any

from versioned_state.objects.store import Reader
from versioned_state.repository.views.patch import write_patch
from versioned_state.repository.views.render import json_value, one_line
from versioned_state.values.changes.diff import CellChange, ChangeKind, diff_maps, diff_values
from versioned_state.values.decode.decoder import Decoder
from versioned_state.values.encode.compose import Composer
from versioned_state.values.keys import is_internal, path_of
from versioned_state.values.paths.path import Index, Key, Namespace, StatePath, Step, as_path
from versioned_state.values.trees.nodes import NodeCache, Nodes
from versioned_state.values.trees.tree import Tree

_SIGNS = {"added": "+", "removed": "-", "changed": "~"}


class Change:
    """One change, at one path.

    Attributes:
        path: where: of an element that was removed, its old index; of every other, the new one.
        kind: ``"added"``, ``"removed"`` or ``"changed"``.
        reordered: the entries of the dict at ``path`` are the same, in another order; ``old`` and ``new`` are then lists of its keys.
    """

    __slots__ = ("_cells", "_decoder", "kind", "path", "reordered")

    def __init__(self, cells: CellChange, decoder: Decoder) -> None:
        self._cells = cells
        self._decoder = decoder
        self.path = cells.path
        self.kind: ChangeKind = cells.kind
        self.reordered = cells.keys is not None

    @property
    def old(self) -> Any:
        """The value before, read when asked for; None where there was none. An object shows as ``ObjectInfo``: nothing is unpickled."""
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

    def lines(self) -> list[tuple[str, str]]:
        """The changed lines of a text of several lines, each with ``"-"``, ``"+"``, or ``"@"`` where a stretch begins; else nothing."""
        old, new = self.old, self.new
        if self.reordered or type(old) is not str or type(new) is not str or ("\n" not in old and "\n" not in new):
            return []
        a, b = old.split("\n"), new.split("\n")
        lines = []
        for tag, i1, i2, j1, j2 in SequenceMatcher(None, a, b, autojunk=len(a) > 2000).get_opcodes():
            if tag != "equal":
                lines.append(("@", f"line {j1 + 1}"))
                lines += [("-", line) for line in a[i1:i2]]
                lines += [("+", line) for line in b[j1:j2]]
        return lines

    def to_json(self) -> dict[str, Any]:
        """StatePath, kind, and both sides in JSON types."""
        entry: dict[str, Any] = {"path": str(self.path), "kind": self.kind}
        if self.reordered:
            entry["reordered"] = True
        if self.kind != "added":
            entry["old"] = json_value(self.old)
        if self.kind != "removed":
            entry["new"] = json_value(self.new)
        return entry

    def __str__(self) -> str:
        sign = _SIGNS[self.kind]
        if self.reordered:
            return f"{sign} {self.path} keys in another order: {one_line(self.new)}"
        if self.kind == "added":
            return f"{sign} {self.path} = {one_line(self.new)}"
        if self.kind == "removed":
            return f"{sign} {self.path} = {one_line(self.old)}"
        lines = self.lines()
        if lines:
            shown = "".join(f"\n    {mark} {one_line(line, quote=False)}" for mark, line in lines)
            return f"{sign} {self.path}{shown}"
        return f"{sign} {self.path} = {one_line(self.old)} -> {one_line(self.new)}"

    def __repr__(self) -> str:
        return f"<Change {self.kind} {self.path}>"


@dataclass(frozen=True, slots=True)
class DiffStat:
    """How much changed: in all, and under each key of the state."""

    added: int
    removed: int
    changed: int
    keys: dict[str, tuple[int, int, int]]

    @classmethod
    def of(cls, changes: Sequence[Change]) -> DiffStat:
        """That of some changes."""
        kinds = Counter(change.kind for change in changes)
        keys: dict[str, list[int]] = {}
        for change in changes:
            top = str(_top(change.path))
            keys.setdefault(top, [0, 0, 0])[("added", "removed", "changed").index(change.kind)] += 1
        return cls(kinds["added"], kinds["removed"], kinds["changed"], {key: (a, r, c) for key, (a, r, c) in keys.items()})

    def __str__(self) -> str:
        width = max(map(len, self.keys), default=0)
        rows = [f"{key:<{width}}  +{a} -{r} ~{c}" for key, (a, r, c) in self.keys.items()]
        return "\n".join([*rows, f"{len(self.keys)} keys: {self.added} added, {self.removed} removed, {self.changed} changed"])


class Diff:
    """The changes from one state to another: an iterable of ``Change`` in the order of their paths; empty, and false, if there are none.

    It is computed when it is first looked at, at the cost of what differs. Values are read only when asked for.
    """

    def __init__(self, reader: Reader, old: Tree, new: Tree, *, internal: bool = False, cache: NodeCache | None = None) -> None:
        self._nodes = Nodes(reader, cache=cache)
        self._composer = Composer(self._nodes)
        self._decoder = self._composer.decoder
        self._old = old
        self._new = new
        self._internal = internal

    def _find(self) -> Iterator[CellChange]:
        for root_key, old, new in diff_maps(self._nodes, self._old, self._new):
            if is_internal(root_key) and not self._internal:
                continue
            path = path_of(root_key)
            if old is None or new is None:
                yield CellChange(path, "added" if old is None else "removed", old, new)
            else:
                yield from diff_values(self._composer, old, new, path)

    @cached_property
    def changes(self) -> list[Change]:
        """All of them."""
        return [Change(change, self._decoder) for change in self._find()]

    def under(self, path: str | StatePath) -> list[Change]:
        """The changes at a path or below it, and those of a whole value that has something there on either side."""
        steps = as_path(path).steps
        return [change for change in self.changes if change.path.steps[: len(steps)] == steps or _covers(change, steps)]

    def __iter__(self) -> Iterator[Change]:
        return iter(self.changes)

    def __len__(self) -> int:
        return len(self.changes)

    def __bool__(self) -> bool:
        return bool(self.changes)

    def stat(self) -> DiffStat:
        """How much changed, without reading any value."""
        return DiffStat.of(self.changes)

    def to_json(self) -> list[dict[str, Any]]:
        """The changes in JSON types."""
        return [change.to_json() for change in self]

    def to_patch(self) -> list[dict[str, Any]]:
        """The changes in JSON types, to be applied elsewhere: ``state.apply(json.loads(json.dumps(diff.to_patch())))``. Nothing is lost.

        Raises:
            PickleRefusedError: an object is among the changes; a patch carries data.
        """
        return write_patch(self)

    def __str__(self) -> str:
        return "\n".join(map(str, self))

    def __repr__(self) -> str:
        return f"<Diff of {len(self)} changes>"


def _covers(change: Change, steps: tuple[Step, ...]) -> bool:
    """Whether a change of a whole value is one of the part to which these steps lead, too."""
    count = len(change.path)
    if change.reordered or count >= len(steps) or change.path.steps != steps[:count]:
        return False
    return any(_has(value, steps[count:]) for value in (change.old, change.new))


def _has(value: Any, steps: tuple[Step, ...]) -> bool:
    for step in steps:
        try:
            if isinstance(step, Index) and type(value) in (list, tuple):
                value = value[step.index]
            elif isinstance(step, Key) and type(value) is dict:
                value = value[step.key]
            else:
                return False
        except (IndexError, KeyError):
            return False
    return True


def _top(path: StatePath) -> StatePath:
    """The key of the state that a path begins with, with its namespaces."""
    for count, step in enumerate(path.steps, 1):
        if not isinstance(step, Namespace):
            return StatePath(path.steps[:count])
    return path
