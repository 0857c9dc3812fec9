"""``Cache``, diskcache's cache without the features that lose data or run code. Layer: storage.

The only module that imports diskcache. What diskcache does by itself, and what prevents it here:

- It evicts at 1 GiB, and keeps values over 32 KB in unsynced files that a row names: ``SETTINGS``.
- It unpickles keys and values, and opens and unlinks the files that a row names: ``_Disk``.
- Its settings are rows, which set attributes and run PRAGMAs whenever a thread connects: the constructor runs over an
  empty database, connections come from the store's pool, and ``reset`` accepts only ``SETTINGS``.
- A transaction belongs to a thread, so tasks on one thread share it: ``transact_alone``.
- It reports any failure to begin a transaction as a timeout: errors are translated before diskcache sees them.
- It expands ``~`` and ``$NAME`` in the path, and makes a folder that others can open: it gets no path.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from threading import local
from typing import Any, Final, NoReturn, Protocol

import diskcache
from diskcache.core import ENOVAL, METADATA, MODE_RAW

from versioned_state.errors import CorruptStoreError, UnsafeStoreError
from versioned_state.storage.local import sqlite_file
from versioned_state.storage.local.sqlite_file import Connection, Layout

_NO_LIMIT: Final = 2**62  # SQLite counts in 63 bits

SETTINGS: Final[Mapping[str, object]] = {
    "statistics": 0,  # counting reads would make each of them a write
    "tag_index": 0,
    "eviction_policy": "none",
    "size_limit": _NO_LIMIT,
    "cull_limit": 0,
    "sqlite_auto_vacuum": 1,
    "sqlite_cache_size": 2**13,
    "sqlite_journal_mode": "wal",
    "sqlite_mmap_size": 0,  # a truncated file would be a crash
    "sqlite_synchronous": 2,
    "disk_min_file_size": _NO_LIMIT,
    "disk_pickle_protocol": 0,  # not used
}
"""Every setting of diskcache.

The file keeps them too, so a program that opens it with diskcache itself evicts nothing.
"""


class Disk(Protocol):
    """The call of diskcache's serialization that a store makes. diskcache itself has no types."""

    def get(self, key: object, raw: object) -> str | bytes:
        """Return the key of a row.

        Raises ``UnsafeStoreError`` if it is pickled, ``CorruptStoreError`` if it is not a key of a store.
        """


class Cache(Protocol):
    """The calls of diskcache's cache that a store makes, each within ``lent``."""

    disk: Disk

    def get(self, key: str | bytes) -> bytes | None:
        """Return a value."""

    def add(self, key: str | bytes, value: bytes) -> bool:
        """Set the value of a key that is not there. Returns whether it was set."""

    def set(self, key: str | bytes, value: bytes) -> bool:
        """Set the value of a key."""

    def delete(self, key: str | bytes) -> bool:
        """Delete a key. Returns whether it was there."""

    def lent(self, connection: Connection, file: Path) -> AbstractContextManager[None]:
        """Lend ``connection`` to the calls of this thread within the block, which raise translated errors."""

    def transact_alone(self) -> AbstractContextManager[None]:
        """Run the block in a transaction of its own.

        The caller holds a lock that excludes the other writers of this process.
        """


class _Disk(diskcache.Disk):  # type: ignore[misc] # diskcache has no types
    """diskcache's serialization, without pickles and files.

    Keys are ``str`` or ``bytes``, and values are ``bytes`` within the row.
    """

    def put(self, key: object) -> tuple[Any, bool]:
        if type(key) not in (str, bytes):
            raise TypeError(f"a key must be str or bytes, not {type(key).__name__}")
        stored: tuple[Any, bool] = super().put(key)
        return stored

    def get(self, key: object, raw: object) -> str | bytes:
        if raw != 1:
            raise UnsafeStoreError(
                "the store holds a pickled key, which this library never writes", remains="it was not loaded"
            )
        if not isinstance(key, (str, bytes)):
            raise CorruptStoreError(f"the store is damaged: it holds a key of type {type(key).__name__}")
        return key

    def store(self, value: object, read: bool, key: object = None) -> tuple[int, int, None, Any]:  # noqa: FBT001 - as in diskcache
        if type(value) is not bytes or read:
            raise TypeError(f"a value must be bytes, not {type(value).__name__}")
        row: tuple[int, int, None, Any] = super().store(value, read, key)
        return row

    def fetch(self, mode: object, filename: object, value: object, read: bool) -> bytes:  # noqa: FBT001 - as in diskcache
        if mode != MODE_RAW or filename is not None or read:
            raise UnsafeStoreError(
                "the store holds a value in a pickle or a file, which this library never writes",
                remains="it was not read",
            )
        if type(value) is not bytes:
            raise CorruptStoreError(f"the store is damaged: it holds a value of type {type(value).__name__}")
        return value

    def filename(self, key: object = None, value: object = None) -> NoReturn:
        raise AssertionError("values are kept in rows")

    def remove(self, file_path: str) -> None:
        """Do nothing: a row that names a file was planted. diskcache deletes the row, and the file stays."""


