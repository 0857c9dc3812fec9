"""Blame: the commit that each part of a value comes from, with heat by age. Layer: server."""

from __future__ import annotations

from typing import Any, Final

from versioned_state.repository.history.commit import Commit
from versioned_state.repository.inspect.blame import Blame
from versioned_state.repository.repository import Repository
from versioned_state.repository.shown import commits, found
from versioned_state.repository.shown.text import Budget
from versioned_state.repository.shown.values import place_of
from versioned_state.server.page.views.reads import search_time
from versioned_state.values.paths.path import Index, StatePath

PAGE: Final = 50


def blame(
    repository: Repository,
    budget: Budget,
    commit: Commit,
    *,
    path: str = "",
    skip: int = 0,
    at: int | None = None,
    longer: bool = False,
) -> dict[str, Any]:
    """Return a page of a value's parts, each with its commit: of a list the last ones first, else the first ones.

    Args:
        skip: how many parts the pages before had.
        at: the index of an element of a list that the page must have, instead of ``skip``.
        longer: search for as long as a page may take; else for a moment, and offer to go on.
    """
    names, place = place_of(path)
    total = repository.snapshot(commit, describe=True).keys_at(place) if place is not None else None
    is_list = type(total) is int
    if type(total) is int and at is not None:
        skip = max(total - 1 - at, 0) // PAGE * PAGE
    start, end = (-skip - PAGE, -skip or None) if is_list else (skip, skip + PAGE)
    parts = repository.blame(path, commit, start=start, end=end, deadline=search_time(longer=longer))
    return {
        "title": f"Blame of {path or 'the state'}",
        "commit": commits.facts(commit, budget),
        "path": path,
        "rows": found.blamed(parts, budget, within=len(names) if place is None else len(place)),
        "is_list": is_list,
        "goes_on": _goes_on(parts, path, skip, is_list=is_list),
        "next": skip + PAGE if len(parts) == PAGE else None,
        "previous": max(skip - PAGE, 0) if skip else None,
    }


def _goes_on(parts: list[Blame], path: str, skip: int, *, is_list: bool) -> dict[str, Any] | None:
    """Return where blame goes on for parts whose commit is unknown: at the newest commit that the search reached."""
    left = [part for part in parts if not part.complete]
    if not left:
        return None
    first = max(left, key=lambda part: part.commit.generation)
    there, at = path, None
    if path and first.line is None and str(first.path) != path:
        there = str(StatePath(first.path_in_commit.steps[:-1]))
        last = first.path_in_commit.steps[-1]
        at = last.index if is_list and isinstance(last, Index) else None
    elif path:
        there = str(first.path_in_commit)
    return {
        "parts": len(left),
        "round": first.commit.height,
        "id": first.commit.id,
        "path": there,
        "skip": skip or None,
        "at": at,
    }
