"""The stored form of an object: compressed if that helps, as a zstd frame that states its raw length. Layer: objects.

The address does not cover the envelope, so another compression level or algorithm changes no hash. An object may be
stored *in segments*: its envelope names other objects that hold parts of the raw bytes, and contains the remaining
bytes. So a leaf that grows by one element does not store the others again. A segment is never stored in segments
itself, and the raw bytes alone determine the segments.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Self

from versioned_state.errors import LimitExceededError
from versioned_state.objects.address import ADDRESS_SIZE, Address, Kind

MAX_OBJECT = 1 << 20
"""Raw bytes of the largest object.

Nodes and chunks end at 64 KiB and below; the rest is room for long keys and messages.
"""

MAX_SEGMENTS: Final = 255
"""Segments of the largest object; their number takes one byte."""

MAX_HEAD: Final = 255
"""Raw bytes that may precede the first segment, for the same reason."""

MAX_SEGMENT: Final = 1 << 13
"""Raw bytes of the largest segment: cells of less than 512 bytes together and one more, of 4,096 at most."""

_PLAIN = 0
_ZSTD = 1
_SEGMENTS = 2
"""Added to the form of the rest of an object that is in segments."""

_WORTH_COMPRESSING = 140
"""Bytes from which zstd gains more than its frame costs.

It was measured on leaves of real conversations, and gains 3 % at 127 bytes and 14 % at 148.
"""

_CONTENT = frozenset({Kind.SEQUENCE_LEAF, Kind.MAP_LEAF, Kind.CHUNK, Kind.SEGMENT})
"""The kinds that hold values.

The others are mostly addresses, which hardly compress. Over 5,308 real commits, compressing them too would make the
store 1.2 % smaller, at twice as many compressions.
"""

_GROWING = frozenset({Kind.SEQUENCE_LEAF, Kind.SEQUENCE_NODE})
"""The kinds that may be in segments."""

_LEVEL = 1
"""Level 3 saves 2 % more and takes 10 to 30 % longer; a higher one takes several times as long."""


class _Codecs(threading.local):
    """zstd contexts, one set for each thread.

    Threads must not share them, and making one for each object would cost too much.
    """

    compress: Callable[[bytes], bytes]
    decompress: Callable[[bytes], bytes]
    size_of: Callable[[bytes], int]
    error: type[Exception]

    def __getattr__(self, name: str) -> Any:
        """Make the contexts of a thread at their first use: a small state needs none, and loading zstd takes long."""
        if name not in _Codecs.__annotations__:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)
        from zstandard import ZstdCompressor, ZstdDecompressor, ZstdError, frame_content_size

        self.error = ZstdError
        self.size_of = frame_content_size
        self.compress = ZstdCompressor(level=_LEVEL, write_checksum=False).compress
        # A frame must not require a window larger than an object.
        self.decompress = ZstdDecompressor(max_window_size=2 * MAX_OBJECT).decompress
        return self.__dict__[name]


_codecs = _Codecs()


IN_SEGMENTS: Final = frozenset({bytes((_SEGMENTS + _PLAIN,)), bytes((_SEGMENTS + _ZSTD,))})
"""The first byte of an envelope that names segments."""


Segment = tuple[Address, int]
"""A segment of an object: the address of the segment, and how many of the object's raw bytes it has."""


class Segmented(bytes):
    """Raw bytes of an object that is stored in segments.

    Attributes:
        head: how many bytes precede the first segment.
        segments: they follow each other.
        tail: where the last segment ends. The bytes after it are in the envelope, like those of the head.
    """

    head: int
    segments: tuple[Segment, ...]
    tail: int

    def __new__(cls, raw: bytes, head: int, segments: tuple[Segment, ...], tail: int) -> Self:
        made = bytes.__new__(cls, raw)
        made.head, made.segments, made.tail = head, segments, tail
        return made

    def parts(self) -> Iterator[tuple[Address, bytes]]:
        """Yield each segment as an object of its own: its address and its raw bytes, kind first."""
        start = self.head
        for address, size in self.segments:
            yield address, segment_of(self[start : start + size])
            start += size


def segment_of(content: bytes) -> bytes:
    """Return the raw bytes of a segment with this content."""
    return b"\x15" + content


