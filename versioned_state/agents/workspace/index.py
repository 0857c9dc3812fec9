"""The index of a workspace: the files that are known to be unchanged since their commit, and its records on disk.

Layer: agents.

::

    .versioned-state/lock       held by the process that uses the folder
    .versioned-state/index      stat and cell of each path, as git's index: a hint that saves reading, never content
    .versioned-state/position   the commit that the folder is at, and the one that was being written to it

The three are in the folder, or in one of their own. If one of these files is damaged, or belongs to another state, it
is ignored: then every file is read and compared, and none is overwritten.
"""

from __future__ import annotations

import errno
import fcntl
import os
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import msgpack
from xxhash import xxh3_128_digest

from versioned_state.agents.workspace.entries import RESERVED
from versioned_state.agents.workspace.folder import FOLDER, Stat, open_root
from versioned_state.errors import WorkspaceError

_READ_ONLY: Final = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})

_MAGIC: Final = b"versioned-state workspace 1\n"
_FIELDS: Final = 5

RACY: Final = 20_000_000
"""Nanoseconds that a file must be older than the last look at it: a change within a clock tick leaves no trace."""

_COARSE: Final = 2_100_000_000
"""The same on file systems that keep whole seconds."""


@dataclass
class Position:
    """The position of a folder.

    Attributes:
        at: the address of the commit that the files are relative to.
        toward: the commits to which the folder was being brought when the process ended. Some files are as in one of
            them.
        writing: paths that were being written otherwise: a discard, a rollback, a restore.
        unresolved: paths that a move could not bring, since they had changes that no commit has.
        restored: the commits whose files ``restore`` has brought since.
    """

    at: bytes
    toward: list[bytes] = field(default_factory=list)
    writing: list[str] = field(default_factory=list)
    unresolved: set[str] = field(default_factory=set)
    restored: list[bytes] = field(default_factory=list)


class Index:
    """The known state of the files.

    Attributes:
        cells: the cell of each path at the commit that the folder is at.
        stats: for paths known to have that content, the stat that shows whether they were changed since.
        time: when the last complete scan of the folder began, in nanoseconds. Files that were changed later are read
            again.
        changed: paths whose stat or cell changed since the index was saved.
    """

    def __init__(self) -> None:
        self.cells: dict[str, bytes] = {}
        self.stats: dict[str, Stat] = {}
        self.time = 0
        self.changed: int = 0
        self._folders: set[str] | None = None

    @property
    def surely_fresh(self) -> int:
        """A time of change before which every file ``is_fresh``."""
        return self.time - _COARSE

    def is_fresh(self, stat: Stat) -> bool:
        """Return whether a file with this stat was certainly not changed after the last scan of it."""
        margin = RACY if stat[1] % 1_000_000_000 else _COARSE
        return stat[1] < self.time - margin

    def set(self, path: str, cell: bytes | None, stat: Stat | None) -> None:
        """Record the cell of a path at the commit, and the stat of the file if it is known to have that content."""
        self.changed += 1
        if (cell is None) != (path not in self.cells):
            self._folders = None
        if cell is None:
            self.cells.pop(path, None)
        else:
            self.cells[path] = cell
        if stat is None or cell is None:
            self.stats.pop(path, None)
        else:
            self.stats[path] = stat

    def holds_below(self, folder: str) -> bool:
        """Return whether the commit has anything in a folder."""
        if self._folders is None:
            self._folders = set()
            for path in self.cells:
                parent = path.rpartition("/")[0]
                while parent and parent not in self._folders:
                    self._folders.add(parent)
                    parent = parent.rpartition("/")[0]
        return folder in self._folders


