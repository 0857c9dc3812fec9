"""How values of pandas become data, by their classes: tables, indexes, arrays and scalars. Layer: values.

The stored names begin with ``pandas.`` and say nothing of the module that a class lies in, which differs between
versions of pandas. In ``docs/format.md`` is what each is made of.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, ClassVar, Final

from versioned_state.values.tables import arrow
from versioned_state.values.tables.columns import (
    column_array,
    column_data,
    frequency_data,
    object_array,
    zone_data,
    zone_of,
)
from versioned_state.values.typed.layout import AssignPart, Layout, NotPlainDataError
from versioned_state.values.typed.tagged import Notes

FRAME: Final = "pandas.DataFrame"
SERIES: Final = "pandas.Series"
INDEX_KEY: Final = None
"""The key of the row labels in the data of a frame: no column has it."""

_HAVE_FREQUENCY: Final = frozenset({"DatetimeIndex", "TimedeltaIndex"})
_LABELS: Final = frozenset({str, int})
_OBJECT: Final = "object"


class _TableLayout(Layout):
    """A table: its data, and in the notes what pandas keeps beside it."""

    note_names: ClassVar[frozenset[str]] = frozenset({"columns", "attrs", "unique"})

    def _notes_of(self, value: Any) -> dict[str, Any]:
        notes: dict[str, Any] = {}
        if value.attrs:
            notes["attrs"] = value.attrs
        if not value.flags.allows_duplicate_labels:
            notes["unique"] = True
        return notes

    def _noted(self, value: Any, notes: dict[str, Any]) -> Any:
        if "attrs" in notes:
            value.attrs = notes["attrs"]
        return value.set_flags(allows_duplicate_labels=False) if notes.get("unique") is True else value

    def assign(self, live: Any, target: Any, assign_part: AssignPart) -> bool:
        live.flags.allows_duplicate_labels = True  # for now: the labels are replaced
        live._update_inplace(target)  # the way in which pandas' own methods with inplace=True end
        live.attrs = target.attrs
        live.flags.allows_duplicate_labels = target.flags.allows_duplicate_labels
        return True

    def parts(self, value: Any) -> Iterable[Any]:
        _, notes = self.take(value)
        return [*super().parts(value), *(notes or {}).values()]


class FrameLayout(_TableLayout):
    """A ``DataFrame``: its columns by label, or position if labels are not such keys, and its row labels under None."""

    __slots__ = ()

    def take(self, value: Any) -> tuple[dict[Any, Any], Notes]:
        keys, note = _keys_of(value.columns)
        notes = self._notes_of(value)
        if note is not None:
            notes["columns"] = note
        # neither copies nor keeps views
        data = dict(zip(keys, map(column_data, value._iter_column_arrays()), strict=True))
        data[INDEX_KEY] = value.index
        return data, notes or None

    def make(self, data: Any, notes: dict[str, Any]) -> tuple[Any, bool]:
        import pandas as pd

        if type(data) is not dict or not isinstance(data.get(INDEX_KEY), pd.Index):
            raise NotPlainDataError("a DataFrame without row labels")
        data = dict(data)
        index = data.pop(INDEX_KEY)
        columns = _columns_from(list(data), notes.get("columns"))
        arrays = {at: _as_column(column) for at, column in enumerate(data.values())}
        if any(len(array) != len(index) for array in arrays.values()):
            raise NotPlainDataError("columns of several lengths")
        frame = pd.DataFrame(arrays, index=index, copy=False)
        frame.columns = columns
        return self._noted(frame, notes), True


class SeriesLayout(_TableLayout):
    """A ``Series``: values, row labels and name."""

    __slots__ = ()

    def take(self, value: Any) -> tuple[dict[str, Any], Notes]:
        values = column_data(value._values)  # the array itself, in every version
        return _record(index=value.index, name=value.name, values=values), self._notes_of(value) or None

    def make(self, data: Any, notes: dict[str, Any]) -> tuple[Any, bool]:
        import pandas as pd

        fields = _fields(data, "index", "values")
        values = _as_column(fields["values"])
        if not isinstance(fields["index"], pd.Index) or len(values) != len(fields["index"]):
            raise NotPlainDataError("a Series whose labels are not those of its values")
        series = pd.Series(values, index=fields["index"], name=fields.get("name"), copy=False)
        return self._noted(series, notes), True

    def assign(self, live: Any, target: Any, assign_part: AssignPart) -> bool:
        super().assign(live, target, assign_part)
        live.name = target.name
        return True


def _keys_of(columns: Any) -> tuple[Iterable[Any], Any]:
    """Return the keys of the columns in the data, and the note of their labels, if there must be one."""
    import pandas as pd

    labels = columns.tolist()
    types = set(map(type, labels))
    are_keys = types <= _LABELS or all(
        type(label) in _LABELS or (type(label) is tuple and _LABELS.issuperset(map(type, label))) for label in labels
    )
    if not are_keys or len(set(labels)) < len(labels):
        return range(len(labels)), columns
    if type(columns) is pd.Index and columns.name is None and types <= {str}:
        if columns.dtype == object:
            return labels, _OBJECT
        if isinstance(columns.dtype, pd.StringDtype) and columns.dtype.na_value is not pd.NA:
            return labels, None
    return labels, columns


def _columns_from(keys: list[Any], note: Any) -> Any:
    import numpy as np
    import pandas as pd

    if isinstance(note, pd.Index):
        if len(note) != len(keys):
            raise NotPlainDataError("labels that are not those of the columns")
        return note
    if note == _OBJECT:
        return pd.Index(object_array(keys), dtype=object, tupleize_cols=False)
    return pd.Index(object_array(keys), dtype=pd.StringDtype(na_value=np.nan))


def _as_column(data: Any) -> Any:
    """Return a column in a form from which pandas infers no other type."""
    import pandas as pd

    array = column_array(data)
    # An array of objects would become one of strings if all of them are.
    return (
        pd.Index(array, dtype=object, tupleize_cols=False, copy=False)
        if array.dtype == object and type(data) is list
        else array
    )


def _record(**fields: Any) -> dict[str, Any]:
    """Return the fields of a value, in the order of their names, without those that are None."""
    return {name: field for name, field in fields.items() if field is not None}


def _fields(data: Any, *names: str) -> dict[str, Any]:
    """Return data that is a dict with these fields. Raises ``NotPlainDataError``."""
    if type(data) is not dict or not data.keys() >= set(names):
        raise NotPlainDataError(f"without {' or '.join(names)}")
    return data


# Indexes


class IndexLayout(Layout):
    """An index over one column, whose type says which class it is."""

    __slots__ = ()

    def take(self, value: Any) -> tuple[dict[str, Any], Notes]:
        frequency = frequency_data(value.freq) if self.cls.__name__ in _HAVE_FREQUENCY else None
        return _record(freq=frequency, name=value.name, values=column_data(value.array)), None

    def make(self, data: Any, notes: dict[str, Any]) -> tuple[Any, bool]:
        import pandas as pd

        values = _fields(data, "values")["values"]
        array = column_array(values)
        as_is: dict[str, Any] = {"dtype": object, "tupleize_cols": False} if type(values) is list else {}
        index = pd.Index(array, copy=False, **as_is)
        index.name = data.get("name")
        if "freq" in data:
            index.freq = data["freq"]
        return index, True


class RangeIndexLayout(Layout):
    """A ``RangeIndex``: three numbers."""

    __slots__ = ()

    def take(self, value: Any) -> tuple[dict[str, Any], Notes]:
        return _record(name=value.name, start=int(value.start), step=int(value.step), stop=int(value.stop)), None

    def make(self, data: Any, notes: dict[str, Any]) -> tuple[Any, bool]:
        import pandas as pd

        fields = _fields(data, "start", "stop", "step")
        return pd.RangeIndex(fields["start"], fields["stop"], fields["step"], name=fields.get("name")), True


class MultiIndexLayout(Layout):
    """A ``MultiIndex``: its levels, each with its name, and the codes of the rows in them."""

    __slots__ = ()

    def take(self, value: Any) -> tuple[dict[str, Any], Notes]:
        levels = [level.rename(name) for level, name in zip(value.levels, value.names, strict=True)]
        return _record(codes=[column_data(codes) for codes in value.codes], levels=levels), None

    def make(self, data: Any, notes: dict[str, Any]) -> tuple[Any, bool]:
        import pandas as pd

        fields = _fields(data, "levels", "codes")
        levels = fields["levels"]
        return pd.MultiIndex(levels=levels, codes=fields["codes"], names=[level.name for level in levels]), True


# Arrays


class _ArrayLayout(Layout):
    """One of pandas' own arrays, which can be changed in place."""

    def assign(self, live: Any, target: Any, assign_part: AssignPart) -> bool:
        if live.dtype != target.dtype or len(live) != len(target):
            return False
        live[:] = target
        return True


