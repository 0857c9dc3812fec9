"""The history of a path: the commits that changed the value there, and how. Layer: server."""

from __future__ import annotations

from itertools import islice
from typing import Any, Final

from versioned_state.repository.history.commit import ROOT_ID, Commit
from versioned_state.repository.repository import Repository
from versioned_state.server.page.views import changes, commits
from versioned_state.server.page.views.text import Budget
from versioned_state.services.calls.deadline import LateError

PAGE: Final = 30
_EACH: Final = 12
"""Changes of one commit."""


def history(repository: Repository, budget: Budget, commit: Commit, path: str) -> dict[str, Any]:
    """Return the newest commits up to one that changed the value at a path."""
    rows: list[dict[str, Any]] = []
    following: dict[str, str] | None = None
    is_late = False
    try:
        for each in islice(repository.history(path, commit), PAGE):
            shown, more = changes.of_path(each.changes, budget, _EACH)
            rows.append(
                {
                    "commit": commits.facts(each.commit, budget),
                    "path": budget.cut(str(each.path), 300),
                    "kind": each.kind,
                    "changes": shown,
                    "more": more,
                }
            )
            parents = [parent for parent in each.commit.parents if parent != ROOT_ID]
            following = {"id": parents[0], "path": str(each.path)} if parents and each.kind != "added" else None
    except LateError:
        is_late = True
    return {
        "title": f"History of {path}",
        "commit": commits.facts(commit, budget),
        "path": path,
        "rows": rows,
        "next": following if len(rows) == PAGE or is_late else None,
        "late": is_late,
    }
