"""``DiskCache``, a store over the diskcache library, without that library's ways to lose data or run code.

Layer: storage.

``guarded_cache`` reads and writes values through diskcache's own calls. ``sqlite_file`` makes and checks the file, and
``pool`` owns the connections. diskcache can only list all keys, so this module lists a prefix by a query of its own
over diskcache's index.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Collection, Iterator, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Final, TypeVar
from weakref import finalize

from versioned_state.errors import MissingDependencyError, StoreBusyError
from versioned_state.storage.backend import Backend
from versioned_state.storage.base import OBJECT_PREFIX
from versioned_state.storage.byte_keys import address_range, raw_key
from versioned_state.storage.local import mounts, sqlite_file
from versioned_state.storage.local.pool import Pool

if TYPE_CHECKING:
    from versioned_state.storage.local.sqlite_file import Connection

T = TypeVar("T")

Name = str | bytes
"""A key as diskcache stores it.

For ``o/<hex>`` it is the bytes of the address, which are half as long, and for any other key its text. Bytes and text
are never equal, and SQLite orders all text before all bytes.
"""

# Keys in one step of a listing.
_PAGE = 1000
_LIST = f"SELECT key, raw FROM Cache WHERE key >= ? {{bound}} ORDER BY key, raw LIMIT {_PAGE}"  # noqa: S608 - a constant


class DiskCache(Backend):
    """The store in the directory ``path``, which is made with mode 0700, parents too, if it does not exist.

    Extra ``diskcache``.

    For users who run diskcache already. ``Disk`` keeps the same promises, is faster, and has a size limit and
    ``read_only``. A directory that diskcache itself made, or one with other content, raises ``NotAStoreError`` and is
    not touched: its values may have been evicted, or may be pickles.

    Every acknowledged write survives power loss (``sqlite_synchronous=2`` waits for the disk). Nothing is evicted,
    pickled, or kept outside the database. Settings, tables, triggers and rows that this library does not write raise
    ``UnsafeStoreError``, ``NotAStoreError`` or ``CorruptStoreError`` before they take effect.

    With ``create=False``, a missing store raises ``StoreNotFoundError``. ``timeout`` is how many seconds to wait for
    other writers before ``StoreBusyError``. ``allow_network`` is as for ``Disk``.

    Any number of processes and threads on one machine may open the directory. Reads never wait for writes. A fork is
    safe.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, create: bool = True, timeout: float = 10.0, allow_network: bool = False
    ) -> None:
        timeout = sqlite_file.checked_timeout(timeout)
        self.path: Final = sqlite_file.checked_path(path)
        guarded = _guarded()
        self._timeout = timeout
        if not allow_network:
            mounts.check_local(self.path)
        file = self._file = sqlite_file.prepare(self.path, create=create, layout=guarded.LAYOUT)
        self.private: bool = sqlite_file.is_private(self.path, file)

        def connect() -> Connection:
            connection = sqlite_file.connect(file, durability="power", timeout=timeout, layout=guarded.LAYOUT)
            try:
                guarded.check_settings(connection, file)
            except BaseException:
                connection.close()
                raise
            return connection

        self._cache = guarded.make()
        self._pool = Pool(connect)
        # Closes a store that its owner did not close, when it is collected or at exit.
        self._finalizer = finalize(self, self._pool.close)
        try:
            self._pool.give(self._pool.take())  # a file that cannot be opened raises now
        except BaseException:
            self.close()
            raise

    def __repr__(self) -> str:
        return f"<DiskCache {str(self.path)!r}>"

    def _get(self, key: str) -> bytes | None:
        return self._read(lambda _: self._value(_name(key)))

    def _get_many(self, keys: tuple[str, ...]) -> dict[str, bytes]:
        wanted = {key: _name(key) for key in keys}
        found = self._read(lambda _: {key: self._value(name) for key, name in wanted.items()})
        return {key: value for key, value in found.items() if value is not None}

    def _keys(self, prefix: str) -> Iterator[str]:
        for name in self._pages(*_text_range(prefix)):
            yield str(name)
        addresses = address_range(prefix)
        if addresses is not None:
            for name in self._pages(*addresses):
                yield OBJECT_PREFIX + bytes(name).hex()  # type: ignore[arg-type] # a range that starts with bytes has only bytes

    def _page(self, prefix: str, after: str | None, limit: int, *, reverse: bool) -> list[str]:
        start, end = _text_range(prefix)
        operator = ">="
        if after is not None and reverse:
            end = after if isinstance(end, bytes) else min(after, end)
        elif after is not None and after >= start:
            start, operator = after, ">"
        sql = (
            f"SELECT key, raw FROM Cache WHERE key {operator} ? AND key < ? "  # noqa: S608 - constants
            f"ORDER BY key {'DESC' if reverse else ''} LIMIT ?"
        )
        rows = self._read(lambda connection: connection.execute(sql, (start, end, limit)).fetchall())
        return [str(self._cache.disk.get(*row)) for row in rows]

    def _pages(self, start: Name, end: Name | None) -> Iterator[Name]:
        # Page by page, as in ``Disk``, so that writes in between neither repeat a key nor hide one.
        sql = _LIST.format(bound="" if end is None else "AND key < ?")
        while True:
            bounds = (start,) if end is None else (start, end)
            rows = self._read(lambda connection, bounds=bounds: connection.execute(sql, bounds).fetchall())  # type: ignore[misc]
            names: list[Name] = [self._cache.disk.get(*row) for row in rows]
            yield from names
            if len(names) < _PAGE:
                return
            last = names[-1]
            start = last + "\0" if isinstance(last, str) else last + b"\0"  # the next possible key

    def _apply(
        self,
        expected: Mapping[str, bytes | None],
        puts: Mapping[str, bytes],
        deletes: Collection[str],
        objects: Mapping[str, bytes],
    ) -> bool:
        conditions = [(_name(key), value) for key, value in expected.items()]
        added = [(_name(key), value) for key, value in objects.items()]
        changed = [*puts.items()]
        removed = [_name(key) for key in deletes]

        def write() -> bool:
            cache = self._cache
            for name, value in added:
                cache.add(name, value)  # not set(), which would replace an object that exists
            if any(self._value(name) != value for name, value in conditions):
                return False
            for key, value in changed:
                cache.set(key, value)
            for name in removed:
                cache.delete(name)
            return True

        return self._write(write)

    def _close(self) -> None:
        self._pool.close()

    def _value(self, name: Name) -> bytes | None:
        value: bytes | None = self._cache.get(name)
        return value

    def _read(self, query: Callable[[Connection], T]) -> T:
        """Run ``query`` on a connection of this thread's own, without waiting for any writer."""
        connection = self._pool.take()
        try:
            with sqlite_file.translated(self._file), self._cache.lent(connection, self._file):
                return query(connection)
        finally:
            self._pool.give(connection)

    def _write(self, work: Callable[[], T]) -> T:
        """Run ``work`` in one transaction of its own: it is done as a whole, or not at all if it raises."""
        self._check_open()
        pool = self._pool
        # The one lock of this process: a second thread, or a nested call on the same thread, never joins the
        # transaction of the first.
        if not pool.writing.acquire(self._timeout):
            raise StoreBusyError(f"{self._file} is held by another thread, or by an outer call of this thread")
        connection = None
        try:
            connection = pool.take_writer()
            with self._cache.lent(connection, self._file), self._cache.transact_alone():
                return work()
        except (sqlite3.Error, OverflowError) as error:
            raise sqlite_file.translate(error, self._file) from error
        finally:
            if connection is not None:
                # diskcache leaves a transaction open if its COMMIT failed or its beginning was interrupted.
                if connection.in_transaction:
                    connection.rollback()
                pool.give(connection)
            pool.writing.release()


def _guarded() -> ModuleType:
    try:
        from versioned_state.storage.local import guarded_cache
    except ModuleNotFoundError as error:
        if error.name != "diskcache":
            raise
        raise MissingDependencyError("DiskCache", extra="diskcache") from error
    return guarded_cache


def _name(key: str) -> Name:
    raw = raw_key(key)
    return key if raw is None else raw


def _text_range(prefix: str) -> tuple[str, Name]:
    """Return the range of the keys that start with ``prefix``.

    The range is its first key, and the first key after it, which may be bytes.
    """
    for length in range(len(prefix), 0, -1):
        last = ord(prefix[length - 1])
        if last < 0x10FFFF:
            # SQLite orders text by UTF-8, that is by code points. No key contains a surrogate, so they are skipped.
            return prefix, prefix[: length - 1] + chr(0xE000 if last == 0xD7FF else last + 1)
    return prefix, b""
