"""Owners: the process that does a piece of work, so that another process can tell whether it still does.

Layer: repository.

The id of an owner is 28 bytes: a random number, the machine (its boot, and its namespace of process ids), the process
id, and the time at which the process started, since systems reuse process ids.
"""

from __future__ import annotations

import os
import secrets
import socket
import struct
import sys
from contextlib import suppress
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Final
from weakref import WeakValueDictionary

from blake3 import blake3

_RANDOM_SIZE: Final = 8
_FIELDS: Final = struct.Struct(">8sIQ")  # machine, process id, start time

OWNER_SIZE: Final = _RANDOM_SIZE + _FIELDS.size


class Life(Enum):
    """Whether an owner still does its work, as far as this process can know."""

    RUNS = "runs"
    ENDED = "ended"
    UNKNOWN = "unknown"
    """The owner is on another machine, or the id has another form."""


class Owner:
    """A piece of work of this process, until ``end()`` or until nothing refers to the object any more.

    An interrupt may keep ``end()`` from running.

    Attributes:
        id: the bytes that identify it to other processes, and to other calls of this process.
    """

    __slots__ = ("__weakref__", "id")

    def __init__(self) -> None:
        process = os.getpid()
        self.id: Final = secrets.token_bytes(_RANDOM_SIZE) + _FIELDS.pack(*_here(process))
        _running[self.id] = self

    def end(self) -> None:
        """Note that the work has ended, in whatever way."""
        _running.pop(self.id, None)


_running: Final[WeakValueDictionary[bytes, Owner]] = WeakValueDictionary()
"""The owners that are at work in this process."""


def life_of(owner: bytes) -> Life:
    """Return whether the owner with this id is still at work.

    Cost: a few reads of ``/proc`` on Linux, if it is another process.
    """
    if len(owner) != OWNER_SIZE:
        return Life.UNKNOWN
    machine, process, started = _FIELDS.unpack(owner[_RANDOM_SIZE:])
    here = _here(os.getpid())
    if machine != here[0]:
        return Life.UNKNOWN
    runs = owner in _running if (process, started) == here[1:] else _runs(process, started)
    return Life.RUNS if runs else Life.ENDED


@cache
def _here(process: int) -> tuple[bytes, int, int]:
    """Return the machine, this process and its start. The argument makes a forked child determine them again."""
    return _machine(), process, _started(process)


def _machine() -> bytes:
    name = socket.gethostname()
    with suppress(OSError):  # only Linux has these
        name += Path("/proc/sys/kernel/random/boot_id").read_text("ascii")
        name += str(Path("/proc/self/ns/pid").readlink())
    return blake3(name.encode("utf-8", "surrogateescape")).digest(length=8)


def _stat(process: int) -> list[str]:
    """Return the fields of a process from its state on, or none if the system does not have them."""
    try:
        # The second field is the program's name in parentheses, which may hold blanks and parentheses.
        return Path(f"/proc/{process}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    except OSError:
        return []


def _started(process: int) -> int:
    fields = _stat(process)
    return int(fields[19]) if len(fields) > 19 else 0


def _runs(process: int, started: int) -> bool:
    fields = _stat(process)
    if fields:
        return fields[0] not in ("Z", "X") and (not started or int(fields[19]) == started)
    if sys.platform == "win32":  # os.kill() would end it
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True
