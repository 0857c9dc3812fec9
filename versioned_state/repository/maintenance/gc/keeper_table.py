"""The keepers of objects at the last marking of gc, kept in the store for reclaiming at the cost of what is reclaimed.

Layer: repository.

A gc marks everything, so it finds the keeper of each object (``history/keepers``): the one ref that leads to it, or the
group that has all refs that do. The table keeps that: 32 bytes for each object, the address and a hash of the keeper's
name, in pages by the beginning of the address, so that a lookup reads one page. Together with the refs that moved since
the marking (``moved/``) it shows whether an object of a branch is needed by any other ref.
``docs/design/026-reclaiming-one-branch.md`` has the proof.
"""

from __future__ import annotations

import secrets
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Final

import msgpack
from blake3 import blake3

from versioned_state.errors import CorruptObjectError
from versioned_state.objects.address import ADDRESS_SIZE, Address
from versioned_state.objects.keys import (
    KEEPER_PAGES,
    KEEPERS,
    MOVED,
    keeper_page_key,
    read_keeper_page_key,
    read_moved_key,
)
from versioned_state.objects.record import read_record, write_record
from versioned_state.repository.history.keepers import KeeperSet

if TYPE_CHECKING:
    from versioned_state.storage import KVStore

_ID_SIZE: Final = 8
_ENTRY: Final = ADDRESS_SIZE + _ID_SIZE
_EVERYONE: Final = bytes(_ID_SIZE)
_SALT_SIZE: Final = 16
_PER_PAGE: Final = 256
"""Entries of a page, about: 8 KB."""

_MAX_BITS: Final = 16
_PAGES_AT_ONCE: Final = 64
_DELETED_AT_ONCE: Final = 500


class KeeperTable:
    """The keepers at one marking, read page by page as they are needed.

    Attributes:
        marking: the number of the marking: ``GcRecord.marking``.
        stored: the bytes of the record at the top.
    """

    marking: int

    def __init__(self, store: KVStore, stored: bytes) -> None:
        self._store = store
        self.stored = stored
        try:
            marking, bits, salt, gone = msgpack.unpackb(read_record(KEEPERS, stored))
            self.marking, self._bits, self._salt = int(marking), int(bits), bytes(salt)
            self._gone = {gone[start : start + _ID_SIZE] for start in range(0, len(gone), _ID_SIZE)}
        except (ValueError, TypeError, msgpack.UnpackException) as error:
            raise CorruptObjectError(KEEPERS, f"the record is damaged: {error}") from error
        self._pages: dict[int, bytes] = {}

    def id(self, name: str) -> bytes:
        """Return the id of a ref or a group in the table."""
        return _id_of(self._salt, name)

    def find(self, addresses: Iterable[Address]) -> dict[Address, bytes]:
        """Return the keepers, by id, of those objects that were reachable at the marking.

        An object of a ref that was reclaimed since is left out: it may have been deleted, and have come back with other
        references.

        Cost: one call of the store for all pages that were not read yet.
        """
        wanted = {address: self._page_of(address) for address in addresses}
        keys = {keeper_page_key(self._salt, page): page for page in set(wanted.values()) if page not in self._pages}
        if keys:
            found = self._store.get_many(keys)
            for key, page in keys.items():
                self._pages[page] = _read_page(key, found.get(key))
        keepers = {}
        for address, page in wanted.items():
            keeper = _look_up(self._pages[page], address)
            if keeper is not None and keeper not in self._gone:
                keepers[address] = keeper
        return keepers

    def without(self, keepers: Iterable[bytes]) -> bytes:
        """Return the record at the top once these keepers are gone."""
        return _top(self.marking, self._bits, self._salt, sorted(self._gone.union(keepers) - {_EVERYONE}))

    def _page_of(self, address: bytes) -> int:
        return int.from_bytes(address[:2], "big") >> (_MAX_BITS - self._bits)


def read_table(store: KVStore) -> KeeperTable | None:
    """Return the table, or None if no gc has finished a marking. Cost: a read. Raises ``CorruptObjectError``."""
    stored = store.get(KEEPERS)
    return None if stored is None else KeeperTable(store, stored)


