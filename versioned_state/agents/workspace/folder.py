"""The folder of a workspace on disk, opened part by part, so that no link leads out of it. Layer: agents.

Every path is opened from the folder down, one name at a time, and links are refused. A file is written under a
temporary name and renamed, so that it has the old content or the new one, whenever the process is killed.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Self

from versioned_state.agents.workspace.entries import RESERVED, Entry, data_of, file_entry
from versioned_state.values.codec.files import File, Folder, Symlink

TEMPORARY: Final = RESERVED + ".tmp"
"""The name under which a file is written, before it is renamed."""

FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WRITE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

ABSENT: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG})
"""The errors of an absent path: a name is missing or too long, or a parent is a link or otherwise not a folder."""

_IN_THE_WAY: Final = frozenset({errno.ENOTDIR, errno.ELOOP, errno.EISDIR, errno.ENOTEMPTY, errno.EEXIST})

Stat = tuple[int, int, int, int, int]
"""Times of modification and of change in nanoseconds, size, inode and mode, which differ if a file was changed."""


FOLDER_STAT: Final[Stat] = (0, 0, 0, 0, stat.S_IFDIR)
"""The stat of an empty folder: a constant, because only its content shows whether it was changed."""


def stat_of(found: os.stat_result) -> Stat:
    """Return the part of a stat that shows whether a file was changed."""
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino, found.st_mode


def open_root(path: str) -> int:
    """Return a descriptor of the folder itself, which may be reached through links."""
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


class Parents:
    """The open folders of one path after another, opened without following links.

    Successive paths share their common folders.
    """

    def __init__(self, root: int) -> None:
        self._root = root
        self._open: list[tuple[str, int]] = []

    def open(self, path: str, *, create: bool = False) -> tuple[int, str]:
        """Return a descriptor of the folder that holds a path, and the last name. Raises ``OSError``."""
        *names, last = path.split("/")
        common = 0
        while common < min(len(names), len(self._open)) and self._open[common][0] == names[common]:
            common += 1
        while len(self._open) > common:
            os.close(self._open.pop()[1])
        for name in names[common:]:
            self._open.append((name, self._enter(self._open[-1][1] if self._open else self._root, name, create=create)))
        return (self._open[-1][1] if self._open else self._root), last

    @staticmethod
    def _enter(parent: int, name: str, *, create: bool) -> int:
        try:
            return os.open(name, FOLDER, dir_fd=parent)
        except FileNotFoundError:
            if not create:
                raise
        with suppress(FileExistsError):
            os.mkdir(name, dir_fd=parent)
        return os.open(name, FOLDER, dir_fd=parent)

    def close(self) -> None:
        while self._open:
            os.close(self._open.pop()[1])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_file(parent: int, name: str) -> bytes:
    """Return the content of a regular file. Raises ``OSError``, also for a link."""
    descriptor = os.open(name, _READ, dir_fd=parent)
    try:
        with os.fdopen(descriptor, "rb", buffering=0, closefd=False) as file:
            return file.read() or b""
    finally:
        os.close(descriptor)


def read_entry(parent: int, name: str, mode: int) -> Entry | None:
    """Return the entry of a file or link with this mode, or None for anything else. Raises ``OSError``."""
    if stat.S_ISREG(mode):
        return file_entry(read_file(parent, name), mode & 0o777)
    return Symlink(os.readlink(name, dir_fd=parent)) if stat.S_ISLNK(mode) else None


def look(parents: Parents, path: str) -> os.stat_result | None:
    """Return the stat of a path, without following links, or None if nothing is there."""
    try:
        parent, name = parents.open(path)
        return os.stat(name, dir_fd=parent, follow_symlinks=False)
    except OSError as error:
        if error.errno in ABSENT:
            return None
        raise


def is_empty(parents: Parents, path: str) -> bool:
    """Return whether a folder is empty except for files that a killed process left."""
    with suppress(OSError):
        parent, name = parents.open(path)
        descriptor = os.open(name, FOLDER, dir_fd=parent)
        try:
            with os.scandir(descriptor) as found:
                return all(each.name.startswith(RESERVED) for each in found)
        finally:
            os.close(descriptor)
    return False


# Writing


class Step(NamedTuple):
    """A path to write a cell's entry at, or to remove if the cell is None, unless its stat is not as ``expected``."""

    path: str
    expected: Stat | None
    cell: bytes | None


@dataclass
class Brought:
    """The results of some steps.

    Attributes:
        stats: the new stat of each path that was written.
        in_the_way: the paths that could not be written because something unexpected is there.
        unlinked: the inodes that had other names when a step removed one. That changes the time of change at the other
            names.
    """

    stats: dict[str, Stat | None] = field(default_factory=dict)
    in_the_way: list[str] = field(default_factory=list)
    unlinked: set[int] = field(default_factory=set)

    def check_expected(self, found: os.stat_result, expected: Stat | None) -> None:
        """Record that a name of a file will be removed. Raises ``FileExistsError`` if the file is not as expected."""
        now = stat_of(found)
        if now != expected and not (
            expected is not None and found.st_ino in self.unlinked and _same_but_changed(now, expected)
        ):
            raise FileExistsError(errno.EEXIST, "it was changed")
        if found.st_nlink > 1:
            self.unlinked.add(found.st_ino)


