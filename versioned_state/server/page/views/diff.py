"""The changes between any two commits. Layer: server."""

from __future__ import annotations

from typing import Any

from versioned_state.repository.history.commit import Commit
from versioned_state.repository.repository import Repository
from versioned_state.server.page.views import changes, commits
from versioned_state.server.page.views.text import Budget
from versioned_state.values.paths.path import StatePath


def diff(repository: Repository, budget: Budget, a: Commit, b: Commit, *, path: str = "", names: tuple[str, str]) -> dict[str, Any]:
    """Return the changes from one commit to another, at a path and below it."""
    place = StatePath.parse(path) if path else None
    return {
        "title": f"{names[0]} to {names[1]}",
        "a": commits.facts(a, budget),
        "b": commits.facts(b, budget),
        "names": list(names),
        "path": path,
        "diff": changes.between(repository, budget, a, b, path=place),
    }
