"""Looks at what sandboxes leave: processes with a mark in their command line, and open files."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from secrets import token_hex

LEAVE_BEHIND = """
import os, subprocess
for _ in range(2):
    if os.fork() == 0:  # a child of the init process, in a session of its own, that ignores all signals it can
        os.setsid()
        if os.fork() == 0:
            os.execvp("sh", ["sh", "-c", "trap '' HUP INT TERM; sleep {mark}; sleep {mark}"])
        os._exit(0)
subprocess.Popen(["sleep", "{mark}"], start_new_session=True)
subprocess.Popen(["sleep", "{mark}"])
"left"
"""
"""A cell that starts processes that detach themselves. ``{mark}`` is a ``mark()``."""


def mark() -> str:
    """Return a number of seconds that no other process sleeps."""
    return f"9{int(token_hex(6), 16)}"


def marked(mark: str) -> list[str]:
    """Return the command lines of the processes that have a mark in theirs."""
    found = []
    for each in Path("/proc").iterdir():
        if each.name.isdigit():
            with suppress(OSError):
                line = (each / "cmdline").read_bytes().replace(b"\\0", b" ")
                if mark.encode() in line:
                    found.append(line.decode(errors="replace"))
    return found


def open_files() -> int:
    """Return how many descriptors this process has open."""
    return sum(1 for _ in Path("/proc/self/fd").iterdir())
