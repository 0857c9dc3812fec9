"""How an object lies in a store: compressed where that helps, with its raw length in front. Layer: objects.

The envelope is outside the address, so it may change (another level, another algorithm) and no hash with it.
"""

from __future__ import annotations

import threading

import zstandard

from versioned_state.errors import LimitExceededError

MAX_OBJECT = 1 << 20
"""Raw bytes of the largest object. Trees cut at 64 KiB and below; the rest is room for long keys and messages."""

_PLAIN = 0
_ZSTD = 1

_WORTH_COMPRESSING = 100
"""Bytes from which zstd gains more than its frame costs, measured on commits and leaves of real conversations."""

_LEVEL = 3


class _Codecs(threading.local):
    """zstd contexts are not to be shared by threads, and are too dear to make for each object."""

    def __init__(self) -> None:
        # Without the content size in the frame, nothing in the frame decides how much memory a reader takes.
        self.compress = zstandard.ZstdCompressor(level=_LEVEL, write_content_size=False, write_checksum=False).compress
        self.decompress = zstandard.ZstdDecompressor().decompress


_codecs = _Codecs()


def seal(raw: bytes) -> bytes:
    """Raw bytes to stored bytes. Raises ``LimitExceededError`` above ``MAX_OBJECT``."""
    size = len(raw)
    if size > MAX_OBJECT:
        raise LimitExceededError(f"an object of {size} bytes", limit=MAX_OBJECT)
    if size >= _WORTH_COMPRESSING:
        packed = _codecs.compress(raw)
        if len(packed) + 4 < size:
            return b"%c%b%b" % (_ZSTD, size.to_bytes(3, "big"), packed)
    return b"\0" + raw


def unseal(stored: bytes) -> bytes:
    """Stored bytes to raw bytes.

    The length in the envelope is checked before memory is taken.

    Raises:
        ValueError: the envelope is damaged; the message says how.
    """
    if not stored:
        raise ValueError("it is empty")
    form = stored[0]
    if form == _PLAIN:
        if len(stored) > MAX_OBJECT + 1:
            raise ValueError(f"{len(stored)} bytes are beyond the limit of {MAX_OBJECT}")
        return stored[1:]
    if form != _ZSTD:
        raise ValueError(f"unknown envelope {form}")
    size = int.from_bytes(stored[1:4], "big")
    if size > MAX_OBJECT:
        raise ValueError(f"{size} raw bytes are beyond the limit of {MAX_OBJECT}")
    try:
        raw = _codecs.decompress(memoryview(stored)[4:], max_output_size=size)
    except zstandard.ZstdError as error:
        raise ValueError(f"it does not decompress: {error}") from error
    if len(raw) != size:
        raise ValueError(f"{len(raw)} raw bytes where the envelope says {size}")
    return raw
