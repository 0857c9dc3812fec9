"""What was promised in a run: which operations were acknowledged, when, and what may have undone them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from versioned_state import Repository
    from versioned_state.repository.maintenance.purge.purge import PurgeReport

EVERY = "*"


@dataclass(eq=False)
class Operation:
    """An operation of an actor. ``start`` and ``end`` are steps of the run; one whose end nobody saw may take effect at any later time."""

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
    """

    word: str
    place: str
    start: int
    acked: bool = False


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


_ERASED = ("commits", "holding", "refs", "branches", "effects", "paths")
"""The fields of a report that have what was erased."""


@dataclass
class Model:
    """Attributes:
    undoing: operations that may remove what was written to a place, by the place; ``EVERY``: to any.
    counted: whether a token may be in a branch once only; no operation of this run copies changes.
    contents: by the id of a commit, values that its state must have.
    erased: words that must not be in the bytes of the store.
    kept: by the place, how many rounds each ``retain`` kept.
    replaced: whether a commit may have replaced words by others, which a pick repeats elsewhere.
    owed: of a purge that has not finished, since when, and what it has erased: the field of the report and the name.
    """

    operations: list[Operation] = field(default_factory=list)
    tokens: dict[str, Token] = field(default_factory=dict)
    undoing: dict[str, list[Operation]] = field(default_factory=dict)
    copied: set[str] = field(default_factory=set)
    contents: dict[str, dict[str, Any]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    tags: dict[str, tuple[str, int]] = field(default_factory=dict)
    together: list[tuple[str, list[str]]] = field(default_factory=list)
    rounds: dict[tuple[str, int], list[Any]] = field(default_factory=dict)
    acked_rounds: list[tuple[str, int, Any, int]] = field(default_factory=list)
    kept: dict[str, list[int]] = field(default_factory=dict)
    effects: dict[str, int] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)
    secrets: dict[str, tuple[str, str]] = field(default_factory=dict)
    purges: list[tuple[Purge, Operation]] = field(default_factory=list)
    owed: dict[Purge, tuple[int, list[tuple[str, str]]]] = field(default_factory=dict)
    repaid: list[tuple[Purge, Operation]] = field(default_factory=list)
    purged: list[tuple[str, Operation, bool]] = field(default_factory=list)
    writes: dict[str, list[Operation]] = field(default_factory=dict)
    forked: list[tuple[str, Operation]] = field(default_factory=list)
    copying: dict[str, list[Operation]] = field(default_factory=dict)
    replaced: bool = False

    def fail(self, text: str) -> None:
        self.failures.append(text)

    def undo(self, operation: Operation, places: Iterable[str]) -> None:
        for place in places:
            self.undoing.setdefault(place, []).append(operation)

    def write(self, operation: Operation, *places: str) -> None:
        for place in places:
            self.writes.setdefault(place, []).append(operation)

    def copy(self, operation: Operation, *places: str) -> None:
        for place in places:
            self.copying.setdefault(place, []).append(operation)

    def owe(self, request: Purge, operation: Operation, report: PurgeReport | None, now: int) -> None:
        """A purge has begun to erase, and failed: the next one must finish it and report all of it."""
        _, erased = self.owed.get(request, (0, []))
        if report is not None:
            erased = [*erased, *((name, each) for name in _ERASED for each in getattr(report, name))]
        elif request.branch is not None:
            erased = [*erased, ("branches", request.branch)]
        self.owed[request] = now, erased

    def pay(self, request: Purge, operation: Operation | None, report: PurgeReport, began: int) -> None:
        """A purge has finished: what an earlier one left is in its report, unless others did the same purge meanwhile."""
        owed = self.owed.get(request)
        if owed is None:
            return
        since, erased = owed
        missing = [f"{name} {each}" for name, each in erased if each not in getattr(report, name)]
        if not missing:
            del self.owed[request]
        elif since <= began:
            del self.owed[request]
            if not any(each == request and other is not operation and other.end >= since for each, other in self.purges):
                self.fail(f"{request} had not finished at step {since}; the repeated one from step {began} does not report {missing[:5]}")

    def may_be_undone(self, place: str, start: float, but: Operation | None = None) -> bool:
        """Whether an operation that ended after this step may have removed what was written to a place."""
        found = [*self.undoing.get(place, ()), *self.undoing.get(EVERY, ())]
        return any(each is not but and each.end >= start for each in found)

    def must_be(self, place: str) -> list[Token]:
        return [
            token for token in self.tokens.values() if token.place == place and token.acked and not self.may_be_undone(place, token.start)
        ]
