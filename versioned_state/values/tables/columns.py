"""Columns of pandas as data, and back: a numpy array, a list of any data, or a typed value of one of pandas' arrays.

Layer: values.

This module imports pandas only when it meets a value of pandas, whose owner has imported pandas already.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from versioned_state.values.typed.layout import NotPlainDataError

if TYPE_CHECKING:
    import numpy as np

_PYTZ = "pytz:"


def column_data(values: Any) -> Any:
    """Return a column as data.

    Numbers, and times without a zone, are a view of the column's memory, so nothing is copied.
    """
    import numpy as np
    import pandas as pd

    if type(values) is pd.arrays.NumpyExtensionArray:
        values = values.to_numpy()
    if isinstance(values, np.ndarray):
        return values.tolist() if values.dtype == object else np.asarray(values)
    is_naive = type(values) is pd.arrays.TimedeltaArray or (
        type(values) is pd.arrays.DatetimeArray and values.tz is None
    )
    return np.asarray(values) if is_naive else values


def column_array(data: Any) -> Any:
    """Return a column from its data: an array of numpy, or one of pandas' own."""
    import numpy as np
    import pandas as pd

    if type(data) is list:
        return object_array(data)
    if isinstance(data, np.ndarray) and data.ndim == 1:
        return data
    if isinstance(data, pd.api.extensions.ExtensionArray):
        return data
    raise NotPlainDataError("a column is neither a list nor an array of one dimension")


def object_array(values: list[Any]) -> np.ndarray[Any, Any]:
    """Return an array of these objects, lists and arrays among them."""
    import numpy as np

    made = np.empty(len(values), object)
    made[:] = values
    return made


def zone_data(zone: dt.tzinfo | None) -> Any:
    """Return a time zone as data. Raises ``NotPlainDataError`` for one of a user's own class."""
    if zone is None or type(zone) in (dt.timezone, ZoneInfo):
        return zone
    name = getattr(zone, "zone", None)
    if type(zone).__module__.partition(".")[0] == "pytz" and type(name) is str:
        return _PYTZ + name
    raise NotPlainDataError(f"a time zone of the class {type(zone).__qualname__}")


def zone_of(data: Any) -> dt.tzinfo | None:
    """Return a time zone from its data. Without pytz, a zone of pytz is that of the standard library."""
    if type(data) is not str:
        if data is None or isinstance(data, dt.tzinfo):
            return data
        raise NotPlainDataError("not a time zone")
    name = data.removeprefix(_PYTZ)
    try:
        import pytz
    except ImportError:
        return ZoneInfo(name)
    zone: dt.tzinfo = pytz.timezone(name)
    return zone


def frequency_data(frequency: Any) -> str | None:
    """Return the frequency of an index as text. Raises ``NotPlainDataError`` for one that no text leads back to."""
    if frequency is None:
        return None
    from pandas.tseries.frequencies import to_offset

    text: str = frequency.freqstr
    try:
        found = to_offset(text)
    except ValueError:
        found = None
    if found != frequency:
        raise NotPlainDataError(f"the frequency {frequency!r}")
    return text
