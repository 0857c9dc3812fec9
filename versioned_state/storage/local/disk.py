"""``Disk``, the default for persistence: a directory with one SQLite file in WAL mode. Layer: storage.

This module has the statements and transactions. ``sqlite_file`` makes and checks the file, ``pool`` holds its
connections, ``log_guard`` watches its log, ``log_sync`` syncs it, and ``size_limits`` decides whether a batch fits. A
commit is one transaction.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, Final, TypeVar
from weakref import finalize

from versioned_state.arguments import one_of
from versioned_state.errors import (
    CorruptStoreError,
    InvalidArgumentError,
    ReadOnlyError,
    StateError,
    StorageError,
    StorageFullError,
    StoreBusyError,
    StoreNotFoundError,
    UnknownOutcomeError,
)
from versioned_state.storage.backend import Backend
from versioned_state.storage.byte_keys import ByteRange, listed, page_range, raw_key, split_keys
from versioned_state.storage.local import derived, log_sync, mounts, size_limits, sqlite_file
from versioned_state.storage.local.log_guard import LogGuard
from versioned_state.storage.local.log_sync import LogSync, OpenLog
from versioned_state.storage.local.pool import Pool
from versioned_state.storage.local.sqlite_file import Connection, Durability

T = TypeVar("T")

_GET_OBJECT = "SELECT value FROM objects WHERE key = ?"
_GET_ENTRY = "SELECT value FROM entries WHERE key = ?"
_ADD_OBJECT = "INSERT OR IGNORE INTO objects(key, value) VALUES(?, ?)"
_ADD_ENTRY = "INSERT OR IGNORE INTO entries(key, value) VALUES(?, ?)"
_PUT_ENTRY = "INSERT OR REPLACE INTO entries(key, value) VALUES(?, ?)"
_DELETE_OBJECT = "DELETE FROM objects WHERE key = ?"
_DELETE_ENTRY = "DELETE FROM entries WHERE key = ?"

# What a batch reads before it writes: the limit and the expected entries, in one statement per number of entries.
_BEFORE = [f"SELECT ({size_limits.SELECT}){f', ({_GET_ENTRY})' * count}" for count in range(9)]

# Reads a few entries, such as those of a branch, at half the cost of a query by a list of keys.
_SOME = [f"SELECT {', '.join([f'({_GET_ENTRY})'] * count)}" for count in range(5)]

# Objects in one query of get_many; each number of placeholders is a statement of its own, see _chunks. On a new
# connection a longer statement costs more to prepare than it saves: 285 objects take 0.92 ms by 64, 1.08 ms by 256, 1.6
# ms one by one.
_CHUNK = 64
# repeated keys that fill up to the next of these cost a third of another key each
_LENGTHS = (1, 2, 4, 8, 16, 24, 32, 48, _CHUNK)
_GET_SEVERAL = {
    (table, length): f"SELECT key, value FROM {table} WHERE key IN ({','.join('?' * length)})"  # noqa: S608 - constants
    for table in ("objects", "entries")
    for length in _LENGTHS
}
# the header of a row has the length: no overflow page is read
_SIZES = "SELECT key, length(value) FROM {table} WHERE key IN ({marks})"

# Keys in one step of a listing.
_PAGE = 1000


class Disk(Backend):
    """The store in the directory ``path``, which is made with mode 0700, parents too, if it does not exist.

    ``size_limit``, in bytes, is kept in the store and applies to everyone who opens it; 0 removes the limit. It counts
    the pages in use. A batch that would exceed it raises ``StorageFullError`` and changes nothing. The last few percent
    are a reserve that objects cannot use, so that refs can still be moved and garbage deleted. Nothing is ever evicted.

    ``durability``: acknowledged writes always survive the death of the process. After a power loss the store has a
    prefix of the acknowledged writes (``"process"``) or all of them (``"power"``, which waits for the disk at each
    write; writes that wait at the same time share one sync). With either, others read a write before it is on the disk,
    and it reaches the disk after all that came before it. If the disk fails meanwhile, ``UnknownOutcomeError``, and
    every call raises ``StorageError`` until the disk takes the log again.

    ``read_only=True`` also opens a read-only mount, and writes nothing; writes raise ``ReadOnlyError``. With
    ``create=False`` or ``read_only``, a missing store raises ``StoreNotFoundError``. A directory with other content, or
    a file of another program, raises ``NotAStoreError`` and is not touched; a store of a newer release raises
    ``FormatError``.

    ``timeout``: seconds to wait for other writers before ``StoreBusyError``.

    A network file system raises ``UnsafeStoreError`` if the operating system can recognise it (Linux), because two
    machines that write there destroy the store. Pass ``allow_network=True`` if only one machine ever opens the store.
    ``read_only`` works on a network file system too, while nobody writes.

    Any number of processes and threads on one machine may open the directory. Reads never wait for writes. A fork is
    safe: parent and child each open the file again.
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
        one_of("durability", durability, ("process", "power"))
        if size_limit is not None:
            if read_only:
                raise InvalidArgumentError("size_limit cannot be set by a read-only opener")
            least = size_limits.MIN_SIZE_LIMIT
            if type(size_limit) is not int or 0 != size_limit < least:
                raise InvalidArgumentError(
                    f"size_limit must be a number of bytes, at least {least}, or 0 for none: {size_limit!r}"
                )
        timeout = sqlite_file.checked_timeout(timeout)
        self.path: Final = sqlite_file.checked_path(path)
        self._timeout = timeout
        self._read_only = read_only
        if not (read_only or allow_network):
            mounts.check_local(self.path)
        file = self._file = sqlite_file.prepare(self.path, create=create and not read_only)
        self.private: bool = sqlite_file.is_private(self.path, file)
        self._name = str(file)
        self._identity = _identity(self._name)
        log = self._log = LogGuard(file)
        shares_syncs = durability == "power" and not read_only and log_sync.SUPPORTED
        self._log_sync = LogSync(file)
        self._syncs = self._log_sync if shares_syncs else None
        self._unsynced = not read_only and self._log_sync.is_marked()
        self._overwriting = 0

        def connect() -> Connection:
            if read_only:
                return sqlite_file.connect_read_only(file, timeout=timeout)
            log.forget()
            return sqlite_file.connect(file, durability=durability, timeout=timeout, syncs_commits=not shares_syncs)

        self._pool = Pool(connect)
        # Closes a store that its owner did not close, when it is collected or at exit.
        self._finalizer = finalize(self, self._pool.close)
        try:
            stored = self.size_limit or 0
            if size_limit is not None and size_limit != stored:
                self._write(lambda connection: size_limits.write(connection, size_limit))
        except BaseException:
            self.close()
            raise

    def __repr__(self) -> str:
        return f"<Disk {str(self.path)!r}{' read-only' if self._read_only else ''}>"

    @property
    def size_limit(self) -> int | None:
        """The limit kept in the store, in bytes, or None if there is none."""
        return self._read(size_limits.read)

    @property
    def derived(self) -> Path | None:
        """The folder for files with data derived from the content, or None if the store is open for reading only.

        See ``derived``.
        """
        return None if self._read_only else self.path / derived.FOLDER

    def drop_derived(self, sources: Collection[str] | None = None) -> None:
        folder = self.path / derived.FOLDER
        for file in (
            folder.glob("*.sqlite3") if sources is None else (derived.file_of(folder, source) for source in sources)
        ):
            derived.erase_derived(file)

    def size(self) -> int:
        """Return bytes in use: the pages that are not free, including those in the log."""
        return self._read(size_limits.used_bytes)

    def compact(self, *, secure: bool = False) -> int:
        """Rewrite the file without the gaps that deletions left, and return by how many bytes ``size()`` fell.

        A page stays in use while one object is left on it, so a gc frees all its space only after this call. It takes
        as long as copying the store, and meanwhile needs space for a copy in the log and in the system's folder for
        temporary files. Writers wait for it; readers do not.

        ``secure``: also erase deleted data from free pages, from the unused parts of pages, and from the log. If a
        reader does not end in
        time, this raises ``StoreBusyError``: the store is compact, but its log still holds deleted bytes.
        """

        def rewrite(connection: Connection) -> int:
            before = size_limits.used_bytes(connection)
            # SQLite reuses memory that held other pages; this makes it clear that memory, for the copy as well.
            with sqlite_file.overwriting(connection) if secure else nullcontext():
                connection.execute("VACUUM")
            # If a reader holds the log, SQLite folds it in later.
            with nullcontext() if secure else suppress(StoreBusyError):
                self._fold(connection)
            return before - size_limits.used_bytes(connection)

        return self._write(rewrite, transaction=False)

    @contextmanager
    def overwriting(self) -> Iterator[None]:
        """Overwrite the deleted bytes in the file at every deletion of this store within the block.

        ``truncate_log`` empties the log.

        Bytes that SQLite copied to another page earlier, or deleted outside of such a block, stay until
        ``compact(secure=True)``.
        """
        self._overwriting += 1
        try:
            yield
        finally:
            self._overwriting -= 1

    def truncate_log(self) -> None:
        """Fold the log, which may hold deleted data, into the file, and truncate it.

        Raises ``StoreBusyError`` if a reader holds it.
        """
        self._write(self._fold, transaction=False)

    def _fold(self, connection: Connection) -> None:
        ((busy, *_),) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        if busy:
            raise StoreBusyError(
                f"a reader holds the log of {self._file}, which has deleted data in it",
                remains="everything else was done",
                hint="let the reader end, and compact the store",
            )

    def _get(self, key: str) -> bytes | None:
        raw = raw_key(key)
        sql, name = (_GET_OBJECT, raw) if raw is not None else (_GET_ENTRY, key.encode())
        row = self._read(lambda connection: connection.execute(sql, (name,)).fetchone())
        return None if row is None else self._checked(row[0])

    def _get_many(self, keys: tuple[str, ...]) -> dict[str, bytes]:
        objects, entries = split_keys(keys)
        if entries and not objects and len(entries) < len(_SOME):
            row = self._read(lambda connection: connection.execute(_SOME[len(entries)], list(entries)).fetchone())
            return {key: self._checked(value) for key, value in zip(keys, row, strict=True) if value is not None}

        def query(connection: Connection) -> dict[str, bytes]:
            found = {}
            for table, names in (("objects", objects), ("entries", entries)):
                for chunk in _chunks(list(names)):
                    for raw, value in connection.execute(_GET_SEVERAL[table, len(chunk)], chunk).fetchall():
                        key = names.get(raw)
                        if key is None:
                            # The index and the row differ. A KeyError would mean that there is no such key.
                            raise CorruptStoreError(f"{self._file} is damaged: looking up a key found another, {raw!r}")
                        found[key] = value if type(value) is bytes else self._checked(value)
            return found

        return self._read(query)

    def _sizes(self, keys: tuple[str, ...]) -> dict[str, int]:
        objects, entries = split_keys(keys)

        def query(connection: Connection) -> dict[str, int]:
            found = {}
            for table, wanted in (("objects", objects), ("entries", entries)):
                for chunk in _chunks(list(wanted)):
                    statement = _SIZES.format(table=table, marks=",".join("?" * len(chunk)))
                    found.update(
                        {
                            wanted[raw]: size
                            for raw, size in connection.execute(statement, chunk).fetchall()
                            if raw in wanted
                        }
                    )
            return found

        return self._read(query)

    def _keys(self, prefix: str) -> Iterator[str]:
        # Each page is a query of its own that starts after the last key: no read is open between two steps, and a write
        # in between neither repeats a key nor hides one.
        return listed(prefix, self._pages, self._text)

    def _pages(self, table: str, start: bytes, end: bytes | None) -> Iterator[bytes]:
        while True:
            rows = self._rows("key", table, (start, end), _PAGE)
            for (raw,) in rows:
                if type(raw) is not bytes:
                    raise self._damaged(raw)
                yield raw
            if len(rows) < _PAGE:
                return
            start = rows[-1][0] + b"\0"  # the next possible key

    def _page(self, prefix: str, after: str | None, limit: int, *, reverse: bool) -> list[str]:
        rows = self._rows("key", "entries", page_range(prefix, after, reverse=reverse), limit, reverse=reverse)
        return [self._text(raw) for (raw,) in rows]

    def _page_items(self, prefix: str, after: str | None, limit: int, *, reverse: bool) -> dict[str, bytes | None]:
        rows = self._rows("key, value", "entries", page_range(prefix, after, reverse=reverse), limit, reverse=reverse)
        return {self._text(raw): self._checked(value) for raw, value in rows}

    def _rows(self, columns: str, table: str, span: ByteRange, limit: int, *, reverse: bool = False) -> list[Any]:
        start, end = span
        above, order = "" if end is None else "AND key < ?", "DESC" if reverse else ""
        sql = f"SELECT {columns} FROM {table} WHERE key >= ? {above} ORDER BY key {order} LIMIT ?"  # noqa: S608 - constants
        bounds = (start, limit) if end is None else (start, end, limit)
        return self._read(lambda connection: connection.execute(sql, bounds).fetchall())

    def _text(self, raw: bytes) -> str:
        try:
            return raw.decode()
        except (UnicodeDecodeError, AttributeError) as error:  # a flipped bit may have changed its type
            raise self._damaged(raw) from error

    def _damaged(self, raw: object) -> CorruptStoreError:
        return CorruptStoreError(f"{self._file} is damaged: it holds a key that is not text, {raw!r}")

    def _apply(
        self,
        expected: Mapping[str, bytes | None],
        puts: Mapping[str, bytes],
        deletes: Collection[str],
        objects: Mapping[str, bytes],
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
        gone, gone_entries = split_keys(deletes)

        def write(connection: Connection) -> bool:
            limit, found = _before(connection, expected_keys)
            used = 0 if limit is None else size_limits.used_bytes(connection)
            if rows:
                connection.executemany(_ADD_OBJECT, rows)
            if odd_rows:
                connection.executemany(_ADD_ENTRY, odd_rows)
            holds = found == expected_values
            if holds:
                if put_rows:
                    connection.executemany(_PUT_ENTRY, put_rows)
                if deletes:
                    connection.executemany(_DELETE_OBJECT, ((raw,) for raw in gone))
                    connection.executemany(_DELETE_ENTRY, ((raw,) for raw in gone_entries))
            # A batch that adds no page always fits: a limit may be set below the size of the store.
            if limit is not None and size_limits.used_bytes(connection) > max(
                used, size_limits.allowed_bytes(limit, objects=bool(objects), deletes=bool(deletes))
            ):
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
        # Closing the last connection folds the log in, so that one file is left.
        self._pool.close()
        self._log_sync.close()

    def _read(self, query: Callable[[Connection], T]) -> T:
        """Run ``query`` on a connection of this thread's own, without waiting for any writer."""
        if self._unsynced:
            self._repair("nothing was read")
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
        # SQLite keeps any type in any column, and another program may have written the file.
        if type(value) is not bytes:
            raise CorruptStoreError(
                f"{self._file} is damaged: it holds a value of type {type(value).__name__}",
                hint="restore it from a backup or another copy",
            )
        return value

    def _is_fresh(self, connection: Connection) -> bool:
        # A writer can come between only on a read-only connection, which takes no locks.
        return connection.stamp is None or connection.stamp == sqlite_file.stamp(self._file)

    def _write(self, work: Callable[[Connection], T], *, transaction: bool = True) -> T:
        """Run ``work`` in one transaction: all of it is done, or nothing if it raises."""
        if self._closed or self._read_only or self._unsynced:
            self._begin_to_write()
        pool = self._pool
        # Threads of this process queue here rather than in SQLite, which would poll.
        if not pool.writing.acquire(self._timeout):
            raise StoreBusyError(f"{self._file} is held by another thread, or by an outer call of this thread")
        connection = log = None
        try:
            connection = pool.take_writer()
            # SQLite would keep writing to a file that no longer has a name.
            if _identity(self._name) != self._identity:
                raise StoreNotFoundError(
                    f"{self._file} was removed or replaced while it was open",
                    remains="nothing was written",
                    hint="open the store again",
                )
            self._log.check(connection)
            if transaction:
                connection.execute("BEGIN IMMEDIATE")
            if self._syncs is not None:
                log = self._syncs.open()
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
        # Others write meanwhile. After a refused batch there is nothing to acknowledge: its objects are synced with the
        # next one.
        if log is not None and result is not False:
            self._sync(log)
        return result

    def _begin_to_write(self) -> None:
        self._check_open()
        if self._read_only:
            raise ReadOnlyError(f"{self._file} was opened read-only", remains="nothing was written")
        self._repair("nothing was written")

    def _sync(self, log: OpenLog) -> None:
        """Wait until the log is on the disk, up to the last write of this call."""
        try:
            log.sync()
        except OSError as error:
            if not self._log_sync.fail(log):
                return
            self._unsynced = True
            try:
                self._repair("")
            except StateError as failure:
                raise UnknownOutcomeError(
                    f"the disk failed to sync the log of {self._file} ({error.strerror or error})",
                    remains="the write was done, and a loss of power may undo it",
                    hint="the next call tries to write the log again; "
                    "if it fails too, close the store and look at the disk",
                ) from failure

    def _repair(self, remains: str) -> None:
        """Write the log again after a sync that failed, here or in a process that died.

        Until then, the disk may not have what the store shows.
        """
        pool = self._pool
        if not pool.writing.acquire(self._timeout):
            raise StoreBusyError(
                f"{self._file} is held by another thread, or by an outer call of this thread", remains=remains
            )
        connection = None
        try:
            if not self._unsynced:
                return  # another call has done it
            connection = pool.take_writer()
            self._log_sync.repair(connection)
            self._unsynced = False
        except (OSError, sqlite3.Error) as error:
            raise StorageError(
                f"the disk failed to sync the log of {self._file}, and fails again "
                f"({getattr(error, 'strerror', None) or error})",
                remains=remains,
                hint="look at the disk; "
                "read_only=True reads the store, of which a loss of power may undo the last commits",
            ) from error
        finally:
            if connection is not None:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                pool.give(connection)
            pool.writing.release()


def _identity(name: str) -> tuple[int, int] | None:
    """Return the device and inode of the file with this name, or None if there is none."""
    try:
        found = os.stat(name)  # noqa: PTH116 - a Path takes three times as long, and each write asks
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _overwriting(connection: Connection, write: Callable[[Connection], T]) -> T:
    """Run a write whose deletions overwrite the deleted bytes."""
    with sqlite_file.overwriting(connection):
        return write(connection)


def _before(connection: Connection, keys: list[bytes]) -> tuple[int | None, list[bytes | None]]:
    """Return the size limit, and the values of the entries ``keys``, or None for each that does not exist."""
    if len(keys) < len(_BEFORE):
        stored, *found = connection.execute(_BEFORE[len(keys)], keys).fetchone()
        return size_limits.parse(stored), found
    rows = [connection.execute(_GET_ENTRY, (key,)).fetchone() for key in keys]
    return size_limits.read(connection), [None if row is None else row[0] for row in rows]


def _chunks(raws: list[bytes]) -> Iterator[list[bytes]]:
    """Split into lists of a few fixed lengths, so that SQLite prepares few statements.

    The last list repeats its last key to fill up.
    """
    for start in range(0, len(raws), _CHUNK):
        chunk = raws[start : start + _CHUNK]
        length = next(size for size in _LENGTHS if size >= len(chunk))
        yield chunk + chunk[-1:] * (length - len(chunk))
