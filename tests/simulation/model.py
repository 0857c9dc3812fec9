"""What was promised in a run: which operations were acknowledged, when, and what may have undone them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from versioned_state import Repository
    from versioned_state.repository.maintenance.purge.purge import PurgeReport
    from versioned_state.repository.names.watching import Watch


@dataclass(eq=False)
class Operation:
    """An operation of an actor, between two steps of the run.

    One whose end nobody saw may take effect at any later time.
    """

    actor: str
    name: str
    detail: str
    start: int
    end: float = math.inf
    outcome: str = ""


@dataclass(eq=False)
class Token:
    """A unique word that an actor wrote.

    Attributes:
        place: the branch, or for services the session, where it is.
        start: the step at which the write that was acknowledged began.
        acked: whether a write with it was acknowledged; if not, it may be there once or not at all.
        tried: the step at which the first write began that may have landed though it was not acknowledged, or None.
    """

    word: str
    place: str
    start: int
    acked: bool = False
    tried: int | None = None


@dataclass(frozen=True)
class Purge:
    """The arguments of a purge, by which a repeated one is recognised."""

    branch: str | None = None
    path: str | None = None

    def run(self, repository: Repository, *, thorough: bool = False) -> PurgeReport:
        if self.path is not None:
            return repository.purge(self.path)
        assert self.branch is not None
        return repository.purge(branches=self.branch, thorough=thorough)


def records_of(branch: str) -> str:
    """The place of a branch's records."""
    return f"records of {branch}"


@dataclass
class Followed:
    """The heads known to an actor that follows all branches, and the cursor behind the last move that it has handled.

    Each actor has its own: two that take moves from two watches of one process do so in any order.
    """

    site: int
    heads: dict[str, str] = field(default_factory=dict)
    cursor: str = ""

    def take(self, watch: Watch) -> None:
        for move in watch:
            if move.id is None:
                self.heads.pop(move.name, None)
            else:
                self.heads[move.name] = move.id
            self.cursor = move.cursor


_ERASED = ("commits", "holding", "refs", "branches", "effects", "records", "paths")
"""The fields of a report that have what was erased."""


def _erased(report: PurgeReport) -> list[tuple[str, str]]:
    return [(name, each) for name in _ERASED for each in getattr(report, name)]


@dataclass
class Model:
    """Attributes:
    undoing: operations that may remove what was written to a place, by the place.
    replaced: operations whose commits may have replaced words by others.
    carrying: operations that may bring such a commit to a branch, by the branch.
    copied: whether an operation of this run brings the content of one branch to another.
    repeated: whether one makes commits again, so that a merge may find a word on both sides and not in their base.
    contents: by the id of a commit, values that its state must have.
    kept: by the place, how many rounds each ``retain`` kept.
    notes: by a word in it, the commit that was made with that note, and the operation.
    records: by the name of a record whose write was acknowledged, its branch, its word, and the operation.
    erased_records: the branches whose records were to be deleted, and the operation.
    owed: of a purge that has not finished, since when, and what it has erased: when the attempt began that found it,
    the field of the report, and the name.
    followed: by the name of an actor, what it has learned from a watch.
    reports: of each purge that has finished, when, and what its report names.
    """

    operations: list[Operation] = field(default_factory=list)
    tokens: dict[str, Token] = field(default_factory=dict)
    undoing: dict[str, list[Operation]] = field(default_factory=dict)
    copied: bool = False
    repeated: bool = False
    contents: dict[str, dict[str, Any]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    tags: dict[str, tuple[str, int]] = field(default_factory=dict)
    together: list[tuple[Operation, list[str]]] = field(default_factory=list)
    rounds: dict[tuple[str, int], list[Any]] = field(default_factory=dict)
    acked_rounds: list[tuple[str, int, Any, int]] = field(default_factory=list)
    kept: dict[str, list[int]] = field(default_factory=dict)
    effects: dict[str, int] = field(default_factory=dict)
    notes: dict[str, tuple[str, Operation]] = field(default_factory=dict)
    records: dict[str, tuple[str, str, Operation]] = field(default_factory=dict)
    erased_records: list[tuple[str, Operation]] = field(default_factory=list)
    refused: set[str] = field(default_factory=set)
    secrets: dict[str, str] = field(default_factory=dict)
    purges: list[tuple[Purge, Operation]] = field(default_factory=list)
    owed: dict[Purge, tuple[int, list[tuple[int, str, str]]]] = field(default_factory=dict)
    reports: list[tuple[Purge, int, set[tuple[str, str]]]] = field(default_factory=list)
    repaid: list[tuple[Purge, Operation]] = field(default_factory=list)
    purged: list[tuple[str, Operation]] = field(default_factory=list)
    writes: dict[str, list[Operation]] = field(default_factory=dict)
    followed: dict[str, Followed] = field(default_factory=dict)
    copying: dict[str, list[Operation]] = field(default_factory=dict)
    replaced: list[Operation] = field(default_factory=list)
    carrying: dict[str, list[Operation]] = field(default_factory=dict)

    def fail(self, text: str) -> None:
        self.failures.append(text)

    def undo(self, operation: Operation, places: Iterable[str]) -> None:
        for place in places:
            self.undoing.setdefault(place, []).append(operation)

    def carry(self, operation: Operation, place: str) -> None:
        self.carrying.setdefault(place, []).append(operation)

    def write(self, operation: Operation, *places: str) -> None:
        for place in places:
            self.writes.setdefault(place, []).append(operation)

    def copy(self, operation: Operation, *places: str) -> None:
        for place in places:
            self.copying.setdefault(place, []).append(operation)

    def owe(self, request: Purge, report: PurgeReport | None, began: int, now: int) -> None:
        """A purge has begun to erase, and failed: the next one must finish it and report all of it."""
        _, erased = self.owed.get(request, (0, []))
        if report is not None:
            erased = [*erased, *((began, name, each) for name, each in _erased(report))]
        elif request.branch is not None:
            erased = [*erased, (began, "branches", request.branch)]
        self.owed[request] = now, erased

    def pay(self, request: Purge, operation: Operation | None, report: PurgeReport, began: int, now: int) -> None:
        """A purge has finished: it reports what an earlier one left, unless others did the same purge meanwhile."""
        own = set(_erased(report))
        self.reports.append((request, now, own))
        owed = self.owed.get(request)
        if owed is None:
            return
        since, erased = owed
        missing = [each for each in erased if each[1:] not in own]
        if not missing:
            del self.owed[request]
        elif since <= began:
            del self.owed[request]
            if any(each == request and other is not operation and math.isinf(other.end) for each, other in self.purges):
                return  # it may have finished, and its report is to come or lost
            lost = [
                f"{name} {each}"
                for start, name, each in missing
                if not any(
                    other == request and end >= start and (name, each) in named for other, end, named in self.reports
                )
            ]
            if lost:
                self.fail(
                    f"{request} had not finished at step {since}; "
                    f"the repeated one from step {began} does not report {lost[:5]}"
                )

    def may_be_undone(self, place: str, start: float) -> bool:
        """Whether an operation that ended after this step may have removed what was written to a place."""
        found = [*self.undoing.get(place, ()), *(self.carrying.get(place, ()) if self.replaced else ())]
        return any(each.end >= start for each in found)