class Records:
    """The files in ``.versioned-state``. They are left out on a folder that cannot be written.

    Args:
        root: the folder of the workspace.
        place: the folder that they are in, if that is another one.
    """

    def __init__(self, root: int, name: str, place: str | None = None) -> None:
        self._name = name
        self._place = place
        self._folder: int | None = None
        self._lock: int | None = None
        self._opened: list[int] = []
        self._open(root)

    def stay_in(self, root: int) -> None:
        """Open the records again if the folder, or the folder of the records, was replaced."""
        if self._folder is None or self._place is not None:
            return
        with suppress(FileNotFoundError):
            if os.path.samestat(os.stat(RESERVED, dir_fd=root, follow_symlinks=False), os.fstat(self._folder)):
                return
        self.close()
        self._open(root)

    def _open(self, root: int) -> None:
        try:
            self._opened.append(self._open_folder(root))
            self._folder = self._opened[-1]
            with suppress(FileExistsError):  # for a repository of git around the folder
                os.close(
                    os.open(
                        ".gitignore", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=self._folder
                    )
                )
                self._write_raw(".gitignore", b"*\n")
            self._opened.append(
                os.open("lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=self._folder)
            )
            self._lock = self._opened[-1]
        except OSError as error:
            self.close()
            if error.errno in _READ_ONLY:
                return
            raise WorkspaceError(f"the folder {RESERVED} in it cannot be used: {error.strerror}", [RESERVED]) from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.close()
            raise WorkspaceError(
                "the folder is in use by another workspace", hint="close() that one, or use another folder for this one"
            ) from None

    def _open_folder(self, root: int) -> int:
        place = root if self._place is None else open_root(self._place)
        try:
            with suppress(FileExistsError):
                os.mkdir(RESERVED, 0o700, dir_fd=place)
            return os.open(RESERVED, FOLDER, dir_fd=place)
        finally:
            if place != root:
                os.close(place)

    def close(self) -> None:
        """Release the folder.

        Idempotent, also after an interrupt: a descriptor closed twice could by then belong to another file.
        """
        self._lock = self._folder = None
        while self._opened:
            os.close(self._opened.pop())

    def read_position(self) -> Position | None:
        """Return the position of the folder, or None if that is not known."""
        found = self._read("position")
        try:
            at, toward, writing, unresolved, restored = found
            return Position(
                at,
                toward,
                [os.fsdecode(path) for path in writing],
                {os.fsdecode(path) for path in unresolved},
                restored,
            )
        except (TypeError, ValueError):
            return None

    def write_position(self, position: Position) -> None:
        """Write the position of the folder. Raises ``OSError``."""
        writing = [os.fsencode(path) for path in position.writing]
        unresolved = sorted(map(os.fsencode, position.unresolved))
        self._write("position", [position.at, position.toward, writing, unresolved, position.restored])

    def read_index(self, at: bytes) -> Index | None:
        """Return the index of a folder that is at a commit, or None if there is none that can be used."""
        found = self._read("index")
        index = Index()
        try:
            commit, index.time, paths, stats, cells = found
            if commit != at or len(stats) != _FIELDS * len(paths) or type(index.time) is not int:
                return None
            names = [os.fsdecode(path) for path in paths]
            index.cells = dict(zip(names, cells, strict=True))
            fields = iter(stats)
            index.stats = {name: stat for name, *stat in zip(names, *[fields] * _FIELDS, strict=True) if stat[1]}  # type: ignore[misc]
            index.stats = {name: tuple(stat) for name, stat in index.stats.items()}  # type: ignore[misc]
        except (TypeError, ValueError):
            return None
        return index

    def write_index(self, at: bytes, index: Index) -> None:
        """Save the index. If the disk fails, nothing is lost but time: the next process must read every file."""
        none = (0,) * _FIELDS
        stats = [number for path in index.cells for number in index.stats.get(path, none)]
        with suppress(OSError):
            self._write(
                "index", [at, index.time, list(map(os.fsencode, index.cells)), stats, list(index.cells.values())]
            )
            index.changed = 0

    def _read(self, name: str) -> Any:
        if self._folder is None:
            return None
        try:
            descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self._folder)
            with os.fdopen(descriptor, "rb") as file:
                data = file.read()
        except OSError:
            return None
        body = data[len(_MAGIC) + 16 :]
        if not data.startswith(_MAGIC) or data[len(_MAGIC) :][:16] != xxh3_128_digest(body):
            return None
        try:
            kept_for, found = msgpack.unpackb(body)
        except (ValueError, TypeError, msgpack.UnpackException):
            return None
        return found if kept_for == self._name else None

    def _write(self, name: str, found: object) -> None:
        if self._folder is None:
            return
        body: bytes = msgpack.packb([self._name, found])
        self._write_raw(name, _MAGIC + xxh3_128_digest(body) + body)

    def _write_raw(self, name: str, data: bytes) -> None:
        temporary = name + ".new"
        descriptor = os.open(
            temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=self._folder
        )
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        os.rename(temporary, name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
