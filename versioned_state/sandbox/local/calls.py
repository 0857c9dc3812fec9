"""A call under way in a supervisor: its process, its limit and its output. Layer: sandbox, in the supervisor."""

from __future__ import annotations

import socket
from dataclasses import dataclass, field
from typing import Final

MARK: Final = 16
"""Bytes of the mark with which an interpreter ends the output of a cell.

It is new for each cell, so that no cell prints it by chance.
"""


class Output:
    """The output of a call: its beginning and its end, if it is more than the limit.

    Args:
        limit: bytes that are kept.
    """

    def __init__(self, limit: int) -> None:
        self._half = max(limit // 2, 1)
        self._head = bytearray()
        self._tail = bytearray()
        self._left_out = 0

    def add(self, data: bytes) -> None:
        """Take in more of it."""
        room = self._half - len(self._head)
        self._head += data[:room] if room > 0 else b""
        self._tail += data[max(room, 0) :]
        over = len(self._tail) - self._half
        if over > 0:
            self._left_out += over
            del self._tail[:over]

    def text(self) -> str:
        """Return the text that was kept."""
        head, tail = bytes(self._head), bytes(self._tail)
        if not self._left_out:
            return (head + tail).decode("utf-8", "replace")
        return (
            f"{head.decode('utf-8', 'replace')}\n[... {self._left_out} bytes left out ...]\n"
            f"{tail.decode('utf-8', 'replace')}"
        )


@dataclass
class Call:
    """A call under way.

    Attributes:
        process: the shell of a command.
        note: why it ends as it does, for the reader of its output.
        interrupted: whether its cell was interrupted.
        failed: whether its cell raised.
        status: the exit status of its command, or minus the signal that ended it; None for a cell.
    """

    id: int
    is_cell: bool
    limit: float
    deadline: float
    output: Output
    process: int = 0
    note: str = ""
    interrupted: bool = False
    failed: bool = False
    status: int | None = None


@dataclass
class Worker:
    """The interpreter of cells.

    Attributes:
        unsent: the part of a cell that is still to be sent.
        mark: the answer of the interpreter once the cell has ended.
        heard: the end of all that came from it: a cell may have written anything before the mark.
    """

    process: int
    control: socket.socket
    unsent: bytearray = field(default_factory=bytearray)
    mark: bytes = b""
    heard: bytes = b""