def seal(raw: bytes) -> bytes:
    """Convert raw bytes to stored bytes. Raises ``LimitExceededError`` above ``MAX_OBJECT``."""
    size = len(raw)
    if size > MAX_OBJECT:
        raise LimitExceededError(f"an object of {size} bytes", limit=MAX_OBJECT)
    if type(raw) is Segmented:
        return _seal_rest(raw)
    if size >= _WORTH_COMPRESSING and raw[0] in _CONTENT:
        packed = _codecs.compress(raw)
        if len(packed) < size:
            return b"\x01" + packed
    return b"\0" + raw


def _seal_rest(raw: Segmented) -> bytes:
    rest = raw[: raw.head] + raw[raw.tail :]
    form = _SEGMENTS
    if len(rest) >= _WORTH_COMPRESSING:
        sealed = seal(rest)
        form, rest = _SEGMENTS + sealed[0], sealed[1:]
    return b"".join([bytes((form, len(raw.segments), raw.head)), *[address for address, _ in raw.segments], rest])


def segments_in(stored: bytes) -> list[Address]:
    """Return the addresses of the segments that an envelope names, or none if the object is stored whole.

    Raises ``ValueError``.
    """
    if stored[:1] not in IN_SEGMENTS:
        return []
    count = stored[1] if len(stored) > 1 else 0
    end = 3 + count * ADDRESS_SIZE
    if not count or len(stored) < end:
        raise ValueError("it does not name its segments")
    return [Address(stored[start : start + ADDRESS_SIZE]) for start in range(3, end, ADDRESS_SIZE)]


def join(stored: bytes, names: list[Address], segments: Mapping[Address, bytes]) -> Segmented:
    """Return the raw bytes of an object that is stored in segments.

    Args:
        names: those that the envelope names.
        segments: the raw bytes of each, as ``unseal_segment`` gives them.

    Raises:
        ValueError: the envelope is damaged, or an object of another kind is named as a segment; the message says how.
    """
    head = stored[2]
    rest = unseal(bytes((stored[0] - _SEGMENTS,)) + stored[3 + len(names) * ADDRESS_SIZE :])
    if not 0 < head <= len(rest) or rest[0] not in _GROWING:
        raise ValueError("an object of its kind is not stored in segments")
    parts = [rest[:head]]
    for name in names:
        raw = segments[name]
        if raw[:1] != b"\x15":
            raise ValueError(f"{name.hex()} is not a segment")
        parts.append(raw[1:])
    parts.append(rest[head:])
    whole = b"".join(parts)
    if len(whole) > MAX_OBJECT:
        raise ValueError(f"{len(whole)} bytes are beyond the limit of {MAX_OBJECT}")
    return Segmented(whole, head, tuple(zip(names, map(len, parts[1:-1]), strict=True)), len(whole) - len(parts[-1]))


def unseal_segment(stored: bytes) -> bytes:
    """Convert the stored bytes of a segment to raw bytes.

    Raises ``ValueError``, also if they are too long for a segment.
    """
    return unseal(stored, limit=MAX_SEGMENT)


def unseal(stored: bytes, *, limit: int = MAX_OBJECT) -> bytes:
    """Convert the stored bytes of an object that is stored whole to raw bytes.

    The length is checked before memory is taken.

    Raises:
        ValueError: the envelope is damaged; the message says how.
    """
    if not stored:
        raise ValueError("it is empty")
    form = stored[0]
    if form == _ZSTD:
        frame = stored[1:]
        try:
            # zstd allocates the size that the frame states, so the frame must state one, within the limit.
            size = _codecs.size_of(frame)
            if not 0 <= size <= limit:
                raise ValueError(f"it states {size} raw bytes; the limit is {limit}")
            return _codecs.decompress(frame)
        except _codecs.error as error:
            raise ValueError(f"it does not decompress: {error}") from error
    if form != _PLAIN:
        if stored[:1] in IN_SEGMENTS:
            raise ValueError("it is in segments, and a segment, or another object that is read by itself, cannot be")
        raise ValueError(f"this release does not know envelopes of form {form}")
    if len(stored) > limit + 1:
        raise ValueError(f"{len(stored)} bytes are beyond the limit of {limit}")
    return stored[1:]
