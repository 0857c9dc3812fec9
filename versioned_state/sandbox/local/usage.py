"""The processes of a sandbox, and the memory and disk that they take. Layer: sandbox, in the supervisor."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from stat import S_ISREG
from typing import Final

from versioned_state.sandbox.local.confinement import IS_LINUX

_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_BLOCK: Final = 512
"""The bytes of a block in ``st_blocks``, whatever the file system's own blocks are."""

_LOOK_S: Final = 0.02
_AT_ONCE: Final = 200
"""The files of a folder that are counted between two looks at the clock."""

_PAUSE_S: Final = 0.25
_SHARE: Final = 10
"""How many times as long as a count took passes before the next one."""


def memory_of(processes: Iterable[int], nameless: int, limit: int) -> int:
    """Return the bytes of memory that some processes have together, without the named files that they map.

    Pages that processes share, and those of mapped files, count for each of them, unless the sum is beyond ``limit``:
    then they are counted exactly, which costs a look at every mapping.

    Args:
        nameless: bytes of files without a name that are in memory.
    """
    found = list(processes)
    total = sum(map(_resident, found)) + nameless
    if total <= limit:
        return total
    own, shared = (sum(each) for each in zip(*map(_proportional, found), strict=True)) if found else (0, 0)
    return own + max(shared, nameless)  # the nameless ones may be mapped as well


def _resident(process: int) -> int:
    with suppress(OSError, ValueError, IndexError):  # it has ended
        return int(Path(f"/proc/{process}/statm").read_bytes().split()[1]) * _PAGE
    return 0


def _proportional(process: int) -> tuple[int, int]:
    """Return the memory of a process, of its own and shared, each page divided by those that share it."""
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except ProcessLookupError:
        return 0, 0
    except OSError:
        with suppress(OSError, ValueError, IndexError):
            _, resident, shared, *_ = Path(f"/proc/{process}/statm").read_bytes().split()
            return (int(resident) - int(shared)) * _PAGE, 0
        return 0, 0
    sizes = {
        name: int(size.split()[0]) << 10
        for name, colon, size in (line.partition(":") for line in lines)
        if colon and "kB" in size
    }
    return sizes.get("Pss_Anon", 0), sizes.get("Pss_Shmem", 0)


class Nameless:
    """The bytes of files that processes have open and that have no name: deleted ones, and those of ``memfd_create``.

    Args:
        folders: a file on the device of one of these is on disk, any other one in memory.
    """

    def __init__(self, folders: Iterable[str]) -> None:
        self._devices = {Path(folder).stat().st_dev for folder in folders if Path(folder).exists()}
        self._next = 0.0
        self.on_disk: int = 0
        self.in_memory: int = 0

    def count(self, processes: Iterable[int]) -> None:
        """Count again, unless the last time took long. Cost: that of the open files."""
        begin = time.monotonic()
        if begin < self._next:
            return
        sizes: dict[tuple[int, int], int] = {}
        for process in processes:
            with suppress(OSError), os.scandir(f"/proc/{process}/fd") as entries:  # it has ended
                for entry in entries:
                    with suppress(OSError):
                        found = entry.stat()
                        if not found.st_nlink and S_ISREG(found.st_mode):
                            sizes[found.st_dev, found.st_ino] = found.st_blocks * _BLOCK
        self.on_disk = sum(size for (device, _), size in sizes.items() if device in self._devices)
        self.in_memory = sum(sizes.values()) - self.on_disk
        end = time.monotonic()
        self._next = end + _SHARE * (end - begin)


class Files:
    """The space on disk of the files in some folders, counted again and again, a part at each look.

    Args:
        limit: bytes; the size that the files have when they are first counted, if that is more.
    """

    def __init__(self, folders: Iterable[str], limit: int) -> None:
        self._folders = tuple(folders)
        self._limit = limit
        self._allowed = 0
        self._size: int | None = None
        self._walk: Iterator[int] | None = None
        self._spent = 0.0
        self._next = 0.0

    def begin(self) -> None:
        """Count the files, if they were never counted. Cost: a look at each.

        Nothing of the sandbox may run meanwhile: what it wrote would count as having been there.
        """
        if self._size is None:
            self._size = max(_walk(self._folders))
            self._limit = self._allowed = max(self._limit, self._size)

    def are_over(self, nameless: int = 0) -> bool:
        """Continue the count, and return whether the files and ``nameless`` bytes of unnamed files exceed the limit.

        Cost: at most about 20 ms.

        If they are beyond it already, they are so again only once they have grown, so that a call can remove some, or
        are twice as large.
        """
        assert self._size is not None, "the files were counted at first"
        begin = time.monotonic()
        if self._walk is None:
            if begin < self._next:
                return False
            self._walk, self._spent = _walk(self._folders), 0.0
        size: int | None = 0
        while size is not None and time.monotonic() - begin < _LOOK_S:
            size = next(self._walk, None)
            self._size = self._size if size is None else size
        end = time.monotonic()
        self._spent += end - begin
        is_over = self._size + nameless > self._allowed
        if size is None or is_over:
            self._walk, self._next = None, end + max(_PAUSE_S, _SHARE * self._spent)
            self._allowed = min(max(self._size, self._limit), 2 * self._limit)
        return is_over


def _walk(folders: Iterable[str]) -> Iterator[int]:
    """Yield the bytes on disk of the content of some folders: the sum so far, now and then, and at the end.

    Follows no link.
    """
    total = 0
    several: set[tuple[int, int]] = set()  # files with several names
    waiting = list(folders)
    while waiting:
        with suppress(OSError), os.scandir(waiting.pop()) as entries:  # it is gone
            for count, entry in enumerate(entries, 1):
                with suppress(OSError):
                    found = entry.stat(follow_symlinks=False)
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    elif found.st_nlink > 1:
                        if (found.st_dev, found.st_ino) in several:
                            continue
                        several.add((found.st_dev, found.st_ino))
                    total += found.st_blocks * _BLOCK
                if count % _AT_ONCE == 0:
                    yield total
        yield total


def descendants() -> list[int]:
    """Return the processes below this one."""
    if not IS_LINUX:
        return []
    parents: dict[int, int] = {}
    for each in Path("/proc").iterdir():
        if each.name.isdigit():
            with suppress(OSError, ValueError, IndexError):
                stat = (each / "stat").read_bytes()
                parents[int(each.name)] = int(stat.rpartition(b")")[2].split()[1])
    here = int(Path("/proc/self").readlink().name)
    children: dict[int, list[int]] = {}
    for process, parent in parents.items():
        children.setdefault(parent, []).append(process)
    found: list[int] = []
    look = [here]
    while look:
        for process in children.get(look.pop(), ()):
            found.append(process)
            look.append(process)
    return found
