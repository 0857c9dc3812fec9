"""The list of sessions: branches by their last change or their name, and a search in the names. Layer: server."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Final

from versioned_state.repository.names.branches import BranchInfo
from versioned_state.repository.refs.meta_index import search_index
from versioned_state.repository.repository import Repository
from versioned_state.repository.shown import commits
from versioned_state.repository.shown.text import Budget
from versioned_state.server.page.views.reads import search_time

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
    following: str | None
    if filters and search_index(repository.database.fence, "branch", filters) is None:
        shown, following = _examined(repository, filters, q=q, prefix=start, by=by, after=after, page=page)
    elif q:
        hits = branches.search(q, limit=page, after=after, prefix=start, where=filters)
        shown, following = list(hits), None if hits.complete else hits[-1].name
    else:
        order: Any = by
        found = list(branches.iter_info(prefix=start, after=after, limit=page + 1, by=order, where=filters))
        shown, following = found[:page], found[page - 1].cursor if len(found) > page else None
    default = repository.default_branch() if not scope else ""
    return {
        "title": "Sessions",
        "rows": [commits.ref(info, budget, scope=scope, default=default) for info in shown],
        "next": following,
        "ended": following is not None and len(shown) < page,
        "q": q,
        "prefix": prefix,
        "by": by,
        "where": where,
        "is_first": after is None,
        "is_filtered": bool(q or prefix or where),
    }


def _examined(
    repository: Repository, filters: dict[str, Any], *, q: str, prefix: str, by: str, after: str | None, page: int
) -> tuple[list[BranchInfo], str | None]:
    """Return the branches with some values in their heads' meta, found by reading head after head for a moment.

    Also returns the cursor behind the last one that was examined, or None if there are no others.
    """
    until = time.monotonic() + search_time()
    shown: list[BranchInfo] = []
    for info in _named(repository, q, prefix, after) if q else _listed(repository, prefix, after, by):
        meta = commits.meta_of(info.head)
        if all(key in meta and type(meta[key]) is type(value) and meta[key] == value for key, value in filters.items()):
            shown.append(info)
        if len(shown) == page or time.monotonic() >= until:
            return shown, info.name if q else info.cursor
    return shown, None


def _listed(repository: Repository, prefix: str, after: str | None, by: Any) -> Iterator[BranchInfo]:
    return repository.branches.iter_info(prefix=prefix, after=after, by=by)


def _named(repository: Repository, q: str, prefix: str, after: str | None) -> Iterator[BranchInfo]:
    """Yield the branches whose names have a text."""
    while True:
        hits = repository.branches.search(q, limit=HITS, after=after, prefix=prefix)
        yield from hits
        if hits.complete:
            return
        after = hits[-1].name


def _condition(text: str) -> tuple[str, Any]:
    """Return the key and value of ``key=value``: a value that is a number, true or false is that, and else a text."""
    key, _, value = text.partition("=")
    if value in ("true", "false"):
        return key, value == "true"
    try:
        return key, int(value)
    except ValueError:
        return key, value
