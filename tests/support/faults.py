"""A fault at each call of a store in turn, for tests of what a piece of work leaves behind."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager

from versioned_state.errors import StateError
from versioned_state.storage import Fault, Faulty


class Attempt:
    """One attempt at some work, whose call ``number`` of the store fails.

    Attributes:
        fired: whether the work made that many calls.
        failed: whether the work raised an error.
    """

    def __init__(self, number: int, fault: Fault) -> None:
        self.number = number
        self.fault = fault
        self.fired = self.failed = False

    @contextmanager
    def on(self, store: Faulty) -> Iterator[None]:
        """Open the block of the work. An error of the fault ends it, and all later calls work."""
        store.arm(self.number, fault=self.fault)
        try:
            yield
        except StateError:
            self.failed = True
        self.fired = store.fired
        store.arm(None)


def attempts(fault: Fault = Fault.BEFORE) -> Iterator[Attempt]:
    """Iterate over attempts whose first call fails, then the second, and so on, up to one that makes fewer calls."""
    for number in itertools.count(1):
        attempt = Attempt(number, fault)
        yield attempt
        if not attempt.fired:
            return
