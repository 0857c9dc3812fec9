"""A call of a task as text, for the messages of its commits: ``choose('desk', 1100)``, or ``choose`` without arguments. Layer: agents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from versioned_state.repository.views.render import escape, short_repr

if TYPE_CHECKING:
    from versioned_state.agents.call import Call

_ARGUMENT: Final = 24
"""Characters of one argument that are shown."""

_ALL: Final = 60
"""Characters of all arguments together: a log has a commit on a line."""

_SHOWN: Final = frozenset({str, int, float, bool, type(None), list, dict, tuple, set, frozenset, bytes})
"""The types whose values are written out. Of another only the name of the type is, since its ``repr`` may be code, and slow."""

_SHORT: Final = frozenset({float, bool, type(None)})
"""The types whose values are always written in fewer characters than are shown."""


def call_text(call: Call) -> str:
    """Return the name of a task and the beginning of its arguments. Calls no code of theirs. Cost: the characters that are shown."""
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
        return f"<{cls.__name__}>"
    if cls in (str, bytes):
        return escape(repr(value[:_ARGUMENT])) + ("…" if len(value) > _ARGUMENT else "")
    if cls in (list, dict, tuple, set, frozenset):
        return _container(value)
    text = escape(short_repr(value, _ARGUMENT))
    return text if len(text) <= _ARGUMENT else text[: _ARGUMENT - 1] + "…"


def _container(value: Any) -> str:
    """Return a container of a few scalars written out, of any other its type and length."""
    parts = [*value, *value.values()] if type(value) is dict and len(value) <= _ARGUMENT else value
    if len(value) <= _ARGUMENT and all(type(part) in (str, int, float, bool, type(None)) for part in parts):
        text = escape(short_repr(value, _ARGUMENT))
        if len(text) <= _ARGUMENT:
            return text
    return f"<{type(value).__name__} of {len(value)}>"
