"""``Disk``, the default for persistence: a directory with one SQLite file in WAL mode. Layer: storage.

Here are the statements and transactions; ``sqlite_file`` makes and checks the file, ``pool`` holds its connections, ``log_guard``
watches its log. A commit is one transaction, and its cost is what the product is judged by.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TypeVar
from weakref import finalize

from versioned_state.errors import (
    CorruptStoreError,
    InvalidArgumentError,
    ReadOnlyError,
    StorageFullError,
    StoreBusyError,
    StoreNotFoundError,
)
from versioned_state.storage.backend import Backend, raise_closed
from versioned_state.storage.base import OBJECT_PREFIX
from versioned_state.storage.byte_keys import address_range, page_range, raw_key, text_range
from versioned_state.storage.local import derived, mounts, sqlite_file
from versioned_state.storage.local.log_guard import LogGuard
from versioned_state.storage.local.pool import Pool
from versioned_state.storage.local.sqlite_file import Connection, Durability

T = TypeVar("T")

# The least size_limit that still leaves room beside the reserve.
MIN_SIZE_LIMIT = 256 * 1024

# SQLite counts in milliseconds, in 32 bits. This is eleven days.
_LONGEST_TIMEOUT_S = 1_000_000.0

_GET_OBJECT = "SELECT value FROM objects WHERE key = ?"
_GET_ENTRY = "SELECT value FROM entries WHERE key = ?"
_ADD_OBJECT = "INSERT OR IGNORE INTO objects(key, value) VALUES(?, ?)"
_ADD_ENTRY = "INSERT OR IGNORE INTO entries(key, value) VALUES(?, ?)"
_PUT_ENTRY = "INSERT OR REPLACE INTO entries(key, value) VALUES(?, ?)"
_DELETE_OBJECT = "DELETE FROM objects WHERE key = ?"
_DELETE_ENTRY = "DELETE FROM entries WHERE key = ?"
_PUT_LIMIT = "INSERT OR REPLACE INTO settings(name, value) VALUES('size_limit', ?)"

# What a batch asks before it writes: the limit and the expected entries, in one statement per number of entries.
_LIMIT = "SELECT value FROM settings WHERE name = 'size_limit'"
_BEFORE = [f"SELECT ({_LIMIT}){f', ({_GET_ENTRY})' * count}" for count in range(9)]

# A few entries, as those of a branch, at half the cost of a query for their keys.
_SOME = [f"SELECT {', '.join([f'({_GET_ENTRY})'] * count)}" for count in range(5)]

# Objects of one query of get_many, which is one statement per number of placeholders: see _chunks. A connection just opened spends
# more on preparing a longer one than it gains: 285 objects take 0.92 ms by 64, 1.08 ms by 256, 1.6 ms one by one.
_CHUNK = 64
_GET_SEVERAL = "SELECT key, value FROM {table} WHERE key IN ({marks})"
_SIZES = "SELECT key, length(value) FROM {table} WHERE key IN ({marks})"  # a row's header tells: no overflow page is read

# Keys of one step of a listing.
_PAGE = 1000
_LIST = f"SELECT key FROM {{table}} WHERE key >= :start {{bound}} ORDER BY key LIMIT {_PAGE}"  # noqa: S608 - a constant
# The first entries of a range, by whether it has an end, and whether the last ones are asked for.
_ENTRIES = {
    (False, False): "SELECT key FROM entries WHERE key >= ? ORDER BY key LIMIT ?",
    (False, True): "SELECT key FROM entries WHERE key >= ? ORDER BY key DESC LIMIT ?",
    (True, False): "SELECT key FROM entries WHERE key >= ? AND key < ? ORDER BY key LIMIT ?",
    (True, True): "SELECT key FROM entries WHERE key >= ? AND key < ? ORDER BY key DESC LIMIT ?",
}


class Disk(Backend):
    """The store in the directory ``path``, made (mode 0700, parents too) if nothing is there.

    ``size_limit``, in bytes, is kept in the store and binds all who open it, those who give none as
    well; 0 lifts it. What counts is pages in use. A batch that would pass it raises
    ``StorageFullError`` and changes nothing; the last few percent are a reserve in which objects find
    no room, so that refs can be moved and garbage deleted. Nothing is ever evicted.

    ``durability``: after the death of the process every acknowledged write is there, always. After
    power loss the store is a prefix of what was acknowledged (``"process"``), or all of it
    (``"power"``, which waits for the disk at each write).

    ``read_only=True`` opens a read-only mount too and writes nothing; writes raise ``ReadOnlyError``.
    ``create=False``, or ``read_only``, raises ``StoreNotFoundError`` if there is nothing. A directory
    with other content, or a file of another program, raises ``NotAStoreError`` and is not touched; a
    store of a newer release raises ``FormatError``.

    ``timeout``: seconds to wait for other writers before ``StoreBusyError``.

    A network file system raises ``UnsafeStoreError``, where the system tells that it is one (Linux): two
    machines that write there destroy the store. ``allow_network=True`` is the caller's word that one
    machine alone ever opens it. ``read_only`` works there too, while nobody writes.

    Any number of processes and threads may open the same directory, on one machine. Reads never
    wait for writes. A fork is safe: parent and child each open the file anew.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        size_limit: int | None = None,
        durability: Durability = "process",
        read_only: bool = False,
        create: bool = True,
        timeout: float = 10.0,
        allow_network: bool = False,
    ) -> None:
        if durability not in ("process", "power"):
            raise InvalidArgumentError(f"durability must be 'process' or 'power', not {durability!r}")
        if size_limit is not None:
            if read_only:
                raise InvalidArgumentError("size_limit cannot be set by a read-only opener")
            if type(size_limit) is not int or 0 != size_limit < MIN_SIZE_LIMIT:
                raise InvalidArgumentError(f"size_limit is a number of bytes, at least {MIN_SIZE_LIMIT}, or 0 for none: {size_limit!r}")
        if not timeout >= 0:
            raise InvalidArgumentError(f"timeout must not be negative: {timeout}")
        self.path = _checked_path(path)
        timeout = self._timeout = min(timeout, _LONGEST_TIMEOUT_S)
        self._read_only = read_only
        if not (read_only or allow_network):
            mounts.check_local(self.path)
        file = self._file = sqlite_file.prepare(self.path, create=create and not read_only)
        self.private = sqlite_file.is_private(self.path, file)
        self._name = str(file)
        self._identity = _identity(self._name)
        log = self._log = LogGuard(file)
        self._overwriting = 0

        def connect() -> Connection:
            if read_only:
                return sqlite_file.connect_read_only(file, timeout=timeout)
            log.forget()
            return sqlite_file.connect(file, durability=durability, timeout=timeout)

        self._pool = Pool(connect)
        # A store that is forgotten is closed when it is collected, or at exit.
        self._finalizer = finalize(self, self._pool.close)
        try:
            stored = self.size_limit or 0
            if size_limit is not None and size_limit != stored:
                self._write(lambda connection: connection.execute(_PUT_LIMIT, (size_limit,)))
        except BaseException:
            self.close()
            raise

    def __repr__(self) -> str:
        return f"<Disk {str(self.path)!r}{' read-only' if self._read_only else ''}>"

    @property
    def size_limit(self) -> int | None:
        """The limit kept in the store, in bytes, or None if there is none."""
        return self._read(_limit)

    @property
    def derived(self) -> Path | None:
        """The folder for files that others derive from the content; see ``derived``. None if the store is open for reading only."""
        return None if self._read_only else self.path / derived.FOLDER

    def drop_derived(self) -> None:
        for file in (self.path / derived.FOLDER).glob("*.sqlite3"):
            derived.erase_derived(file)

    def size(self) -> int:
        """Bytes in use: pages that hold something, the log's included. Free pages of the file do not count."""
        return self._read(_used)

    def compact(self, *, secure: bool = False) -> int:
        """Rewrite the file without the holes that deletes left; returns by how many bytes ``size()`` fell.

        A page is in use while one object is left on it, so it is after this that a gc has given back
        all its room. Takes as long as to copy the store, and room for a copy meanwhile, in the log and
        in the system's folder for temporary files. Writers wait for it, readers do not.

        ``secure``: see to it that what was deleted is in no free page, in no rest of a page and not in the
        log either. Then a reader that would not end raises ``StoreBusyError``: the store is compact, and
        its log still holds deleted bytes.
        """

        def rewrite(connection: Connection) -> int:
            before = _used(connection)
            # SQLite takes pages from memory that held others before; this makes it clear them, in the copy as well.
            with sqlite_file.overwriting(connection) if secure else nullcontext():
                connection.execute("VACUUM")
            # If a reader is in the way, the log is folded in later, by itself.
            with nullcontext() if secure else suppress(StoreBusyError):
                self._fold(connection)
            return before - _used(connection)

        return self._write(rewrite, transaction=False)

    @contextmanager
    def overwriting(self) -> Iterator[None]:
        """A block in which every deletion of this store overwrites the deleted bytes where they lie. ``truncate_log`` does the rest.

        Bytes that SQLite had copied to another page before, or deleted outside of such a block, stay until ``compact(secure=True)``.
        """
        self._overwriting += 1
        try:
            yield
        finally:
            self._overwriting -= 1

    def truncate_log(self) -> None:
        """Fold the log, which may hold what was deleted, into the file, and cut it. Raises ``StoreBusyError`` if a reader holds it."""
        self._write(self._fold, transaction=False)

    def _fold(self, connection: Connection) -> None:
        ((busy, *_),) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        if busy:
            raise StoreBusyError(
                f"a reader holds the log of {self._file}, which has what was deleted",
                remains="all else was done",
                hint="let the reader end, and compact the store",
            )

    def _get(self, key: str) -> bytes | None:
        raw = raw_key(key)
        sql, name = (_GET_OBJECT, raw) if raw is not None else (_GET_ENTRY, key.encode())
        row = self._read(lambda connection: connection.execute(sql, (name,)).fetchone())
        return None if row is None else self._checked(row[0])

    def _get_many(self, keys: tuple[str, ...]) -> dict[str, bytes]:
        objects: dict[bytes, str] = {}
        entries: dict[bytes, str] = {}
        for key in keys:
            raw = raw_key(key)
            if raw is not None:
                objects[raw] = key
            else:
                entries[key.encode()] = key
        if entries and not objects and len(entries) < len(_SOME):
            row = self._read(lambda connection: connection.execute(_SOME[len(entries)], list(entries)).fetchone())
            return {key: self._checked(value) for key, value in zip(keys, row, strict=True) if value is not None}

        def query(connection: Connection) -> dict[str, bytes]:
            found = {}
            for table, names in (("objects", objects), ("entries", entries)):
                for chunk in _chunks(list(names)):
                    marks = ",".join("?" * len(chunk))
                    for raw, value in connection.execute(_GET_SEVERAL.format(table=table, marks=marks), chunk).fetchall():
                        key = names.get(raw)
                        if key is None:
                            # The index says otherwise than the row. A KeyError would mean that there is no such key.
                            raise CorruptStoreError(f"{self._file} is damaged: looking up a key found another, {raw!r}")
                        found[key] = value if type(value) is bytes else self._checked(value)
            return found

        return self._read(query)

    def _sizes(self, keys: tuple[str, ...]) -> dict[str, int]:
        names: dict[str, dict[bytes, str]] = {"objects": {}, "entries": {}}
        for key in keys:
            raw = raw_key(key)
            names["entries" if raw is None else "objects"][key.encode() if raw is None else raw] = key

        def query(connection: Connection) -> dict[str, int]:
            found = {}
            for table, wanted in names.items():
                for chunk in _chunks(list(wanted)):
                    statement = _SIZES.format(table=table, marks=",".join("?" * len(chunk)))
                    found.update({wanted[raw]: size for raw, size in connection.execute(statement, chunk).fetchall() if raw in wanted})
            return found

        return self._read(query)

    def _keys(self, prefix: str) -> Iterator[str]:
        # Page by page, each a query of its own that starts after the last key: no read is open between two steps, and a write
        # in between neither repeats a key nor hides another.
        for raw in self._pages("entries", *text_range(prefix)):
            yield self._text(raw)
        addresses = address_range(prefix)
        if addresses is not None:
            for raw in self._pages("objects", *addresses):
                yield OBJECT_PREFIX + raw.hex()

    def _pages(self, table: str, start: bytes, end: bytes | None) -> Iterator[bytes]:
        bound = "" if end is None else "AND key < :end"
        sql = _LIST.format(table=table, bound=bound)
        bounds = {"start": start, "end": end}
        while True:
            rows = self._read(lambda connection: connection.execute(sql, bounds).fetchall())
            for (raw,) in rows:
                if type(raw) is not bytes:
                    raise self._damaged(raw)
                yield raw
            if len(rows) < _PAGE:
                return
            bounds["start"] = rows[-1][0] + b"\0"  # the next key there can be

    def _page(self, prefix: str, after: str | None, limit: int, reverse: bool) -> list[str]:  # noqa: FBT001 - as it is called
        start, end = page_range(prefix, after, reverse=reverse)
        bounds = (start, limit) if end is None else (start, end, limit)
        sql = _ENTRIES[end is not None, reverse]
        return [self._text(raw) for (raw,) in self._read(lambda connection: connection.execute(sql, bounds).fetchall())]

    def _text(self, raw: bytes) -> str:
        try:
            return raw.decode()
        except (UnicodeDecodeError, AttributeError) as error:  # a bit of its type may have flipped
            raise self._damaged(raw) from error

    def _damaged(self, raw: object) -> CorruptStoreError:
        return CorruptStoreError(f"{self._file} is damaged: it holds a key that is not text, {raw!r}")

    def _apply(
        self, expected: Mapping[str, bytes | None], puts: Mapping[str, bytes], deletes: Collection[str], objects: Mapping[str, bytes]
    ) -> bool:
        rows: list[tuple[bytes, bytes]] = []
        odd_rows: list[tuple[bytes, bytes]] = []
        for key, value in objects.items():
            raw = raw_key(key)
            if raw is not None:
                rows.append((raw, value))
            else:
                odd_rows.append((key.encode(), value))
        expected_keys = [key.encode() for key in expected]
        expected_values = [*expected.values()]
        put_rows = [(key.encode(), value) for key, value in puts.items()]

        def write(connection: Connection) -> bool:
            limit, found = _before(connection, expected_keys)
            used = 0 if limit is None else _used(connection)
            if rows:
                connection.executemany(_ADD_OBJECT, rows)
            if odd_rows:
                connection.executemany(_ADD_ENTRY, odd_rows)
            holds = found == expected_values
            if holds:
                if put_rows:
                    connection.executemany(_PUT_ENTRY, put_rows)
                for key in deletes:
                    raw = raw_key(key)
                    if raw is not None:
                        connection.execute(_DELETE_OBJECT, (raw,))
                    else:
                        connection.execute(_DELETE_ENTRY, (key.encode(),))
            # A batch that adds no page always passes: a limit may be set below the size of the store.
            if limit is not None and _used(connection) > max(used, _room(limit, objects=bool(objects), deletes=bool(deletes))):
                raise StorageFullError(
                    f"{self.path} is at its size limit of {limit} bytes",
                    limit=limit,
                    remains="nothing was written",
                    hint="collect garbage, or open the store with a larger size_limit",
                )
            return holds

        if deletes and self._overwriting:
            return self._write(lambda connection: _overwriting(connection, write))
        return self._write(write)

    def _close(self) -> None:
        # The last connection to close folds the log in, so that one file is left.
        self._pool.close()

    def _read(self, query: Callable[[Connection], T]) -> T:
        """Run ``query`` on a connection of this thread's own, without waiting for any writer."""
        while True:
            connection = self._pool.take()
            fresh = True
            try:
                result = query(connection)
                fresh = self._is_fresh(connection)
                if fresh:
                    return result
            except sqlite3.Error as error:
                fresh = self._is_fresh(connection)
                if fresh:
                    raise sqlite_file.translate(error, self._file) from error
            finally:
                if fresh:
                    self._pool.give(connection)
                else:
                    self._pool.discard(connection)

    def _checked(self, value: object) -> bytes:
        # SQLite keeps any type in any column; a file that somebody else made may make use of that.
        if type(value) is not bytes:
            raise CorruptStoreError(
                f"{self._file} is damaged: it holds a value of type {type(value).__name__}",
                hint="restore it from a backup or another copy",
            )
        return value

    def _is_fresh(self, connection: Connection) -> bool:
        # Only a read-only connection without locks can be overtaken by a writer.
        return connection.stamp is None or connection.stamp == sqlite_file.stamp(self._file)

    def _write(self, work: Callable[[Connection], T], *, transaction: bool = True) -> T:
        """Run ``work`` in one transaction: all of it is done afterwards, or nothing if it raises."""
        if self._closed:
            raise_closed()
        if self._read_only:
            raise ReadOnlyError(f"{self._file} was opened read-only", remains="nothing was written")
        pool = self._pool
        # Threads of this process queue here rather than in SQLite, which would poll.
        if not pool.writing.acquire(self._timeout):
            raise StoreBusyError(
                f"{self._file} is held by another thread, or by a call that this one is made within", remains="nothing was written"
            )
        connection = None
        try:
            connection = pool.take_writer()
            # SQLite would go on writing to a file that has no name any more.
            if _identity(self._name) != self._identity:
                raise StoreNotFoundError(
                    f"{self._file} was removed or replaced while it was open",
                    remains="nothing was written",
                    hint="open the store again: there is another one now, or none",
                )
            self._log.check(connection)
            if transaction:
                connection.execute("BEGIN IMMEDIATE")
            result = work(connection)
            if transaction:
                connection.execute("COMMIT")
            self._log.note()
        except BaseException as error:
            if connection is not None and connection.in_transaction:
                connection.execute("ROLLBACK")
            if isinstance(error, (sqlite3.Error, OverflowError)):
                raise sqlite_file.translate(error, self._file) from error
            raise
        finally:
            if connection is not None:
                pool.give(connection)
            pool.writing.release()
        return result


