"""The log of a path: the commits that changed the value there, and how. Layer: repository."""

from __future__ import annotations

import heapq
import time
from collections import deque
from collections.abc import Iterator
from typing import Any, Final

from versioned_state.errors import UnknownPathError
from versioned_state.objects.store import ObjectStore
from versioned_state.repository.history.commit import Commit
from versioned_state.repository.history.read_ahead import ReadAhead
from versioned_state.repository.history.reader import CommitReader
from versioned_state.repository.inspect.path_tracer import PathTracer, TracedPath
from versioned_state.repository.views.change import Change
from versioned_state.values.changes.diff import CellChange, ChangeKind, diff_values
from versioned_state.values.paths.path import StatePath, as_path


class PathChange:
    """A commit that changed the value at a path.

    Attributes:
        commit: the commit. ``commit.shallow``: older history was pruned there, and the value may have changed before.
        path: the path in that commit; an element of a list may have had another index then.
        kind: ``"added"``, ``"removed"`` or ``"changed"``, against the first parent.
    """

    __slots__ = ("_change", "_tracer", "commit")

    def __init__(self, commit: Commit, change: CellChange, tracer: PathTracer) -> None:
        self.commit: Final = commit
        self._change = Change(change, tracer.nodes, tracer.decoder)
        self._tracer = tracer

    @property
    def path(self) -> StatePath:
        return self._change.path

    @property
    def kind(self) -> ChangeKind:
        return self._change.kind

    @property
    def old(self) -> Any:
        """The value before, read on access, or None if there was none.

        An object is shown as ``ObjectInfo``: nothing is unpickled.
        """
        return self._change.old

    @property
    def new(self) -> Any:
        """The value after, likewise."""
        return self._change.new

    @property
    def changes(self) -> list[Change]:
        """The changes at the path and below it. Cost: what differs."""
        cells, tracer = self._change.cells, self._tracer
        if cells.old is None or cells.new is None:
            return [self._change]
        found = diff_values(tracer.composer, cells.old, cells.new, cells.path)
        return [Change(each, tracer.nodes, tracer.decoder) for each in found]

    def __repr__(self) -> str:
        return f"<PathChange {self.commit.short} {self.kind} {self.path}>"


class PathLog(Iterator[PathChange]):
    """The commits that changed the value at a path, each found when it is taken.

    Children come before parents, and newer commits first among the rest. Of a merge that left the path as one parent
    has it, only that parent is followed, as in git. A merge that is unlike all of its parents changed it. Cost: the
    commits down to the last result that is taken, and at most as many more, n in O(log n) calls of the store; and what
    differs on the way to the path.

    Args:
        deadline: end after this many seconds, counted from the first one that is taken, and one commit at least.

    Attributes:
        complete: whether no deadline has ended it.

    Raises:
        UnknownPathError: the path leads to an element of a list that is not there. A key may have been deleted since.
    """

    def __init__(
        self,
        commit: Commit,
        path: str | StatePath,
        *,
        objects: ObjectStore,
        commits: CommitReader,
        deadline: float | None = None,
    ) -> None:
        self._tracer = PathTracer(objects)
        traced = self._tracer.find(commit.tree, as_path(path))
        if not traced.can_follow:
            raise UnknownPathError(str(path), at=commit.short)
        self._ahead = ReadAhead(commits)
        self._waiting: dict[str, dict[Any, TracedPath]] = {}
        self._heap: list[tuple[int, int, str, Commit]] = []
        self._found: deque[PathChange] = deque()
        self._deadline = deadline
        self._until: float | None = None
        self.complete: bool = True
        self._follow(commit, traced)

    def __next__(self) -> PathChange:
        if self._until is None and self._deadline is not None:
            self._until = time.monotonic() + self._deadline
        while not self._found:
            if not self._heap or not self.complete:
                raise StopIteration
            self._examine()
            self.complete = self._until is None or not self._heap or time.monotonic() < self._until
        return self._found.popleft()

    @property
    def rest(self) -> list[tuple[Commit, StatePath]]:
        """The commits to examine next, each with the path there: a history of what is left begins at these."""
        return [
            (commit, traced.path) for *_, commit in sorted(self._heap) for traced in self._waiting[commit.id].values()
        ]

    def _examine(self) -> None:
        *_, commit = heapq.heappop(self._heap)
        for here in self._waiting.pop(commit.id).values():
            change, followed = _step(commit, here, self._tracer, self._ahead)
            if change is not None:
                self._found.append(PathChange(commit, change, self._tracer))
            for parent, before in followed:
                self._follow(parent, before)

    def _follow(self, commit: Commit, traced: TracedPath) -> None:
        if commit.id not in self._waiting:
            self._waiting[commit.id] = {}
            heapq.heappush(self._heap, (-commit.generation, -commit.time, commit.id, commit))
        self._waiting[commit.id].setdefault(traced.steps, traced)


def _step(
    commit: Commit, traced: TracedPath, tracer: PathTracer, ahead: ReadAhead
) -> tuple[CellChange | None, list[tuple[Commit, TracedPath]]]:
    """Return the change that a commit made at a path, and the parents to continue with.

    Each parent comes with the path in its state.
    """
    followed: list[tuple[Commit, TracedPath]] = []
    old: bytes | None = None
    for number, parent in enumerate(ahead.parents_of(commit)):
        before = tracer.before(traced, parent.tree, later=commit.tree)
        if before is None:
            continue
        if tracer.same(before, traced):
            return None, [(parent, before)]
        followed.append((parent, before))
        if number == 0:
            old = before.cell
    new = traced.cell
    if old is None and new is None:
        return None, followed
    kind: ChangeKind = "added" if old is None else "removed" if new is None else "changed"
    return CellChange(traced.path, kind, old, new), followed
