"""The SQLite file of a ``Disk`` or ``DiskCache`` store: making, opening and checking it, and translating its errors.

Layer: storage.

A file of another program is never changed: its header is read without locks or a journal before SQLite opens it for
use.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Literal

from versioned_state.arguments import seconds
from versioned_state.errors import (
    CorruptStoreError,
    FormatError,
    InvalidArgumentError,
    LimitExceededError,
    NotAStoreError,
    ReadOnlyError,
    StateError,
    StorageError,
    StorageFullError,
    StoreBusyError,
    StoreNotFoundError,
    UnsafeStoreError,
)
from versioned_state.records import dataclass

Durability = Literal["process", "power"]

# SQLite counts milliseconds in 32 bits. This is eleven days.
LONGEST_TIMEOUT_S = 1_000_000.0


@dataclass(frozen=True, slots=True)
class Layout:
    """The file name of a kind of store, the numbers in the file's header, and its tables."""

    file_name: str
    application_id: int
    version: int
    make_tables: Callable[[sqlite3.Connection], object]

    @property
    def unfinished_prefix(self) -> str:
        """The beginning of the name of an unfinished file. Only a crash leaves one behind."""
        return f".{self.file_name}."


# ``objects`` is a rowid table: new rows go to its end, so a commit touches few pages (twice as fast as
# WITHOUT ROWID for values of 4 KB). ``entries`` holds the few mutable keys, whose rows are small and
# rewritten in place. Keys are bytes, which SQLite orders as memcmp does, NUL and all.
_SCHEMA = """
CREATE TABLE objects(key BLOB NOT NULL UNIQUE, value BLOB NOT NULL);
CREATE TABLE entries(key BLOB NOT NULL PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE settings(name TEXT NOT NULL PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
"""

# "vsta"
DISK = Layout("store.sqlite3", 0x76737461, 1, lambda connection: connection.executescript(f"BEGIN; {_SCHEMA} COMMIT;"))

# A checkpoint copies the WAL's pages into the file and waits for the disk, so its commit is the slowest one in a
# thousand. 2,000 pages make it half as frequent as SQLite's default, and a page that was written twice is copied once.
# The WAL then stays around 8 MB; after a huge batch it may be larger, and is truncated.
_CHECKPOINT_PAGES = 2000
_WAL_BYTES_KEPT = 16 * 1024 * 1024
_PAGE_CACHE_KIB = 8 * 1024

# A journal exists for an instant when the first process opens a copy that a backup tool made without a WAL.
_JOURNAL_PATIENCE_S = 0.5


class Connection(sqlite3.Connection):
    """A connection with the stamp of the file's state for which it is valid (see ``connect_read_only``)."""

    stamp: Stamp | None = None


Stamp = tuple[int, int, int]
"""Inode, size and time of change of a store's file while there is no WAL beside it."""


def checked_path(path: str | os.PathLike[str]) -> Path:
    """Return the path of a store. Raises ``InvalidArgumentError`` unless it is a string, not empty and without NUL."""
    text: str | bytes = os.fspath(path)
    if not isinstance(text, str) or not text or "\0" in text:
        raise InvalidArgumentError(f"not a path for a store: {path!r}")
    return Path(text)


def prepare(directory: Path, *, create: bool, layout: Layout = DISK) -> Path:
    """Return the store's file in ``directory``, and make it with its tables if there is none and ``create`` is true.

    Raises ``StoreNotFoundError`` if there is no store and ``create`` is false, ``NotAStoreError`` if the directory
    holds something else. Two processes may make the same store at once: one file wins.
    """
    file = directory / layout.file_name
    with _os_errors(directory):
        if file.is_symlink() or (file.exists() and not file.is_file()):
            raise NotAStoreError(f"{file} is not a regular file")
        if file.exists():
            _check_not_empty(file)
            return file
        if directory.exists() and not directory.is_dir():
            raise NotAStoreError(f"{directory} is not a directory, as a store must be")
        if directory.exists() and any(
            not other.name.startswith(layout.unfinished_prefix) for other in directory.iterdir()
        ):
            if file.is_file():
                return file  # another process has made it since
            raise NotAStoreError(
                f"{directory} holds other files and is not a store",
                remains="nothing was changed",
                hint="give a new store a directory of its own",
            )
        if not create:
            raise StoreNotFoundError(f"there is no store at {directory}", remains="nothing was made")
        _make_directory(directory)
        _make_file(file, layout)
    return file


def checked_timeout(timeout: object) -> float:
    """Return the seconds to wait for other writers, at most as many as SQLite takes.

    Raises ``InvalidArgumentError``.
    """
    return min(seconds("timeout", timeout, endless=True), LONGEST_TIMEOUT_S)


