"""What the result of a read takes in memory, counted while it is read: whoever awaits it may set a limit. Layer: services.

A service of a program has none. A server counts the answers of all requests that are under way, and ends those that have no room.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Final

from versioned_state.values.encode.walks import footprint

Spend = Callable[[int], None]
"""Gets the bytes of a part of a result. What it raises ends the call."""

_SPEND: Final[ContextVar[Spend | None]] = ContextVar("versioned_state_spend", default=None)


def set_spend(spend: Spend) -> None:
    """From now on the results of the calls of this context are counted. ``spend`` is called on any thread."""
    _SPEND.set(spend)


def current_spend() -> Spend | None:
    """What counts the results of this context's calls; None if nothing does."""
    return _SPEND.get()


def counted(value: Any) -> Any:
    """A value that is part of a result from now on. Cost: that of the value, if it is counted."""
    spend = _SPEND.get()
    if spend is not None:
        spend(footprint(value))
    return value
