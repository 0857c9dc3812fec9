"""``Reads``: a store that a view reads, within its time, and cannot change. Layer: server."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from versioned_state.repository.database import Database
from versioned_state.repository.repository import Repository
from versioned_state.services.calls.deadline import check_deadline
from versioned_state.storage.wrappers.readonly import ReadOnly


class Reads(ReadOnly):
    """Raises ``LateError`` for a read once the time of the request is over, so that every walk of the engine ends, wherever it is."""

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