class StringsLayout(_ArrayLayout):
    """An array of strings, as a list in which None is a missing one. The note names the type of strings of pandas."""

    __slots__ = ()

    note_names: ClassVar[frozenset[str]] = frozenset({"dtype"})

    def take(self, value: Any) -> tuple[list[Any], Notes]:
        import pandas as pd

        dtype = value.dtype
        noted = {"dtype": f"{'string' if dtype.na_value is pd.NA else 'str'}[{dtype.storage}]"}
        if hasattr(value, "__arrow_array__") and dtype.storage != "python":
            return arrow.chunked_data(value.__arrow_array__())[0], noted
        objects = value.to_numpy(dtype=object)
        missing = value.isna()
        if missing.any():
            objects = objects.copy()
            objects[missing] = None
        return objects.tolist(), noted

    def make(self, data: Any, notes: dict[str, Any]) -> tuple[Any, bool]:
        import numpy as np
        import pandas as pd

        kind, _, storage = str(notes.get("dtype")).removesuffix("]").partition("[")
        if type(data) is not list or kind not in ("str", "string") or storage not in ("python", "pyarrow"):
            raise NotPlainDataError("not an array of strings")
        has_storage = storage == "python" or _has_pyarrow()
        dtype: Any = pd.StringDtype(
            storage if has_storage else "python", na_value=pd.NA if kind == "string" else np.nan
        )
        return pd.array(object_array(data), dtype=dtype), has_storage

    def quick(self, value: Any) -> Any:
        return arrow.memory_of(value.__arrow_array__()) if value.dtype.storage != "python" else None


