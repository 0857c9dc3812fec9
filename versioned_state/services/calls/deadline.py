"""The time by which the result of a read is wanted: a search looks at it as it goes, and ends once it is over. Layer: services."""

from __future__ import annotations

import time
from contextvars import ContextVar
from typing import Final

_DEADLINE: Final[ContextVar[float | None]] = ContextVar("versioned_state_deadline", default=None)


class LateError(Exception):
    """The result of a call came too late for anybody. Nothing was changed."""


def set_deadline(seconds: float) -> None:
    """From now on the calls of this context have so many seconds."""
    _DEADLINE.set(time.monotonic() + seconds)


def time_left() -> float | None:
    """The seconds that the calls of this context have left, perhaps less than 0; None if there is no limit."""
    deadline = _DEADLINE.get()
    return None if deadline is None else deadline - time.monotonic()


def check_deadline() -> None:
    """Raise ``LateError`` if the time of this context is over. Cost: nothing to speak of beside a read of the store."""
    deadline = _DEADLINE.get()
    if deadline is not None and time.monotonic() > deadline:
        raise LateError
