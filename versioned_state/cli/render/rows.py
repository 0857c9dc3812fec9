"""Rows of columns that fit the terminal: what matters least is left out first. Layer: cli."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

from versioned_state.cli.render.output import Line, Part, Span, columns, padded

_T = TypeVar("_T")

Cells = Sequence[Part]
"""The columns of one row. The last one is as wide as there is room for."""

_ROOM: Final = 24
"""Columns that the last cell gets at least, if it needs them."""

_LEAST: Final = 12
"""With fewer columns left, the last cell has a line of its own."""


def fit_rows(items: Sequence[_T], variants: Sequence[Callable[[_T], Cells]], width: int | None) -> Iterator[Line]:
    """Yield a line for each item, its columns below those of the line before.

    Args:
        variants: the cells of an item, from the richest to the shortest row; the first that fits is taken for all
            items.
        width: the columns of the terminal; None: the richest row, however wide.
    """
    rows: list[Cells] = []
    for variant in variants:
        rows = [variant(item) for item in items]
        if width is None or _needed(rows, _ROOM) <= width:
            break
    own_line = width is not None and _needed(rows, _LEAST) > width
    widths = _widths(rows)
    for row in rows:
        line: Line = []
        for cell, room in zip(row[:-1], widths, strict=False):
            line += [_padded(cell, room), "  "] if room else []
        if own_line:
            yield line[:-1]
            yield ["    ", row[-1]]
        else:
            yield [*line, row[-1]]


def _widths(rows: Sequence[Cells]) -> list[int]:
    """Return the width of each column but the last cells, which may be in any column."""
    count = max((len(row) - 1 for row in rows), default=0)
    return [max(_columns(row[column]) for row in rows if len(row) - 1 > column) for column in range(count)]


def _needed(rows: Sequence[Cells], room: int) -> int:
    """Return the columns that the rows need if the last cells get at most ``room``."""
    last = max((_columns(row[-1]) for row in rows), default=0)
    return sum(width + 2 for width in _widths(rows) if width) + min(last, room)


def _columns(cell: Part) -> int:
    return columns(cell if isinstance(cell, str) else cell.text)


def _padded(cell: Part, width: int) -> Part:
    return padded(cell, width) if isinstance(cell, str) else Span(padded(cell.text, width), cell.style)
