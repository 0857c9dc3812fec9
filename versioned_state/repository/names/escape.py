"""Ids of any characters and any length as parts of names, one to one. Layer: repository.

A character that the name must not have is written as ``%XX``, byte by byte of its UTF-8. So a ``%`` with anything but
two digits after it is free for marks: ``%`` alone is an empty id, ``%h`` comes before the hash of a long one.
"""

from __future__ import annotations

import re
from typing import Final

from blake3 import blake3

from versioned_state.objects.address import ADDRESS_SIZE

_WRITTEN: Final = re.compile(r"(?:%.{0,2})+")
"""A run of characters that are written byte by byte; it does not read if it is a mark."""


def escape(id: str, escaped: re.Pattern[str], *, longest: int) -> str:
    """Return an id in the form for a name: at most ``longest`` bytes, and a different text for each id.

    Args:
        escaped: matches the characters that are written as ``%XX``, ``%`` among them.
    """
    if not id:
        return "%"
    text = escaped.sub(lambda found: "".join(f"%{byte:02X}" for byte in _bytes(found[0])), id)
    return text if size(text) <= longest else hash_of("%h", (id,))


def unescape(text: str) -> str | None:
    """Return the id that ``escape`` wrote as this text.

    Returns None if the text is a mark and a hash, or if no id is written so.
    """
    if text == "%":
        return ""
    try:
        return _WRITTEN.sub(
            lambda found: bytes.fromhex(found[0].replace("%", "")).decode("utf-8", "surrogatepass"), text
        )
    except ValueError:
        return None


def hash_of(mark: str, ids: tuple[str, ...]) -> str:
    """Return a mark, and the hash of some ids.

    Each id is preceded by its length, so that no two lists of ids are the same bytes.
    """
    raw = b"".join(b"%d:%b" % (len(data), data) for data in map(_bytes, ids))
    return mark + blake3(raw).digest(length=ADDRESS_SIZE).hex()


def size(text: str) -> int:
    """Return the length of a text in bytes."""
    return len(_bytes(text))


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
