"""SQLite files with data derived from the content of a store, such as search indexes: opening and erasing them.

Layer: storage.

A file may be erased at any time, even while other processes use it, so a writer first checks that its open file still
has the name. The journal mode is a rollback journal, not a WAL, so that no second file outlives a transaction.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Final

from versioned_state.storage.base import derived_id

_PATIENCE_S: Final = 5.0
"""The longest wait for another process that writes. Its first search indexes everything, which may take longer."""

_PATIENCE_TO_ERASE_S: Final = 30.0

FOLDER: Final = "derived"
"""The folder of a ``Disk`` for such files."""


class ReplacedError(Exception):
    """The file was erased after it was opened. A new file may have its name."""


def file_of(folder: Path, source: str) -> Path:
    """Return the file with the data that was derived from a source."""
    return folder / f"{derived_id(source).hex()}.sqlite3"


@contextmanager
def open_derived(file: Path, *, timeout: float = _PATIENCE_S) -> Iterator[sqlite3.Connection]:
    """Connect to a file within the block.

    Creates a missing file and folder, and rolls back uncommitted changes at the end.

    Deleted data is overwritten. Raises ``sqlite3.Error`` and ``OSError``.
    """
    if not file.exists():
        file.parent.mkdir(mode=0o700, exist_ok=True)
        with suppress(FileExistsError):
            os.close(os.open(file, os.O_CREAT | os.O_EXCL, 0o600))
    # Absolute, because SQLite reads a path that begins with "file:" as a URI.
    with closing(
        sqlite3.connect(file.absolute(), timeout=timeout, isolation_level=None, factory=_Connection)
    ) as connection:
        connection.identity = _identity(file)
        connection.executescript("PRAGMA trusted_schema = OFF; PRAGMA secure_delete = ON; PRAGMA synchronous = NORMAL;")
        yield connection


def begin_writing(connection: sqlite3.Connection, file: Path) -> None:
    """Begin a write transaction. Raises ``ReplacedError`` if the file was erased after it was opened."""
    connection.execute("BEGIN IMMEDIATE")
    assert isinstance(connection, _Connection)
    if _identity(file) != connection.identity:
        connection.execute("ROLLBACK")
        raise ReplacedError(file)


def erase_derived(file: Path) -> None:
    """Overwrite the content of a file, and delete it.

    A damaged file, or one that another program keeps locked, is only deleted.
    """
    if not file.exists():
        return
    with suppress(sqlite3.Error, ReplacedError), open_derived(file, timeout=_PATIENCE_TO_ERASE_S) as connection:
        begin_writing(connection, file)
        virtual = "SELECT name FROM sqlite_schema WHERE type = 'table' AND sql LIKE 'CREATE VIRTUAL%'"
        plain = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
        for query in (virtual, plain):  # dropping a virtual table drops its plain tables too
            for (name,) in connection.execute(query).fetchall():
                connection.execute(f'DROP TABLE "{name}"')
        connection.execute("COMMIT")
        begin_writing(connection, file)
        file.unlink(missing_ok=True)  # while nobody else writes
        return
    for name in (file, file.with_name(f"{file.name}-journal")):
        name.unlink(missing_ok=True)


class _Connection(sqlite3.Connection):
    identity: tuple[int, int] | None = None


def _identity(file: Path) -> tuple[int, int] | None:
    try:
        status = file.stat()
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino
