"""Which process runs a gc, so that the next gc can tell whether that one still lives. Layer: repository.

An owner is 28 bytes: a random number, the machine (its boot, and its namespace of process ids), the process id, and when the process
started, since ids are used again. A wrong verdict costs the gc that it deposes its work, and nothing else: the fence stops that gc.
"""

from __future__ import annotations

import os
import secrets
import socket
import struct
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

from blake3 import blake3

_RANDOM_SIZE: Final = 8
_FIELDS: Final = struct.Struct(">8sIQ")  # machine, process id, start time

_running: Final[set[bytes]] = set()
"""The owners whose gc runs in this process."""


def new_owner() -> bytes:
    """The owner for a gc that this process is about to run; ``retire`` must follow."""
    owner = secrets.token_bytes(_RANDOM_SIZE) + _FIELDS.pack(_machine(), os.getpid(), _started(os.getpid()))
    _running.add(owner)
    return owner


def retire(owner: bytes) -> None:
    """Note that the gc of this owner has ended, in whatever way."""
    _running.discard(owner)


def is_dead(owner: bytes) -> bool:
    """Whether the gc of this owner is known to have ended. False if its process runs, or runs on another machine."""
    if len(owner) != _RANDOM_SIZE + _FIELDS.size:
        return False
    machine, process, started = _FIELDS.unpack(owner[_RANDOM_SIZE:])
    if machine != _machine():
        return False
    if process == os.getpid() and started == _started(process):
        return owner not in _running
    return not _runs(process, started)


def _machine() -> bytes:
    name = socket.gethostname()
    with suppress(OSError):  # only Linux has these
        name += Path("/proc/sys/kernel/random/boot_id").read_text("ascii")
        name += str(Path("/proc/self/ns/pid").readlink())
    return blake3(name.encode("utf-8", "surrogateescape")).digest(length=8)


def _stat(process: int) -> list[str]:
    """The fields of a process from its state on, or none where the system does not tell."""
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