def connect(
    file: Path, *, durability: Durability, timeout: float, layout: Layout = DISK, syncs_commits: bool = True
) -> Connection:
    """Open an existing store for reading and writing, after checking that it is one.

    Raises ``ReadOnlyError`` if the file or its directory cannot be written.

    Args:
        syncs_commits: with ``"power"``, SQLite syncs each commit. False: the caller does (see ``log_sync``).
    """
    try:
        connection = _open_checked(file, "mode=rw", timeout, layout)
    except StorageError as error:
        if _code(error.__cause__) & 0xFF == sqlite3.SQLITE_CANTOPEN and not os.access(file.parent, os.W_OK):
            raise _meaning(sqlite3.SQLITE_READONLY, file, error.__cause__) from error.__cause__
        raise
    try:
        with translated(file):
            if not _use_wal(connection, timeout):
                raise StorageError(f"{file} cannot be used here: its file system offers no shared memory (WAL)")
            connection.executescript(
                # NORMAL syncs a log that begins anew before its first commit, and what a checkpoint copies.
                f"PRAGMA synchronous = {'FULL' if durability == 'power' and syncs_commits else 'NORMAL'};"
                f"PRAGMA fullfsync = {int(durability == 'power')};"
                f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES};"
                f"PRAGMA journal_size_limit = {_WAL_BYTES_KEPT};"
            )
    except BaseException:
        connection.close()
        raise
    return connection


def connect_read_only(file: Path, *, timeout: float) -> Connection:
    """Open an existing store for reading, without writing anything if possible.

    Without a WAL the file holds everything. It is opened as immutable, without locks or shared memory, which works on a
    read-only mount and leaves no trace. A writer may come later, so the connection carries the stamp of the file: a
    result counts only if the stamp is unchanged after the read. If there is a WAL, a writer is running or was killed.
    Then SQLite's own protocol is used, which needs its shared memory file; a running writer has made that already.
    """
    while (before := stamp(file)) is not None:
        try:
            connection = _open_checked(file, "mode=ro&immutable=1", timeout, DISK)
        except StorageError:
            if stamp(file) == before:
                raise
            continue
        if stamp(file) == before:
            connection.stamp = before
            return connection
        connection.close()
    try:
        return _open_checked(file, "mode=ro", timeout, DISK)
    except StateError as error:
        if _code(error.__cause__) & 0xFF in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY):
            raise StorageError(
                f"{file} has an unfinished log, and its directory cannot be written",
                remains="nothing was read",
                hint="open it once with write access, or copy the whole directory and open the copy",
            ) from error.__cause__
        raise


def stamp(file: Path) -> Stamp | None:
    """Return a stamp that differs for each state of the file, or None if there is a WAL that is not empty."""
    with suppress(FileNotFoundError):
        if file.with_name(f"{file.name}-wal").stat().st_size:
            return None
    with _os_errors(file):
        found = file.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns


def is_private(directory: Path, file: Path) -> bool:
    """Return whether only this user can write to the store, so that its pickles may be loaded.

    As for git's ``safe.directory``, this user must own the directory and the file. As for the keys of ssh, neither may
    be writable by the group or by others. No directory above may be writable by everyone unless it is sticky, as /tmp
    is: otherwise others could replace this directory. The directories above may be group-writable: with a umask of 002,
    the default of several systems, the group is the user's own. False on systems without such permissions (Windows).
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
            if found.st_uid not in (0, os.geteuid()) or (
                found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX
            ):
                return False
    except OSError:
        return False
    return True


@contextmanager
def translated(file: Path) -> Iterator[None]:
    """Translate the driver's errors into the library's."""
    try:
        yield
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise translate(error, file) from error


# For each code of SQLite: the error class, the text after the file's name, what remains, and the hint.
_MEANINGS: dict[int, tuple[type[StateError], str, str, str]] = {
    sqlite3.SQLITE_BUSY: (
        StoreBusyError,
        "is held by another writer",
        "nothing was written",
        "try again, or open it with a longer timeout",
    ),
    sqlite3.SQLITE_FULL: (
        StorageFullError,
        "has no room: the disk is full",
        "nothing was written",
        "make room on the disk, of which gc too needs a little",
    ),
    sqlite3.SQLITE_CORRUPT: (
        CorruptStoreError,
        "is damaged",
        "nothing was written",
        "restore it from a backup or another copy",
    ),
    sqlite3.SQLITE_NOTADB: (NotAStoreError, "is not a store, or its first page is damaged", "it was not touched", ""),
    sqlite3.SQLITE_READONLY: (
        ReadOnlyError,
        "cannot be written",
        "nothing was written",
        "if it may only be read, open it with read_only=True",
    ),
    sqlite3.SQLITE_CANTOPEN: (
        StorageError,
        "cannot be opened",
        "",
        "if it cannot be written, open it with read_only=True",
    ),
}
_MEANINGS[sqlite3.SQLITE_LOCKED] = _MEANINGS[sqlite3.SQLITE_PROTOCOL] = _MEANINGS[sqlite3.SQLITE_BUSY]
# No room for the shared memory file, which is made when the store is opened.
_MEANINGS[sqlite3.SQLITE_IOERR_SHMSIZE] = _MEANINGS[sqlite3.SQLITE_FULL]
_UNKNOWN: tuple[type[StateError], str, str, str] = (StorageError, "failed", "nothing was half written", "")


def translate(error: sqlite3.Error | OverflowError | UnicodeDecodeError, file: Path) -> StateError:
    """Return the library's error for an error of the driver."""
    code = _code(error)
    # Values beyond 1 GB, and in Python's own check beyond 2 GB.
    if code == sqlite3.SQLITE_TOOBIG or isinstance(error, (sqlite3.DataError, OverflowError)):
        return LimitExceededError("a value", limit=1_000_000_000)
    if isinstance(error, UnicodeDecodeError) or (
        isinstance(error, sqlite3.OperationalError) and "decode to UTF-8" in str(error)
    ):
        # Text in place of bytes, which no store writes; or damage within the schema's text, which SQLite quotes in a
        # message that Python cannot decode.
        code = sqlite3.SQLITE_CORRUPT
    return _meaning(code, file, error)


