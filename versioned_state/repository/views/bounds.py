"""``TimedReader``: reads of objects that end after a time. Layer: repository."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from versioned_state.objects.address import Address
from versioned_state.objects.store import Reader


class _LateError(Exception):
    """The time is over. The error never leaves ``within``."""


class TimedReader:
    """A reader that ends a search when its time is over, also between two results of it.

    Attributes:
        is_late: whether the last search was ended.
    """

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._until: float | None = None
        self.is_late: bool = False

    def read(self, address: Address) -> bytes:
        self._check()
        return self._reader.read(address)

    def read_many(self, addresses: Iterable[Address]) -> dict[Address, bytes]:
        self._check()
        return self._reader.read_many(addresses)

    @contextmanager
    def within(self, seconds: float) -> Iterator[Callable[[object], bool]]:
        """End the block when this time is over.

        It ends at the next read, or if its caller finds the yielded function to be false. Beyond the block, reads take
        as long as they do.
        """
        self._until = time.monotonic() + seconds
        self.is_late = False
        try:
            yield self._is_on_time
        except _LateError:
            pass
        finally:
            self._until = None

    def _is_on_time(self, _result: object = None) -> bool:
        self.is_late = self.is_late or (self._until is not None and time.monotonic() >= self._until)
        return not self.is_late

    def _check(self) -> None:
        if self._until is not None and not self._is_on_time():
            raise _LateError
