"""The one SQLite file of a `Disk` store: making it, opening it, and checking that it is ours.

A file that somebody else made is never changed: what it says of itself is read without locks or a
journal before SQLite gets to open it for use. Errors of the driver are translated here.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Literal

from versioned_state.errors import (
    CorruptStoreError,
    FormatError,
    LimitExceededError,
    NotAStoreError,
    ReadOnlyError,
    StateError,
    StorageError,
    StorageFullError,
    StoreBusyError,
    StoreNotFoundError,
)

Durability = Literal["process", "power"]

FILE_NAME = "store.sqlite3"
_UNFINISHED_PREFIX = ".store.sqlite3."  # a file in the making; left behind only by a crash

_APPLICATION_ID = 0x76737461  # "vsta"
_SCHEMA_VERSION = 1

# `objects` is a rowid table: new rows go to its end, so a commit touches few pages (twice as fast as
# WITHOUT ROWID for values of 4 KB). `entries` holds the few mutable keys, whose rows are small and
# rewritten in place. Keys are bytes, which SQLite orders as memcmp does, NUL and all.
_SCHEMA = """
CREATE TABLE objects(key BLOB NOT NULL UNIQUE, value BLOB NOT NULL);
CREATE TABLE entries(key BLOB NOT NULL PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE settings(name TEXT NOT NULL PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
"""

# A checkpoint copies the WAL's pages into the file and waits for the disk: it is the slowest commit
# of a thousand. 2,000 pages make it half as frequent as SQLite's default, and pages written twice
# are copied once; the WAL then stays around 8 MB. One that a huge batch blew up is cut back.
_CHECKPOINT_PAGES = 2000
_WAL_BYTES_KEPT = 16 * 1024 * 1024
_PAGE_CACHE_KIB = 8 * 1024


class Connection(sqlite3.Connection):
    """A connection that may know the state of the files that it is good for (see `connect_read_only`)."""

    stamp: Stamp | None = None


Stamp = tuple[int, int, int]
"""Inode, size and time of change of a store's file while there is no WAL beside it."""


def prepare(directory: Path, *, create: bool) -> Path:
    """The store's file in `directory`, made with its tables if there is none and `create` says so.

    Raises `StoreNotFoundError` where there is nothing and nothing is to be made, `NotAStoreError`
    where there is something else. Two processes may make the same store at once: one file wins.
    """
    file = directory / FILE_NAME
    with _os_errors(directory):
        if file.is_symlink() or (file.exists() and not file.is_file()):
            raise NotAStoreError(f"{file} is not a regular file; it was not touched")
        if file.exists():
            return file
        if directory.exists() and not directory.is_dir():
            raise NotAStoreError(f"{directory} is not a directory: a store is a directory; it was not touched")
        if directory.exists() and any(not other.name.startswith(_UNFINISHED_PREFIX) for other in directory.iterdir()):
            raise NotAStoreError(
                f"{directory} holds other files and no store; nothing was touched",
                hint="a new store wants a directory of its own",
            )
        if not create:
            raise StoreNotFoundError(f"there is no store at {directory}; nothing was made")
        _make_directory(directory)
        _make_file(directory, file)
    return file


def connect(file: Path, *, durability: Durability, timeout: float) -> Connection:
    """Open an existing store for reading and writing, after checking that it is one."""
    connection = _open_checked(file, "mode=rw", timeout)
    try:
        with translated(file):
            # Kept in the file, so this changes one only that was switched by hand or by a backup tool.
            (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
            if mode != "wal":
                raise StorageError(f"{file} cannot be used here: its file system offers no shared memory (WAL)")
            connection.executescript(
                f"PRAGMA synchronous = {'FULL' if durability == 'power' else 'NORMAL'};"
                f"PRAGMA fullfsync = {int(durability == 'power')};"
                f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES};"
                f"PRAGMA journal_size_limit = {_WAL_BYTES_KEPT};"
            )
    except BaseException:
        connection.close()
        raise
    return connection


def connect_read_only(file: Path, *, timeout: float) -> Connection:
    """Open an existing store for reading, and write nothing where that can be had.

    Where there is no WAL the file holds everything: it is opened as immutable, without locks or
    shared memory, which works on a read-only mount and leaves no trace. A writer may come later, so
    the connection carries the stamp of the file; a result counts only if the stamp is still the same
    after the read. Where there is a WAL a writer is at work, or was killed: SQLite's own protocol is
    used, which needs its shared memory file, there already if the writer lives.
    """
    while (before := stamp(file)) is not None:
        try:
            connection = _open_checked(file, "mode=ro&immutable=1", timeout)
        except StorageError:
            if stamp(file) == before:
                raise
            continue
        if stamp(file) == before:
            connection.stamp = before
            return connection
        connection.close()
    try:
        return _open_checked(file, "mode=ro", timeout)
    except StateError as error:
        if _code(error.__cause__) & 0xFF in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY):
            raise StorageError(
                f"{file} has a log that was not finished, and its directory cannot be written; nothing was read",
                hint="open it once where it can be written, or copy the whole directory and open the copy",
            ) from error.__cause__
        raise


def stamp(file: Path) -> Stamp | None:
    """What tells one state of the file from another, or None where there is a WAL with something in it."""
    with suppress(FileNotFoundError):
        if file.with_name(f"{FILE_NAME}-wal").stat().st_size:
            return None
    with _os_errors(file):
        found = file.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns


def is_private(directory: Path, file: Path) -> bool:
    """Whether only this user can write there: what may decide that reading it back runs code.

    As git does for `safe.directory`, the owner counts: directory and file must be this user's. As
    ssh does for its keys, neither may be writable by group or others. No directory above may be
    writable by everyone unless it is sticky, as /tmp is, or others could put a directory in this
    one's place. Above, group-writable is let pass: with a umask of 002, the default of several
    systems, the group is the user's own. False where there are no such permissions (Windows).
    """
    if not hasattr(os, "geteuid"):
        return False
    real = Path(os.path.realpath(directory))
    try:
        for path in (real, real / file.name):
            found = path.lstat()
            if found.st_uid != os.geteuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                return False
        for path in real.parents:
            found = path.stat()
            if found.st_uid not in (0, os.geteuid()) or (found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX):
                return False
    except OSError:
        return False
    return True


@contextmanager
def translated(file: Path) -> Iterator[None]:
    """Turn the driver's errors into ours."""
    try:
        yield
    except sqlite3.Error as error:
        raise translate(error, file) from error


# What an error of the driver means for the caller: its kind, what to say after the file's name, the way out.
_MEANINGS: dict[int, tuple[type[StateError], str, str]] = {
    sqlite3.SQLITE_BUSY: (StoreBusyError, "is held by another writer; nothing was written", "try again, or open it with a longer timeout"),
    sqlite3.SQLITE_FULL: (
        StorageFullError,
        "has no room: the disk is full; nothing was written",
        "make room on the disk, or collect garbage",
    ),
    sqlite3.SQLITE_CORRUPT: (CorruptStoreError, "is damaged; nothing was written", "restore it from a backup or another copy"),
    sqlite3.SQLITE_NOTADB: (NotAStoreError, "is not a store, or its first page is damaged; it was not touched", ""),
    sqlite3.SQLITE_READONLY: (ReadOnlyError, "cannot be written; nothing was written", ""),
    sqlite3.SQLITE_CANTOPEN: (StorageError, "cannot be opened", "where it cannot be written, open it with read_only=True"),
}
_MEANINGS[sqlite3.SQLITE_LOCKED] = _MEANINGS[sqlite3.SQLITE_PROTOCOL] = _MEANINGS[sqlite3.SQLITE_BUSY]
# No room for the shared memory file, which is made when the store is opened.
_MEANINGS[sqlite3.SQLITE_IOERR_SHMSIZE] = _MEANINGS[sqlite3.SQLITE_FULL]
_UNKNOWN: tuple[type[StateError], str, str] = (StorageError, "failed; nothing was half written", "")


def translate(error: sqlite3.Error | OverflowError, file: Path) -> StateError:
    """The error of ours that says what the driver's error means for the caller."""
    code = _code(error)
    # Values beyond 1 GB, and in Python's own check beyond 2 GB.
    if code == sqlite3.SQLITE_TOOBIG or isinstance(error, (sqlite3.DataError, OverflowError)):
        return LimitExceededError("a value", limit=1_000_000_000)
    if isinstance(error, sqlite3.OperationalError) and "decode to UTF-8" in str(error):
        # Text where bytes belong, which only somebody else could have put there.
        code = sqlite3.SQLITE_CORRUPT
    kind, message, hint = _MEANINGS.get(code) or _MEANINGS.get(code & 0xFF) or _UNKNOWN
    return kind(f"{file} {message} ({error})", hint=hint)


def _code(error: BaseException | None) -> int:
    # Not every error of the module comes from SQLite; one that does not carries no code.
    code: int = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    return code


def _open(file: Path, mode: str, timeout: float) -> Connection:
    with translated(file):
        return sqlite3.connect(
            f"{file.absolute().as_uri()}?{mode}",
            uri=True,
            timeout=timeout,
            isolation_level=None,  # transactions are begun and ended by Disk alone
            check_same_thread=False,  # the pool hands a connection to one thread at a time
            factory=Connection,
        )


def _open_checked(file: Path, mode: str, timeout: float) -> Connection:
    _check_header(file)
    connection = _open(file, mode, timeout)
    try:
        with translated(file):
            _set_guards(connection)
            _check_schema(connection, file)
    except BaseException:
        connection.close()
        raise
    return connection


def _set_guards(connection: Connection) -> None:
    # For a file that somebody else made: no functions out of a schema, checked cells, and no mapped
    # memory, which would turn a truncated file into a crash.
    connection.executescript(
        f"PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON; PRAGMA mmap_size = 0;PRAGMA cache_size = -{_PAGE_CACHE_KIB};"
    )


def _check_header(file: Path) -> None:
    """Refuse a file that is not ours, or newer, without touching it.

    Not by open() and read(): closing any descriptor of a file drops the POSIX locks that SQLite holds
    on it in this process. An immutable connection takes no lock, makes no journal and replays none.
    """
    probe = _open(file, "mode=ro&immutable=1", 0)
    with closing(probe):
        try:
            (application,) = probe.execute("PRAGMA application_id").fetchone()
            (version,) = probe.execute("PRAGMA user_version").fetchone()
        except sqlite3.DatabaseError as error:
            # While a checkpoint is under way, or after one was cut short, the file alone may look
            # damaged; the WAL mends it. Whoever opens it in earnest finds out.
            if _code(error) & 0xFF == sqlite3.SQLITE_CORRUPT:
                return
            raise translate(error, file) from error
    _check_version(application, version, file)


def _check_schema(connection: Connection, file: Path) -> None:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    _check_version(application, version, file)
    found = _schema_of(connection)
    # A trigger or view would run statements of whoever planted it; a changed table could do so too.
    if strange := found - _own_schema():
        names = ", ".join(sorted(f"{kind} {name!r}" for kind, name, _, _ in strange))
        raise NotAStoreError(f"{file} holds what this library did not make ({names}); it was not touched")
    if missing := _own_schema() - found:
        names = ", ".join(sorted(name for _, name, _, _ in missing))
        raise CorruptStoreError(
            f"{file} is damaged: it has no {names}; nothing was changed", hint="restore it from a backup or another copy"
        )


def _check_version(application: int, version: int, file: Path) -> None:
    if application != _APPLICATION_ID:
        raise NotAStoreError(f"{file} is a database of another program; it was not touched")
    if version > _SCHEMA_VERSION:
        raise FormatError(version, _SCHEMA_VERSION)


_SchemaRow = tuple[str, str, str, str | None]


def _schema_of(connection: sqlite3.Connection) -> frozenset[_SchemaRow]:
    return frozenset(connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema").fetchall())


@lru_cache(maxsize=1)
def _own_schema() -> frozenset[_SchemaRow]:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(_SCHEMA)
        return _schema_of(connection)


def _make_directory(directory: Path) -> None:
    # Path.mkdir(parents=True) would give the parents the default mode.
    for path in (*reversed(directory.parents), directory):
        if not path.exists():
            path.mkdir(mode=0o700, exist_ok=True)


def _make_file(directory: Path, file: Path) -> None:
    """Make the file whole under another name, then give it its own in one step.

    A crash leaves no half-made store, and of two processes one wins and the other opens what it made.
    """
    unfinished = directory / f"{_UNFINISHED_PREFIX}{os.getpid()}.{os.urandom(4).hex()}"
    descriptor = os.open(unfinished, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    try:
        os.close(descriptor)
        with translated(unfinished), closing(sqlite3.connect(unfinished, isolation_level=None)) as connection:
            # No journal and no waiting: the file is nobody's until it is linked, and synced before.
            connection.executescript(
                "PRAGMA synchronous = OFF; PRAGMA journal_mode = OFF;"
                f"PRAGMA application_id = {_APPLICATION_ID}; PRAGMA user_version = {_SCHEMA_VERSION};"
                f"BEGIN; {_SCHEMA} COMMIT; PRAGMA journal_mode = WAL;"
            )
        _sync(unfinished)
        try:
            os.link(unfinished, file)
        except FileExistsError:
            pass
        except OSError:
            # A file system without links. Between the check and the rename a store made by another
            # process could be lost, which is then as empty as this one.
            if not file.exists():
                unfinished.rename(file)
        _sync(directory)
    finally:
        unfinished.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    if path.is_dir() and os.name == "nt":
        return  # Windows opens no directory
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _os_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise StoreNotFoundError(f"there is no store at {path}; nothing was made") from error
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StorageFullError(f"no room for a store at {path}; nothing was made") from error
        raise StorageError(f"{path} cannot be used: {error.strerror or error}; nothing was made") from error
