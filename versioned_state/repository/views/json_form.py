"""Values as JSON and back, exactly: what ``get --json``, ``export`` and ``Change.to_json`` print. Layer: repository.

A value of a type that JSON lacks is a *form*: an object with one key, such as ``{"$Decimal": "2.5"}``. Where its text
does not say all, the
stored form of the value is beside it, in base64: ``{"$datetime": "2026-11-01T01:30:00", "$cell": "xxUC…"}``. No other
object that is written has a key that begins with ``$``.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
import struct
from collections.abc import Callable
from contextlib import suppress
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from fractions import Fraction
from pathlib import PosixPath, PurePosixPath, PureWindowsPath, WindowsPath
from typing import Any, Final, Never
from uuid import UUID
from zoneinfo import ZoneInfo

from versioned_state.errors import InvalidArgumentError, StateError
from versioned_state.repository.views.render import (
    LONG_INT,
    WIDTH,
    are_fields,
    attributes_in,
    described,
    int_text,
    one_line,
    short_repr,
)
from versioned_state.repository.views.tables import in_python
from versioned_state.values.cells import Code, extension
from versioned_state.values.codec.arrays import dtype_data, is_array, is_scalar, raw_view, read_array
from versioned_state.values.codec.pickles import ObjectInfo
from versioned_state.values.codec.scalars import WRITERS, NotDataError, check_hashes
from versioned_state.values.decode.decoder import decode_inline
from versioned_state.values.encode.inline import InlineEncoder
from versioned_state.values.typed.layout import NotPlainDataError
from versioned_state.values.typed.registry import Classes, take_apart
from versioned_state.values.typed.tagged import Tagged

CELL: Final = "$cell"
"""The key under which a form has the stored form of its value."""

_PAIR: Final = re.compile("[\ud800-\udbff][\udc00-\udfff]")
"""Two surrogates that JSON would join into one character."""

_NUMBERS: Final = "biuf"
"""The kinds of dtypes whose elements are written as numbers."""


# To JSON


def json_value(value: Any) -> Any:
    """Return a value in JSON types, with a form for every type that JSON lacks. An object is only described."""
    cls = type(value)
    if cls is str:
        return value if value.isascii() or not _PAIR.search(value) else {"$str": value, **_cell(value)}
    if cls is int and value.bit_length() > LONG_INT:
        return {"$int": hex(value)}
    if cls in (int, bool, type(None)):
        return value
    if cls is float:
        return value if math.isfinite(value) else _exact({"$float": repr(value)}, value)
    if cls is list:
        return [json_value(part) for part in value]
    if cls is dict:
        if all(type(key) is str and key[:1] != "$" and (key.isascii() or not _PAIR.search(key)) for key in value):
            return {key: json_value(part) for key, part in value.items()}
        return {"$dict": [[json_value(key), json_value(part)] for key, part in value.items()]}
    if cls is tuple:
        return {"$tuple": [json_value(part) for part in value]}
    if cls in (set, frozenset):
        return {f"${cls.__name__}": sorted(map(json_value, value), key=json.dumps)}
    if cls in (bytes, bytearray):
        return {f"${cls.__name__}": base64.b64encode(value).decode()}
    if cls is ObjectInfo:
        return {"$object": {"type": value.type_name, "bytes": value.size, "imports": list(value.imports)}}
    return _other(value)


def _other(value: Any) -> Any:
    cls = type(value)
    if cls in _TEXTS:
        write, _ = _TEXTS[cls]
        return _exact({f"${cls.__name__}": write(value)}, value)
    with suppress(NotPlainDataError):
        record = take_apart(value)
        if record is not None:
            return _typed(*record)
    if is_array(value):
        return {"$ndarray": {"dtype": _dtype(value), "shape": list(value.shape), **_elements(value)}}
    if is_scalar(value) and value.dtype.kind in _NUMBERS and value.dtype.itemsize <= struct.calcsize("d"):
        return _exact({f"${cls.__name__}": str(value)}, value)
    if hasattr(value, "isoformat"):
        return {f"${cls.__name__}": value.isoformat()} | _cell(value)
    try:
        return {f"${cls.__name__}": str(value)} | _cell(value)
    except Exception as error:  # noqa: BLE001 - code of the value's own type, over a value that may hold anything
        return {f"${cls.__name__}": described(value, WIDTH, error)}


def _typed(name: str, fields: Any, notes: Any) -> dict[str, Any]:
    data = {"name": name, "fields": json_value(fields)}
    if more := attributes_in(notes):
        data["attributes"] = json_value(more)
    if rest := {key: part for key, part in (notes or {}).items() if not (more and key == "fields")}:
        data["notes"] = json_value(rest)
    return {"$typed": data}


def _exact(form: dict[str, Any], value: Any) -> dict[str, Any]:
    """Return a form that reads back as the value: with its cell, if it would not without."""
    try:
        wanted = _encode(value)
        if _encode(from_json(form)) == wanted:
            return form
    except (StateError, NotDataError):
        return form | _cell(value)
    return form | {CELL: base64.b64encode(wanted).decode()}


def _cell(value: Any) -> dict[str, str]:
    try:
        return {CELL: base64.b64encode(_encode(value)).decode()}
    except StateError:  # an object, which is only shown
        return {}


def _encode(value: Any) -> bytes:
    writer = WRITERS.get(type(value))
    return InlineEncoder().encode_inline(value) if writer is None else writer(value)


def _dtype(value: Any) -> Any:
    dtype = value.dtype
    return str(dtype) if dtype.kind != "V" else json_value(dtype_data(dtype))


def _elements(value: Any) -> dict[str, Any]:
    """Return the elements of an array: numbers as numbers, if they are the same when read back, others as bytes."""
    import numpy as np

    if value.dtype.hasobject:
        return {"data": json_value(value.tolist())}
    raw = bytes(raw_view(value))
    if value.dtype.kind in _NUMBERS and value.dtype.itemsize <= struct.calcsize("d"):
        parts = value.tolist()
        if np.array(parts, value.dtype).tobytes() == raw:
            return {"data": json_value(parts)}
    return {"bytes": base64.b64encode(raw).decode()}


# From JSON


def from_json(value: Any, classes: Classes = "registered") -> Any:
    """Return the value that ``json_value`` wrote: the other way round, exactly. Nothing is unpickled.

    Args:
        classes: the classes whose instances come back as such; those of others are ``Tagged``.

    Raises:
        InvalidArgumentError: an object in it has a key that begins with ``$``, and is not a form, or is the description
            of an object.
    """
    cls = type(value)
    if cls is list:
        return [from_json(part, classes) for part in value]
    if cls is not dict:
        return value
    if is_form(value):
        return _read_form(value, classes)
    return {key: from_json(part, classes) for key, part in value.items()}


def is_form(value: dict[str, Any]) -> bool:
    """Return whether an object of JSON is a form, or looks like one.

    One with several keys is a dict, unless one of them is a form's.
    """
    if len(value) == 1:
        return next(iter(value))[:1] == "$"
    if CELL in value or any(key[:1] == "$" and key[1:] in _READERS for key in value):
        if len(value) == 2 and CELL in value and all(key[:1] == "$" for key in value):
            return True
        _refuse(value, "it has other keys beside")
    return False


def literal(value: Any, *, but_cells: bool = False) -> Any:
    """Return JSON that ``from_json`` reads as this value as it stands.

    Nothing in it is a form, except stored forms with ``but_cells``.
    """
    if type(value) is list:
        return [literal(part, but_cells=but_cells) for part in value]
    if type(value) is not dict or (but_cells and value.keys() == {CELL}):
        return value
    parts = {key: literal(part, but_cells=but_cells) for key, part in value.items()}
    return {"$dict": [[key, part] for key, part in parts.items()]} if any(key[:1] == "$" for key in parts) else parts


def _refuse(value: dict[str, Any], reason: str) -> Never:
    name = next(key for key in value if key[:1] == "$")
    shown = f'{{"{name}": …}}' if len(value) == 1 else f'{{"{name}": …, …}}'
    raise InvalidArgumentError(
        f"{shown} is not the form of a value: {reason}",
        hint=f'a dict with such a key is {{"$dict": [["{name}", …]]}}; forms are those that vstate get --json prints',
    )


def _read_form(value: dict[str, Any], classes: Classes) -> Any:
    if CELL in value:
        return _read_cell(value, classes)
    ((key, data),) = value.items()
    reader = _READERS.get(key[1:])
    if key == "$object":
        _refuse(value, "it describes an object, which is not data")
    if reader is None:
        _refuse(value, f"there is no form {key}")
    try:
        if key == "$typed":
            made = _tagged(_object(data), classes)
            return decode_inline(InlineEncoder().encode_inline(made), classes=classes)
        return reader(from_json(data, classes))
    except InvalidArgumentError:
        raise
    except (ValueError, TypeError, ArithmeticError, LookupError, AttributeError, StateError) as error:
        reason = error.what if isinstance(error, StateError) else str(error)
        _refuse(value, reason or type(error).__name__)


def _read_cell(value: dict[str, Any], classes: Classes) -> Any:
    try:
        cell = base64.b64decode(value[CELL], validate=True)
    except (binascii.Error, TypeError, ValueError):
        _refuse({CELL: None}, "it is not base64")
    try:
        found = decode_inline(cell, classes=classes)
    except StateError as error:
        _refuse({CELL: None}, error.what)
    if type(found) is ObjectInfo:
        _refuse({CELL: None}, "it holds an object, which is not data")
    if len(value) == 2:
        shown = json_value(found)
        shown = json.loads(json.dumps(shown))  # two surrogates become one character on the way
        if type(shown) is not dict or {**shown, CELL: None} != {**value, CELL: None}:
            _refuse(value, f"it differs from its {CELL}, which can be left out")
    return found


def _object(data: Any) -> dict[str, Any]:
    if type(data) is not dict:
        raise TypeError(f"it is {one_line(data, width=40)}, not an object")
    return data


def _tagged(data: dict[str, Any], classes: Classes) -> Tagged:
    unknown = data.keys() - {"name", "fields", "attributes", "notes"}
    if unknown or not data.keys() >= {"name", "fields"}:
        raise ValueError("it takes name and fields, and may have attributes and notes")
    if type(data["name"]) is not str or not data["name"]:
        raise ValueError("its name is not a text of one character or more")
    notes = {**_object(from_json(data.get("notes", {}), classes))}
    if "attributes" in data:
        notes["fields"] = _object(from_json(data["attributes"], classes))
    return Tagged(data["name"], from_json(data["fields"], classes), notes or None)


def _text(data: Any) -> str:
    if type(data) is not str:
        raise TypeError(f"it holds {one_line(data, width=40)}, not a text")
    return data


def _list(data: Any) -> list[Any]:
    if type(data) is not list:
        raise TypeError(f"it holds {one_line(data, width=40)}, not a list")
    return data


def _hashed(data: Any) -> list[Any]:
    parts = _list(data)
    check_hashes(parts)
    return parts


def _read_dict(data: Any) -> dict[Any, Any]:
    pairs = [(key, part) for key, part in _list(data)]
    check_hashes([key for key, _ in pairs])
    return dict(pairs)


def _int(text: str) -> int:
    return int(text, 16) if "x" in text else int(text)


def _read_decimal(text: str) -> Decimal:
    try:
        return Decimal(text)
    except ArithmeticError:
        raise ValueError(f"{text!r} is not a decimal number") from None


def _read_fraction(text: str) -> Fraction:
    numerator, _, denominator = text.partition("/")
    return Fraction(_int(numerator), _int(denominator or "1"))


_RANGE: Final = re.compile(r"range\((-?\w+), (-?\w+)(?:, (-?\w+))?\)")


def _read_range(text: str) -> range:
    match = _RANGE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a range, such as 'range(0, 5)'")
    return range(*(_int(part) for part in match.groups() if part is not None))


_DURATION: Final = re.compile(r"(?:(-?\d+) days?, )?(\d+):(\d\d):(\d\d)(?:\.(\d{6}))?")


def _read_timedelta(text: str) -> timedelta:
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a duration, such as '2 days, 1:30:00'")
    days, hours, minutes, seconds, micros = (int(part or 0) for part in match.groups())
    return timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds, microseconds=micros)


_ZONED: Final = re.compile(r"(.*)\[([^\]]*)\]")


def _write_time(value: Any) -> str:
    """Return a date or time in ISO 8601, with the name of its time zone as in RFC 9557.

    Example: ``2026-11-21T12:00:00+01:00[Europe/Berlin]``.
    """
    text: str = value.isoformat()
    return f"{text}[{value.tzinfo.key}]" if type(value.tzinfo) is ZoneInfo else text


def _read_time(cls: Any) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        zoned = _ZONED.fullmatch(text)
        if zoned is None:
            return cls.fromisoformat(text)
        return cls.fromisoformat(zoned[1]).replace(tzinfo=_read_zone(zoned[2]))

    return read


def _read_zone(key: str) -> ZoneInfo:
    found = decode_inline(extension(Code.ZONEINFO, key.encode()))  # as a cell is read: a key may be the path of a file
    assert isinstance(found, ZoneInfo)
    return found


def _read_timezone(text: str) -> tzinfo:
    if text == "UTC":
        return timezone.utc  # noqa: UP017 - the class is here too
    if not text.startswith("UTC"):
        raise ValueError(f"{text!r} is not a time zone, such as 'UTC+01:00'")
    found = datetime.fromisoformat(f"2000-01-01T00:00:00{text[3:]}").tzinfo
    assert found is not None
    return found


def _read_bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def _read_ndarray(data: Any) -> Any:
    import numpy as np

    data = _object(data)
    descr, shape = data["dtype"], _list(data["shape"])
    if "bytes" in data:
        return read_array(descr, shape, _read_bytes(_text(data["bytes"])))
    return np.array(data["data"], read_array(descr, [0], b"").dtype).reshape(shape)


def _of_numpy(name: str) -> Callable[[Any], Any]:
    def read(data: Any) -> Any:
        import numpy as np

        text = _text(data)
        if name.startswith("bool"):
            return np.bool_({"True": True, "False": False}[text])
        return np.dtype(name).type(text)

    return read


def _read_path(cls: Any) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        try:
            return cls(text)
        except NotImplementedError:  # a path of another operating system, as where a cell is read
            return (PureWindowsPath if cls is WindowsPath else PurePosixPath)(text)

    return read


_TEXTS: Final[dict[type, tuple[Callable[[Any], str], Callable[[str], Any]]]] = {
    complex: (str, complex),
    Decimal: (str, _read_decimal),
    Fraction: (
        lambda value: int_text(value.numerator) + (f"/{int_text(value.denominator)}" if value.denominator != 1 else ""),
        _read_fraction,
    ),
    range: (lambda value: short_repr(value, WIDTH), _read_range),
    date: (date.isoformat, date.fromisoformat),
    datetime: (_write_time, _read_time(datetime)),
    time: (_write_time, _read_time(time)),
    timedelta: (str, _read_timedelta),
    timezone: (str, _read_timezone),
    ZoneInfo: (str, _read_zone),
    UUID: (str, UUID),
    **{cls: (str, _read_path(cls)) for cls in (PurePosixPath, PosixPath, PureWindowsPath, WindowsPath)},
}
"""How a value of each of these types is written as text, and read."""

_NUMPY: Final = (
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
    "float16",
    "float32",
    "float64",
    "bool",
    "bool_",
)


def _of_text(read: Callable[[str], Any]) -> Callable[[Any], Any]:
    return lambda data: read(_text(data))


_READERS: Final[dict[str, Callable[[Any], Any]]] = {
    **{cls.__name__: _of_text(read) for cls, (_, read) in _TEXTS.items()},
    **{name: _of_numpy(name) for name in _NUMPY},
    "int": _of_text(_int),
    "float": _of_text(float),
    "bytes": _of_text(_read_bytes),
    "bytearray": _of_text(lambda text: bytearray(_read_bytes(text))),
    "tuple": lambda data: tuple(_list(data)),
    "set": lambda data: set(_hashed(data)),
    "frozenset": lambda data: frozenset(_hashed(data)),
    "dict": _read_dict,
    "ndarray": _read_ndarray,
    "typed": _object,
    "object": _object,
}
"""How the data of each form is read."""


def text_reader(cls: type) -> Callable[[str], Any] | None:
    """Return the function that makes a value of a type from the text of its form.

    Returns None for a type whose form is not a text.
    """
    found = _TEXTS.get(cls)
    return None if found is None else found[1]


# Without types


def plain_value(value: Any) -> Any:
    """Return a value in JSON types without forms, for programs that do not support them.

    It does not show the original type.

    A table of pandas is a list of its rows, an instance its fields, a member of an Enum its name, a tuple, set or array
    a list, a date or time ISO text, bytes are base64, and any other value is its text. NaN and infinity are null. A
    dict whose keys would no longer differ is a list of pairs.
    """
    cls = type(value)
    if cls in (str, bool, type(None)) or (cls is int and value.bit_length() <= LONG_INT):
        return value
    if cls is float:
        return value if math.isfinite(value) else None
    if cls in (list, tuple):
        return [plain_value(part) for part in value]
    if cls is dict:
        return _plain_dict(value)
    if cls in (set, frozenset):
        return sorted(map(plain_value, value), key=json.dumps)
    in_types_of_python = in_python(value)
    return _plain_other(value) if in_types_of_python is value else plain_value(in_types_of_python)


def _plain_other(value: Any) -> Any:
    form = json_value(value)
    if type(form) is not dict:
        return form
    name, data = next(iter(form.items()))
    if name == "$typed" and data["name"] == "pandas.Timestamp":
        with suppress(TypeError, ValueError):  # fields that no such time has
            return _plain_timestamp(*_record(value)[0])
    if name == "$typed":
        return _plain_typed(*_record(value))
    if name == "$ndarray" and "data" in data:
        return plain_value(value.tolist())
    if name == "$ndarray" and value.dtype.kind in "mMU":  # times and texts
        return value.astype(str).tolist()
    if name in _PLAIN_NUMBERS:
        return plain_value(value.item())
    return data if type(data) is str else one_line(value, width=WIDTH)


_PLAIN_NUMBERS: Final = frozenset(f"${name}" for name in _NUMPY)


def _record(value: Any) -> tuple[Any, Any]:
    record = take_apart(value)
    assert record is not None
    return record[1], record[2]


def _plain_timestamp(count: int, unit: Any, zone: Any) -> str:
    """Return a time of pandas, which counts from 1970 in UTC, as ISO text."""
    import numpy as np

    return str(np.datetime_as_string(np.datetime64(count, unit), timezone="naive" if zone is None else "UTC"))


def _plain_typed(fields: Any, notes: Any) -> Any:
    more = attributes_in(notes)
    if not more:
        return plain_value(fields)
    return _plain_dict({**fields, **more} if are_fields(fields) else {"value": fields, **more})


def _plain_dict(value: dict[Any, Any]) -> Any:
    names = [_plain_key(key) for key in value]
    if len({*names}) < len(names):
        return [[plain_value(key), plain_value(part)] for key, part in value.items()]
    return dict(zip(names, map(plain_value, value.values()), strict=True))


def _plain_key(key: Any) -> str:
    if type(key) is str:
        return key
    plain = plain_value(key)
    return plain if type(plain) is str else json.dumps(plain)
