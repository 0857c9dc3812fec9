"""Batches of writes made from their numbers, and the check that a store holds the first of them, each whole."""

from __future__ import annotations

import sqlite3

from versioned_state.errors import StorageError
from versioned_state.storage import KVStore


def batch(number: int) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """Return puts and objects of the `number`-th write: several pages, so that one can be torn."""
    value = b"%d" % number
    return {"ref": value, f"k/{number}": value}, {f"o/{number:04x}{part:02x}": value * 400 for part in range(3)}


def check_is_prefix(store: KVStore) -> int:
    """Check that the store holds the first n batches, each of them whole, and nothing else, and return n."""
    count = int(store.get("ref") or b"0")
    wanted: dict[str, bytes] = {}
    for number in range(1, count + 1):
        puts, objects = batch(number)
        wanted |= puts | objects
    assert dict(store.items()) == wanted
    return count


def fill(store: KVStore, kind: type[StorageError]) -> int:
    """Write batches until one fails, and return the number of those that were acknowledged."""
    start = check_is_prefix(store) + 1
    for number in range(start, 100_000):
        puts, objects = batch(number)
        try:
            assert store.apply({}, puts, objects=objects)
        except kind as error:
            failure = error
            break
    assert isinstance(failure.__cause__, sqlite3.Error)
    return number - 1
