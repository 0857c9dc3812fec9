"""``LogSync``, which makes commits durable by syncs of the write-ahead log (WAL) that concurrent calls share.

Layer: storage.

SQLite appends a commit to the log without a sync, and frees its lock. Then each call waits for a sync that began after
its commit: one sync serves all that wait when it begins. A sync covers the whole log up to that moment, whichever
process wrote it, so after a loss of power no commit is there without those before it.

If a sync fails, the operating system may call pages written that are not, and the next sync succeeds without them. So
after a failure nothing is acknowledged until ``rewrite_log`` has written the whole log again: by this process, or by
the next one that opens the store.
"""

from __future__ import annotations

import errno
import os
import struct
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

from versioned_state.errors import CorruptStoreError, StorageError
from versioned_state.storage.call_lock import CallLock
from versioned_state.storage.local.sqlite_file import Connection, without_checkpoints

SUPPORTED: Final = os.name == "posix"
"""Whether the log can be synced through a descriptor of its own.

On Windows, SQLite could not delete a file that is open elsewhere.
"""


class OpenLog:
    """A descriptor of one log file, and the syncs through it.

    It is opened before the writes that it has to sync: the operating system reports a failed write to the descriptors
    that were open. A call that still waits keeps the descriptor open after the store was closed.

    Attributes:
        identity: the device and inode of the file.
        process: the id of the process that opened it.
        made_good: whether the log was written again after a sync had failed.
    """

    __slots__ = ("_begun", "_descriptor", "_done", "_sound", "_syncing", "identity", "made_good", "process")

    def __init__(self, name: str) -> None:
        self._descriptor = os.open(name, os.O_RDWR)
        found = os.fstat(self._descriptor)
        self.identity: Final = found.st_dev, found.st_ino
        self.process: Final = os.getpid()
        self.made_good: bool = False
        self._syncing = CallLock()
        # Syncs are numbered. A sync that was interrupted has a number too, but is never done.
        self._begun = 0
        self._done = 0
        self._sound = True

    def __del__(self) -> None:
        # SQLite holds no lock on this file, so that closing it drops none.
        if hasattr(self, "_descriptor"):
            os.close(self._descriptor)

    def sync(self) -> None:
        """Wait for a sync that begins after this call.

        Raises ``OSError`` if it fails, or if an earlier one has failed.
        """
        needed = self._begun + 1
        with self._syncing:
            if self._done >= needed:
                return
            if not self._sound:
                raise OSError(errno.EIO, "an earlier sync failed, or was interrupted")
            self._begun = number = self._begun + 1
            # First, and not if it fails: a failure is reported once, and an interrupt may come before it could be
            # noted.
            self._sound = False
            _sync(self._descriptor)
            self._sound = True
            self._done = max(self._done, number)  # a call within this one, of a signal handler, may have been faster

    def read(self) -> bytes:
        """Return the whole log."""
        size = os.fstat(self._descriptor).st_size
        return _read(self._descriptor, size)

    def write(self, content: bytes) -> None:
        """Write the beginning of the log."""
        at = 0
        while at < len(content):
            at += os.pwrite(self._descriptor, content[at : at + 0x10_0000], at)


