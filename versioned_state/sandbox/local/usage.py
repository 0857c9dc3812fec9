"""Which processes a sandbox has, and how much memory and disk they take. Layer: sandbox; runs in the supervisor."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from versioned_state.sandbox.local.confinement import IS_LINUX

_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_BLOCK: Final = 512
"""What ``st_blocks`` counts, whatever the file system's own blocks are."""

_LOOK_S: Final = 0.02
_AT_ONCE: Final = 200
"""The files of a folder that are counted between two looks at the clock."""

_PAUSE_S: Final = 0.25
_SHARE: Final = 10
"""A count that took long is not repeated before so many times as long."""


def memory_of(processes: Iterable[int], limit: int) -> int:
    """The bytes of memory that some processes have together, files that they map apart.

    Pages that forked processes share count once for each of them, unless the sum is beyond ``limit``: then they are counted exactly, which
    costs a look at every mapping.
    """
    found = list(processes)
    total = sum(map(_private, found))
    return total if total <= limit else sum(map(_proportional, found))


def _private(process: int) -> int:
    with suppress(OSError, ValueError, IndexError):  # it has ended
        _, resident, shared, *_ = Path(f"/proc/{process}/statm").read_bytes().split()
        return (int(resident) - int(shared)) * _PAGE
    return 0


def _proportional(process: int) -> int:
    """The memory of a process, each page divided by those that share it."""
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except ProcessLookupError:
        return 0
    except OSError:
        return _private(process)
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss_Anon:"))


class Files:
    """How much the files in some folders take on disk, counted again and again, a part at each look.

    Args:
        limit: bytes; the size that the files have at first, if that is more.
    """

    def __init__(self, folders: Iterable[str], limit: int) -> None:
        self._folders = tuple(folders)
        self._limit = limit
        self._allowed = 0  # nothing was counted yet
        self._size = 0
        self._walk: Iterator[int] | None = None
        self._spent = 0.0
        self._next = 0.0

    def are_over(self) -> bool:
        """Count on; whether the files are beyond the limit. Cost: at most about 20 ms.

        If they are beyond it already, they are so again only once they have grown, so that a call can remove some, or are twice as large.
        """
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
        is_over = bool(self._allowed) and self._size > self._allowed
        if size is None or is_over:
            self._walk, self._next = None, end + max(_PAUSE_S, _SHARE * self._spent)
            self._limit = self._limit if self._allowed else max(self._limit, self._size)
            self._allowed = min(max(self._size, self._limit), 2 * self._limit)
        return is_over


def _walk(folders: Iterable[str]) -> Iterator[int]:
    """The bytes on disk of all that is in some folders: the sum so far, now and then, and at the end. Follows no link."""
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
    """The processes below this one."""
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