def _meaning(code: int, file: Path, error: BaseException | None) -> StateError:
    kind, message, remains, hint = _MEANINGS.get(code) or _MEANINGS.get(code & 0xFF) or _UNKNOWN
    # SQLite has one text for 30 failures of the system's calls ("disk I/O error"), and a name for each.
    name = f", {getattr(error, 'sqlite_errorname', code)}" if code > 0xFF else ""
    return kind(f"{file} {message} ({error}{name})", remains=remains, hint=hint)


def _code(error: BaseException | None) -> int:
    # An error of the module that does not come from SQLite has no code.
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


def _open_checked(file: Path, mode: str, timeout: float, layout: Layout) -> Connection:
    _check_no_journal(file)
    _check_header(file, layout)
    connection = _open(file, mode, timeout)
    try:
        with translated(file):
            _set_guards(connection)
            _check_schema(connection, file, layout)
    except BaseException:
        connection.close()
        raise
    return connection


def _set_guards(connection: Connection) -> None:
    # Against a malicious or damaged file: no functions in a schema, checked cells, and no mapped memory, which would
    # turn a truncated file into a crash.
    connection.executescript(
        "PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON; PRAGMA mmap_size = 0;"
        f"PRAGMA cache_size = -{_PAGE_CACHE_KIB};"
    )


