"""One value of every data type, by a name that says what is special about it."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from fractions import Fraction
from pathlib import PosixPath, PurePosixPath, PureWindowsPath
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import numpy as np

from tests.support.strategies import INTS

BERLIN = ZoneInfo("Europe/Berlin")
NAN = float("nan")


SCALARS: dict[str, Any] = {
    "none": None,
    "true": True,
    "false": False,
    **{f"int {value:.0e}": value for value in INTS if abs(value) < 2**100},
    "int -10**400": -(10**400),
    "int of 6000 digits": 10**6000,
    "float": 0.1,
    "zero": 0.0,
    "negative zero": -0.0,
    "nan": NAN,
    "inf": -math.inf,
    "complex": complex(-0.0, NAN),
    "str": "été \0 \U0001f600",
    "lone surrogates": "\ud800 \udfff",
    "surrogates that form a pair": "\ud83d\ude00",
    "bytes": b"\0\xff",
    "empty bytes": b"",
    "bytearray": bytearray(b"\0\xff"),
    "range": range(5, -10, -3),
    "an empty range is not another": range(7, 3),
    "long range": range(0, 10**30, 7),
    "date": dt.date(1, 1, 1),
    "datetime": dt.datetime(9999, 12, 31, 23, 59, 59, 999999),
    "datetime utc": dt.datetime(2026, 1, 2, tzinfo=dt.UTC),
    "datetime in a fold": dt.datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN, fold=1),
    "datetime with an offset": dt.datetime(2026, 1, 2, tzinfo=dt.timezone(dt.timedelta(hours=-5, microseconds=3))),
    "time": dt.time(1, 2, 3, 4, tzinfo=dt.UTC, fold=1),
    "timedelta": dt.timedelta(-1, 1, 1),
    "timezone": dt.timezone(dt.timedelta(hours=1)),
    "named timezone": dt.timezone(dt.timedelta(hours=1), "CET"),
    "timezone named as it would be": dt.timezone(dt.timedelta(hours=1), "UTC+01:00"),
    "zoneinfo": BERLIN,
    "decimal": Decimal("1.10"),
    "decimal with an exponent": Decimal("1E+400"),
    "decimal nan": Decimal("-sNaN123"),
    "fraction": Fraction(-1, 3),
    "uuid": UUID(int=2**128 - 1),
    "path": PosixPath("/a/b"),
    "pure path": PurePosixPath("."),
    "path that is no text": PurePosixPath("caf\udce9"),
    "windows path": PureWindowsPath("C:/a/b"),
    "float64": np.float64(0.1),
    "float16": np.float16(0.1),
    "int64 big-endian": np.array(5, ">i8")[()],
    "bool_": np.bool_(True),
    "datetime64": np.datetime64("2026-01-02", "D"),
    "not a time": np.timedelta64("NaT", "us"),
    "str_": np.str_("été"),
    "structured scalar": np.array((1, 2.5), [("a", "<i4"), ("b", "<f8")])[()],
}


CONTAINERS: dict[str, Any] = {
    "empty": [[], (), {}, set(), frozenset(), [[]], ((),), {"": {}}],
    "tuple is not list": [(1, [2, (3,)]), [1, (2, [3])]],
    "one, true and one point zero": [1, True, 1.0, np.int64(1), 1 + 0j, Decimal(1), Fraction(1)],
    "order of a dict": {"b": 1, "a": 2, "c": {"z": 1, "y": 2}},
    "keys of all kinds": {
        1: "int",
        "1": "str",
        b"1": "bytes",
        (1, "a"): "tuple",
        None: "none",
        2.5: "float",
        frozenset({1}): "set",
    },
    "keys that only look alike": {dt.date(2026, 1, 1): 1, "2026-01-01": 2, PurePosixPath("a"): 3, "a": 4},
    "key true": {True: 1},
    "key negative zero": {-0.0: 1},
    "key nan": {NAN: 1},
    "two keys nan": {float("nan"): 1, float("nan"): 2},
    "set of all kinds": {1, "a", b"a", (1, 2), None, 2.5, frozenset({frozenset({1})}), dt.date(2026, 1, 1)},
    "set of nans": {float("nan"), float("nan")},
    "surrogate keys": dict.fromkeys(["\ud800", "\udfff", "\ud83d\ude00", "\U0001f600"]),
    "mixed with huge ints": {"a": [10**30, {"b": -(10**30)}], 10**30: 1},
    "shared": [[1], [1]],
}