class LogSync:
    """The log of a store's ``file``, which is another one after the last process that used it closed the store."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._name = f"{file}-wal"
        # Lies beside the file from a failed sync until the log was written again, for processes that open the store
        # meanwhile.
        self._mark = f"{file}-unsynced"
        self._log: OpenLog | None = None

    def open(self) -> OpenLog:
        """Return the log that a transaction will write to. The transaction has begun and has written nothing.

        Raises ``StorageError``.
        """
        log = self._log
        try:
            found = os.stat(self._name)  # noqa: PTH116 - a Path takes three times as long, and each write asks
            # A child after a fork has a descriptor of its own, because each failure is reported once to a descriptor.
            if log is None or log.identity != (found.st_dev, found.st_ino) or log.process != os.getpid():
                log = self._log = OpenLog(self._name)
        except FileNotFoundError as error:
            raise CorruptStoreError(
                f"the log of {self._file} was removed while the store was open",
                remains="nothing was written",
                hint="close the store everywhere and open it again: it holds a prefix of what was committed",
            ) from error
        except OSError as error:
            raise StorageError(
                f"the log of {self._file} cannot be opened: {error.strerror}", remains="nothing was written"
            ) from error
        return log

    def fail(self, log: OpenLog) -> bool:
        """Record that a sync of a log has failed.

        Returns False if the log was written again since, with all that the sync was to cover.
        """
        if log.made_good:
            return False
        with suppress(OSError):  # a disk that fails may take no name either
            os.close(os.open(self._mark, os.O_CREAT | os.O_WRONLY, 0o600))
        return True

    def is_marked(self) -> bool:
        """Return whether a sync has failed, and the log was not written again since: the process died, or is at it."""
        return os.path.exists(self._mark)  # noqa: PTH110 - a Path takes three times as long

    def repair(self, connection: Connection) -> None:
        """Make everything in the log durable after a sync has failed. The caller is the only writer of this process.

        Raises ``OSError``, ``sqlite3.Error`` or ``CorruptStoreError`` if the disk still fails, or lost what it was to
        write.
        """
        log = OpenLog(self._name)
        rewrite_log(connection, log, self._file)
        if self._log is not None:
            self._log.made_good = True
        self._log = log
        with suppress(FileNotFoundError):
            os.unlink(self._mark)  # noqa: PTH108 - as above

    def close(self) -> None:
        """Close the log, once no call waits for a sync any more."""
        self._log = None


def rewrite_log(connection: Connection, log: OpenLog, file: Path) -> None:
    """Write the log again, the same bytes at the same place, and sync it.

    The bytes come from memory, or from the disk if memory had no room for pages that the system took for written. The
    log's running checksum tells: a new frame is appended first, and the checksums must lead up to it.
    """
    with without_checkpoints(connection):  # a checkpoint trusts the log to be on the disk
        for _ in range(_ATTEMPTS):
            before = log.read()
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            connection.execute(f"PRAGMA user_version = {version}")
            connection.execute("BEGIN IMMEDIATE")  # so that nobody appends to the log, or begins it anew
            try:
                after = log.read()
                if after == before:
                    # the new frame is equal to what was left there by a write that a loss of power or a failure cut off
                    continue
                end, frame = valid_end(after)
                # Old frames may follow the new one, and be valid after it, if it is equal to one that was lost.
                if end < _end_of_change(before, after, frame):
                    break
                log.write(after[:end])
                log.sync()
                return
            finally:
                connection.execute("ROLLBACK")
    raise CorruptStoreError(
        f"the disk lost a part of the log of {file}",
        hint="close the store everywhere and open it again: it holds a prefix of what was committed",
    )


_ATTEMPTS: Final = 10


def _end_of_change(before: bytes, after: bytes, frame: int) -> int:
    """Return the end of the last frame that differs in two states of a log.

    It is beyond both if a frame has no size, as in an invalid log.
    """
    if not frame:
        return len(after) + 1
    at = _HEADER.size + (len(after) - _HEADER.size) // frame * frame
    while at > _HEADER.size and before[at - frame : at] == after[at - frame : at]:
        at -= frame
    return at


_HEADER: Final = struct.Struct(">8I")
_FRAME: Final = struct.Struct(">6I")
_MAGIC: Final = {0x377F0682: "<", 0x377F0683: ">"}
"""The first number of a log, and the order of bytes in which its checksums read it."""


def valid_end(log: bytes) -> tuple[int, int]:
    """Return the offset at which the valid part of a log ends, and the number of bytes of a frame.

    The offset is 0 if the log is empty or invalid. The format: sqlite.org/fileformat2.html#the_write_ahead_log. In
    Python, 8 MB take a quarter of a second; it is needed once a failure.
    """
    if len(log) < _HEADER.size:
        return 0, 0
    magic, _, page, _, *salts, first, second = _HEADER.unpack_from(log)
    order = _MAGIC.get(magic)
    if order is None:
        return 0, 0
    sums = _checksum(log[:24], order, (0, 0))
    if sums != (first, second):
        return 0, 0
    size = _FRAME.size + page
    end = 0
    for at in range(_HEADER.size, len(log) - size + 1, size):
        _, commit, *found, first, second = _FRAME.unpack_from(log, at)
        sums = _checksum(log[at : at + 8] + log[at + _FRAME.size : at + size], order, sums)
        if found != salts or sums != (first, second):
            break
        if commit:  # the last frame of a transaction
            end = at + size
    return end, size


def _checksum(data: bytes, order: str, sums: tuple[int, int]) -> tuple[int, int]:
    one, two = sums
    for first, second in struct.iter_unpack(f"{order}2I", data):
        one = (one + first + two) & 0xFFFFFFFF
        two = (two + second + one) & 0xFFFFFFFF
    return one, two


def _read(descriptor: int, size: int) -> bytes:
    parts = []
    at = 0
    while at < size and (part := os.pread(descriptor, size - at, at)):
        parts.append(part)
        at += len(part)
    return b"".join(parts)


def _sync(descriptor: int) -> None:
    """Wait until the data of a file is on the disk."""
    if sys.platform == "darwin":
        import fcntl

        try:
            fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)  # fsync alone leaves the data in the disk's cache
        except OSError as error:
            if error.errno not in (errno.ENOTSUP, errno.EINVAL, errno.ENOTTY):
                raise
            os.fsync(descriptor)  # a file system without that call
    else:
        os.fdatasync(descriptor)
