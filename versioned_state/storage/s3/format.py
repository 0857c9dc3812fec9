"""The format of an ``S3`` store: the bytes of a cell, and the name of the S3 object that holds it.

Pure functions. Layer: storage.

A cell holds the value of a key or the fact that there is none; the ids of the latest writes, which show a writer whose
answer was lost whether its write was done; and, while a batch of several keys is under way, the pending value. A cell
is replaced by conditional PUT only. docs/design/010-s3.md has the protocol.
"""

from __future__ import annotations

import os
import string
from dataclasses import dataclass
from hashlib import sha256
from struct import Struct
from typing import Final
from zlib import crc32

from versioned_state.storage.base import OBJECT_PREFIX

# Names


# These characters stand for themselves. A slash becomes "-", which is readable in a listing of the bucket and makes no
# folder; each byte of any other character becomes "." and two digits. So a prefix of a key gives a prefix of its name.
_PLAIN: Final = frozenset(string.ascii_letters + string.digits + "_")

# Ends each name. It sorts before every character of a name, so a listing that starts after a prefix includes every name
# that begins with the prefix.
_END: Final = "!"

# S3 allows names of 1024 bytes, of which up to 300 may be the store's prefix. A longer name is shortened, and ends in a
# hash of the key.
_LONGEST: Final = 600
_HEAD: Final = 500


def name_of(key: str) -> str:
    """Return the name of a key's cell, relative to the store's prefix.

    It is in ``o/`` for an object, and in ``e/`` for a mutable key.
    """
    folder, text = _split(key)
    name = "".join(map(_escape, text))
    if len(name) > _LONGEST:
        return f"{folder}{_head(text)}{_END}{sha256(text.encode()).hexdigest()}"
    return f"{folder}{name}{_END}"


def names_below(prefix: str) -> list[str]:
    """Return the beginnings of the names of all keys with that prefix.

    If the prefix is very long, names of other keys may share them.
    """
    folder, text = _split(prefix)
    name = "".join(map(_escape, text))
    # A key with a long prefix may have a full or a shortened name; both begin with the same head.
    starts = [folder + (_head(text) if len(name) > _HEAD else name)]
    if OBJECT_PREFIX.startswith(prefix) and prefix != OBJECT_PREFIX:
        starts.append(OBJECT_PREFIX)
    return starts


def key_in(name: str) -> str | None:
    """Return the key of a name, or None if only the cell itself can tell.

    Raises ``ValueError`` for a name that is not a cell's.
    """
    folder, text = name[:2], name[2:]
    body, end, digest = text.partition(_END)
    if not end or "/" in text or folder not in ("o/", "e/"):
        raise ValueError(f"not the name of a cell: {name!r}")
    if digest:
        return None
    raw = bytearray()
    at = 0
    while at < len(body):
        if body[at] == ".":
            raw.append(int(body[at + 1 : at + 3], 16))
            at += 3
        else:
            raw += b"/" if body[at] == "-" else body[at].encode()
            at += 1
    key = (OBJECT_PREFIX if folder == "o/" else "") + raw.decode()
    if name_of(key) != name:
        raise ValueError(f"not the name of a cell: {name!r}")
    return key


def _split(key: str) -> tuple[str, str]:
    return ("o/", key[len(OBJECT_PREFIX) :]) if key.startswith(OBJECT_PREFIX) else ("e/", key)


def _escape(char: str) -> str:
    if char in _PLAIN:
        return char
    return "-" if char == "/" else "".join(f".{byte:02x}" for byte in char.encode())


def _head(text: str) -> str:
    head = ""
    for char in text:
        escaped = _escape(char)
        if len(head) + len(escaped) > _HEAD:
            break
        head += escaped
    return head


# Cells


WRITE_SIZE: Final = 8

# How many earlier writes a cell remembers. A writer whose answer was lost can tell whether its write was done if fewer
# writes followed. It reads again at once, and 64 writes to one key, of at least 15 ms each, take a second. They cost
# half a kilobyte.
HISTORY: Final = 64

_MAGIC: Final = b"vs3\x01"
_HEADER: Final = Struct(">4sBBIQ")  # magic, flags, writes remembered, bytes of the key, bytes of the value
_PENDING: Final = Struct(">16sIQ")  # batch, its number of keys, bytes of the value to put
_CHECKSUM: Final = Struct(">I")
_HAS_VALUE, _HAS_PENDING, _HAS_NEXT = 1, 2, 4


@dataclass(frozen=True, slots=True)
class Pending:
    """The value that a batch of several keys gives to a cell once the batch is committed.

    Attributes:
        batch: 16 random bytes that name the batch's decision.
        value: None if the batch deletes the key.
        size: how many keys the batch has; others wait longer for a large batch.
    """

    batch: bytes
    value: bytes | None
    size: int


@dataclass(frozen=True, slots=True)
class Cell:
    """The record of one key.

    Attributes:
        value: None if the key does not exist.
        write: 8 random bytes that identify this write. They also make the ETag of every version unique.
        past: the ids of the writes before it, the latest first.
    """

    key: str
    value: bytes | None
    write: bytes
    past: tuple[bytes, ...] = ()
    pending: Pending | None = None

    def remembers(self, write: bytes) -> bool:
        """Return whether ``write`` is this cell's write or one of the earlier writes that it remembers."""
        return write == self.write or write in self.past

    @property
    def remembers_all(self) -> bool:
        """Whether the cell remembers all its writes."""
        return len(self.past) < HISTORY


def next_cell(key: str, before: Cell | None, value: bytes | None, pending: Pending | None = None) -> Cell:
    """Return the cell that replaces ``before``."""
    past = () if before is None else (before.write, *before.past)[:HISTORY]
    return Cell(key, value, os.urandom(WRITE_SIZE), past, pending)


# A listing shows sizes and not contents, so the size modulo 4 encodes the kind of a cell.
PRESENT, ABSENT, UNDECIDED = 0, 1, 2


def kind_of(size: int) -> int:
    """Return ``PRESENT``, ``ABSENT``, or ``UNDECIDED`` if the cell must be read."""
    return size % 4


def write_cell(cell: Cell) -> bytes:
    """Return a cell as bytes: the key, the value, 8 bytes for each remembered write, and about 80 more."""
    flags = 0 if cell.value is None else _HAS_VALUE
    value, more, tail = cell.value or b"", b"", b""
    kind = PRESENT if flags else ABSENT
    if cell.pending is not None:
        kind = UNDECIDED
        tail = cell.pending.value or b""
        flags |= _HAS_PENDING | (0 if cell.pending.value is None else _HAS_NEXT)
        more = _PENDING.pack(cell.pending.batch, cell.pending.size, len(tail))
    key = cell.key.encode()
    head = (
        _HEADER.pack(_MAGIC, flags, len(cell.past), len(key), len(value))
        + cell.write
        + b"".join(cell.past)
        + key
        + more
    )
    # The layer above verifies values, so the checksum covers only the rest.
    body = head + _CHECKSUM.pack(crc32(head)) + value + tail
    return body + bytes((kind - len(body)) % 4)


def read_cell(body: bytes) -> Cell:
    """Return the cell in ``body``. Raises ``ValueError`` if the bytes are damaged or not a cell."""
    try:
        magic, flags, count, key_size, value_size = _HEADER.unpack_from(body)
        if magic != _MAGIC:
            raise ValueError("it is not a cell, or a newer release wrote it")
        at = _HEADER.size
        writes = [body[at + WRITE_SIZE * i : at + WRITE_SIZE * (i + 1)] for i in range(count + 1)]
        at += WRITE_SIZE * (count + 1)
        key = body[at : at + key_size].decode()
        at += key_size
        batch, size, next_size = b"", 0, 0
        if flags & _HAS_PENDING:
            batch, size, next_size = _PENDING.unpack_from(body, at)
            at += _PENDING.size
        (checksum,) = _CHECKSUM.unpack_from(body, at)
        if checksum != crc32(body[:at]):
            raise ValueError("it does not match its checksum")
    except Exception as error:
        # struct.error, and the UnicodeDecodeError of a damaged key
        raise ValueError(str(error)) from error
    start = at + _CHECKSUM.size
    end = start + value_size + next_size
    if not end <= len(body) < end + 4:
        raise ValueError(f"it has {len(body)} bytes and should have {end}")
    value = body[start : start + value_size] if flags & _HAS_VALUE else None
    pending = (
        Pending(batch, body[end - next_size : end] if flags & _HAS_NEXT else None, size)
        if flags & _HAS_PENDING
        else None
    )
    return Cell(key, value, writes[0], tuple(writes[1:]), pending)
