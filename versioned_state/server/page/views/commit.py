"""One commit: what it says of itself, its parents, its note and signature, and the changes against its first parent. Layer: server."""

from __future__ import annotations

from typing import Any

from versioned_state.repository.history.commit import ROOT_ID, Commit
from versioned_state.repository.repository import Repository
from versioned_state.server.page.views import changes, commits
from versioned_state.server.page.views.text import Budget


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
        "meta": commits.meta_rows(commits.meta_of(found), budget),
        "note": None if note is None else commits.meta_rows(dict(note), budget),
        "tag": found.tag,
        "signed_by": found.signed_by,
        "shallow": found.shallow,
        "parents": [commits.facts(parent, budget) for parent in parents if parent.id != ROOT_ID],
        "base": None if base is None else base.id,
        "diff": None if base is None else changes.between(repository, budget, base, found),
    }
