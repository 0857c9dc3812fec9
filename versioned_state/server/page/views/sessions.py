"""The list of sessions: branches by their last change or their name, and a search in the names. Layer: server."""

from __future__ import annotations

from typing import Any, Final

from versioned_state.repository.repository import Repository
from versioned_state.repository.shown import commits
from versioned_state.repository.shown.text import Budget

PAGE: Final = 50
HITS: Final = 200
"""Branches of a search; their heads are read, and of the others only the names."""


def sessions(
    repository: Repository,
    budget: Budget,
    *,
    scope: str = "",
    prefix: str = "",
    q: str = "",
    by: str = "changed",
    after: str | None = None,
    where: str = "",
) -> dict[str, Any]:
    """Return a page of branches.

    Args:
        scope: only branches whose names begin with it are shown.
        prefix: only those whose names begin with it, after the scope.
        q: only those whose names have it, in any case.
        by: ``"changed"``, the newest first, or ``"name"``.
        after: the cursor of the page before.
        where: ``key=value``: only those whose head has the value in its meta.
    """
    by = by if by in ("changed", "name") else "changed"
    branches = repository.branches
    filters = dict([_condition(where)]) if "=" in where else {}
    start = scope + prefix
    page = HITS if q else PAGE
    if q:
        hits = branches.search(q, limit=page, after=after, prefix=start, where=filters)
        found, is_last = list(hits), hits.complete
    else:
        order: Any = by
        found = list(branches.iter_info(prefix=start, after=after, limit=page + 1, by=order, where=filters))
        is_last = len(found) <= page
    shown = found[:page]
    default = repository.default_branch() if not scope else ""
    return {
        "title": "Sessions",
        "rows": [commits.ref(info, budget, scope=scope, default=default) for info in shown],
        "next": None if is_last else shown[-1].name if q else shown[-1].cursor,
        "q": q,
        "prefix": prefix,
        "by": by,
        "where": where,
        "is_first": after is None,
        "is_filtered": bool(q or prefix or where),
    }


def _condition(text: str) -> tuple[str, Any]:
    """Return the key and value of ``key=value``: a value that is a number, true or false is that, and else a text."""
    key, _, value = text.partition("=")
    if value in ("true", "false"):
        return key, value == "true"
    try:
        return key, int(value)
    except ValueError:
        return key, value
