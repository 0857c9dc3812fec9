"""The kinds and the addresses of objects. Layer: objects.

An object's raw bytes begin with its kind, so the address, taken over all of them, never lets one kind pass for another.
"""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import NewType

from blake3 import blake3

from versioned_state.errors import CorruptObjectError

Address = NewType("Address", bytes)
"""The first 24 bytes of BLAKE3 over an object's raw bytes: 96 bits against collisions."""

ADDRESS_SIZE = 24

HEX_SIZE = 2 * ADDRESS_SIZE


class Kind(IntEnum):
    """The first byte of an object's raw bytes. Part of the format: a number is never used again."""

    COMMIT = 0x01
    LOG_ENTRY = 0x02
    SEQUENCE_LEAF = 0x10
    SEQUENCE_NODE = 0x11
    MAP_LEAF = 0x12
    MAP_NODE = 0x13
    CHUNK = 0x14
    SEGMENT = 0x15


class Role(Enum):
    """The place in which an object is named. Its value is the kinds that the object may have there."""

    COMMIT = frozenset({Kind.COMMIT})
    LOG_ENTRY = frozenset({Kind.LOG_ENTRY})
    SEQUENCE = frozenset({Kind.SEQUENCE_LEAF, Kind.SEQUENCE_NODE})
    MAP = frozenset({Kind.MAP_LEAF, Kind.MAP_NODE})
    BLOB = frozenset({Kind.CHUNK, Kind.SEQUENCE_NODE})
    CHUNK = frozenset({Kind.CHUNK})
    """A child of a blob's node of level 1. It refers to nothing, so a walk need not read it."""
    SEGMENT = frozenset({Kind.SEGMENT})
    """A part of the raw bytes of a leaf. It has no references; a reader of the leaf reads it too."""


def address_of(raw: bytes) -> Address:
    """Return the address of an object, from its raw bytes (kind first)."""
    return Address(blake3(raw).digest(length=ADDRESS_SIZE))


def is_address_of(address: Address, raw: bytes) -> bool:
    """Return whether an object with these raw bytes belongs under this address."""
    matches: bool = blake3(raw).digest(length=ADDRESS_SIZE) == address
    return matches


def expect(raw: bytes, address: Address, *kinds: Kind) -> None:
    """Raise ``CorruptObjectError`` unless ``raw`` is an object of one of these kinds.

    A reader that follows a pointer names the kinds that it may find there, so that a commit is never read as a chunk.
    """
    if not raw or raw[0] not in kinds:
        wanted = " or ".join(kind.name.lower().replace("_", " ") for kind in kinds)
        raise CorruptObjectError(address.hex(), f"expected a {wanted}, found kind {raw[0] if raw else None}")