def _same_but_changed(one: Stat, other: Stat) -> bool:
    """Return whether two stats differ in nothing but the time of change."""
    return (one[0], *one[2:]) == (other[0], *other[2:])


def remove(root: int, steps: Iterable[Step], brought: Brought, keeps: Callable[[str], bool]) -> None:
    """Remove files, links and empty folders, and the folders that become empty.

    Args:
        keeps: whether a folder stays even if it is empty.
    """
    left: set[str] = set()
    with Parents(root) as parents:
        for step in sorted(steps, reverse=True):
            try:
                _remove_one(parents, step, brought)
            except OSError as error:
                if error.errno not in _IN_THE_WAY:
                    raise
                brought.in_the_way.append(step.path)
                continue
            brought.stats[step.path] = None
            left.add(step.path.rpartition("/")[0])
    with Parents(root) as parents:
        for folder in sorted(left, key=lambda path: path.count("/"), reverse=True):
            _prune(parents, folder, keeps)


def _remove_one(parents: Parents, step: Step, brought: Brought) -> None:
    found = look(parents, step.path)
    if found is None:
        return
    parent, name = parents.open(step.path)
    if stat.S_ISDIR(found.st_mode):
        if step.expected is None or not stat.S_ISDIR(step.expected[4]):
            raise IsADirectoryError(errno.EISDIR, "it is a folder now")
        with suppress(OSError):  # not empty: it has files of others
            _remove_folder(parent, name)
        return
    brought.check_expected(found, step.expected)
    os.unlink(name, dir_fd=parent)


def _remove_folder(parent: int, name: str) -> None:
    """Remove a folder that is empty except for files that a killed process left. Raises ``OSError``."""
    with suppress(FileNotFoundError):
        _remove_temporary(parent, name)
    os.rmdir(name, dir_fd=parent)


def _remove_temporary(parent: int, name: str) -> None:
    descriptor = os.open(name, FOLDER, dir_fd=parent)
    try:
        os.unlink(TEMPORARY, dir_fd=descriptor)
    finally:
        os.close(descriptor)


def _prune(parents: Parents, folder: str, keeps: Callable[[str], bool]) -> None:
    while folder and not keeps(folder):
        try:
            _remove_folder(*parents.open(folder))
        except FileNotFoundError:
            pass  # an interrupted call has removed it, and perhaps not its parent
        except OSError:
            return  # not empty
        folder = folder.rpartition("/")[0]


def write(parents: Parents, step: Step, entry: Entry, brought: Brought) -> None:
    """Write one file, link or empty folder. Raises ``OSError`` if the disk fails."""
    try:
        if isinstance(entry, Folder):
            found = look(parents, step.path)
            if found is not None and not stat.S_ISDIR(found.st_mode):
                _remove_one(parents, step, brought)
            parents.open(step.path + "/", create=True)
            brought.stats[step.path] = None
        else:
            brought.stats[step.path] = _write_file(parents, step, entry, brought)
    except OSError as error:
        if error.errno not in _IN_THE_WAY:
            raise
        brought.in_the_way.append(step.path)


def _write_file(parents: Parents, step: Step, entry: str | bytes | File | Symlink, brought: Brought) -> Stat:
    parent, name = parents.open(step.path, create=True)
    temporary = False
    try:
        if isinstance(entry, Symlink):
            _anew(parent, lambda: os.symlink(entry.target, TEMPORARY, dir_fd=parent))
            temporary = True
        else:
            data, mode = data_of(entry)
            descriptor = _anew(parent, lambda: os.open(TEMPORARY, _WRITE, 0o600, dir_fd=parent))
            temporary = True
            try:
                view = memoryview(data)
                while view:
                    view = view[os.write(descriptor, view) :]
                os.fchmod(descriptor, mode)
            finally:
                os.close(descriptor)
        _check_expected(parent, name, step.expected, brought)
        os.rename(TEMPORARY, name, src_dir_fd=parent, dst_dir_fd=parent)
        temporary = False
        return stat_of(os.stat(name, dir_fd=parent, follow_symlinks=False))
    finally:
        if temporary:
            with suppress(OSError):
                os.unlink(TEMPORARY, dir_fd=parent)


def _anew(parent: int, make: Callable[[], int | None]) -> int:
    """Make the temporary file, after removing one that a killed process left."""
    try:
        return make() or 0
    except FileExistsError:
        os.unlink(TEMPORARY, dir_fd=parent)
        return make() or 0


def _check_expected(parent: int, name: str, expected: Stat | None, brought: Brought) -> None:
    """Raise if a file is not as expected. Removes an empty folder in its place."""
    try:
        found = os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return
    if stat.S_ISDIR(found.st_mode):
        _remove_folder(parent, name)
    else:
        brought.check_expected(found, expected)
