"""A store behind a connection that a test cuts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Literal

from versioned_state.errors import UnknownOutcomeError, UnreachableStoreError
from versioned_state.storage import KVStore, Memory, Wrapper


class Lossy(Wrapper):
    """A store that loses the request or the reply of a write, after which calls may get no answer.

    Attributes:
        silent: how many of the next calls get no answer; ``math.inf`` for all, until it is set to 0.
        unanswered: how many got none.
    """

    def __init__(self, store: KVStore | None = None) -> None:
        super().__init__(Memory() if store is None else store)
        self.silent: float = 0
        self.unanswered = 0
        self._losing: Literal["", "request", "reply"] = ""
        self._then_silent: float = 0
        self._error: BaseException | None = None
        self._late: list[Callable[[], bool]] = []

    def lose(self, what: Literal["request", "reply"], *, silent: float = 0, error: BaseException | None = None) -> None:
        """Lose the request of the next write, or the reply of the next one that is carried out, then fail some calls.

        ``error`` is what the caller gets: by default ``UnknownOutcomeError``.
        """
        self._losing, self._then_silent, self._error = what, silent, error

    def deliver(self) -> list[bool]:
        """Carry out the lost requests, and return their results."""
        late, self._late = self._late, []
        return [request() for request in late]

    def get(self, key: str) -> bytes | None:
        self._answer()
        return super().get(key)

    def get_many(self, keys: Iterable[str]) -> dict[str, bytes]:
        self._answer()
        return super().get_many(keys)

    def apply(
        self,
        expected: Mapping[str, bytes | None],
        puts: Mapping[str, bytes],
        deletes: Collection[str] = (),
        *,
        objects: Mapping[str, bytes] | None = None,
    ) -> bool:
        self._answer()

        def request() -> bool:
            return self.store.apply(dict(expected), dict(puts), tuple(deletes), objects=dict(objects or {}))

        if self._losing == "request":
            self._late.append(request)
            self._lose()
        done = request()
        if self._losing == "reply" and done:
            self._lose()
        return done

    def _lose(self) -> None:
        self._losing, self.silent = "", self._then_silent
        raise self._error or UnknownOutcomeError("connection reset")

    def _answer(self) -> None:
        if self.silent:
            self.silent -= 1
            self.unanswered += 1
            raise UnreachableStoreError("no route")
