"""Two commits from where they parted: the rounds of each, what a merge would meet, and how their states differ.

Layer: server.
"""

from __future__ import annotations

from contextvars import copy_context
from itertools import islice
from typing import Any, Final

from versioned_state.errors import StateError
from versioned_state.repository.history import graph
from versioned_state.repository.history.commit import Commit
from versioned_state.repository.merging.merge import MISSING, Merged, preview_merge
from versioned_state.repository.merging.policies import Policies
from versioned_state.repository.repository import Repository
from versioned_state.repository.shown import commits
from versioned_state.repository.shown.text import Budget
from versioned_state.repository.views.render import one_line
from versioned_state.server.page.views.diff import between
from versioned_state.server.page.views.reads import search_time
from versioned_state.services.calls.deadline import LateError, set_deadline

PAGE: Final = 50
_CONFLICTS: Final = 50
_LINE: Final = 200


def compare(
    repository: Repository, budget: Budget, a: Commit, b: Commit, *, names: tuple[str, str], longer: bool = False
) -> dict[str, Any]:
    """Return both sides' rounds since the merge base, the conflicts that a merge would have, and changes from a to b.

    Args:
        longer: look for conflicts as long as a page may take; else for a moment, and offer that.
    """
    base = repository.merge_base(a, b)
    sides = []
    for name, here, other in ((names[0], a, b), (names[1], b, a)):
        found = list(islice(graph.only_in(here, [other], repository.database.commits.read), PAGE + 1))
        sides.append(
            {
                "name": name,
                "is_branch": name in repository.branches,
                "head": commits.facts(here, budget),
                "rows": [commits.facts(each, budget) for each in found[:PAGE]],
                "more": len(found) > PAGE,
                "ahead": here.height - base.height,
            }
        )
    diff = between(repository, budget, a, b)
    return {
        "title": f"{names[0]} and {names[1]}",
        "names": list(names),
        "base": commits.facts(base, budget),
        "sides": sides,
        "merge": _merge(repository, budget, a, b, search_time(longer=longer)),
        "diff": diff,
        "a": a.id,
        "b": b.id,
    }


def _merge(repository: Repository, budget: Budget, a: Commit, b: Commit, seconds: float) -> dict[str, Any]:
    """Return the conflicts of a merge of b into a, if they are found in so many seconds. Nothing is written."""

    def merge() -> Merged:
        set_deadline(seconds)
        return preview_merge(repository.database, a, b, policies=Policies(repository.merge_policies, {}))[0]

    nothing: dict[str, Any] = {"conflicts": [], "count": 0, "error": "", "late": False}
    try:
        merged = copy_context().run(merge)
    except LateError:
        return {**nothing, "late": True}
    except StateError as error:
        return {**nothing, "error": error.what}

    def side(value: Any) -> str:
        return "(nothing)" if value is MISSING else budget.cut(one_line(value, width=_LINE), 2 * _LINE)

    rows = [
        {
            "path": budget.cut(str(each.path), 400),
            "base": side(each.base),
            "ours": side(each.ours),
            "theirs": side(each.theirs),
        }
        for each in merged.conflicts[:_CONFLICTS]
    ]
    return {**nothing, "conflicts": rows, "count": len(merged.conflicts)}
