"""Small pictures of values: a line for numbers in a row, shades for a grid of them, and the first rows of a table.

Layer: repository.
"""

from __future__ import annotations

import sys
from typing import Any, Final

from versioned_state.errors import LimitExceededError, StateError
from versioned_state.repository.shown.values import Values
from versioned_state.repository.views.render import one_line
from versioned_state.repository.views.tables import summary
from versioned_state.values.decode.decoder import Decoder

PICTURED: Final = frozenset({"array", "DataFrame", "pandas.DataFrame"})
"""The types of values that may have a picture, as ``Values`` names them."""

_BYTES: Final = 8 << 20
"""Of the largest value that is read for a picture."""

WIDTH: Final = 240
"""Places of a line, each with the least and the greatest number there."""

HEIGHT: Final = 48

_SIDE: Final = 40
"""Rows and columns of shades; of a larger grid each is a mean."""

_SHADES: Final = 8
_ROWS: Final = 12
_COLUMNS: Final = 12
_CELL: Final = 60


def picture(cell: bytes, values: Values, *, most: int = _BYTES) -> dict[str, Any] | None:
    """Return what to draw for a value, or None if it has more than ``most`` bytes or its kind has no picture."""
    spent = 0

    def spend(size: int) -> None:
        nonlocal spent
        spent += size
        if spent > most:
            raise LimitExceededError("a value for a picture", limit=most)

    try:
        value = Decoder(values.nodes, None, spend=spend).decode(cell)
    except (StateError, ImportError):
        return None
    if summary(value):
        return _table(value, values)
    numpy = sys.modules.get("numpy")
    if numpy is None or not isinstance(value, numpy.ndarray) or value.dtype.kind not in "biuf" or not value.size:
        return None
    numbers = value.astype("float64")
    finite = numpy.isfinite(numbers)
    if not finite.any():
        return None
    low, high = float(numbers[finite].min()), float(numbers[finite].max())
    facts = {"low": f"{low:.6g}", "high": f"{high:.6g}", "missing": int((~finite).sum())}
    scaled = numpy.where(finite, (numbers - low) / ((high - low) or 1.0), numpy.nan)
    if value.ndim == 1 and value.size > 1:
        path = _line(scaled, numpy)
        return (
            {"kind": "line", "path": path, "width": WIDTH, "height": HEIGHT, **facts}
            if values.budget.row(len(path))
            else None
        )
    if value.ndim == 2 and min(value.shape) > 1:
        return {**_grid(scaled, numpy), **facts} if values.budget.row(_SIDE * _SIDE * 40) else None
    return None


def _line(scaled: Any, numpy: Any) -> str:
    """Return the commands of a path through the least and the greatest number of each place."""
    places = numpy.array_split(scaled, min(WIDTH, len(scaled)))
    commands = []
    pen = "M"
    for at, place in enumerate(places):
        part = place[~numpy.isnan(place)]
        if not part.size:
            pen = "M"
            continue
        x = round(at * WIDTH / max(len(places) - 1, 1), 1)
        for number in dict.fromkeys((float(part.min()), float(part.max()))):
            commands.append(f"{pen}{x:g} {round((1 - number) * (HEIGHT - 4) + 2, 1):g}")
            pen = "L"
    return "".join(commands)


def _grid(scaled: Any, numpy: Any) -> dict[str, Any]:
    """Return rectangles of one shade, several columns wide where these are alike."""
    rows = [
        numpy.array_split(part, min(_SIDE, scaled.shape[1]), axis=1)
        for part in numpy.array_split(scaled, min(_SIDE, scaled.shape[0]))
    ]
    found = []
    for y, row in enumerate(rows):
        shades = [-1 if numpy.isnan(part).all() else round(float(numpy.nanmean(part)) * _SHADES) for part in row]
        start = 0
        for x in range(1, len(shades) + 1):
            if x == len(shades) or shades[x] != shades[start]:
                if shades[start] > 0:
                    found.append([start, y, x - start, shades[start] / _SHADES])
                start = x
    return {"kind": "grid", "cells": found, "width": len(rows[0]), "height": len(rows)}


def _table(value: Any, values: Values) -> dict[str, Any] | None:
    """Return the first rows of a frame of pandas."""
    pandas = sys.modules.get("pandas")
    if pandas is None or not isinstance(value, pandas.DataFrame):
        return None
    part = value.iloc[:_ROWS, :_COLUMNS]

    def shown(each: Any) -> str:
        plain = each.item() if type(each).__module__ == "numpy" and each.dtype.kind in "biuf" else each
        return values.budget.cut(one_line(plain, width=_CELL, quote=False), _CELL)

    return {
        "kind": "table",
        "columns": [shown(name) for name in part.columns],
        "numbers": [bool(pandas.api.types.is_numeric_dtype(part.dtypes.iloc[at])) for at in range(part.shape[1])],
        "rows": [[shown(part.index[at]), *(shown(each) for each in part.iloc[at])] for at in range(len(part))],
        "more_rows": max(len(value) - _ROWS, 0),
        "more_columns": max(value.shape[1] - _COLUMNS, 0),
    }