def new_salt() -> bytes:
    """Return the salt of a new table.

    Its pages lie under it, so that a gc that was delayed does not write over those of another one.
    """
    return secrets.token_bytes(_SALT_SIZE)


def write_pages(store: KVStore, seen: KeeperSet, marking: int, salt: bytes, beat: Callable[[], None]) -> bytes:
    """Write the pages of a new table. Returns the record at the top, which makes it valid once that is written too."""
    bits = min(max(len(seen) // _PER_PAGE, 1).bit_length() - 1, _MAX_BITS)
    ids = _ids_of(salt, seen.keepers.names)
    pages = _pages(seen, ids, bits)
    while some := list(islice(pages, _PAGES_AT_ONCE)):
        beat()
        store.apply(
            {},
            {
                key: write_record(key, body)
                for key, body in ((keeper_page_key(salt, page), body) for page, body in some)
            },
        )
    return _top(marking, bits, salt, [])


def drop_older(store: KVStore, marking: int, salt: bytes) -> None:
    """Remove, once a table is valid, the pages of others, and what is known of refs that moved before its marking."""
    keys = [key for key in store.keys(KEEPER_PAGES) if read_keeper_page_key(key) != salt]
    _delete(store, [*keys, *(key for key in store.keys(MOVED) if read_moved_key(key)[0] < marking)])


def drop_pages(store: KVStore, *, of: bytes) -> None:
    """Remove the pages of a table that has not become valid."""
    _delete(store, [key for key in store.keys(KEEPER_PAGES) if read_keeper_page_key(key) == of])


def _delete(store: KVStore, keys: list[str]) -> None:
    for start in range(0, len(keys), _DELETED_AT_ONCE):
        store.delete_many(keys[start : start + _DELETED_AT_ONCE])


def _top(marking: int, bits: int, salt: bytes, gone: Iterable[bytes]) -> bytes:
    return write_record(KEEPERS, msgpack.packb([marking, bits, salt, b"".join(gone)]))


def _id_of(salt: bytes, name: str) -> bytes:
    return blake3(salt + name.encode("utf-8", "surrogatepass")).digest(length=_ID_SIZE) if name else _EVERYONE


def _ids_of(salt: bytes, names: list[str]) -> list[bytes]:
    """Return the ids of keepers. Two that have the same one, by chance, count as everyone."""
    ids = [_id_of(salt, name) for name in names]
    if len(set(ids)) < len(ids):
        seen: set[bytes] = set()
        double = {id for id in ids if id in seen or seen.add(id)}  # type: ignore[func-returns-value]
        ids = [_EVERYONE if id in double else id for id in ids]
    return ids


def _pages(seen: KeeperSet, ids: list[bytes], bits: int) -> Iterator[tuple[int, bytes]]:
    """Yield the pages in order: each its number, and its entries in order."""
    number, entries = 0, bytearray()
    for address, keeper in seen.iter_keepers():
        page = int.from_bytes(address[:2], "big") >> (_MAX_BITS - bits)
        if page != number:
            yield number, bytes(entries)
            # A page without entries is written too: a page that is missing is damage.
            yield from ((each, b"") for each in range(number + 1, page))
            number, entries = page, bytearray()
        entries += address + ids[keeper]
    yield number, bytes(entries)
    yield from ((each, b"") for each in range(number + 1, 1 << bits))


def _read_page(key: str, stored: bytes | None) -> bytes:
    if stored is None:
        raise CorruptObjectError(key, "a page of the keepers of objects is gone")
    try:
        body = read_record(key, stored)
    except ValueError as error:
        raise CorruptObjectError(key, f"a page of the keepers of objects is damaged: {error}") from error
    return body


def _look_up(page: bytes, address: bytes) -> bytes | None:
    position = bisect_left(
        range(len(page) // _ENTRY), address, key=lambda n: page[n * _ENTRY : n * _ENTRY + ADDRESS_SIZE]
    )
    start = position * _ENTRY
    return page[start + ADDRESS_SIZE : start + _ENTRY] if page[start : start + ADDRESS_SIZE] == address else None
