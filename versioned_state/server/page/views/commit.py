"""One commit: what it says of itself, its parents, its note and signature, and the changes against its first parent.

Layer: server.
"""

from __future__ import annotations

from typing import Any

from versioned_state.repository.history.commit import Commit
from versioned_state.repository.repository import Repository
from versioned_state.repository.shown import commits
from versioned_state.repository.shown.text import Budget
from versioned_state.server.page.views.diff import between


def commit(repository: Repository, budget: Budget, found: Commit) -> dict[str, Any]:
    """Return a commit."""
    first, _, rest = found.message.partition("\n")
    parents = repository.parents(found)
    note = repository.notes.get(found)
    base = parents[0] if parents else None
    return {
        "title": first or f"Commit {found.short}",
        "commit": commits.facts(found, budget),
        "message": budget.cut(first, 2000),
        "body": budget.cut(rest.strip("\n"), 1 << 14),
        "note": None if note is None else commits.meta_rows(dict(note), budget),
        "said": commits.said(found, budget, parents),
        "shallow": found.shallow,
        "base": None if base is None else base.id,
        "diff": None if base is None else between(repository, budget, base, found),
    }
