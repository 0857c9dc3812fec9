"""The difference between two states: a ``Diff``, which is a sequence of changes. Layer: repository."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Any, Final, Self, overload

from versioned_state.arguments import count, seconds
from versioned_state.errors import InvalidArgumentError, StateError
from versioned_state.objects.store import Reader
from versioned_state.repository.views.bounds import TimedReader
from versioned_state.repository.views.change import Change, ChangeRun, fold
from versioned_state.repository.views.render import escape
from versioned_state.values.changes.diff import CellChange, diff_maps, diff_values
from versioned_state.values.encode.compose import Composer
from versioned_state.values.keys import is_internal, path_of, root_key_of
from versioned_state.values.paths.lookup import find_cell
from versioned_state.values.paths.path import Namespace, StatePath, Step, as_path
from versioned_state.values.trees.nodes import NodeCache, Nodes
from versioned_state.values.trees.tree import Tree, find
from versioned_state.values.typed.why import ObjectReason

if TYPE_CHECKING:
    from versioned_state.repository.ledger import EffectRecord


@dataclass(frozen=True, slots=True)
class DiffStat:
    """The number of changes: in all, and under each key of the state as added, removed and changed."""

    added: int
    removed: int
    changed: int
    keys: dict[str, tuple[int, int, int]]

    @classmethod
    def of(cls, changes: Sequence[Change]) -> Self:
        """Count some changes."""
        kinds = Counter(change.kind for change in changes)
        keys: dict[str, list[int]] = {}
        for change in changes:
            top = str(_top(change.path))
            keys.setdefault(top, [0, 0, 0])[("added", "removed", "changed").index(change.kind)] += 1
        return cls(
            kinds["added"], kinds["removed"], kinds["changed"], {key: (a, r, c) for key, (a, r, c) in keys.items()}
        )

    def __str__(self) -> str:
        width = max(map(len, self.keys), default=0)
        rows = [f"{key:<{width}}  +{a} -{r} ~{c}" for key, (a, r, c) in self.keys.items()]
        return "\n".join(
            [*rows, f"{len(self.keys)} keys: {self.added} added, {self.removed} removed, {self.changed} changed"]
        )


class Diff(Sequence[Change]):
    """The changes from one state to another, in the order of their paths. It is empty, and false, if there are none.

    The diff is computed at its first use, at the cost of the differences; with a limit, at the cost of those that it
    has. Values are read only on access.

    Attributes:
        limit: the most changes that it has, the first by their paths, or None for all. ``more`` is whether there are
            others.
        deadline: the seconds for which changes are looked for, or None. ``complete`` is whether all were found.
        unstorable: live values that cannot be stored, by path, each with the error that a commit would raise. A diff
            with any is true.
        objects: the objects in the live values, each with the reason why it is not data, from ``status(explain=True)``.
        find_effects: makes ``effects``.
    """

    def __init__(
        self,
        reader: Reader,
        old: Tree,
        new: Tree,
        *,
        internal: bool = False,
        cache: NodeCache | None = None,
        unstorable: Mapping[str, StateError] | None = None,
        limit: int | None = None,
        deadline: float | None = None,
    ) -> None:
        self.deadline: Final = None if deadline is None else seconds("deadline", deadline)
        self._is_late = False
        self._timed: TimedReader | None = None
        if self.deadline is not None:
            reader = self._timed = TimedReader(reader)
        self.limit: Final = None if limit is None else min(count("limit", limit), sys.maxsize - 1)
        self._has_more = False
        self._nodes = Nodes(reader, cache=cache)
        self._composer = Composer(self._nodes)
        self._decoder = self._composer.decoder
        self._old = old
        self._new = new
        self._internal = internal
        self.unstorable: dict[str, StateError] = dict(unstorable or {})
        self.objects: list[ObjectReason] = []
        self.find_effects: Callable[[], list[EffectRecord]] = list

    def _find(self) -> Iterator[CellChange]:
        for root_key, old, new in diff_maps(self._nodes, self._old, self._new):
            if self._internal or not is_internal(root_key):
                yield from self._compare(root_key, old, new)

    def _compare(self, root_key: bytes, old: bytes | None, new: bytes | None) -> Iterator[CellChange]:
        path = path_of(root_key)
        if old is not None and new is not None:
            yield from diff_values(self._composer, old, new, path)
        elif old is not None or new is not None:
            yield CellChange(path, "added" if old is None else "removed", old, new)

    @cached_property
    def changes(self) -> list[Change]:
        """The changes, in a list."""
        return self._first(self._find())

    @property
    def more(self) -> bool:
        """Whether there are more changes than the limit."""
        _ = self.changes
        return self._has_more

    @property
    def complete(self) -> bool:
        """Whether these are all changes: neither the limit nor the deadline has left out any."""
        return not self.more and not self._is_late

    def _first(self, found: Iterable[CellChange | Change]) -> list[Change]:
        """Return as many changes as the limit allows, and whether there are more."""
        limit = self.limit
        taken: list[CellChange | Change] = []
        wanted = iter(found if limit is None else islice(found, limit + 1))
        if self._timed is None or self.deadline is None:
            taken += wanted
        else:
            with self._timed.within(self.deadline) as on_time:
                taken += takewhile(on_time, wanted)
            self._is_late = self._timed.is_late
        self._has_more = limit is not None and len(taken) > limit
        return [
            each if isinstance(each, Change) else Change(each, self._nodes, self._decoder) for each in taken[:limit]
        ]

    def read_all(self) -> None:
        """Find all changes, and keep in memory what showing them needs, so that it does not wait for the store."""
        self._nodes.keep_objects()
        str(self)

    def _changes_of_key(self, path: StatePath) -> Iterable[Change]:
        """Return the changes of the key that a path begins with.

        If it begins with none, as a namespace does, return all changes.
        """
        if "changes" in self.__dict__ and not self._has_more:
            return self.changes
        try:
            root_key, _ = root_key_of(path)
        except InvalidArgumentError:
            if self.limit is None:
                return self.changes
            found = self._find()
        else:
            found = self._compare(root_key, *(find(self._nodes, tree, root_key) for tree in (self._old, self._new)))
        return (Change(change, self._nodes, self._decoder) for change in found)

    def under(self, path: str | StatePath) -> Diff:
        """Return the changes at a path or below it, and those of a whole value that has something there on either side.

        Cost: what differs under the key that the path begins with.
        """
        path = as_path(path)
        steps = path.steps
        chosen = (
            change
            for change in self._changes_of_key(path)
            if change.path.steps[: len(steps)] == steps or self._covers(change, steps)
        )
        narrowed = Diff(
            self._nodes.reader, self._old, self._new, internal=self._internal, limit=self.limit, deadline=self.deadline
        )
        narrowed.changes = narrowed._first(chosen)
        narrowed.objects = [each for each in self.objects if each.path.steps[: len(steps)] == steps]
        narrowed.unstorable = {
            at: error for at, error in self.unstorable.items() if as_path(at).steps[: len(steps)] == steps
        }
        return narrowed

    def _covers(self, change: Change, steps: tuple[Step, ...]) -> bool:
        """Return whether a change of a whole value changes the part of it to which these steps lead."""
        depth = len(change.path)
        if change.cells.keys is not None or depth >= len(steps) or change.path.steps != steps[:depth]:
            return False
        return any(
            find_cell(self._nodes, cell, steps[depth:]) is not None for cell in (change.cells.old, change.cells.new)
        )

    def folded(self) -> list[Change | ChangeRun]:
        """Return the changes for display: ten or more in a row of one kind, in one container, are one ``ChangeRun``.

        No value is read.
        """
        return list(fold(self.changes))

    @overload
    def __getitem__(self, index: int) -> Change: ...
    @overload
    def __getitem__(self, index: slice) -> list[Change]: ...
    def __getitem__(self, index: int | slice) -> Change | list[Change]:
        return self.changes[index]

    def __len__(self) -> int:
        return len(self.changes)

    def __bool__(self) -> bool:
        return bool(self.changes or self._has_more or self.unstorable)

    def stat(self) -> DiffStat:
        """Return how many changes there are, by kind and key. No value is read."""
        return DiffStat.of(self.changes)

    def to_json(self) -> list[dict[str, Any]]:
        """Return the changes in JSON types."""
        return [change.to_json() for change in self]

    def to_patch(self) -> list[dict[str, Any]]:
        """Return the changes in JSON types, to be applied elsewhere.

        Nothing is lost. Example: ``state.apply(json.loads(json.dumps(diff.to_patch())))``.

        Raises:
            PickleRefusedError: an object is among the changes; a patch carries data.
            InvalidArgumentError: there are more changes than the limit.
        """
        if self.more:
            raise InvalidArgumentError(
                "a patch has every change, and this diff has a limit", hint="take the diff without limit="
            )
        from versioned_state.repository.views.patch import write_patch

        return write_patch(self)

    @cached_property
    def effects(self) -> list[EffectRecord]:
        """The effects that lie behind the head, from ``status()``.

        They have happened, and the rounds that did them were taken back.
        """
        return self.find_effects()

    def __str__(self) -> str:
        return "\n".join([*map(str, self), *self._rest_lines()])

    def _rest_lines(self) -> list[str]:
        """Return the lines after the changes.

        They say that there are more changes, and name values that cannot be stored, objects, and effects behind the
        head.
        """
        rest = ["… and more changes"] if self.more else []
        rest += (
            f"! {path}: cannot be stored: {getattr(error, 'reason', '') or error.what}"
            for path, error in self.unstorable.items()
        )
        rest += (f"? {escape(str(each))}" for each in self.objects)
        return [*rest, *map(behind_line, self.effects)]

    def _repr_html_(self) -> str:
        from versioned_state.repository.shown import notebook_values

        return notebook_values.diff(self)

    def __repr__(self) -> str:
        counts = self.stat()
        more = " and more" if self.more else ""
        return (
            f"<Diff: {len(self):,} change{'' if len(self) == 1 else 's'}{more}: "
            f"+{counts.added} -{counts.removed} ~{counts.changed}>"
        )


def behind_line(effect: EffectRecord) -> str:
    """Return the line for an effect that lies behind the head."""
    back = f"rolled back by {effect.on_rollback}" if effect.on_rollback else "it has no on_rollback"
    return f"! effect {effect.key or '(erased)'} ({effect.status}) lies behind this point: {back}"


def _top(path: StatePath) -> StatePath:
    """Return the key of the state that a path begins with, with its namespaces."""
    for depth, step in enumerate(path.steps, 1):
        if not isinstance(step, Namespace):
            return StatePath(path.steps[:depth])
    return path