class MaskedLayout(_ArrayLayout):
    """Numbers or booleans of which some are missing: values, and an array of what is missing, if anything is."""

    __slots__ = ()

    def take(self, value: Any) -> tuple[dict[str, Any], Notes]:
        import numpy as np

        values, mask = value._data, value._mask  # the public way makes copies, or objects
        if not mask.any():
            return _record(values=values), None
        # What lies beneath a missing value has no meaning, and would make equal columns differ.
        return _record(mask=mask, values=np.where(mask, values.dtype.type(0), values)), None

    def make(self, data: Any, notes: dict[str, Any]) -> tuple[Any, bool]:
        import numpy as np
        import pandas as pd

        values = column_array(_fields(data, "values")["values"])
        mask = data.get("mask")
        cls = {"b": pd.arrays.BooleanArray, "f": pd.arrays.FloatingArray}.get(values.dtype.kind, pd.arrays.IntegerArray)
        return cls(values, np.zeros(len(values), bool) if mask is None else mask), True


class ZonedTimesLayout(_ArrayLayout):
    """Times with a zone: the instants in UTC, and the zone. Times without one are an array of numpy."""

    __slots__ = ()

    def take(self, value: Any) -> tuple[dict[str, Any], Notes]:
        return _record(
            tz=zone_data(value.tz), values=column_data(value if value.tz is None else value.tz_convert(None))
        ), None

    def make(self, data: Any, notes: dict[str, Any]) -> tuple[Any, bool]:
        import pandas as pd

        times = pd.DatetimeIndex(column_array(_fields(data, "values")["values"]))
        zone = zone_of(data.get("tz"))
        return (times if zone is None else times.tz_localize("UTC").tz_convert(zone)).array, True


class DurationsLayout(_ArrayLayout):
    """Durations, where they are not a column: in a column they are an array of numpy."""

    __slots__ = ()

    def take(self, value: Any) -> tuple[dict[str, Any], Notes]:
        return _record(values=column_data(value)), None

    def make(self, data: Any, notes: dict[str, Any]) -> tuple[Any, bool]:
        import pandas as pd

        return pd.TimedeltaIndex(column_array(_fields(data, "values")["values"])).array, True


