"""The memory of the result of a read, counted during the read, so that a server can limit it. Layer: services.

A service in a program has no such limit. A server counts the answers of all requests under way, and ends those that
have no room.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Final

from versioned_state.values.encode.walks import footprint

Spend = Callable[[int], None]
"""Called with the bytes of each part of a result. If it raises, the call ends with its error."""

_SPEND: Final[ContextVar[Spend | None]] = ContextVar("versioned_state_spend", default=None)


def set_spend(spend: Spend) -> None:
    """Count the results of the calls of this context from now on. ``spend`` is called on any thread."""
    _SPEND.set(spend)


def current_spend() -> Spend | None:
    """Return the counter of the results of this context's calls, or None."""
    return _SPEND.get()


def counted(value: Any) -> Any:
    """Count a value as a part of a result, and return it. Cost: the size of the value, if there is a counter."""
    spend = _SPEND.get()
    if spend is not None:
        spend(footprint(value))
    return value
