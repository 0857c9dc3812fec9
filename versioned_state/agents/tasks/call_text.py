"""A call of a task as text, for the messages of its commits: ``choose('desk', 1100)``, or ``choose`` without arguments.

Layer: agents.
"""

from __future__ import annotations

from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID
from zoneinfo import ZoneInfo

from versioned_state.repository.views.render import escape, short_repr

if TYPE_CHECKING:
    from versioned_state.agents.call import Call

_ARGUMENT: Final = 24
"""Characters of one argument that are shown."""

_SCALAR: Final = 30
"""Characters of an amount, a time or an id, which tells little if it is cut."""

_ALL: Final = 60
"""Characters of all arguments together: a log has a commit on a line."""

_SHOWN: Final = frozenset({str, int, float, bool, type(None), list, dict, tuple, set, frozenset, bytes})
"""The types whose values are written out.

Of another only the name of the type is, since its ``repr`` may be code, and slow.
"""

_PLAIN: Final = frozenset({date, timedelta, UUID})
"""The types whose ``str`` is the value itself."""

_ZONES: Final = frozenset({type(None), timezone, ZoneInfo})
"""The zones of a time that is written out. Of another, the offset may be code."""

_SHORT: Final = frozenset({float, bool, type(None)})
"""The types whose values are always written in fewer characters than are shown."""


def call_text(call: Call) -> str:
    """Return the name of a task and the beginning of its arguments.

    Calls no code of theirs. Cost: the characters that are shown.
    """
    shown: list[str] = []
    room = _ALL
    inputs = [*call.inputs.values()]
    while inputs and inputs[-1] is None:  # most often what was left out
        inputs.pop()
    for value in inputs:
        text = _argument(value)
        if len(text) > room:
            shown.append("…")
            break
        room -= len(text) + 2
        shown.append(text)
    return f"{call.name}({', '.join(shown)})" if shown else call.name


def _argument(value: Any) -> str:
    cls = type(value)
    if cls in _SHORT:
        return repr(value)
    if cls not in _SHOWN:
        text = _scalar(value)
        return f"<{cls.__name__}>" if text is None else text if len(text) <= _SCALAR else text[: _ARGUMENT - 1] + "…"
    if cls in (str, bytes):
        return escape(repr(value[:_ARGUMENT])) + ("…" if len(value) > _ARGUMENT else "")
    if cls in (list, dict, tuple, set, frozenset):
        return _container(value)
    text = escape(short_repr(value, _ARGUMENT))
    return text if len(text) <= _ARGUMENT else text[: _ARGUMENT - 1] + "…"


def _scalar(value: Any) -> str | None:
    """Return an amount, a time, an id or the member of an Enum as text, or None for any other value."""
    cls = type(value)
    if cls in _PLAIN:
        return str(value)
    if cls is Decimal:
        return str(value) if value.is_finite() and abs(value.adjusted()) <= _ARGUMENT else None
    if cls is datetime:
        exact = "minutes" if not value.second and not value.microsecond else "seconds"
        return str(value.isoformat(timespec=exact)) if type(value.tzinfo) in _ZONES else None
    name = value._name_ if isinstance(value, Enum) else None
    return f"{cls.__name__}.{escape(name)}" if type(name) is str else None


def _container(value: Any) -> str:
    """Return a container of a few scalars written out, of any other its type and length."""
    parts = [*value, *value.values()] if type(value) is dict and len(value) <= _ARGUMENT else value
    if len(value) <= _ARGUMENT and all(type(part) in (str, int, float, bool, type(None)) for part in parts):
        text = escape(short_repr(value, _ARGUMENT))
        if len(text) <= _ARGUMENT:
            return text
    return f"<{type(value).__name__} of {len(value)}>"
