"""Cells of any size within a record: in parts, each in an envelope of its own. Layer: repository."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from versioned_state.objects.address import Kind
from versioned_state.objects.envelope import seal, unseal

MAX_CELL: Final = 256 * 1024 * 1024
"""The most bytes of a cell. Redis holds values of 512 MB, and a record is read and written whole."""

_PART: Final = 512 * 1024
_CHUNK: Final = bytes((Kind.CHUNK,))

MAX_PARTS: Final = MAX_CELL // _PART


def split_cell(cell: bytes) -> tuple[bytes, ...]:
    """Return the parts of a cell, each compressed if that makes it shorter."""
    return tuple(seal(_CHUNK + cell[start : start + _PART]) for start in range(0, len(cell), _PART))


def join_parts(parts: Sequence[bytes]) -> bytes:
    """Return the cell in some parts. Raises ``ValueError`` if they are damaged."""
    return _open(parts[0]) if len(parts) == 1 else b"".join(map(_open, parts))


def _open(part: bytes) -> bytes:
    raw = unseal(part)
    if raw[:1] != _CHUNK:
        raise ValueError("a part of a cell is not one")
    return raw[1:]
