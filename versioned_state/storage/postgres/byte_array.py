"""``ByteArray``, an argument of type ``bytea[]``: psycopg needs five times as long for a list of as many keys.

Layer: storage.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import Final

# The longest value of a row, in bytes: 1 GiB, minus the server's overhead.
MAX_VALUE = 2**30 - 2**16

_HEAD = Struct("!5i")
"""The head of an array of one dimension.

It has the number of dimensions, whether an element is null, the type of the elements, their number, and the first
index.
"""
_EMPTY = Struct("!3i")
_BYTEA = 17
_NULL = b"\xff\xff\xff\xff"


class ByteArray:
    """Elements for a statement, each bytes or None."""

    __slots__ = ("elements",)

    def __init__(self, elements: Iterable[bytes | None]) -> None:
        self.elements: Final = list(elements)

    def binary(self) -> bytes:
        """Return the array as the server receives it: each element after its length, -1 for null."""
        elements = self.elements
        if not elements:
            return _EMPTY.pack(0, 0, _BYTEA)
        parts = [_HEAD.pack(1, None in elements, _BYTEA, len(elements), 1)]
        for element in elements:
            if element is None:
                parts.append(_NULL)
            else:
                parts += (len(element).to_bytes(4), element)
        return b"".join(parts)
