"""The graph of a log as lanes: a column for each line of history, laid out row by row for the shown commits only.

Layer: repository.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

MOST: Final = 12
"""Lanes that are drawn; others are counted."""


def lanes(
    history: Iterable[tuple[str, Sequence[str]]], waiting: Sequence[str] = ()
) -> tuple[list[dict[str, Any]], list[str]]:
    """Return a row of lanes for each commit, and the commits that the lanes wait for after the last one.

    A row has ``lane``, the column of the commit; ``lines``: pairs of a column at its top and one at its bottom, or the
    commit itself (-1) at either end; ``width``, how many columns there are; and ``more``, whether there are others that
    are not drawn.

    Args:
        history: ids of commits and of their parents, children before parents.
        waiting: the commits that the lanes wait for before the first one.
    """
    columns = list(waiting)
    rows = []
    for id, parents in history:
        above = list(columns)
        if id not in columns:
            columns.append(id)
        lane = columns.index(id)
        below: list[str] = []
        for column in columns:
            if column != id and column not in below:
                below.append(column)
        new = [parent for parent in dict.fromkeys(parents) if parent not in below]
        below[lane:lane] = new
        lines = [(at, -1 if column == id else below.index(column)) for at, column in enumerate(above)]
        lines += [(-1, below.index(parent)) for parent in dict.fromkeys(parents)]
        width = max(len(above), len(below), lane + 1)
        rows.append(
            {
                "lane": min(lane, MOST - 1),
                "lines": [line for line in dict.fromkeys(lines) if max(line) < MOST],
                "width": min(width, MOST),
                "more": width > MOST,
            }
        )
        columns = below
    return rows, columns
