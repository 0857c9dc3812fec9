"""Keys as bytes, for stores that keep bytes: an address takes half the space, and no collation affects the order.

Layer: storage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Literal

from versioned_state.storage.base import OBJECT_PREFIX, may_list_objects

ByteRange = tuple[bytes, bytes | None]
"""The first key of a range, and the first key after it, or None if the range has no end."""


def raw_key(key: str) -> bytes | None:
    """Return the bytes that stand for ``o/<hex>`` in the table of objects, or None for any other key.

    Hex with capitals, or with an odd number of digits, is an object's key by contract but not an address. Such a key is
    kept whole, among the entries.
    """
    if key[:2] != OBJECT_PREFIX:
        return None
    digits = key[2:]
    try:
        raw = bytes.fromhex(digits)
    except ValueError:
        return None
    return raw if raw.hex() == digits else None


def split_keys(keys: Iterable[str]) -> tuple[dict[bytes, str], dict[bytes, str]]:
    """Return the keys by the bytes that stand for them in the table of objects, and those by which they are entries."""
    objects: dict[bytes, str] = {}
    entries: dict[bytes, str] = {}
    for key in keys:
        if key[:2] == OBJECT_PREFIX and (raw := raw_key(key)) is not None:
            objects[raw] = key
        else:
            entries[key.encode()] = key
    return objects, entries


def text_range(prefix: str) -> ByteRange:
    """Return the range of the entries whose key starts with ``prefix``."""
    start = prefix.encode()
    # UTF-8 has no byte 0xff, so the last byte can always be raised.
    return start, start[:-1] + bytes((start[-1] + 1,)) if start else None


def page_range(prefix: str, after: str | None, *, reverse: bool) -> ByteRange:
    """Return the range of a page of entries: those that start with ``prefix``, beyond ``after``."""
    start, end = text_range(prefix)
    if after is None:
        return start, end
    edge = after.encode()
    if reverse:
        return start, edge if end is None else min(edge, end)
    return max(start, edge + b"\0"), end


def address_range(prefix: str) -> ByteRange | None:
    """Return the range of the addresses whose key ``o/<hex>`` starts with ``prefix``, or None if there can be none."""
    if not may_list_objects(prefix):
        return None
    digits = prefix[len(OBJECT_PREFIX) :]
    if not all(digit in "0123456789abcdef" for digit in digits):
        return None
    pad = "0" * (len(digits) % 2)  # an odd number of digits ends within a byte
    start = bytes.fromhex(digits + pad)
    if not digits.strip("f"):
        return start, None
    return start, bytes.fromhex(f"{int(digits, 16) + 1:0{len(digits)}x}" + pad)


def listed(
    prefix: str,
    raws: Callable[[Literal["entries", "objects"], bytes, bytes | None], Iterator[bytes]],
    text: Callable[[bytes], str],
) -> Iterator[str]:
    """Yield the keys that start with ``prefix``: those of the entries first, then those of the objects.

    Args:
        raws: yields the keys in a range of a table.
        text: makes the key of an entry from its bytes.
    """
    yield from map(text, raws("entries", *text_range(prefix)))
    addresses = address_range(prefix)
    if addresses is not None:
        for raw in raws("objects", *addresses):
            yield OBJECT_PREFIX + raw.hex()
