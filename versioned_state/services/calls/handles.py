"""``Handles``: the handles of the sessions that were used last, kept open for the next call. Layer: services."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock

from versioned_state.state.versioned import Versioned


class Handles:
    """Open handles by branch, the least recently used of which are closed. Safe for many threads.

    Args:
        limit: handles that stay open between calls. Each one has in memory what its calls loaded.
        open: opens the handle of a branch.
    """

    def __init__(self, limit: int, open: Callable[[str], Versioned]) -> None:  # noqa: A002 - what it does
        self._limit = limit
        self._open = open
        self._idle: OrderedDict[str, Versioned] = OrderedDict()
        self._lock = Lock()

    @contextmanager
    def handle(self, branch: str) -> Iterator[Versioned]:
        """The handle of a branch, for one call at a time. It may stand on a commit that is no longer the head.

        If the block raises, the handle is closed and not used again: what it has staged is gone with it.
        """
        with self._lock:
            state = self._idle.pop(branch, None)
        if state is None:
            state = self._open(branch)
        try:
            yield state
        except BaseException:
            close_handle(state)
            raise
        self._keep(branch, state)

    def take(self, branch: str) -> Versioned | None:
        """The handle of a branch if one is open and idle. It is the caller's then, until ``give``; one that is dropped is closed."""
        with self._lock:
            return self._idle.pop(branch, None)

    def give(self, branch: str, state: Versioned) -> None:
        """Keep a handle for the next call."""
        self._keep(branch, state)

    def forget(self, branch: str) -> None:
        """Close the handle of a branch, if there is one and no call uses it."""
        with self._lock:
            state = self._idle.pop(branch, None)
        if state is not None:
            close_handle(state)

    def close(self) -> None:
        """Close all handles that no call uses."""
        with self._lock:
            idle, self._idle = self._idle, OrderedDict()
        for state in idle.values():
            close_handle(state)

    def _keep(self, branch: str, state: Versioned) -> None:
        with self._lock:
            over = [self._idle.pop(branch)] if branch in self._idle else []
            self._idle[branch] = state
            while len(self._idle) > self._limit:
                over.append(self._idle.popitem(last=False)[1])
        for each in over:
            close_handle(each)


def close_handle(state: Versioned) -> None:
    """Close a handle without a warning of changes that no commit has."""
    # Uncommitted changes belong to a call that failed, and its caller was told: no warning.
    state._close(warning=False)
