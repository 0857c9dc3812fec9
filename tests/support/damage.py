"""Damage that changes stored bytes, whatever they are: a byte overwritten by a fixed one may be what it was."""

from __future__ import annotations

from versioned_state import KVStore


def flipped(stored: bytes | None) -> bytes:
    """Return the bytes with one bit of the last one turned over."""
    damaged = bytearray(stored or b"")
    damaged[-1] ^= 1
    return bytes(damaged)


def damage(store: KVStore, key: str) -> bytes:
    """Turn over a bit of a stored value, be it an object's. Return the value as it was."""
    stored = store.get(key)
    assert stored is not None
    store.delete(key)
    store.set(key, flipped(stored))
    return stored
