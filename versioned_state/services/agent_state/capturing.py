"""``is_long``: which new values the event loop only captures, so that a worker encodes them. Layer: services.

Capturing a text costs nothing, and capturing lists and dicts about half as much as encoding them.
"""

from __future__ import annotations

from typing import Any, Final

_TEXT: Final = 1 << 18
_PARTS: Final = 1 << 13
"""Characters or bytes, and elements or entries, from which a new value is long: encoding it takes some milliseconds. A copy of lists and
dicts makes the whole save dearer by half, so only those that would hold the loop for longer are copied."""


def is_long(value: Any, known: int = 0) -> bool:
    """Whether a value takes long to encode if it is new. A quick look: at its length, and at the values of dicts.

    Args:
        known: how many of its parts are not new.
    """
    parts = 0
    waiting = [value]
    for each in waiting:  # no recursion: a dict may contain itself
        cls = type(each)
        if cls is str or cls is bytes:
            if len(each) >= _TEXT:
                return True
        elif cls is list or cls is dict:
            if len(each) - known >= _PARTS:
                return True
            if cls is dict and not known:
                parts += len(each)
                if parts >= _PARTS:
                    return True
                waiting += each.values()
    return False