def _use_wal(connection: Connection, timeout: float) -> bool:
    # The file keeps the mode, so this changes only a file whose mode a person or a backup tool has changed. SQLite's
    # timeout does not apply to that change, hence the loop.
    deadline = time.monotonic() + timeout
    while True:
        try:
            (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
        except sqlite3.OperationalError as error:
            if _code(error) & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() >= deadline:
                raise
            import random

            time.sleep(random.uniform(0, 0.02))  # noqa: S311 - spreading, not secrecy
        else:
            return bool(mode == "wal")


def _check_no_journal(file: Path) -> None:
    """Refuse a rollback journal beside the file, before SQLite sees it.

    SQLite would play it back into the file, and would delete another file that it may name. A store has a WAL from the
    start and never a journal, so another program wrote this one.
    """
    journal = file.with_name(f"{file.name}-journal")
    deadline = time.monotonic() + _JOURNAL_PATIENCE_S
    while os.path.lexists(journal):
        if time.monotonic() < deadline:
            time.sleep(0.02)
            continue
        raise UnsafeStoreError(
            f"{journal} is beside the store, which never makes such a file",
            hint="if another program wrote to the store and was killed, "
            "open it once with the sqlite3 program, which plays it back",
        )


def _check_header(file: Path, layout: Layout) -> None:
    """Refuse a file of another program or of a newer release, without touching it.

    Not by open() and read(): closing any descriptor of a file drops the POSIX locks that SQLite holds on it in this
    process. An immutable connection takes no lock, makes no journal and replays none.
    """
    probe = _open(file, "mode=ro&immutable=1", 0)
    with closing(probe):
        try:
            _check_version(probe, file, layout)
        except sqlite3.DatabaseError as error:
            # During a checkpoint, or after one was interrupted, the file without its WAL may look damaged. Opening it
            # for use shows whether it is.
            if _code(error) & 0xFF == sqlite3.SQLITE_CORRUPT:
                return
            raise translate(error, file) from error


def _check_schema(connection: Connection, file: Path, layout: Layout) -> None:
    _check_version(connection, file, layout)
    found, own = _schema_of(connection), _own_schema(layout)
    # A planted trigger, view or table could run statements of its author.
    if strange := found - own:
        names = ", ".join(sorted(f"{kind} {name!r}" for kind, name, _, _ in strange))
        raise NotAStoreError(f"{file} holds tables or triggers of another program ({names})")
    if missing := own - found:
        names = ", ".join(sorted(name for _, name, _, _ in missing))
        raise CorruptStoreError(
            f"{file} is damaged: it has no {names}",
            remains="nothing was changed",
            hint="restore it from a backup or another copy",
        )


def _check_version(connection: Connection, file: Path, layout: Layout) -> None:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application != layout.application_id:
        raise NotAStoreError(f"{file} is a database of another program")
    if version > layout.version:
        raise FormatError(version, layout.version)


_SchemaRow = tuple[str, str, str, str | None]


def _schema_of(connection: sqlite3.Connection) -> frozenset[_SchemaRow]:
    return frozenset(connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema").fetchall())


@lru_cache(maxsize=2)
def _own_schema(layout: Layout) -> frozenset[_SchemaRow]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        layout.make_tables(connection)
        return _schema_of(connection)


def _make_directory(directory: Path) -> None:
    # Path.mkdir(parents=True) would make the parents with the default mode, and their names would not be on the disk.
    for path in (*reversed(directory.parents), directory):
        if not path.exists():
            path.mkdir(mode=0o700, exist_ok=True)
            with suppress(PermissionError):  # a folder that may be written and not read cannot be synced
                _sync(path.parent)


def _check_not_empty(file: Path) -> None:
    """Raise ``CorruptStoreError`` for an empty file.

    A new store gets its name when it is whole, so its file is never empty.
    """
    if not file.stat().st_size:
        raise CorruptStoreError(
            f"{file} is empty: it was truncated, or another program made it",
            remains="nothing was changed",
            hint="restore it from a backup; if nothing was ever stored there, delete it",
        )


def _make_file(file: Path, layout: Layout) -> None:
    """Make the whole file under another name, then rename it in one step.

    A crash leaves no half-made store. Of two processes one wins, and the other opens that file.
    """
    unfinished = file.with_name(f"{layout.unfinished_prefix}{os.getpid()}.{os.urandom(4).hex()}")
    descriptor = os.open(unfinished, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    try:
        os.close(descriptor)
        # Absolute, because SQLite reads a path that begins with "file:" as a URI. Without cached statements, because
        # SQLite keeps a connection open for a statement that anybody refers to: the log of the file under its first
        # name would be in use under its last.
        place = unfinished.absolute()
        with (
            translated(unfinished),
            closing(sqlite3.connect(place, isolation_level=None, cached_statements=0)) as connection,
        ):
            # No journal and no sync: no other process uses the file before it is linked, and it is synced before that.
            connection.executescript(
                "PRAGMA synchronous = OFF; PRAGMA journal_mode = OFF;"
                f"PRAGMA application_id = {layout.application_id}; PRAGMA user_version = {layout.version};"
            )
            layout.make_tables(connection)
            connection.execute("PRAGMA journal_mode = WAL")
        _sync(unfinished)
        try:
            os.link(unfinished, file)
        except FileExistsError:
            pass
        except OSError:
            # A file system without links. Between check and rename another process could make a store, which would be
            # lost; that store would be as empty as this one.
            if not file.exists():
                unfinished.rename(file)
        _sync(file.parent)
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
        raise StoreNotFoundError(f"there is no store at {path}", remains="nothing was made") from error
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StorageFullError(f"no room for a store at {path}", remains="nothing was made") from error
        raise StorageError(f"{path} cannot be used: {error.strerror or error}", remains="nothing was made") from error


@contextmanager
def overwriting(connection: Connection) -> Iterator[None]:
    """Overwrite the deleted bytes at deletions on a connection within the block."""
    (usual,) = connection.execute("PRAGMA secure_delete").fetchone()
    connection.execute("PRAGMA secure_delete = ON").fetchall()
    try:
        yield
    finally:
        connection.execute(f"PRAGMA secure_delete = {usual:d}").fetchall()


@contextmanager
def without_checkpoints(connection: Connection) -> Iterator[None]:
    """Let the commits of a connection fold nothing into the file within the block."""
    connection.execute("PRAGMA wal_autocheckpoint = 0").fetchall()
    try:
        yield
    finally:
        connection.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}").fetchall()
