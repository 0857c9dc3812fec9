"""The changes between any two commits. Layer: server."""

from __future__ import annotations

from typing import Any, Final

from versioned_state.repository.history.commit import Commit
from versioned_state.repository.repository import Repository
from versioned_state.repository.shown import changes, commits
from versioned_state.repository.shown.text import Budget
from versioned_state.services.calls.deadline import time_left
from versioned_state.values.paths.path import StatePath

MOST: Final = 200
"""Changes of a page."""

_SECONDS: Final = 2.0
"""How long changes are looked for, of the time that a page has."""


def diff(
    repository: Repository, budget: Budget, a: Commit, b: Commit, *, path: str = "", names: tuple[str, str]
) -> dict[str, Any]:
    """Return the changes from one commit to another, at a path and below it."""
    place = StatePath.parse(path) if path else None
    return {
        "title": f"{names[0]} to {names[1]}",
        "a": commits.facts(a, budget),
        "b": commits.facts(b, budget),
        "names": list(names),
        "path": path,
        "diff": between(repository, budget, a, b, path=place),
    }


def between(repository: Repository, budget: Budget, a: Any, b: Any, *, path: StatePath | None = None) -> dict[str, Any]:
    """Return the changes from one commit to another, at most ``MOST`` of them, and whether there are more."""
    left = time_left()
    seconds = _SECONDS if left is None else max(min(_SECONDS, left / 2), 0.05)
    found = repository.diff(a, b, limit=MOST, deadline=seconds)
    return changes.shown(found if path is None else found.under(path), budget)
