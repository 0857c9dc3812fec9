"""The history of a path: which commits touched it, and how. Layer: repository."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Any

from versioned_state.errors import UnknownPathError
from versioned_state.objects.store import ObjectStore
from versioned_state.repository.history.commit import Commit
from versioned_state.repository.history.graph import Read, parents_of
from versioned_state.repository.inspect.places import Place, Places
from versioned_state.repository.views.change import Change
from versioned_state.values.changes.diff import CellChange, ChangeKind, diff_values
from versioned_state.values.paths.path import StatePath, as_path


class Touch:
    """A commit that touched a path.

    Attributes:
        commit: the commit. ``commit.shallow``: history was cut there, and it may have been touched before.
        path: where it was in that commit; an element of a list may have had another index then.
        kind: ``"added"``, ``"removed"`` or ``"changed"``, against the first parent.
    """

    __slots__ = ("_change", "_places", "commit")

    def __init__(self, commit: Commit, change: CellChange, places: Places) -> None:
        self.commit = commit
        self._change = change
        self._places = places

    @property
    def path(self) -> StatePath:
        return self._change.path

    @property
    def kind(self) -> ChangeKind:
        return self._change.kind

    @property
    def old(self) -> Any:
        """The value before, read when asked for; None where there was none. An object shows as ``ObjectInfo``: nothing is unpickled."""
        return Change(self._change, self._places.nodes, self._places.decoder).old

    @property
    def new(self) -> Any:
        """The value after, likewise."""
        return Change(self._change, self._places.nodes, self._places.decoder).new

    @property
    def changes(self) -> list[Change]:
        """What changed at the path and below it. Cost: what differs."""
        change = self._change
        if change.old is None or change.new is None:
            return [Change(change, self._places.nodes, self._places.decoder)]
        places = self._places
        return [Change(each, places.nodes, places.decoder) for each in diff_values(places.composer, change.old, change.new, change.path)]

    def __repr__(self) -> str:
        return f"<Touch {self.commit.short} {self.kind} {self.path}>"


def iter_touches(commit: Commit, path: str | StatePath, *, objects: ObjectStore, read: Read) -> Iterator[Touch]:
    """The commits that touched a path, children before parents, newer ones first among the rest.

    Of a merge that left the path as one parent has it, only that parent is followed, as in git. A merge that is unlike all of its parents
    touched it. Cost: of each commit, the commit and what differs on the way to the path.

    Raises:
        UnknownPathError: the path leads to an element of a list, and there is none. A key may have been deleted since.
    """
    places = Places(objects)
    place = places.find(commit.tree, as_path(path))
    if not place.can_follow:
        raise UnknownPathError(str(path), at=commit.short)
    return _walk(commit, place, places, read)


def _walk(start: Commit, place: Place, places: Places, read: Read) -> Iterator[Touch]:
    waiting: dict[str, dict[Any, Place]] = {start.id: {place.steps: place}}
    heap = [(-start.generation, -start.time, start.id, start)]
    while heap:
        *_, commit = heapq.heappop(heap)
        for here in waiting.pop(commit.id).values():
            change, followed = _step(commit, here, places, read)
            if change is not None:
                yield Touch(commit, change, places)
            for parent, before in followed:
                if parent.id not in waiting:
                    waiting[parent.id] = {}
                    heapq.heappush(heap, (-parent.generation, -parent.time, parent.id, parent))
                waiting[parent.id].setdefault(before.steps, before)


def _step(commit: Commit, place: Place, places: Places, read: Read) -> tuple[CellChange | None, list[tuple[Commit, Place]]]:
    """What a commit did at a place, and the parents to go on with, each with the place that it had there."""
    followed: list[tuple[Commit, Place]] = []
    old: bytes | None = None
    for number, parent in enumerate(parents_of(commit, read)):
        before = places.before(place, parent.tree, later=commit.tree)
        if before is None:
            continue
        if places.same(before, place):
            return None, [(parent, before)]
        followed.append((parent, before))
        if number == 0:
            old = before.cell
    new = place.cell
    if old is None and new is None:
        return None, followed
    kind: ChangeKind = "added" if old is None else "removed" if new is None else "changed"
    return CellChange(place.path, kind, old, new), followed
