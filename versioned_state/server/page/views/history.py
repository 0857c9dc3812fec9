"""The history of a path: the commits that changed the value there, and how. Layer: server."""

from __future__ import annotations

from itertools import islice
from typing import Any, Final

from versioned_state.repository.history.commit import ROOT_ID, Commit
from versioned_state.repository.repository import Repository
from versioned_state.repository.shown import commits, found
from versioned_state.repository.shown.text import Budget
from versioned_state.server.page.views.reads import search_time

PAGE: Final = 30
_LINES: Final = 8
"""Lines of history on which a page offers to go on; there are several where merges were."""


def history(
    repository: Repository, budget: Budget, commit: Commit, path: str, *, longer: bool = False
) -> dict[str, Any]:
    """Return the newest commits up to one that changed the value at a path.

    Args:
        longer: search for as long as a page may take; else for a moment, and offer to go on.
    """
    steps = repository.history(path, commit, deadline=search_time(longer=longer))
    rows = [found.changed(each, budget) for each in islice(steps, PAGE)]
    rest = [(each, there) for each, there in steps.rest if each.id != ROOT_ID]
    return {
        "title": f"History of {path}",
        "commit": commits.facts(commit, budget),
        "path": path,
        "rows": rows,
        "next": [{"id": each.id, "path": str(there), "round": each.height} for each, there in rest[:_LINES]],
        "late": bool(rest) and not steps.complete,
    }
