"""A search in the texts and keys of a state, whose results come as they are found. Layer: server."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from versioned_state.errors import InvalidArgumentError, StateError
from versioned_state.repository.history.commit import Commit
from versioned_state.repository.repository import Repository
from versioned_state.repository.shown import commits, found
from versioned_state.repository.shown.text import ROW, Budget
from versioned_state.repository.views.lists import Matches
from versioned_state.services.calls.deadline import LateError, check_deadline

HITS: Final = 200

_LONGEST: Final = 200
"""Characters of a text that is searched for."""


@dataclass
class End:
    """How a search has ended, once all of its rows were taken.

    Attributes:
        count: the lines that were found.
        more: whether there are others, for which there is no room.
        late: whether its time was over.
        error: the damage at which it ended, in words.
        cut: whether texts were cut short.
    """

    count: int = 0
    more: bool = False
    late: bool = False
    error: str = ""
    cut: bool = False


def search(repository: Repository, budget: Budget, commit: Commit, *, q: str = "", path: str = "") -> dict[str, Any]:
    """Return the lines that have a text, in any case, as an iterator that finds each when it is taken, and an ``End``.

    It is a text and no regular expression: one that takes for ever cannot be ended.
    """
    if len(q) > _LONGEST:
        raise InvalidArgumentError(f"the text to search for has more than {_LONGEST} characters")
    end = End()
    matches = repository.grep(re.compile(re.escape(q), re.IGNORECASE), commit, path=path) if q else None
    return {
        "title": f"Search for {q}" if q else "Search",
        "commit": commits.facts(commit, budget),
        "q": q,
        "path": path,
        "rows": iter(()) if matches is None else _rows(matches, budget, end),
        "end": end,
    }


def _rows(matches: Matches, budget: Budget, end: End) -> Iterator[dict[str, Any]]:
    try:
        for match in matches:
            if end.count == HITS or not budget.row(2 * ROW):
                end.more = True
                return
            check_deadline()
            end.count += 1
            yield found.matched(match, budget)
    except LateError:
        end.late = True
    except StateError as error:
        end.error = str(error)
    finally:
        end.cut = budget.left_out
