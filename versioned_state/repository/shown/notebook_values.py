"""``_repr_html_`` of what is read from the trees of states: snapshots, diffs, blame, histories and matches.

Layer: repository.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from versioned_state.repository.shown import changes, components, found, pictures
from versioned_state.repository.shown.components import element
from versioned_state.repository.shown.notebook import BYTES, ROWS, listed, output, rest, taken
from versioned_state.repository.shown.text import Budget
from versioned_state.repository.shown.values import Values
from versioned_state.values.paths.path import Key, StatePath

if TYPE_CHECKING:
    from versioned_state.repository.inspect.blame import Blame
    from versioned_state.repository.inspect.grep import Match
    from versioned_state.repository.inspect.path_log import PathChange
    from versioned_state.repository.views.diff import Diff
    from versioned_state.repository.views.snapshot import Snapshot


def snapshot(caption: str, past: Snapshot) -> str:
    """Return the keys of a snapshot, each with the type, size and beginning of its value.

    An array of numbers in a row is drawn as a line.
    """
    budget = Budget(BYTES)
    of = Values(past.new_nodes(), budget)
    keys, more = taken(past)
    rows = []
    for key in keys:
        cell = past.cell_at(StatePath((Key(key),)))
        facts = of.facts(cell)
        small = pictures.picture(cell, of) if facts["type"] == "array" else None
        drawn = small if small is not None and small["kind"] == "line" else None
        rows.append({"label": budget.cut(key, 300), "path": None, "picture": drawn, **facts})
    return output(caption, listed(rows, components.tree(rows)), rest(more))


def diff(it: Diff) -> str:
    """Return changes side by side, and what else there is to say of a status."""
    notes = [element("p", line, class_="note") for line in islice(it._rest_lines(), int(it.more), ROWS)]
    shown = components.diff(changes.shown(it, Budget(BYTES), most=ROWS)) if len(it) or not notes else ""
    return output("changes", shown, *notes)


def history(results: Iterable[PathChange]) -> str:
    """Return the commits that changed a path, each with its changes."""
    budget = Budget(BYTES)
    steps = (found.changed(each, budget) for each in results)
    shown = list(_within(budget, steps))
    return output(
        "history",
        listed(shown, components.joined(map(components.step, shown[:ROWS]))),
        rest(len(shown) > ROWS or budget.left_out),
    )


def _within(budget: Budget, results: Iterator[Any]) -> Iterator[Any]:
    """Yield results as long as there is room for them, and one beyond ``ROWS``."""
    for result in islice(results, ROWS + 1):
        yield result
        if not budget.row():
            return


def matches(results: Iterable[Match]) -> str:
    """Return the lines that match, with the matches marked."""
    budget = Budget(BYTES)
    shown, more = taken(results)
    return output("matches", listed(shown, components.hits(found.matched(each, budget) for each in shown)), rest(more))


def blame(parts: list[Blame]) -> str:
    """Return the parts of a value, each with the commit that it comes from."""
    rows = found.blamed(parts[:ROWS], Budget(BYTES))
    return output("blame", listed(rows, components.blame(rows)), rest(len(parts) > ROWS))
