"""``LogGuard``, which notices that the write-ahead log (WAL) of an open store was cut or removed from outside.

Layer: storage.

SQLite takes the length of the log from shared memory, and keeps appending at that offset. A commit that is appended
after a gap is acknowledged, and lost when the store is next opened. So each write checks the size of the log before and
after it.

Not noticed: a cut to a length that the log did not exceed when this process last wrote, if other processes have written
since; and a cut between the check and the write.
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from versioned_state.errors import CorruptStoreError
from versioned_state.storage.local.sqlite_file import Connection

# Of the header: two random numbers, which change whenever SQLite restarts the log.
_SALTS = slice(16, 24)


class LogGuard:
    """The size of the log of ``file`` after the last write of this process, and the checks against it."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._name = f"{file}-wal"
        self._size = 0
        self._salts = b""

    def forget(self) -> None:
        """Forget the size: the process opens the file again, and another process may have folded the log in."""
        self._size, self._salts = 0, b""

    def check(self, connection: Connection) -> None:
        """Raise ``CorruptStoreError`` if the log is shorter than it must be.

        ``connection`` must not be in a transaction.
        """
        size = self._measure()
        if size == 0:
            self._check_empty(connection)
        elif size < self._size:
            salts = self._read_salts()
            if salts and salts == self._salts:
                raise self._error()
            # Another process folded the log in and began a new one.
            self._size, self._salts = size, salts

    def note(self) -> None:
        """Remember the size of the log after a write."""
        size = self._measure()
        if not self._salts and size:
            self._salts = self._read_salts()
        self._size = size

    def _check_empty(self, connection: Connection) -> None:
        # The log of a store that was just opened or compacted is empty. A checkpoint reports how many pages SQLite
        # expects in it: with none it does nothing, and with some it fails before it copies the first.
        try:
            busy, pages, _ = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        except sqlite3.OperationalError as error:
            raise self._error() from error
        # else another connection has written its first page since the look
        if pages > 0 and not busy and self._measure() == 0:
            raise self._error()
        self.forget()

    def _measure(self) -> int:
        try:
            return os.stat(self._name).st_size  # noqa: PTH116 - a Path takes three times as long, and each write asks
        except FileNotFoundError:
            return 0
        except OSError:
            return self._size  # the size is not known

    def _read_salts(self) -> bytes:
        # SQLite holds no lock on this file, so that closing it here drops none.
        try:
            with open(self._name, "rb") as log:  # noqa: PTH123 - as above
                return log.read(_SALTS.stop)[_SALTS]
        except OSError:
            return b""

    def _error(self) -> CorruptStoreError:
        return CorruptStoreError(
            f"the log of {self._file} was cut or removed while the store was open",
            remains="nothing was written",
            hint="close the store everywhere and open it again: it holds a prefix of what was committed",
        )
