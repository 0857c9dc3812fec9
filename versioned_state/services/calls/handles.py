"""``Handles``: the handles of the sessions that were used last, kept open for the next call within bounds.

Layer: services.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Final, Generic, TypeVar

from versioned_state.state.branch import port

H = TypeVar("H", bound=port.OpenHandle)

_NODE_BYTES: Final = 1 << 15
"""Bytes of decoded nodes that a handle keeps between calls.

They are more than the path to the end of a list, where most sessions grow. The repository has a cache for all handles.
"""

_HANDLE_BYTES: Final = 32_000
"""Approximate bytes of memory of a handle without loaded values."""


class Handles(Generic[H]):
    """Open handles by branch. The least recently used ones are closed. Safe for many threads.

    A handle in use counts towards neither limit, and is not closed. One that is larger than ``max_bytes`` is closed
    after each call.

    Args:
        limit: how many handles stay open between calls. Each keeps the values that its calls have loaded.
        max_bytes: approximate bytes of memory of all these handles.
        open: opens the handle of a branch.
    """

    def __init__(self, limit: int, max_bytes: int, open: Callable[[str], H]) -> None:  # noqa: A002 - what it does
        self._limit = limit
        self._max_bytes = max_bytes
        self._open = open
        self._idle: OrderedDict[str, H] = OrderedDict()
        self._sizes: dict[str, int] = {}  # of the idle handles, which do not grow
        self._bytes = 0
        self._lock = Lock()

    @contextmanager
    def handle(self, branch: str) -> Iterator[H]:
        """Run a block with the handle of a branch, for one call at a time.

        It may stand on a commit that is no longer the head.

        If the block raises, the handle is closed and not used again, and its staged changes are lost.
        """
        state = self.take(branch)
        if state is None:  # an empty state is false
            state = self._open(branch)
        try:
            yield state
        except BaseException:
            close_handle(state)
            raise
        self.give(branch, state)

    def take(self, branch: str) -> H | None:
        """Take the handle of a branch, if one is open and idle.

        It belongs to the caller until ``give``. A dropped handle is closed.
        """
        with self._lock:
            return self._pop(branch) if branch in self._idle else None

    def take_oldest(self) -> H | None:
        """Take the handle that was used longest ago, if no more may stay open, or None.

        It belongs to the caller, who may use it for another branch.
        """
        with self._lock:
            return self._pop(next(iter(self._idle))) if len(self._idle) >= self._limit else None

    def forget(self, branch: str) -> None:
        """Close the handle of a branch, if there is one and no call uses it."""
        state = self.take(branch)
        if state is not None:
            close_handle(state)

    def close(self) -> None:
        """Close all handles that no call uses."""
        with self._lock:
            idle, self._idle = self._idle, OrderedDict()
            self._sizes, self._bytes = {}, 0
        for state in idle.values():
            close_handle(state)

    def give(self, branch: str, state: H) -> None:
        """Keep a handle for the next call."""
        port.handle(state).worktree.trim(_NODE_BYTES)
        size = _HANDLE_BYTES + port.held_bytes(state)
        with self._lock:
            over = [self._pop(branch)] if branch in self._idle else []
            self._idle[branch], self._sizes[branch] = state, size
            self._bytes += size
            while len(self._idle) > self._limit or self._bytes > self._max_bytes:
                over.append(self._pop(next(iter(self._idle))))
        for each in over:
            close_handle(each)

    def _pop(self, branch: str) -> H:
        self._bytes -= self._sizes.pop(branch)
        return self._idle.pop(branch)


def close_handle(state: port.OpenHandle) -> None:
    """Close a handle without a warning about uncommitted changes."""
    # Uncommitted changes belong to a call that failed, and its caller has the error.
    port.close(state, warning=False)