def _identity(name: str) -> tuple[int, int] | None:
    """Which file of the system has that name; None where none has."""
    try:
        found = os.stat(name)  # noqa: PTH116 - a Path takes three times as long, and each write asks
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _overwriting(connection: Connection, write: Callable[[Connection], T]) -> T:
    """The result of a write whose deletions overwrite the deleted bytes."""
    with sqlite_file.overwriting(connection):
        return write(connection)


def _before(connection: Connection, keys: list[bytes]) -> tuple[int | None, list[bytes | None]]:
    """The size limit, and the values of the entries ``keys``; None for each that does not exist."""
    if len(keys) < len(_BEFORE):
        stored, *found = connection.execute(_BEFORE[len(keys)], keys).fetchone()
        return _checked_limit(stored), found
    rows = [connection.execute(_GET_ENTRY, (key,)).fetchone() for key in keys]
    return _limit(connection), [None if row is None else row[0] for row in rows]


def _limit(connection: Connection) -> int | None:
    row = connection.execute(_LIMIT).fetchone()
    return None if row is None else _checked_limit(row[0])


def _checked_limit(stored: object) -> int | None:
    return stored if isinstance(stored, int) and stored > 0 else None


def _used(connection: Connection) -> int:
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    (free,) = connection.execute("PRAGMA freelist_count").fetchone()
    (page_bytes,) = connection.execute("PRAGMA page_size").fetchone()
    used: int = (pages - free) * page_bytes
    return used


def _room(limit: int, *, objects: bool, deletes: bool) -> int:
    """How many bytes may be in use after a batch: the reserve is for those that add no object.

    Half of it takes refs, so that branches can be moved in a full store; the other half is left to
    batches that delete, which SQLite may need a few pages for before it frees many.
    """
    reserve = 64 * 1024 + limit // 64
    if objects:
        return limit - reserve
    return limit if deletes else limit - reserve // 2


def _chunks(raws: list[bytes]) -> Iterator[list[bytes]]:
    """Lists of a few fixed lengths, so that SQLite sees few statements: the last is filled up with its last key."""
    for start in range(0, len(raws), _CHUNK):
        chunk = raws[start : start + _CHUNK]
        length = next(size for size in (1, 4, 16, _CHUNK) if size >= len(chunk))
        yield chunk + chunk[-1:] * (length - len(chunk))


def _checked_path(path: str | os.PathLike[str]) -> Path:
    text: str | bytes = os.fspath(path)
    if not isinstance(text, str) or not text or "\0" in text:
        raise InvalidArgumentError(f"not a path for a store: {path!r}")
    return Path(text)
