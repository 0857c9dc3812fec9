"""A search in the texts and keys of a state. Layer: server."""

from __future__ import annotations

import re
from typing import Any, Final

from versioned_state.errors import InvalidArgumentError
from versioned_state.repository.history.commit import Commit
from versioned_state.repository.repository import Repository
from versioned_state.repository.shown import commits, found
from versioned_state.repository.shown.text import ROW, Budget
from versioned_state.services.calls.deadline import LateError, check_deadline

HITS: Final = 200
_LONGEST: Final = 200
"""Characters of a text that is searched for."""


def search(repository: Repository, budget: Budget, commit: Commit, *, q: str = "", path: str = "") -> dict[str, Any]:
    """Return the lines that have a text, in any case.

    It is a text and no regular expression: one that takes for ever cannot be ended.
    """
    if len(q) > _LONGEST:
        raise InvalidArgumentError(f"the text to search for has more than {_LONGEST} characters")
    rows: list[dict[str, Any]] = []
    is_late = more = False
    if q:
        try:
            for match in repository.grep(re.compile(re.escape(q), re.IGNORECASE), commit, path=path):
                if len(rows) == HITS:
                    more = True
                    break
                check_deadline()
                if not budget.row(2 * ROW):
                    more = True
                    break
                rows.append(found.matched(match, budget))
        except LateError:
            is_late = True
    return {
        "title": f"Search for {q}" if q else "Search",
        "commit": commits.facts(commit, budget),
        "q": q,
        "path": path,
        "rows": rows,
        "more": more,
        "late": is_late,
    }
