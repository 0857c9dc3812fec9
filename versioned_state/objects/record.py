"""Records: the bytes of a mutable key, with a checksum over them and the key, so that neither passes for another's. Layer: objects."""

from __future__ import annotations

from typing import Final

from blake3 import blake3

_CHECKSUM_SIZE: Final = 8


def write_record(key: str, body: bytes) -> bytes:
    """The stored bytes of a record."""
    return body + _checksum(key, body)


def read_record(key: str, stored: bytes) -> bytes:
    """The body of a stored record. Raises ``ValueError`` if it is damaged, or another key's."""
    body = stored[:-_CHECKSUM_SIZE]
    if stored[-_CHECKSUM_SIZE:] != _checksum(key, body):
        raise ValueError("it does not match its checksum")
    return body


def _checksum(key: str, body: bytes) -> bytes:
    return blake3(key.encode() + b"\0" + body).digest(length=_CHECKSUM_SIZE)
