"""The marks of a gc whose time was over, kept in the store for the next one. Layer: repository.

A mark says that an object is reachable, or was, and that what it refers to is marked too, or waits to be. Objects never change, so that
stays true whatever happens between two gcs; an object that became garbage meanwhile is only kept until the next whole gc.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import msgpack

from versioned_state.errors import StorageError
from versioned_state.objects.address import ADDRESS_SIZE, Address
from versioned_state.objects.keys import GC_MARKS, gc_marks_key
from versioned_state.objects.record import read_record, write_record
from versioned_state.repository.history.address_set import AddressSet
from versioned_state.repository.history.reach import Reference, Role

if TYPE_CHECKING:
    from versioned_state.storage import KVStore

_AT_ONCE: Final = 16_384
"""Marks of one record: 400 KB."""


def save_marks(store: KVStore, seen: AddressSet, pending: Iterable[Reference], sweeps: int) -> None:
    """Keep the marks of a gc. A store that fails, or has no room, keeps none: the next gc begins anew."""
    with suppress(StorageError):
        clear_marks(store)
        waiting = [[each.address, each.role.name, each.level, each.size, each.key, each.end, each.code] for each in pending]
        marks = seen.items()
        number = 1
        while some := list(islice(marks, _AT_ONCE)):
            _put(store, number, [b"".join(address for address, _ in some), bytes(roles for _, roles in some)])
            number += 1
        _put(store, 0, [number, sweeps, waiting])  # last: without it the others are not read


def _put(store: KVStore, number: int, fields: list[object]) -> None:
    key = gc_marks_key(number)
    store.apply({}, {key: write_record(key, msgpack.packb(fields))})


def load_marks(store: KVStore, seen: AddressSet, sweeps: int) -> list[Reference]:
    """Add the saved marks to ``seen``, if there are any; the references that are still to be followed.

    Args:
        sweeps: the number of batches that gc has deleted by now. If it was another one, a reference may lead to nothing by now.
    """
    try:
        count, before, waiting = _get(store, 0)
        if waiting and before != sweeps:
            return []
        pages = [_get(store, number) for number in range(1, count)]
        pending = [Reference(Address(address), Role[role], *rest) for address, role, *rest in waiting]
        for addresses, roles in pages:
            for number, bits in enumerate(roles):
                seen.load(addresses[number * ADDRESS_SIZE : (number + 1) * ADDRESS_SIZE], bits)
    except (ValueError, TypeError, KeyError, msgpack.UnpackException):
        return []
    return pending


def _get(store: KVStore, number: int) -> list[Any]:
    key = gc_marks_key(number)
    stored = store.get(key)
    if stored is None:
        raise ValueError("there are no marks")
    found: list[Any] = msgpack.unpackb(read_record(key, stored))
    return found


def clear_marks(store: KVStore) -> None:
    """Remove the saved marks."""
    keys = sorted(store.keys(GC_MARKS))
    if keys:
        store.delete_many(keys)
