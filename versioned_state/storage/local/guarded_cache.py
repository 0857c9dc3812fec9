"""``GuardedCache``, diskcache's cache without what loses data or runs code. The one module that imports diskcache.

What diskcache does by itself, and how it is kept from it here:

- it evicts at 1 GiB, and keeps values over 32 KB in files, unsynced, named by the row: ``SETTINGS``;
- it unpickles keys and values, and opens and unlinks the files, that a row names: ``GuardedDisk``;
- its settings are rows that set attributes and run PRAGMAs whenever a thread connects: here the constructor
  runs over an empty database, connections come from the store's pool, and ``reset`` knows only ``SETTINGS``;
- a transaction belongs to a thread, so that tasks on one thread share it: ``transact_alone``;
- any failure to begin a transaction counts as a timeout: errors are translated before it gets to see them;
- it expands ``~`` and ``$NAME`` in the path, and makes the folder open to others: it is given no path.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from threading import local
from typing import Any, Final, NoReturn

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
"""Every setting of diskcache. They are kept in the file too, so whoever opens it with diskcache itself evicts nothing."""


class GuardedDisk(diskcache.Disk):  # type: ignore[misc] # diskcache has no types
    """What a row may hold: keys that are ``str`` or ``bytes``, values that are ``bytes``, within the row. No pickle and no file."""

    def put(self, key: object) -> tuple[Any, bool]:
        if type(key) not in (str, bytes):
            raise TypeError(f"a key must be str or bytes, not {type(key).__name__}")
        stored: tuple[Any, bool] = super().put(key)
        return stored

    def get(self, key: object, raw: object) -> str | bytes:
        if raw != 1:
            raise UnsafeStoreError("the store holds a key that is a pickle, which it never writes", remains="it was not loaded")
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
                "the store holds a value that is a pickle or lies in a file, which it never writes", remains="it was not read"
            )
        if type(value) is not bytes:
            raise CorruptStoreError(f"the store is damaged: it holds a value of type {type(value).__name__}")
        return value

    def filename(self, key: object = None, value: object = None) -> NoReturn:
        raise AssertionError("values are kept in rows")

    def remove(self, file_path: str) -> None:
        """The row that names a file was planted. It goes, and the file, whosever it is, stays."""


class GuardedCache(diskcache.Cache):  # type: ignore[misc] # diskcache has no types
    """A cache that works on whichever connection its caller lends it for a call.

    It overrides two names that diskcache keeps for itself, ``_con`` and ``_txn_id``. That they mean what they did is tested;
    diskcache has had no release since 2023.
    """

    def __init__(self, empty: sqlite3.Connection) -> None:
        """Makes its tables in the database ``empty``, and does not keep it."""
        self._lent = local()
        self._lent.connection = empty
        # A directory that is there, so that none is made; nothing is looked for in it.
        super().__init__(os.sep, timeout=0, disk=GuardedDisk, **SETTINGS)
        self._lent.connection = None

    @contextmanager
    def lent(self, connection: Connection, file: Path) -> Iterator[None]:
        """Within it, calls of this thread work on ``connection``, and raise errors of ours."""
        before = getattr(self._lent, "connection", None)
        self._lent.connection = _Lent(connection, file)
        try:
            yield
        finally:
            self._lent.connection = before

    @contextmanager
    def transact_alone(self) -> Iterator[None]:
        """A transaction that nobody else is in. The caller holds a lock that keeps other writers of the process out."""
        # diskcache joins one that the same thread began: another task's, or, after a fork, that of a thread which is no more.
        self._txn_id = None
        with self.transact():
            yield

    @property
    def _con(self) -> _Lent | sqlite3.Connection:
        connection: _Lent | sqlite3.Connection | None = getattr(self._lent, "connection", None)
        assert connection is not None, "a call outside lent()"
        return connection

    def close(self) -> None:
        """Connections are their lender's."""

    def reset(self, key: str, value: object = ENOVAL, update: bool = True) -> object:  # noqa: FBT001, FBT002 - as in diskcache
        known = value is ENOVAL if key in METADATA else key in SETTINGS and value == SETTINGS[key]
        if not known:
            raise UnsafeStoreError(f"the store has a setting that this library never makes: {key!r}")
        result: object = super().reset(key, value, update)
        return result


class _Lent:
    """A connection as diskcache sees it."""

    def __init__(self, connection: Connection, file: Path) -> None:
        self._connection = connection
        self._file = file

    def execute(self, sql: str, parameters: tuple[object, ...] = ()) -> sqlite3.Cursor:
        # After some failures, a full disk for one, SQLite has rolled back by itself, and to ask for it again would hide
        # the failure behind an error that there is nothing to roll back.
        gone = sql == "ROLLBACK" and not self._connection.in_transaction
        with sqlite_file.translated(self._file):
            return self._connection.execute("SELECT 1" if gone else sql, parameters)


LAYOUT: Final = Layout("cache.db", 0x76736463, 1, GuardedCache)  # "vsdc"


def make() -> GuardedCache:
    """A cache for connections to files of ``LAYOUT``. Its constructor sees none of them."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as empty:
        return GuardedCache(empty)


def check_settings(connection: Connection, file: Path) -> None:
    """Refuse a store whose settings are not ours: diskcache itself, where it opens the file, would act by them.

    Raises ``UnsafeStoreError``. Nothing was changed.
    """
    with sqlite_file.translated(file):
        (encoding,) = connection.execute("PRAGMA encoding").fetchone()
        rows = connection.execute("SELECT key, value FROM Settings").fetchall()
    found = dict(rows)
    names = found.keys() | SETTINGS.keys() | METADATA.keys()
    if strange := sorted(repr(name) for name in names if not _is_ours(name, found.get(name))):
        raise UnsafeStoreError(
            f"{file} has settings of diskcache that this library does not make ({', '.join(strange)})",
            remains="nothing was changed",
            hint="a program that opens it with diskcache itself must leave its settings as they are",
        )
    if encoding != "UTF-8":  # the order of keys, by which they are listed, would be another one
        raise UnsafeStoreError(f"{file} has text in {encoding}, which this library does not make", remains="nothing was changed")


def _is_ours(name: str, value: object) -> bool:
    if name in METADATA:  # counts that triggers keep
        return type(value) is int
    return name in SETTINGS and type(value) is type(SETTINGS[name]) and value == SETTINGS[name]
