"""Tables of every kind, for the tests of pandas, and their exact comparison."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pandas.testing as pt
import pyarrow as pa

A = pd.ArrowDtype
MIXED = [
    *(1, "x", None, float("nan"), [1, {"a": 2}], pd.NA, pd.NaT, b"x", (1, 2), Decimal("1.1"), dt.date(2020, 1, 1)),
    pd.Timestamp("2020-01-01 01:02:03.123456789", tz="Europe/Berlin"),
    pd.Timestamp("2020-01-01").as_unit("s"),
    pd.Timedelta("1ns"),
    pd.Period("2020-01", "M"),
    pd.Interval(1, 2, closed="both"),
]


def arrow_columns() -> pd.DataFrame:
    """A table with a column of each Arrow type that is data."""
    columns: dict[str, tuple[list[Any], Any]] = {
        "i": ([1, None, 3], pa.int64()),
        "u": ([1, None, 3], pa.uint8()),
        "f": ([1.5, None, 2.5], pa.float64()),
        "h": ([np.float16(1), None, np.float16(2)], pa.float16()),
        "s": (["a", None, "é"], pa.string()),
        "ls": (["a", None, "é"], pa.large_string()),
        "b": ([True, None, False], pa.bool_()),
        "bytes": ([b"a", None, b"b"], pa.binary()),
        "t": ([dt.datetime(2020, 1, 1, tzinfo=dt.UTC), None, None], pa.timestamp("us", "UTC")),
        "naive": ([dt.datetime(2020, 1, 1), None, None], pa.timestamp("ns")),
        "date": ([dt.date(2020, 1, 1), None, None], pa.date32()),
        "date64": ([dt.date(2020, 1, 1), None, None], pa.date64()),
        "time": ([dt.time(1), None, None], pa.time64("us")),
        "time32": ([dt.time(1), None, None], pa.time32("s")),
        "duration": ([dt.timedelta(1), None, None], pa.duration("us")),
        "list": ([[1], None, [2, 3]], pa.list_(pa.int64())),
        "large_list": ([[1], None, [2, 3]], pa.large_list(pa.int64())),
        "struct": (
            [{"x": 1, "y": "a"}, None, {"x": None, "y": "b"}],
            pa.struct([("x", pa.int8()), ("y", pa.string())]),
        ),
        "decimal": ([Decimal("1.10"), None, Decimal("-2.00")], pa.decimal128(5, 2)),
        "dictionary": (["a", None, "b"], pa.dictionary(pa.int32(), pa.string())),
        "map": ([[("k", 1)], None, []], pa.map_(pa.string(), pa.int64())),
    }
    return pd.DataFrame(
        {name: pd.arrays.ArrowExtensionArray(pa.array(held, kind)) for name, (held, kind) in columns.items()}
    )


def large(rows: int = 20_000) -> pd.DataFrame:
    """A table whose columns are trees."""
    return pd.DataFrame(
        {
            "f": np.arange(rows) / 7,
            "i": np.arange(rows),
            "s": pd.array([f"s{n % 97}" for n in range(rows)], dtype=pd.StringDtype("pyarrow", na_value=np.nan)),
            "py": pd.array([f"s{n % 97}" for n in range(rows)], dtype=pd.StringDtype("python")),
            "o": pd.Series([f"o{n}" for n in range(rows)], dtype=object),
            "c": pd.Categorical(np.arange(rows) % 7),
            "n": pd.array([None, *range(rows - 1)], dtype="Int64"),
            "t": pd.date_range("2020", periods=rows, freq="s", tz="Europe/Berlin"),
            "a": pd.array(range(rows), dtype=A(pa.int64())),
            "d": pd.date_range("2020", periods=rows, freq="s"),
        }
    )


def tables() -> dict[str, Any]:
    """Return values of pandas, each small but one, by what is special about each."""
    n = 5
    noted = pd.DataFrame({"a": [1]})
    noted.attrs = {"source": ["db"], "bytes": b"x"}
    labels = pd.date_range("2020", periods=n, freq="D", name="when")
    missing = [1, None, 3]
    return {
        "numbers and texts": pd.DataFrame({"a": range(n), "b": np.linspace(0, 1, n), "c": list("vwxyz")}),
        "nothing": pd.DataFrame(),
        "no rows": pd.DataFrame({"a": [], "b": pd.Series([], dtype="Int64"), "o": pd.Series([], dtype=object)}),
        "no columns": pd.DataFrame(index=[1, 2, 3]),
        "labels twice": pd.DataFrame(np.arange(6).reshape(2, 3), columns=["a", "a", "b"]),
        "labels that are numbers": pd.DataFrame(np.arange(6).reshape(2, 3)),
        "labels of several types": pd.DataFrame(np.arange(8).reshape(2, 4), columns=["a", 1, ("x", 2), None]),
        "labels that are times": pd.DataFrame([[1, 2]], columns=pd.date_range("2020", periods=2)),
        "labels of several levels": pd.DataFrame(
            np.arange(8.0).reshape(2, 4),
            columns=pd.MultiIndex.from_product([["a", "b"], [1, 2]], names=["k", None]),
            index=pd.MultiIndex.from_tuples([("x", 1), ("y", 2)], names=["r", "s"]),
        ),
        "labels of Python's own strings": pd.DataFrame({"o": [1, 2]}, index=pd.Index(["x", "y"], dtype=object)).rename(
            columns=str
        ),
        "labels with a name": pd.DataFrame([[1, 2]], columns=pd.Index(["a", "b"], name="n")),
        "labels in no order": pd.DataFrame({"z": [1], "b": [2], "Y": [3]}),
        "labels None, True and an empty text": pd.DataFrame(
            [[1, 2, 3]], columns=pd.Index([None, True, ""], dtype=object)
        ),
        "unique labels": pd.DataFrame({"a": [1]}).set_flags(allows_duplicate_labels=False),
        "times": pd.DataFrame(
            {
                "zone": pd.date_range("2020", periods=n, tz="Europe/Berlin"),
                "utc": pd.date_range("2020", periods=n, tz="UTC"),
                "offset": pd.date_range("2020", periods=n, tz=dt.timezone(dt.timedelta(hours=2))),
                "naive": pd.date_range("2020", periods=n),
                "seconds": pd.date_range("2020", periods=n, unit="s"),
                "duration": pd.to_timedelta(range(n), unit="s"),
                "missing": pd.to_datetime(["2020-01-01", None, None, None, None]),
            },
            index=labels,
        ),
        "missing values": pd.DataFrame(
            {
                "i": pd.array(missing, dtype="Int64"),
                "u": pd.array(missing, dtype="UInt8"),
                "b": pd.array([True, None, False], dtype="boolean"),
                "f": pd.array(missing, dtype="Float32"),
                **{
                    f"{storage} {missing_as}": pd.array(
                        ["a", None, "é"], dtype=pd.StringDtype(storage, na_value=missing_as)
                    )
                    for storage in ("python", "pyarrow")
                    for missing_as in (pd.NA, np.nan)
                },
            }
        ),
        "categories": pd.DataFrame(
            {
                "c": pd.Categorical(["a", "b", None]),
                "o": pd.Categorical([3, 1, 2], categories=[1, 2, 3, 4], ordered=True),
            }
        ),
        "objects": pd.DataFrame({"o": pd.Series(MIXED, dtype=object)}),
        "texts as objects": pd.DataFrame({"o": pd.Series(["a", "b"], dtype=object)}),
        "periods": pd.DataFrame(
            {"p": pd.period_range("2020", periods=3, freq="M")}, index=pd.period_range("2020", periods=3, freq="Q")
        ),
        "intervals": pd.DataFrame(
            {"i": pd.arrays.IntervalArray.from_breaks([0, 1, 2, 3])}, index=pd.interval_range(0, 3)
        ),
        "sparse": pd.DataFrame(
            {
                "s": pd.arrays.SparseArray([0, 0, 1, 2]),
                "f": pd.arrays.SparseArray([np.nan, 1.0, np.nan, np.nan], kind="block"),
            }
        ),
        "categories as labels": pd.DataFrame({"x": [1, 2]}, index=pd.CategoricalIndex(["p", "q"])),
        "durations as labels": pd.DataFrame({"x": [1, 2]}, index=pd.to_timedelta([1, 2], unit="s")),
        "arrow": arrow_columns(),
        "attributes": noted,
        "odd numbers": pd.DataFrame(
            {"a": np.array([1 + 2j]), "b": np.array([1], "f2"), "c": [True], "d": np.array([1], "u2")}
        ),
        "many columns": pd.DataFrame(np.arange(600.0).reshape(2, 300), columns=[f"c{i}" for i in range(300)]),
        "many rows": large(1_200),
        "series": pd.Series([1, 2, 3], name="s", index=list("abc")),
        "series of objects": pd.Series(["a", "b"], dtype=object, name=("x", 1)),
        "index": pd.Index([1, 2, 3], name="x"),
        "range": pd.RangeIndex(1, 10, 3, name="r"),
        "categorical": pd.Categorical(["a", "b"]),
        "array of numbers": pd.array([1, None], dtype="Int8"),
        "array of times": pd.array(pd.date_range("2020", periods=2)),
        "array of durations": pd.array(pd.to_timedelta([1, 2], unit="s")),
        "array of numpy": pd.arrays.NumpyExtensionArray(np.array([1, 2])),
    }


def assert_same(a: Any, b: Any) -> None:
    """Fail unless two values of pandas are the same, in type and order too."""
    assert type(a) is type(b)
    if isinstance(a, pd.DataFrame):
        pt.assert_frame_equal(a, b)
        assert (a.attrs, a.flags) == (b.attrs, b.flags)
    elif isinstance(a, pd.Series):
        pt.assert_series_equal(a, b)
    elif isinstance(a, pd.Index):
        pt.assert_index_equal(a, b, exact=True)
    elif isinstance(a, pd.api.extensions.ExtensionArray):
        pt.assert_extension_array_equal(a, b)
    else:
        assert a is b or a == b
