"""Damage that changes stored bytes, whatever they are: a byte overwritten by a fixed one may be what it was."""

from __future__ import annotations


def flipped(stored: bytes | None, place: int = -1) -> bytes:
    """Return the bytes with one bit of one of them, by default the last, turned over."""
    damaged = bytearray(stored or b"")
    damaged[place] ^= 1
    return bytes(damaged)
