"""Data types as bytes and back, exactly: the extension codes of the format, and the types without parts. Layer: values.

MessagePack writes None, bool, int to 64 bits, float, str, list and dict; ``is_plain`` finds by exact type the values
that it may write. Every other type is an extension. MessagePack's bin type is never written for a value, so a leaf
without an extension holds JSON types only.
"""

from __future__ import annotations

import datetime as dt
import re
import struct
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from decimal import Decimal
from fractions import Fraction
from pathlib import PosixPath, PurePosixPath, PureWindowsPath, WindowsPath
from typing import Any, Final
from uuid import UUID, SafeUUID
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from versioned_state.errors import LimitExceededError, StateError
from versioned_state.values.cells import (
    MAX_COLLISIONS,
    MAX_DEPTH,
    Code,
    array,
    array_header,
    extension,
    pack,
    pack_text,
)

MANY: Final = 1 << 15
"""The number of containers from which a value is measured first: it may be a small one that repeats.

Its lists then share their parts, endlessly if these are followed at each of their places.
"""

_FRACTION_BITS: Final = 1 << 16
"""The most bits of a fraction: reducing a longer one takes longer than reading it should."""


_ZONE_KEY: Final = re.compile(r"[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*")


class TooDeepError(Exception):
    """More than ``MAX_DEPTH`` nested containers: the value contains itself, or is too deep."""


class NotDataError(Exception):
    """A value of a data type in a form that is not data, such as a datetime with a time zone of a user's own class."""


_SCALARS: Final = frozenset({str, int, float, bool, type(None)})
_only_randomised = frozenset({str, bytes}).issuperset
"""Types whose hashes have a secret of the process in them, so that nobody can make two values of one hash."""

_STR: Final = frozenset({str})
_only_scalars = _SCALARS.issuperset
_only_str = _STR.issuperset


def is_plain(value: Any, depth: int = 0, room: int = sys.maxsize) -> bool:
    """Return whether a value consists of exact JSON types, string keys included, in ``room`` containers or fewer.

    Raises ``TooDeepError``.

    Cost: about 20 ns a scalar, since whole containers of scalars are checked in C.
    """
    cls = type(value)
    if cls in _SCALARS:
        return True
    if cls is list:
        parts = value
    elif cls is dict:
        if not _only_str(map(type, value)):
            return False
        parts = value.values()
    else:
        return False
    if depth >= MAX_DEPTH:
        raise TooDeepError
    return _only_scalars(map(type, parts)) or _room_after(parts, depth + 1, room) >= 0


def _room_after(parts: Iterable[Any], depth: int, room: int) -> int:
    """Return the room that the values of a container at this depth leave.

    It is less than 0 if it does not suffice, or if not all are plain.
    """
    for part in parts:
        cls = type(part)
        if cls in _SCALARS:
            continue
        if cls is list:
            inside = part
        elif cls is dict and _only_str(map(type, part)):
            inside = part.values()
        else:
            return -1
        if depth >= MAX_DEPTH:
            raise TooDeepError
        room -= 1
        if not _only_scalars(map(type, inside)):
            room = _room_after(inside, depth + 1, room)
        if room < 0:
            return room
    return room


def check_hashes(keys: Collection[Any]) -> None:
    """Raise ``LimitExceededError`` if more than ``MAX_COLLISIONS`` different keys have one hash.

    Raises ``TypeError`` for a key without a hash. Cost: 60 ns a key, and 10 ns a key for strings.
    """
    if len(keys) > MAX_COLLISIONS and not _only_randomised(map(type, keys)):
        most = max(Counter(map(hash, keys)).values())
        if most > MAX_COLLISIONS:
            raise LimitExceededError(
                f"a dict or set of which {most:,} keys have one hash",
                limit=MAX_COLLISIONS,
                hint="store a list of pairs, or keys of another type, such as str(key)",
            )


def write_int(value: int) -> bytes:
    """Return a cell of an int of any size."""
    if -(1 << 63) <= value < 1 << 64:
        packed: bytes = pack(value)
        return packed
    return extension(Code.BIGINT, value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True))


def _ints(*values: int) -> list[bytes]:
    return [write_int(value) for value in values]


def _write_timezone(value: dt.timezone) -> bytes:
    offset = value.utcoffset(None)
    cells = _ints(offset.days, offset.seconds, offset.microseconds)
    if repr(value) != repr(dt.timezone(offset)):
        cells.append(pack_text(value.tzname(None)))
    return extension(Code.TIMEZONE, array(cells))


_UTC: Final = _write_timezone(dt.UTC)


def _write_zoneinfo(value: ZoneInfo) -> bytes:
    key: str | None = value.key  # typed as str; None if the zone was read from a file
    if key is None or not _ZONE_KEY.fullmatch(key):
        raise NotDataError("a ZoneInfo without a key, or with one that no time zone has")
    return extension(Code.ZONEINFO, key.encode())


def _write_tzinfo(value: dt.tzinfo | None) -> bytes:
    if value is None:
        return b"\xc0"
    if value is dt.UTC:
        return _UTC
    if type(value) is dt.timezone:
        return _write_timezone(value)
    if type(value) is ZoneInfo:
        return _write_zoneinfo(value)
    raise NotDataError(f"a time zone of type {type(value).__qualname__}")


def _write_datetime(v: dt.datetime) -> bytes:
    # Most messages have a datetime, so it is packed in one call, after the header of an array that holds the time zone
    # too.
    ints: bytes = pack([v.year, v.month, v.day, v.hour, v.minute, v.second, v.microsecond, v.fold])
    return extension(Code.DATETIME, array_header(9) + ints[1:] + _write_tzinfo(v.tzinfo))


