"""Tables of pandas as text: whole as pandas shows them, and on one line. Layer: repository."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Final

from versioned_state.values.cells import key_of_cell, pack_text, payload_of, split_cells
from versioned_state.values.containers import container_of, order_keys, sequence_of
from versioned_state.values.decode.decoder import Decoder
from versioned_state.values.tables.layouts import FRAME, SERIES
from versioned_state.values.trees.nodes import Nodes, Shape
from versioned_state.values.trees.tree import find, iter_cells

_ROWS: Final = 60
"""Rows up to which a table is shown whole, as pandas does."""

_ENDS: Final = 10
"""Rows of a longer table that are shown."""

_INDEX: Final = {FRAME: b"\xc0", SERIES: pack_text("index")}


def table_lines(value: Any, width: int) -> list[str]:
    """Return pandas' lines for a frame, a series or an index, in ``width`` columns, or none for any other value."""
    pandas = sys.modules.get("pandas")
    if pandas is None or not isinstance(value, pandas.DataFrame | pandas.Series | pandas.Index):
        return []
    size = "display.width", width, "display.max_rows", _ROWS, "display.min_rows", _ENDS, "display.max_columns", 0
    with pandas.option_context(*size):
        if isinstance(value, pandas.DataFrame):
            shown: str = value.to_string(
                max_rows=_ROWS, min_rows=_ENDS, line_width=width, show_dimensions=len(value) > _ROWS
            )
        else:
            shown = repr(value)
    return shown.split("\n")


def in_python(value: Any) -> Any:
    """Return a value of pandas in types of Python, for a program without pandas. Any other value is returned as it is.

    A frame is a list of its rows, each a dict by label, or a list if labels occur twice. The labels of rows are left
    out. A series, an index or an array is a list, a time or duration ISO text, and what is missing None.
    """
    pandas = sys.modules.get("pandas")
    if pandas is None or type(value).__module__.partition(".")[0] != "pandas":
        return value
    if value is pandas.NA or value is pandas.NaT:
        return None
    if isinstance(value, pandas.Timestamp | pandas.Timedelta):
        return value.isoformat()
    if isinstance(value, pandas.DataFrame):
        rows = zip(*(value.iloc[:, at].tolist() for at in range(value.shape[1])), strict=True)
        labels = list(map(str, value.columns))
        return [dict(zip(labels, row, strict=True)) if len(set(labels)) == len(labels) else list(row) for row in rows]
    if isinstance(value, pandas.Series | pandas.Index | pandas.api.extensions.ExtensionArray):
        return value.tolist()
    return str(value) if isinstance(value, pandas.Period | pandas.Interval) else value


def summary(value: Any) -> str:
    """Return a frame or a series on one line, by its size and labels, or "" for any other value."""
    pandas = sys.modules.get("pandas")
    if pandas is not None and type(value) is pandas.DataFrame:
        return _frame(len(value), len(value.columns), map(str, value.columns))
    if pandas is not None and type(value) is pandas.Series:
        return _series(len(value), str(value.dtype))
    return ""


def summary_of_cell(nodes: Nodes, decoder: Decoder, name: str, data: bytes) -> str:
    """Return the summary of a table from its cell, or "" for a value of another type.

    Cost: the nodes that hold the size and the labels.
    """
    opened = container_of(nodes, data) if name in _INDEX else None
    if opened is None or opened.tree.shape is not Shape.MAP:
        return ""
    key = key_of_cell(_INDEX[name])
    index = find(nodes, opened.tree, key)
    rows = None if index is None else _length_of(nodes, decoder, index)
    if rows is None:
        return ""
    if name == SERIES:
        return _series(rows, "")
    labels = (str(decoder.decode_key(each)) for each in order_keys(nodes, opened) if each != key)
    return _frame(rows, opened.tree.count - 1, labels)


def _frame(rows: int, columns: int, labels: Iterable[str]) -> str:
    shown = ", ".join(islice(labels, 20))
    counted = f"{rows:,} row{'' if rows == 1 else 's'}, {columns:,} column{'' if columns == 1 else 's'}"
    return f"DataFrame({counted}: {shown})" if shown else f"DataFrame({counted})"


def _series(rows: int, dtype: str) -> str:
    return f"Series({rows:,} value{'' if rows == 1 else 's'}{f' of {dtype}' if dtype else ''})"


def _length_of(nodes: Nodes, decoder: Decoder, cell: bytes) -> int | None:
    """Return the length of an index or a column, from its cell, or None if it does not say."""
    opened = container_of(nodes, cell)
    if opened is None:
        parts = split_cells(payload_of(cell))
        shape = decoder.decode(parts[3] if len(parts) == 4 else parts[1])
        return int(shape[0]) if type(shape) is list and shape else None
    if opened.tree.shape is Shape.SEQUENCE:
        return opened.tree.count
    fields = {
        name: find(nodes, opened.tree, key_of_cell(pack_text(name)))
        for name in ("values", "codes", "left", "length", "start")
    }
    if fields["start"] is not None:
        start, stop, step = (decoder.decode(_field(nodes, opened.tree, name)) for name in ("start", "stop", "step"))
        return max(-((int(start) - int(stop)) // int(step)), 0)
    if fields["length"] is not None:
        return int(decoder.decode(fields["length"]))
    inner = fields["values"] or fields["codes"] or fields["left"]
    if (
        inner is not None
        and fields["codes"] is not None
        and (levels := sequence_of(nodes, inner)) is not None
        and levels.count
    ):
        inner = next(iter(_first(nodes, levels)))
    return None if inner is None else _length_of(nodes, decoder, inner)


def _field(nodes: Nodes, tree: Any, name: str) -> bytes:
    return find(nodes, tree, key_of_cell(pack_text(name))) or b"\xc0"


def _first(nodes: Nodes, tree: Any) -> Iterator[bytes]:
    return iter_cells(nodes, tree, 0, 1)
