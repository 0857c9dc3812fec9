"""Blame: the commit that each part of a value comes from, with heat by age. Layer: server."""

from __future__ import annotations

from typing import Any, Final

from versioned_state.repository.history.commit import Commit
from versioned_state.repository.repository import Repository
from versioned_state.repository.views.render import one_line
from versioned_state.server.page.views import commits
from versioned_state.server.page.views.text import Budget
from versioned_state.server.page.views.values import place_of
from versioned_state.values.paths.path import StatePath

PAGE: Final = 50
HEATS: Final = 6
"""Steps of heat, from 0, the newest of a page."""

_LINE: Final = 240


def blame(repository: Repository, budget: Budget, commit: Commit, *, path: str = "", skip: int = 0) -> dict[str, Any]:
    """Return a page of the parts of a value, each with its commit: of a list the last ones first, of anything else the first ones.

    Args:
        skip: how many parts the pages before had.
    """
    _, place = place_of(path)
    is_list = place is not None and type(repository.snapshot(commit, describe=True).keys_at(place)) is int
    if is_list:
        found = repository.blame(path, commit, start=-skip - PAGE, end=-skip or None)
    else:
        found = repository.blame(path, commit, start=skip, end=skip + PAGE)
    times = sorted({part.commit.time for part in found}, reverse=True)
    heat = {time: at * HEATS // max(len(times), 1) for at, time in enumerate(times)}
    return {
        "title": f"Blame of {path or 'the state'}",
        "commit": commits.facts(commit, budget),
        "path": path,
        "rows": [
            {
                "path": None if part.line is not None else budget.path(part.path),
                "label": f"{part.line}" if part.line is not None else budget.cut(_label(part.path, place), 300),
                "line": budget.cut(one_line(part.value, width=_LINE, quote=part.line is None), 2 * _LINE),
                "heat": heat[part.commit.time],
                "commit": commits.facts(part.commit, budget),
            }
            for part in found
        ],
        "is_list": is_list,
        "next": skip + PAGE if len(found) == PAGE else None,
        "previous": max(skip - PAGE, 0) if skip else None,
    }


def _label(path: StatePath, within: StatePath | None) -> str:
    depth = 0 if within is None else len(within)
    return StatePath(path.steps[depth:]).suffix().removeprefix(".") or str(path)