def _write_time(v: dt.time) -> bytes:
    return extension(
        Code.TIME, array([*_ints(v.hour, v.minute, v.second, v.microsecond, v.fold), _write_tzinfo(v.tzinfo)])
    )


_SAFETY: Final = {SafeUUID.unknown: b"", SafeUUID.safe: b"\x00", SafeUUID.unsafe: b"\x01"}


def _write_uuid(value: UUID) -> bytes:
    return extension(Code.UUID, value.bytes + _SAFETY[value.is_safe])


def _read_uuid(payload: bytes) -> UUID:
    safety = {code: is_safe for is_safe, code in _SAFETY.items()}
    return UUID(bytes=payload[:16], is_safe=safety[payload[16:]])


def _write_fraction(value: Fraction) -> bytes:
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > _FRACTION_BITS:
        raise NotDataError("a fraction of very large ints")
    return extension(Code.FRACTION, array(_ints(value.numerator, value.denominator)))


def _write_path(value: PurePosixPath | PureWindowsPath) -> bytes:
    return extension(Code.PATH, array([pack(type(value).__name__), pack_text(str(value))]))


WRITERS: Final[dict[type, Callable[[Any], bytes]]] = {
    str: pack_text,
    int: write_int,
    bytes: lambda v: extension(Code.BYTES, v),
    bytearray: lambda v: extension(Code.BYTEARRAY, bytes(v)),
    complex: lambda v: extension(Code.COMPLEX, struct.pack(">dd", v.real, v.imag)),
    range: lambda v: extension(Code.RANGE, array(_ints(v.start, v.stop, v.step))),
    dt.date: lambda v: extension(Code.DATE, array(_ints(v.year, v.month, v.day))),
    dt.datetime: _write_datetime,
    dt.time: _write_time,
    dt.timedelta: lambda v: extension(Code.TIMEDELTA, array(_ints(v.days, v.seconds, v.microseconds))),
    dt.timezone: _write_timezone,
    ZoneInfo: _write_zoneinfo,
    Decimal: lambda v: extension(Code.DECIMAL, str(v).encode()),
    Fraction: _write_fraction,
    UUID: _write_uuid,
    PurePosixPath: _write_path,
    PosixPath: _write_path,
    PureWindowsPath: _write_path,
    WindowsPath: _write_path,
}
"""How the cell of a value of each of these types, which have no parts, is written.

Float, bool and None are always plain.
"""


def _read_fraction(parts: list[Any]) -> Fraction:
    numerator, denominator = parts
    if max(numerator.bit_length(), denominator.bit_length()) > _FRACTION_BITS:
        raise ValueError("a fraction of very large ints")
    return Fraction(numerator, denominator)


def _read_timezone(parts: list[Any]) -> dt.timezone:
    days, seconds, micros, *name = parts
    return dt.timezone(dt.timedelta(days, seconds, micros), *name)


def _read_datetime(parts: list[Any]) -> dt.datetime:
    year, month, day, hour, minute, second, micro, fold, tz = parts
    return dt.datetime(year, month, day, hour, minute, second, micro, tz, fold=fold)


def _read_time(parts: list[Any]) -> dt.time:
    hour, minute, second, micro, fold, tz = parts
    return dt.time(hour, minute, second, micro, tz, fold=fold)


_PATHS: Final[dict[str, type]] = {cls.__name__: cls for cls in (PurePosixPath, PosixPath, PureWindowsPath, WindowsPath)}


def _read_path(parts: list[Any]) -> Any:
    name, text = parts
    try:
        return _PATHS[name](text)
    except NotImplementedError:
        # A path of another operating system: its pure form holds all of it.
        return (PureWindowsPath if name == "WindowsPath" else PurePosixPath)(text)


def _read_zoneinfo(payload: bytes) -> dt.tzinfo:
    key = payload.decode()
    if not _ZONE_KEY.fullmatch(key):  # checked before zoneinfo uses it as the path of a file
        raise ValueError(f"not the key of a time zone: {key!r}")
    try:
        return ZoneInfo(key)
    except (ZoneInfoNotFoundError, OSError) as error:
        raise StateError(
            f"the time zone {key!r} is not known on this machine", hint="install the tzdata package"
        ) from error


def _checked(elements: list[Any]) -> list[Any]:
    check_hashes(elements)
    return elements


RAW_READERS: Final[dict[int, Callable[[bytes], Any]]] = {
    Code.BYTES: bytes,
    Code.BYTEARRAY: bytearray,
    Code.BIGINT: lambda payload: int.from_bytes(payload, "big", signed=True),
    Code.COMPLEX: lambda payload: complex(*struct.unpack(">dd", payload)),
    Code.ZONEINFO: _read_zoneinfo,
    Code.DECIMAL: lambda payload: Decimal(payload.decode()),
    Code.UUID: _read_uuid,
}
"""How a payload of raw bytes is read."""

PARTS_READERS: Final[dict[int, Callable[[list[Any]], Any]]] = {
    Code.RANGE: lambda parts: range(*parts),
    Code.DATE: lambda parts: dt.date(*parts),
    Code.DATETIME: _read_datetime,
    Code.TIME: _read_time,
    Code.TIMEDELTA: lambda parts: dt.timedelta(*parts),
    Code.TIMEZONE: _read_timezone,
    Code.FRACTION: _read_fraction,
    Code.PATH: _read_path,
    Code.TUPLE: tuple,
    Code.SET: lambda parts: set(_checked(parts)),
    Code.FROZENSET: lambda parts: frozenset(_checked(parts)),
}
"""How a payload that is an array of cells is read."""
