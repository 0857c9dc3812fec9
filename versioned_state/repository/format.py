"""The format record, which marks a store of this library and names the version of its format. Layer: repository."""

from __future__ import annotations

from typing import Final

import msgpack
from blake3 import blake3

from versioned_state.errors import CorruptObjectError, NotAStoreError
from versioned_state.objects.keys import FORMAT

FORMAT_VERSION: Final = 1
"""The newest version that this release reads and writes."""

_MAGIC: Final = b"versioned-state\n"


def write_format(version: int) -> bytes:
    """Return the format record for this version."""
    body: bytes = _MAGIC + msgpack.packb(version)
    return body + blake3(body).digest(length=8)


def read_format(stored: bytes) -> int:
    """Return the version in a format record. Raises ``NotAStoreError`` or ``CorruptObjectError``."""
    body, checksum = stored[:-8], stored[-8:]
    if not stored.startswith(_MAGIC):
        raise NotAStoreError("the store has a format record that is not ours")
    if blake3(body).digest(length=8) != checksum:
        raise CorruptObjectError(FORMAT, "the format record does not match its checksum")
    try:
        version = msgpack.unpackb(body[len(_MAGIC) :])
    except (ValueError, msgpack.UnpackException) as error:
        raise CorruptObjectError(FORMAT, f"the format record does not decode: {error}") from error
    if type(version) is not int:
        raise CorruptObjectError(FORMAT, "the format record holds no version")
    return version