class NumbersLayout(_ArrayLayout):
    """The wrapper of pandas around an array of numpy."""

    __slots__ = ()

    def take(self, value: Any) -> tuple[dict[str, Any], Notes]:
        return _record(values=column_data(value)), None

    def make(self, data: Any, notes: dict[str, Any]) -> tuple[Any, bool]:
        import pandas as pd

        return pd.arrays.NumpyExtensionArray(column_array(_fields(data, "values")["values"])), True


class CategoricalLayout(_ArrayLayout):
    """A ``Categorical``: the categories, and the code of each row's."""

    __slots__ = ()

    def take(self, value: Any) -> tuple[dict[str, Any], Notes]:
        return _record(categories=value.categories, codes=column_data(value.codes), ordered=bool(value.ordered)), None

    def make(self, data: Any, notes: dict[str, Any]) -> tuple[Any, bool]:
        import pandas as pd

        fields = _fields(data, "codes", "categories", "ordered")
        dtype = pd.CategoricalDtype(fields["categories"], ordered=fields["ordered"])
        return pd.Categorical.from_codes(column_array(fields["codes"]), dtype=dtype), True

    def assign(self, live: Any, target: Any, assign_part: AssignPart) -> bool:
        return (
            live.dtype == target.dtype
            and list(live.categories) == list(target.categories)
            and super().assign(live, target, assign_part)
        )


class PeriodsLayout(_ArrayLayout):
    """Periods of one frequency, as their numbers."""

    __slots__ = ()

    def take(self, value: Any) -> tuple[dict[str, Any], Notes]:
        return _record(freq=value.freqstr, values=value.asi8), None

    def make(self, data: Any, notes: dict[str, Any]) -> tuple[Any, bool]:
        import pandas as pd

        fields = _fields(data, "values", "freq")
        return pd.arrays.PeriodArray(column_array(fields["values"]), dtype=pd.PeriodDtype(fields["freq"])), True


class IntervalsLayout(_ArrayLayout):
    """Intervals, as their two ends."""

    __slots__ = ()

    def take(self, value: Any) -> tuple[dict[str, Any], Notes]:
        return _record(closed=value.closed, left=value.left, right=value.right), None

    def make(self, data: Any, notes: dict[str, Any]) -> tuple[Any, bool]:
        import pandas as pd

        fields = _fields(data, "left", "right", "closed")
        return pd.arrays.IntervalArray.from_arrays(fields["left"], fields["right"], closed=fields["closed"]), True


class SparseLayout(_ArrayLayout):
    """A sparse array: the values that are not the fill value, and their places."""

    __slots__ = ()

    def take(self, value: Any) -> tuple[dict[str, Any], Notes]:
        places = value.sp_index.to_int_index()
        length, values = int(places.length), column_data(value.sp_values)
        return _record(
            fill=value.fill_value, kind=value.kind, length=length, places=places.indices, values=values
        ), None

    def make(self, data: Any, notes: dict[str, Any]) -> tuple[Any, bool]:
        import pandas as pd
        from pandas._libs.sparse import IntIndex

        fields = _fields(data, "kind", "length", "places", "values")
        places = IntIndex(fields["length"], fields["places"])
        index = places.to_block_index() if fields["kind"] == "block" else places
        values = column_array(fields["values"])
        dtype = pd.SparseDtype(values.dtype, fields.get("fill"))
        # The public ways differ from version to version, and one of them warns.
        return pd.arrays.SparseArray._simple_new(values, index, dtype), True

    def assign(self, live: Any, target: Any, assign_part: AssignPart) -> bool:
        return False  # pandas has no assignment to one


