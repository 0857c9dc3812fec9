"""Keys as bytes, for stores that keep them so: half as long for an address, and in an order that no collation has a say in."""

from __future__ import annotations

from versioned_state.storage.base import OBJECT_PREFIX


def raw_key(key: str) -> bytes | None:
    """The bytes that stand for `o/<hex>` in the table of objects; None for any other key.

    Hex that is odd, or has capitals, is an object's key too by contract, but no address of ours: it
    is kept among the entries, whole.
    """
    if not key.startswith(OBJECT_PREFIX):
        return None
    digits = key[2:]
    try:
        raw = bytes.fromhex(digits)
    except ValueError:
        return None
    return raw if raw.hex() == digits else None


def text_range(prefix: str) -> tuple[bytes, bytes | None]:
    """The first key that starts with `prefix`, and the first after those (None: there is no end)."""
    start = prefix.encode()
    # UTF-8 has no byte 0xff, so the last byte can always be raised.
    return start, start[:-1] + bytes((start[-1] + 1,)) if start else None


def hex_range(digits: str) -> tuple[bytes, bytes | None]:
    """The same for keys whose hex starts with `digits`, which may be odd in number."""
    pad = "0" * (len(digits) % 2)
    start = bytes.fromhex(digits + pad)
    if not digits.strip("f"):
        return start, None
    return start, bytes.fromhex(f"{int(digits, 16) + 1:0{len(digits)}x}" + pad)
