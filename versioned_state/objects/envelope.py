"""The stored form of an object: compressed if that helps, as a zstd frame that says its raw length. Layer: objects.

The envelope is outside the address, so it may change (another level, another algorithm) and no hash with it.
"""

from __future__ import annotations

import threading

from zstandard import ZstdCompressor, ZstdDecompressor, ZstdError, frame_content_size

from versioned_state.errors import LimitExceededError
from versioned_state.objects.address import Kind

MAX_OBJECT = 1 << 20
"""Raw bytes of the largest object. Nodes and chunks end at 64 KiB and below; the rest is room for long keys and messages."""

_PLAIN = 0
_ZSTD = 1

_WORTH_COMPRESSING = 100
"""Bytes from which zstd gains more than its frame costs, measured on leaves of real conversations."""

_CONTENT = frozenset({Kind.SEQUENCE_LEAF, Kind.MAP_LEAF, Kind.CHUNK})
"""The kinds that hold values. The others are mostly addresses, which hardly compress: over 5,308 real commits it would make the store
1.2 % smaller, and compress twice as often."""

_LEVEL = 1
"""Level 3 saves 2 % more and takes 10 to 30 % longer; a higher one is several times dearer."""


class _Codecs(threading.local):
    """zstd contexts are not to be shared by threads, and are too dear to make for each object."""

    def __init__(self) -> None:
        self.compress = ZstdCompressor(level=_LEVEL, write_checksum=False).compress
        # No frame may ask for a window beyond an object's own size.
        self.decompress = ZstdDecompressor(max_window_size=2 * MAX_OBJECT).decompress


_codecs = _Codecs()


def seal(raw: bytes) -> bytes:
    """Raw bytes to stored bytes. Raises ``LimitExceededError`` above ``MAX_OBJECT``."""
    size = len(raw)
    if size > MAX_OBJECT:
        raise LimitExceededError(f"an object of {size} bytes", limit=MAX_OBJECT)
    if size >= _WORTH_COMPRESSING and raw[0] in _CONTENT:
        packed = _codecs.compress(raw)
        if len(packed) < size:
            return b"\x01" + packed
    return b"\0" + raw


def unseal(stored: bytes) -> bytes:
    """Stored bytes to raw bytes.

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
            # Memory is taken by the size that the frame gives, so it must give one, and within the limit.
            size = frame_content_size(frame)
            if not 0 <= size <= MAX_OBJECT:
                raise ValueError(f"it says that it has {size} raw bytes; the limit is {MAX_OBJECT}")
            return _codecs.decompress(frame)
        except ZstdError as error:
            raise ValueError(f"it does not decompress: {error}") from error
    if form != _PLAIN:
        raise ValueError(f"unknown envelope {form}")
    if len(stored) > MAX_OBJECT + 1:
        raise ValueError(f"{len(stored)} bytes are beyond the limit of {MAX_OBJECT}")
    return stored[1:]