class ArrowLayout(_ArrayLayout):
    """An Arrow array: its type, its values as an array of numbers or a list, and an array of missing ones, if any."""

    __slots__ = ()

    def take(self, value: Any) -> tuple[dict[str, Any], Notes]:
        chunked = value.__arrow_array__()
        values, missing = arrow.chunked_data(chunked)
        return _record(mask=missing, type=arrow.type_data(chunked.type), values=values), None

    def make(self, data: Any, notes: dict[str, Any]) -> tuple[Any, bool]:
        import pandas as pd

        if not _has_pyarrow():
            raise NotPlainDataError("pyarrow is not installed")
        fields = _fields(data, "type", "values")
        chunked = arrow.chunked_of(arrow.type_of(fields["type"]), fields["values"], fields.get("mask"))
        return pd.arrays.ArrowExtensionArray(chunked), True

    def quick(self, value: Any) -> Any:
        return arrow.memory_of(value.__arrow_array__())


# Scalars


class TimestampLayout(Layout):
    """A ``Timestamp``: its number of units since 1970 (in UTC if it has a zone), the unit, and the zone."""

    __slots__ = ()

    def take(self, value: Any) -> tuple[list[Any], Notes]:
        return [int(value.asm8.view("i8")), value.unit, zone_data(value.tzinfo)], None

    def make(self, data: Any, notes: dict[str, Any]) -> tuple[Any, bool]:
        import numpy as np
        import pandas as pd

        number, unit, zone = _three(data)
        value = pd.Timestamp(np.datetime64(number, unit))
        zone = zone_of(zone)
        return value if zone is None else value.tz_localize("UTC").tz_convert(zone), True


class TimedeltaLayout(Layout):
    """A ``Timedelta``: its number of units, and the unit."""

    __slots__ = ()

    def take(self, value: Any) -> tuple[list[Any], Notes]:
        return [int(value.asm8.view("i8")), value.unit, None], None

    def make(self, data: Any, notes: dict[str, Any]) -> tuple[Any, bool]:
        import numpy as np
        import pandas as pd

        number, unit, _ = _three(data)
        return pd.Timedelta(np.timedelta64(number, unit)), True


class PeriodLayout(Layout):
    """A ``Period``: its number, and its frequency."""

    __slots__ = ()

    def take(self, value: Any) -> tuple[list[Any], Notes]:
        return [int(value.ordinal), value.freqstr, None], None

    def make(self, data: Any, notes: dict[str, Any]) -> tuple[Any, bool]:
        import pandas as pd

        number, frequency, _ = _three(data)
        return pd.Period(ordinal=number, freq=frequency), True


class IntervalLayout(Layout):
    """An ``Interval``: its two ends, and which of them belong to it."""

    __slots__ = ()

    def take(self, value: Any) -> tuple[list[Any], Notes]:
        return [value.left, value.right, value.closed], None

    def make(self, data: Any, notes: dict[str, Any]) -> tuple[Any, bool]:
        import pandas as pd

        left, right, closed = _three(data)
        return pd.Interval(left, right, closed), True


class MissingLayout(Layout):
    """``NA`` or ``NaT``: its name says all."""

    __slots__ = ("_value",)

    def __init__(self, cls: type, name: str, value: Any) -> None:
        super().__init__(cls, name)
        self._value = value

    def take(self, value: Any) -> tuple[None, Notes]:
        return None, None

    def make(self, data: Any, notes: dict[str, Any]) -> tuple[Any, bool]:
        if data is not None:
            raise NotPlainDataError("a missing value has no data")
        return self._value, True


def _three(data: Any) -> list[Any]:
    if type(data) is not list or len(data) != 3:
        raise NotPlainDataError("not the data of a scalar")
    return data


# The tables of layouts


def has_name(name: str) -> bool:
    """Return whether a stored name is one of pandas' values."""
    return name.startswith("pandas.") and name.removeprefix("pandas.") in _NAMES


def is_array_name(name: str) -> bool:
    """Return whether a stored name is that of one of pandas' own arrays."""
    return has_name(name) and name.endswith(("Array", ".Categorical"))


def is_array(value: Any) -> bool:
    """Return whether a value is one of pandas' own arrays."""
    layout = layout_of_class(type(value)) if "pandas" in sys.modules else None
    return isinstance(layout, _ArrayLayout)


def layout_of_class(cls: type) -> Layout | None:
    """Return the layout of a class of pandas, or None if it has none, as a subclass of ``DataFrame``.

    Never imports pandas.
    """
    found = _layouts()[0].get(id(cls)) if "pandas" in sys.modules and _is_recent() else None
    return found if found is not None and found.cls is cls else None


