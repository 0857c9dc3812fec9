"""Results of searches for display: blame with heat by age, lines that match, and the commits that changed a path.

Layer: repository.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from versioned_state.repository.shown import changes, commits
from versioned_state.repository.shown.text import Budget
from versioned_state.values.paths.path import StatePath

if TYPE_CHECKING:
    from versioned_state.repository.inspect.blame import Blame
    from versioned_state.repository.inspect.grep import Match
    from versioned_state.repository.inspect.path_log import PathChange

HEATS: Final = 6
"""Steps of heat, from 0, the newest of those that are shown."""

_LINE: Final = 240

_EACH: Final = 12
"""Changes of one commit."""

_AROUND: Final = 80
"""Characters of a line before the first match and after the last one."""

_LONGEST: Final = 200
"""Characters of a match."""


def blamed(parts: Sequence[Blame], budget: Budget, *, within: int = 0) -> list[dict[str, Any]]:
    """Return the parts of a value, each with its commit.

    Args:
        within: the steps of the path of the value, which the labels leave out.
    """
    times = sorted({part.commit.time for part in parts}, reverse=True)
    heat = {time: at * HEATS // max(len(times), 1) for at, time in enumerate(times)}
    return [
        {
            "path": None if part.line is not None else budget.path(part.path),
            "label": f"{part.line}" if part.line is not None else budget.cut(_label(part.path, within), 300),
            "line": budget.cut(part.preview(width=_LINE), 2 * _LINE),
            "heat": heat[part.commit.time],
            "commit": commits.facts(part.commit, budget),
            "complete": part.complete,
        }
        for part in parts
    ]


def _label(path: StatePath, within: int) -> str:
    return StatePath(path.steps[within:]).suffix().removeprefix(".") or str(path)


def matched(match: Match, budget: Budget) -> dict[str, Any]:
    """Return a line that matches, around its first matches, in pieces, each with whether it matches."""
    line, found = match.line, match.spans
    start = max(found[0][0] - _AROUND, 0)
    pieces: list[list[Any]] = [["…", False]] if start else []
    at = start
    for begin, end in found[:5]:
        pieces += [[budget.cut(line[at:begin], 2 * _AROUND), False], [budget.cut(line[begin:end], _LONGEST), True]]
        at = end
    pieces.append([budget.cut(line[at : at + _AROUND], _AROUND), False])
    if at + _AROUND < len(line):
        pieces.append(["…", False])
    return {
        "path": budget.path(match.path),
        "label": budget.cut(str(match.path), 300),
        "number": match.number,
        "is_key": match.is_key,
        "spans": pieces,
    }


def changed(step: PathChange, budget: Budget) -> dict[str, Any]:
    """Return a commit that changed a path, with its first changes."""
    shown, more = changes.of_path(step.changes, budget, _EACH)
    return {
        "commit": commits.facts(step.commit, budget),
        "path": budget.cut(str(step.path), 300),
        "kind": step.kind,
        "changes": shown,
        "more": more,
    }
