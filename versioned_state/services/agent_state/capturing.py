"""Values as they are at a call, captured on the event loop for a worker to encode. Layer: services.

Capturing a text costs nothing, and capturing lists and dicts about half as much as encoding them.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any, Final

from versioned_state.agents.modules.containers import ATOMS, copied

_TEXT: Final = 1 << 18
_PARTS: Final = 1 << 13
"""Characters or bytes, and elements or entries, from which a new value is long: encoding it takes some milliseconds. A copy of lists and
dicts makes the whole save dearer by half, so only those that would hold the loop for longer are copied."""


class _NotPlainError(Exception):
    """A part of a value may be changed by others, and cannot be copied here."""


def is_long(value: Any, known: int = 0) -> bool:
    """Whether a value takes long to encode if it is new. A quick look: at its length, and at the values of dicts.

    Args:
        known: how many of its parts are not new.
    """
    cls = type(value)
    if cls is str or cls is bytes:
        return len(value) >= _TEXT
    if cls is list or cls is dict:
        return len(value) - known >= _PARTS or (cls is dict and not known and len(value) < _PARTS and any(map(is_long, value.values())))
    return False


def captured(value: Any) -> Any:
    """A value as it is now, which nobody else can change; None if it is not made of exact lists, dicts and immutable values alone."""
    try:
        return _copy(value)
    except (_NotPlainError, RecursionError):
        return None


def captured_whole(value: Any) -> Any:
    """``captured`` for any value. Only an instance whose type cannot be copied stays the same one.

    Raises ``LimitExceededError`` if the value is nested too deeply.
    """
    twin = value if type(value) in ATOMS else captured(value)
    if twin is not None or value is None:
        return twin
    try:
        return deepcopy(value)  # in one call, so that an instance at two places stays one
    except Exception:  # noqa: BLE001 - code of the value's own types; encoding it gives the error its path
        return copied(value)


def _copy(value: Any) -> Any:
    cls = type(value)
    if cls in ATOMS:
        return value
    if cls is dict:
        if not ATOMS.issuperset(map(type, value)):
            raise _NotPlainError
        twin = value.copy()
        for key, each in twin.items():
            if type(each) not in ATOMS:
                twin[key] = _copy(each)
        return twin
    if cls is list:
        return [each if type(each) in ATOMS else _copy(each) for each in value]
    raise _NotPlainError