def layout_named(name: str) -> Layout | None:
    """Return the layout for a stored name of pandas, or None if pandas (imported here) is not installed or too old."""
    return _layouts()[1].get(name) if _is_recent() else None


def missing_extra(name: str) -> str | None:
    """Return the missing extra that reading a value of this stored name needs, or None if there is none."""
    if not has_name(name):
        return None
    if layout_named(name) is None:
        return "pandas"
    return None if _has_pyarrow() or name != "pandas.ArrowExtensionArray" else "pyarrow"


_INDEXES: Final = ("Index", "DatetimeIndex", "TimedeltaIndex", "PeriodIndex", "CategoricalIndex", "IntervalIndex")
_ARRAYS: Final[dict[str, type[Layout]]] = {
    "BooleanArray": MaskedLayout,
    "IntegerArray": MaskedLayout,
    "FloatingArray": MaskedLayout,
    "DatetimeArray": ZonedTimesLayout,
    "TimedeltaArray": DurationsLayout,
    "NumpyExtensionArray": NumbersLayout,
    "Categorical": CategoricalLayout,
    "PeriodArray": PeriodsLayout,
    "IntervalArray": IntervalsLayout,
    "SparseArray": SparseLayout,
    "ArrowExtensionArray": ArrowLayout,
}
_STORED_AS: Final = {"BooleanArray": "MaskedArray", "IntegerArray": "MaskedArray", "FloatingArray": "MaskedArray"}
_SCALARS: Final[dict[str, type[Layout]]] = {
    "Timestamp": TimestampLayout,
    "Timedelta": TimedeltaLayout,
    "Period": PeriodLayout,
    "Interval": IntervalLayout,
}
_NAMES: Final = frozenset(
    {
        *("DataFrame", "Series", "Index", "RangeIndex", "MultiIndex", "StringArray", "NA", "NaT"),
        *(_STORED_AS.get(name, name) for name in _ARRAYS),
        *_SCALARS,
    }
)


@lru_cache(1)
def _layouts() -> tuple[dict[int, Layout], dict[str, Layout]]:
    """Return the layouts by the ids of their classes, and by their stored names."""
    import numpy as np
    import pandas as pd

    found: list[Layout] = [FrameLayout(pd.DataFrame, FRAME), SeriesLayout(pd.Series, SERIES)]
    found += [IndexLayout(getattr(pd, name), "pandas.Index") for name in _INDEXES]
    found += [
        RangeIndexLayout(pd.RangeIndex, "pandas.RangeIndex"),
        MultiIndexLayout(pd.MultiIndex, "pandas.MultiIndex"),
    ]
    found += [make(getattr(pd.arrays, name), f"pandas.{_STORED_AS.get(name, name)}") for name, make in _ARRAYS.items()]
    for storage in ("python", "pyarrow") if _has_pyarrow() else ("python",):
        for missing in (pd.NA, np.nan):
            cls = type(pd.array([], dtype=pd.StringDtype(storage, na_value=missing)))
            if all(each.cls is not cls for each in found):
                found.append(StringsLayout(cls, "pandas.StringArray"))
    found += [make(getattr(pd, name), f"pandas.{name}") for name, make in _SCALARS.items()]
    found += [MissingLayout(type(pd.NA), "pandas.NA", pd.NA), MissingLayout(type(pd.NaT), "pandas.NaT", pd.NaT)]
    names: dict[str, Layout] = {}
    for layout in found:
        names.setdefault(layout.name, layout)
    return {id(layout.cls): layout for layout in found}, names


_OLDEST: Final = (2, 3)
"""The first version of pandas with both of its types of strings."""


@lru_cache(1)
def _is_recent() -> bool:
    """Return whether pandas is installed, in a version whose values are data. In an older one they are objects."""
    try:
        import pandas as pd
    except ImportError:
        return False
    numbers = pd.__version__.split(".")[:2]
    return all(map(str.isdigit, numbers)) and tuple(map(int, numbers)) >= _OLDEST


@lru_cache(1)
def _has_pyarrow() -> bool:
    try:
        import pyarrow as pa
    except ImportError:
        return False
    return hasattr(pa, "chunked_array")