class _Cache(diskcache.Cache):  # type: ignore[misc] # diskcache has no types
    """A cache that uses the connection that its caller lends it for a call.

    It overrides two private names of diskcache, ``_con`` and ``_txn_id``. Tests check that they still mean the same;
    diskcache has had no release since 2023.
    """

    def __init__(self, empty: sqlite3.Connection) -> None:
        """Make the tables in the database ``empty``, whose connection is not kept."""
        self._lent = local()
        self._lent.connection = empty
        # A directory that exists, so diskcache makes none; it reads nothing in it.
        super().__init__(os.sep, timeout=0, disk=_Disk, **SETTINGS)
        self._lent.connection = None

    @contextmanager
    def lent(self, connection: Connection, file: Path) -> Iterator[None]:
        before = getattr(self._lent, "connection", None)
        self._lent.connection = _Lent(connection, file)
        try:
            yield
        finally:
            self._lent.connection = before

    @contextmanager
    def transact_alone(self) -> Iterator[None]:
        # diskcache would join a transaction that the same thread began: another task's, or after a fork one of the
        # parent's.
        self._txn_id = None
        with self.transact():
            yield

    @property
    def _con(self) -> _Lent | sqlite3.Connection:
        connection: _Lent | sqlite3.Connection | None = getattr(self._lent, "connection", None)
        assert connection is not None, "a call outside lent()"
        return connection

    def close(self) -> None:
        """Do nothing: the lender closes its connections."""

    def reset(self, key: str, value: object = ENOVAL, update: bool = True) -> object:  # noqa: FBT001, FBT002 - as in diskcache
        known = value is ENOVAL if key in METADATA else key in SETTINGS and value == SETTINGS[key]
        if not known:
            raise UnsafeStoreError(f"the store has a setting that this library never writes: {key!r}")
        result: object = super().reset(key, value, update)
        return result


class _Lent:
    """The interface of a connection that diskcache uses."""

    def __init__(self, connection: Connection, file: Path) -> None:
        self._connection = connection
        self._file = file

    def execute(self, sql: str, parameters: tuple[object, ...] = ()) -> sqlite3.Cursor:
        # After some failures, such as a full disk, SQLite has rolled back by itself. A second ROLLBACK would fail and
        # hide the first error.
        gone = sql == "ROLLBACK" and not self._connection.in_transaction
        with sqlite_file.translated(self._file):
            return self._connection.execute("SELECT 1" if gone else sql, parameters)


LAYOUT: Final = Layout("cache.db", 0x76736463, 1, _Cache)  # "vsdc"


def make() -> Cache:
    """Return a cache for connections to files of ``LAYOUT``. Its constructor uses none of them."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as empty:
        made: Cache = _Cache(empty)
        return made


def check_settings(connection: Connection, file: Path) -> None:
    """Raise ``UnsafeStoreError`` if the store's settings differ from ``SETTINGS``: diskcache itself would act on them.

    Changes nothing.
    """
    with sqlite_file.translated(file):
        (encoding,) = connection.execute("PRAGMA encoding").fetchone()
        rows = connection.execute("SELECT key, value FROM Settings").fetchall()
    found = dict(rows)
    names = found.keys() | SETTINGS.keys() | METADATA.keys()
    if strange := sorted(repr(name) for name in names if not _is_ours(name, found.get(name))):
        raise UnsafeStoreError(
            f"{file} has settings of diskcache that this library does not write ({', '.join(strange)})",
            hint="programs that open it with diskcache itself must not change its settings",
        )
    if encoding != "UTF-8":  # listings depend on the order of keys, which would be another one
        raise UnsafeStoreError(f"{file} has text in {encoding}, which this library does not write")


def _is_ours(name: str, value: object) -> bool:
    if name in METADATA:  # counts that triggers maintain
        return type(value) is int
    return name in SETTINGS and type(value) is type(SETTINGS[name]) and value == SETTINGS[name]
