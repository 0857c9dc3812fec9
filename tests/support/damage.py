"""Damage that changes stored bytes, whatever they are: a byte overwritten by a fixed one may be what it was."""

from __future__ import annotations


def flipped(stored: bytes | None) -> bytes:
    """Return the bytes with one bit of the last one turned over."""
    damaged = bytearray(stored or b"")
    damaged[-1] ^= 1
    return bytes(damaged)
