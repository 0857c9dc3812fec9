"""Records of values that equal only exactly the same value, copies of values, and values with nothing to pickle."""

from __future__ import annotations

import copy
import datetime as dt
import struct
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from pathlib import PosixPath, PurePosixPath, PureWindowsPath
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import numpy as np

from versioned_state import Tagged


def exact(value: Any) -> Any:
    """Return a stand-in that equals another only where the values are the same in type, content and order, throughout.

    It tells 1 from True and 1.0, 0.0 from -0.0, a tuple from a list and one order of a dict from another; NaN is NaN.
    Since it shares nothing with the value, it also is a record of what the value was. A str stands for itself, anything
    else is a tuple: most of what is compared is text, and much of the time of the tests is spent here.
    """
    cls = type(value)
    if cls is str:
        return value
    if cls is int:
        return "int", value
    write = _EXACT.get(cls)
    if write is not None:
        return cls.__name__, write(value)
    if isinstance(value, np.generic):
        return type(value).__name__, value.dtype.descr, value.tobytes()
    if cls.__module__.partition(".")[0] == "pandas":
        return cls.__name__, _of_pandas(value)
    if isinstance(value, Enum):
        return _name_of(value), value.name
    if isinstance(value, tuple):
        return _name_of(value), tuple(map(exact, value))
    if isinstance(value, (dict, list, set, deque, str, int, float, bytes)):
        base = next(cls for cls in type(value).__mro__ if cls in _EXACT)
        return _name_of(value), _EXACT[base](value), _attributes(value)
    if isinstance(value, BaseException):
        return _name_of(value), exact(value.args), _attributes(value), exact(value.__cause__)
    return _name_of(value), _attributes(value)


def same(a: Any, b: Any) -> bool:
    return bool(exact(a) == exact(b))


def _name_of(value: Any) -> str:
    """Return the name of the class of an instance, or of the model if it is a parametrised one."""
    return type(value).__qualname__.partition("[")[0]


def _attributes(value: Any) -> Any:
    """Return an instance's attributes by name, also those in slots, in any order, and all parts of a pydantic model."""
    slots = {name for cls in type(value).__mro__ for name in _names(vars(cls).get("__slots__", ()))} - {
        "__dict__",
        "__weakref__",
    }
    held = {name: getattr(value, name) for name in slots if hasattr(value, name)} | getattr(value, "__dict__", {})
    for name in ("__pydantic_private__", "__pydantic_extra__"):
        if held.get(name) is not None:
            held[name] = dict(sorted(held[name].items()))
    return tuple(
        (name, exact(held[name]))
        for name in sorted(held, key=str)
        if name not in ("__orig_class__", "_attrs_cached_hash")
    )


def _names(slots: Any) -> tuple[str, ...]:
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _elements(value: Iterable[Any]) -> Any:
    return tuple([part if type(part) is str else exact(part) for part in value])


def _entries(value: dict[Any, Any]) -> Any:
    return _elements(value), _elements(value.values())


def _members(value: Iterable[Any]) -> Any:
    return frozenset(Counter(map(exact, value)).items())


def _of_pandas(value: Any) -> Any:
    """Return the content of a value of pandas by its public ways, element by element, apart from numbers."""
    import pandas as pd

    if isinstance(value, pd.DataFrame):
        columns = [exact(value.iloc[:, at].array) for at in range(value.shape[1])]
        return exact(value.columns), exact(value.index), tuple(columns), exact(value.attrs), repr(value.flags)
    if isinstance(value, pd.Series):
        return exact(value.array), exact(value.index), exact(value.name), exact(value.attrs), repr(value.flags)
    if isinstance(value, pd.MultiIndex):
        return exact(list(value.names)), _elements(value.tolist())
    if isinstance(value, pd.Index):
        return exact(value.name), repr(getattr(value, "freq", None)), exact(value.array)
    if isinstance(value, pd.api.extensions.ExtensionArray):
        if isinstance(value.dtype, np.dtype) and value.dtype.kind in "biufcmM":
            return repr(value.dtype), np.asarray(value).tobytes()
        categories = (exact(value.categories), value.ordered) if isinstance(value, pd.Categorical) else None
        return repr(value.dtype), categories, _elements(list(value))
    return repr(value), getattr(value, "unit", None)


def _bits(value: float) -> bytes:
    return struct.pack(">d", value)


def _array(value: np.ndarray[Any, Any]) -> Any:
    return repr(value.dtype.descr), value.shape, value.tobytes()


_EXACT: dict[type, Callable[[Any], Any]] = {
    type(None): lambda v: None,
    bool: int,
    int: int,
    float: _bits,
    complex: lambda v: (_bits(v.real), _bits(v.imag)),
    str: str,
    bytes: bytes,
    bytearray: bytes,
    list: _elements,
    tuple: _elements,
    dict: _entries,
    set: _members,
    frozenset: _members,
    range: lambda v: (exact(v.start), exact(v.stop), exact(v.step)),
    dt.date: str,
    dt.datetime: lambda v: (v.replace(tzinfo=None).isoformat(), v.fold, exact(v.tzinfo)),
    dt.time: lambda v: (v.replace(tzinfo=None).isoformat(), v.fold, exact(v.tzinfo)),
    dt.timedelta: lambda v: (v.days, v.seconds, v.microseconds),
    dt.timezone: repr,
    ZoneInfo: lambda v: v.key,
    Decimal: str,
    Fraction: lambda v: (v.numerator, v.denominator),
    UUID: lambda v: v.int,
    PurePosixPath: str,
    PosixPath: str,
    PureWindowsPath: str,
    OrderedDict: _entries,
    defaultdict: lambda v: (v.default_factory, _entries(v)),
    Counter: _entries,
    deque: lambda v: (v.maxlen, tuple(map(exact, v))),
    np.ndarray: _array,
    Tagged: lambda v: (v.name, exact(v.fields), exact(v.notes)),
}


def clone(value: Any) -> Any:
    """Return a copy that shares nothing with the value, time zones apart."""
    return copy.deepcopy(value)


def exact_data(value: Any) -> Any:
    """Return the value with what is not data (a subclass of str) made data, so that nothing has to be pickled."""
    if isinstance(value, str):
        return str(value) if type(value) is not str else value
    if type(value) in (list, tuple):
        return type(value)(map(exact_data, value))
    if type(value) is dict:
        return {exact_data(key): exact_data(part) for key, part in value.items()}
    if type(value).__name__ in ("deque", "OrderedDict", "defaultdict", "Counter"):
        made = value.copy()
        for key in range(len(made)) if type(made).__name__ == "deque" else list(made):
            made[key] = exact_data(made[key])
        return made
    return value
