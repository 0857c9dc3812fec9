"""The marks of a gc that ran out of time, kept in the store for the next one. Layer: repository.

A mark means that an object is or was reachable, and that its references are marked too, or are pending. Objects never
change, so this stays true whatever writers do between two gcs; an object that became garbage meanwhile is kept only
until the next complete gc. That gc removes the marks before it deletes anything, since a commit may come back with
parents that were cut off when it was marked.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import msgpack

from versioned_state.errors import StorageError
from versioned_state.objects.address import ADDRESS_SIZE, Address, Role
from versioned_state.objects.keys import GC_MARKS, gc_marks_key
from versioned_state.objects.record import read_record, write_record
from versioned_state.repository.history.keepers import Keepers, KeeperSet
from versioned_state.repository.history.reach import Reference

if TYPE_CHECKING:
    from versioned_state.storage import KVStore

_AT_ONCE: Final = 16_384
"""Marks of one record: 530 KB."""

Pending = list[tuple[Reference, int]]
"""References that are still to be followed, each with the number of the keeper for which."""


def save_marks(
    store: KVStore,
    seen: KeeperSet,
    pending: Pending,
    sweeps: int,
    since: int | None,
    *,
    put: Callable[[Mapping[str, bytes]], None],
) -> None:
    """Keep the marks of a gc.

    If the store fails or has no space, no marks are kept, and the next gc starts from the beginning.

    Args:
        since: the number of the marking, as in ``GcRecord.marking``, or None if its keepers are not valid any more.
        put: puts keys while this gc is the owner, and raises otherwise.
    """
    with suppress(StorageError):
        clear_marks(store)
        waiting = [[keeper, each.address, each.role.name, *each[2:]] for each, keeper in pending]
        names = iter(seen.keepers.names)
        marks = seen.items()
        number = 1
        while some := list(islice(marks, _AT_ONCE)):
            put(
                _part(
                    number,
                    [
                        b"".join(address for address, _ in some),
                        struct.pack(f"<{len(some)}Q", *(value for _, value in some)),
                    ],
                )
            )
            number += 1
        pages = number
        while words := list(islice(names, _AT_ONCE)):
            put(_part(number, words))
            number += 1
        put(_part(0, [pages, number, sweeps, since, waiting]))  # last, because without it the other parts are not read


def _part(number: int, fields: Sequence[object]) -> dict[str, bytes]:
    key = gc_marks_key(number)
    return {key: write_record(key, msgpack.packb(fields, unicode_errors="surrogatepass"))}


def load_marks(store: KVStore, seen: KeeperSet, sweeps: int) -> tuple[Pending, int | None] | None:
    """Load the saved marks.

    Returns the pending references and the number of the marking, or None if there are no marks.

    Args:
        sweeps: the number of batches that gc has deleted. If it has changed since, a reference may lead to a deleted
            object, and an object may have come back, so that the keepers in the marks are not valid any more.
    """
    try:
        middle, end, before, since, waiting = _get(store, 0)
        if waiting and before != sweeps:
            return None
        pages = [_get(store, number) for number in range(1, middle)]
        names = Keepers(name for number in range(middle, end) for name in _get(store, number))
        pending = [(Reference(Address(address), Role[role], *rest), keeper) for keeper, address, role, *rest in waiting]
        values = [struct.unpack(f"<{len(data) // 8}Q", data) for _, data in pages]
        for (addresses, _), page in zip(pages, values, strict=True):
            for number, value in enumerate(page):
                seen.load(addresses[number * ADDRESS_SIZE : (number + 1) * ADDRESS_SIZE], value)
    except (ValueError, TypeError, KeyError, struct.error, msgpack.UnpackException):
        return None
    seen.keepers = names
    return pending, since if before == sweeps else None


def _get(store: KVStore, number: int) -> list[Any]:
    key = gc_marks_key(number)
    stored = store.get(key)
    if stored is None:
        raise ValueError("there are no marks")
    found: list[Any] = msgpack.unpackb(read_record(key, stored), unicode_errors="surrogatepass")
    return found


def clear_marks(store: KVStore) -> None:
    """Remove the saved marks."""
    keys = sorted(store.keys(GC_MARKS))
    if keys:
        store.delete_many(keys)
