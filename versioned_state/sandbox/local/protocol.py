"""The messages between a sandbox and its supervisor: frames of JSON over a socket. Layer: sandbox, on both sides."""

from __future__ import annotations

import json
import struct
from dataclasses import asdict, dataclass
from typing import Any, Final

_HEADER: Final = struct.Struct(">4sI")
_MAGIC: Final = b"vssb"

MAX_FRAME: Final = 64 << 20
"""The largest frame, in bytes."""


@dataclass(frozen=True)
class Isolation:
    """The isolation of a sandbox's processes by the kernel: each attribute that is True holds.

    Attributes:
        network: there is no network but a loopback interface of their own.
        processes: they see no processes but their own, and cannot outlive the sandbox.
        files: they write in the folder of the sandbox alone, and read there, in Python and in the programs of the
            system.
    """

    network: bool = False
    processes: bool = False
    files: bool = False


@dataclass(frozen=True)
class Settings:
    """The settings of a supervisor, sent at its start.

    Attributes:
        folder: where code runs.
        home: a folder for temporary files, which is the home directory too.
        python: the interpreter that runs cells.
        temporary: folders to remove if the program dies.
        readable: folders and files that may be read, beside those of the system.
        namespaces: whether to try namespaces.
        landlock: whether to try Landlock.
        network: whether the network of the machine stays.
        max_memory: bytes of each process.
        max_file_bytes: bytes of each file.
        max_total_memory: bytes of all processes together.
        max_folder_bytes: bytes on disk of the folder and the home directory together.
        max_processes: processes at once.
        max_output: bytes of output of one call.
    """

    folder: str
    home: str
    python: str
    temporary: tuple[str, ...]
    readable: tuple[str, ...]
    namespaces: bool
    landlock: bool
    network: bool
    max_memory: int
    max_file_bytes: int
    max_total_memory: int
    max_folder_bytes: int
    max_processes: int
    max_output: int

    def dump(self) -> str:
        """Return the settings as a text."""
        return json.dumps(asdict(self))

    @classmethod
    def load(cls, text: str) -> Settings:
        """Return the settings of a text."""
        return cls(**json.loads(text))


class FrameError(Exception):
    """Bytes that are not a frame."""


def frame(message: dict[str, Any]) -> bytes:
    """Return a message as a frame."""
    body = json.dumps(message).encode()
    return _HEADER.pack(_MAGIC, len(body)) + body


class Frames:
    """The frames in a stream of bytes, as they come in."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> None:
        """Take in what the stream had next."""
        self._buffer += data

    def take(self) -> dict[str, Any] | None:
        """Return the next whole message, if there is one. Raises ``FrameError``."""
        if len(self._buffer) < _HEADER.size:
            return None
        magic, length = _HEADER.unpack_from(self._buffer)
        if magic != _MAGIC or length > MAX_FRAME:
            raise FrameError
        end = _HEADER.size + length
        if len(self._buffer) < end:
            return None
        body = bytes(self._buffer[_HEADER.size : end])
        del self._buffer[:end]
        try:
            message = json.loads(body)
        except ValueError as error:
            raise FrameError from error
        if not isinstance(message, dict):
            raise FrameError
        return message
