"""The deadline of a read: a search checks it at intervals, and ends when it has passed. Layer: services."""

from __future__ import annotations

import time
from contextvars import ContextVar
from typing import Final

_DEADLINE: Final[ContextVar[float | None]] = ContextVar("versioned_state_deadline", default=None)


class LateError(Exception):
    """The deadline of a call has passed. Nothing was changed."""


def set_deadline(seconds: float) -> None:
    """Set the deadline of the calls of this context, in seconds from now."""
    _DEADLINE.set(time.monotonic() + seconds)


def time_left() -> float | None:
    """Return the seconds that the calls of this context have left, perhaps below 0, or None if there is no limit."""
    deadline = _DEADLINE.get()
    return None if deadline is None else deadline - time.monotonic()


def check_deadline() -> None:
    """Raise ``LateError`` if the deadline of this context has passed.

    The cost is negligible beside a read of the store.
    """
    deadline = _DEADLINE.get()
    if deadline is not None and time.monotonic() > deadline:
        raise LateError
