"""``Reads``: a store that a view reads, within its time, and cannot change. Layer: server."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from versioned_state.repository.database import Database
from versioned_state.repository.repository import Repository
from versioned_state.services.calls.deadline import check_deadline, time_left
from versioned_state.storage.wrappers.readonly import ReadOnly

_SEARCH_S: Final = 0.15
"""For which a page searches history by itself.

A walk over 100,000 commits takes 3 s of a core: who wants that, says so.
"""

_SHOW: Final = 0.8
"""The share of the time of a page after which a search must end, so that what was found can be shown."""


def search_time(*, longer: bool = False) -> float:
    """Return the seconds for which a page searches history.

    Args:
        longer: the viewer asked for as long as a page may take.
    """
    left = time_left()
    most = (_SEARCH_S if left is None else left * _SHOW) if longer else _SEARCH_S
    return max(most if left is None else min(most, left * _SHOW), 0.0)


class Reads(ReadOnly):
    """Raises ``LateError`` for a read once the request's time is over, so that every walk of the engine ends."""

    def get(self, key: str) -> bytes | None:
        check_deadline()
        return super().get(key)

    def get_many(self, keys: Iterable[str]) -> dict[str, bytes]:
        check_deadline()
        return super().get_many(keys)

    def keys(self, prefix: str = "") -> Iterator[str]:
        for key in super().keys(prefix):
            check_deadline()
            yield key

    def page(self, prefix: str = "", *, after: str | None = None, limit: int, reverse: bool = False) -> list[str]:
        check_deadline()
        return super().page(prefix, after=after, limit=limit, reverse=reverse)


def only_reading(repository: Repository) -> Repository:
    """Return the same repository for views: nothing is written by it, and nothing unpickled."""
    reading = Repository.over(Database(Reads(repository.store), pickle="refuse"))
    reading.current_branch = repository.current_branch
    return reading
