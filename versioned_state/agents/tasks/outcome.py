"""The outcome of a call, and the event for it. Layer: agents."""

from __future__ import annotations

import sys
from typing import Any, Final, Literal

from versioned_state.agents.events.classes import ClarifyEvent, ErrorEvent, FailEvent

Outcome = Literal["success", "failure", "cancelled", "timeout", "interrupted", "closed"]

_TEXT: Final = 2000
"""Characters of an error that an event keeps."""


class TaskFailed(Exception):  # noqa: N818 - said by a task, of itself
    """Raised by a task that gives up: its call ends with a ``FailEvent``."""


class TaskClarify(Exception):  # noqa: N818 - said by a task, of itself
    """Raised by a task that needs an answer first: its call ends with a ``ClarifyEvent``."""


def outcome_of(error: BaseException) -> Outcome:
    """The outcome of a call that ended with an exception."""
    if isinstance(error, GeneratorExit):
        return "closed"
    if isinstance(error, KeyboardInterrupt | SystemExit):
        return "interrupted"
    if isinstance(error, TimeoutError):
        return "timeout"
    asyncio = sys.modules.get("asyncio")
    if asyncio is not None and isinstance(error, asyncio.CancelledError):
        return "cancelled"
    return "failure"


def event_of(error: BaseException) -> tuple[type, dict[str, Any]]:
    """The class and the fields, in the order of their names, of the event of a call that ended with an exception."""
    if isinstance(error, TaskFailed):
        return FailEvent, {"message": str(error)}
    if isinstance(error, TaskClarify):
        return ClarifyEvent, {"message": str(error)}
    return ErrorEvent, {"error": shown(error), "recoverable": False}


def shown(value: Any) -> str:
    """The ``repr`` of a value of any class, shortened; its type if it has none."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - code of the class; the event must be kept even so
        text = f"<{type(value).__name__}>"
    return text if len(text) <= _TEXT else text[:_TEXT] + "…"
