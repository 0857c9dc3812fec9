"""The log of a branch: a page of commits with the lanes of the graph, and jumps to a round or a date. Layer: server."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import islice
from typing import Any, Final

from versioned_state.errors import InvalidArgumentError
from versioned_state.repository.history import graph
from versioned_state.repository.history.commit import ROOT_ID, Commit
from versioned_state.repository.repository import Repository
from versioned_state.repository.shown import commits
from versioned_state.repository.shown.lanes import lanes
from versioned_state.repository.shown.text import Budget

PAGE: Final = 50
_LANES: Final = 64
"""Lanes with which a page may begin: their ids are in its address."""


def log(repository: Repository, budget: Budget, branch: str, *, cursor: str = "") -> dict[str, Any]:
    """Return a page of a branch's commits.

    Args:
        cursor: the ids of the commits that the lanes of the page before wait for, with a dot between two.
    """
    read = repository.database.commits.read
    head = repository.branches[branch]
    waiting = list(dict.fromkeys(cursor.split(".")))[:_LANES] if cursor else [head.id]
    starts = [repository.commit(_id(each)) for each in waiting]
    walk = (commit for commit in graph.walk(starts, read) if commit.id != ROOT_ID)
    found = list(islice(walk, PAGE + 1))
    shown = found[:PAGE]
    history = [(commit.id, commit.parents_but_root) for commit in shown]
    rows, left = lanes(history, [each for each in waiting if each != ROOT_ID] if cursor else ())
    width = max((row["width"] for row in rows), default=1)
    return {
        "title": branch,
        "branch": branch,
        "head": commits.facts(head, budget),
        "rows": [{**commits.facts(commit, budget), "graph": row} for commit, row in zip(shown, rows, strict=True)],
        "graph_width": width,
        "rounds": head.height,
        "next": ".".join(left[:_LANES]) if len(found) > PAGE else None,
        "is_first": not cursor,
        "is_cut": len(left) > _LANES,
        "is_shallow": any(commit.shallow for commit in shown),
    }


def _id(text: str) -> str:
    if len(text) != len(ROOT_ID) or not set(text) <= set("0123456789abcdef"):
        raise InvalidArgumentError("the cursor of a page is made of the ids of commits", hint="begin at the first page")
    return text


def jump(repository: Repository, branch: str, *, to: str) -> Commit:
    """Return the commit of a round, by its number, or the newest one of a branch up to a date or time (UTC).

    Cost: O(log n) reads for a round, O(log² n) for a time. Raises ``InvalidArgumentError``.
    """
    head, read = repository.branches[branch], repository.database.commits.read
    text = to.strip()
    if text.isascii() and text.isdecimal() and len(text) <= 9:
        height = int(text)
        if not 1 <= height <= head.height:
            raise InvalidArgumentError(f"{branch} has rounds 1 to {head.height:,}")
        return graph.ancestor_at(head, height, read)
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidArgumentError(
            f"{text!r} is neither the number of a round nor a date", hint="such as 17, or 2026-11-23T12:00"
        ) from None
    if "T" not in text and " " not in text:
        at = at.replace(hour=23, minute=59, second=59, microsecond=999_999)
    time = round((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1e6)
    low, high = 1, head.height  # times mostly grow along a line of first parents
    while low < high:
        middle = (low + high + 1) // 2
        if graph.descend(head, middle, read).time <= time:
            low = middle
        else:
            high = middle - 1
    return graph.descend(head, max(low, min(1, head.height)), read)
