"""Commits, times and names as the page shows them. Layer: server."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from versioned_state.errors import StateError
from versioned_state.repository.history.commit import ROOT_ID, Commit
from versioned_state.repository.views.render import one_line
from versioned_state.server.page.views.text import Budget

_MESSAGE = 400
"""Characters of a message in a list."""

_META = 300
"""Characters of the meta in a list."""


def facts(commit: Commit, budget: Budget) -> dict[str, Any]:
    """Return a commit for a list."""
    first, _, rest = commit.message.partition("\n")
    return {
        "id": commit.id,
        "short": commit.short,
        "message": budget.cut(first, _MESSAGE),
        "has_more": bool(rest.strip()) or len(first) > _MESSAGE,
        "author": budget.cut(commit.author or "", _MESSAGE),
        "time": moment(commit.time),
        "round": commit.height,
        "parents": [parent[:12] for parent in commit.parents if parent != ROOT_ID],
        "outcome": outcome(commit),
        "is_root": commit.id == ROOT_ID,
    }


def outcome(commit: Commit) -> str:
    """Return how the task of a commit ended, unless it succeeded, or ``""``."""
    found = meta_of(commit).get("outcome")
    return found if found in ("failure", "cancelled", "timeout", "interrupted", "closed") else ""


def meta_of(commit: Commit) -> dict[str, Any]:
    """Return the meta of a commit, or none if it is damaged."""
    try:
        return commit.meta
    except StateError:
        return {"meta": "(damaged)"}


def meta_rows(meta: dict[str, Any], budget: Budget) -> list[dict[str, str]]:
    """Return the entries of meta or of a note, each on one line."""
    return [
        {"key": budget.cut(str(key), _META), "line": budget.cut(one_line(value, width=_META, quote=type(value) is not str), 2 * _META)}
        for key, value in list(meta.items())[:100]
    ]


def moment(microseconds: int) -> dict[str, str]:
    """Return a time: for machines, and for people in UTC."""
    at = datetime.fromtimestamp(microseconds // 1_000_000, UTC)
    iso = at.replace(microsecond=microseconds % 1_000_000).isoformat(timespec="milliseconds")
    return {"iso": iso.replace("+00:00", "Z"), "date": f"{at:%Y-%m-%d}", "clock": f"{at:%H:%M:%S}"}
