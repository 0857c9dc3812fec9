"""Commits, times and names as the page shows them. Layer: repository."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from versioned_state.errors import StateError
from versioned_state.repository.shown.text import Budget
from versioned_state.repository.views.render import one_line

if TYPE_CHECKING:
    from versioned_state.repository.history.commit import Commit
    from versioned_state.repository.names.listing import RefInfo

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
        "parents": [parent[:12] for parent in commit.parents_but_root],
        "outcome": outcome(commit),
        "is_root": commit.is_root,
    }


def said(commit: Commit, budget: Budget, parents: Iterable[Commit] = ()) -> dict[str, Any]:
    """Return what a commit says of itself, with its parents as far as they were read."""
    known = {parent.id: facts(parent, budget) for parent in parents}
    return {
        "commit": facts(commit, budget),
        "meta": meta_rows(meta_of(commit), budget),
        "tag": commit.tag,
        "signed_by": commit.signed_by,
        "parents": [known.get(id, {"id": id, "short": id[:12]}) for id in commit.parents_but_root],
    }


def ref(info: RefInfo, budget: Budget, *, scope: str = "", default: str = "") -> dict[str, Any]:
    """Return a branch or a tag for a list.

    Args:
        scope: the beginning of the name, which the label leaves out.
        default: the name of the default branch.
    """
    return {
        "name": info.name,
        "label": info.name.removeprefix(scope),
        "is_default": info.name == default,
        "changed": moment(info.changed),
        "head": facts(info.head, budget),
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
        {
            "key": budget.cut(str(key), _META),
            "line": budget.cut(one_line(value, width=_META, quote=type(value) is not str), 2 * _META),
        }
        for key, value in list(meta.items())[:100]
    ]


def moment(microseconds: int) -> dict[str, str]:
    """Return a time: for machines, and for people in UTC."""
    at = datetime.fromtimestamp(microseconds // 1_000_000, UTC)
    iso = at.replace(microsecond=microseconds % 1_000_000).isoformat(timespec="milliseconds")
    return {"iso": iso.replace("+00:00", "Z"), "date": f"{at:%Y-%m-%d}", "clock": f"{at:%H:%M:%S}"}
