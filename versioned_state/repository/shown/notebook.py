"""``_repr_html_`` for notebooks: the components of the page, without links, and small enough for the notebook's file.

Layer: repository.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from versioned_state.repository.shown import commits, components
from versioned_state.repository.shown.components import Html, element
from versioned_state.repository.shown.lanes import lanes
from versioned_state.repository.shown.text import Budget

if TYPE_CHECKING:
    from versioned_state.repository.history.commit import Commit
    from versioned_state.repository.names.listing import RefInfo

ROWS: Final = 50
"""Rows of an output; a notebook keeps it in its file."""

BYTES: Final = 30_000
"""Bytes of the texts of an output, beside its markup and its style."""

_CAPTION: Final = 300

_COLOURS: Final = (
    "--back: transparent; --panel: rgb(127 127 127 / 0.09); --line: rgb(127 127 127 / 0.28); "
    "--quiet: color-mix(in srgb, currentcolor 65%, transparent); --ink: inherit; --accent: #4a86dd; "
    "--add: rgb(46 160 67 / 0.14); --add-ink: inherit; --add-mark: rgb(46 160 67 / 0.36); "
    "--del: rgb(248 81 73 / 0.14); --del-ink: inherit; --del-mark: rgb(248 81 73 / 0.36); "
    "--mono: ui-monospace, 'SF Mono', 'Cascadia Mono', 'DejaVu Sans Mono', Menlo, Consolas, monospace; "
    "--text: inherit; --small: 0.8125rem; --base: 0.9375rem; --large: 1rem; "
    "font-size: var(--base); line-height: 1.5; overflow-wrap: anywhere; "
    "max-width: 80rem;"
)
"""Colours that do on a light and on a dark ground, since a notebook does not say which of them it has."""

_OWN: Final = (
    ".caption { margin: 0 0 0.375rem; font-size: var(--small); opacity: 0.75 } "
    "h2, h3 { margin: 0.75rem 0 0.25rem; font-size: inherit } "
    ".change h3 { margin: 0 } tr { background: none !important } code { background: none; padding: 0; color: inherit } "
    "p { margin: 0.25rem 0 } .empty { padding: 0 } li { margin: 0 }"
)
"""Against what a notebook does to headings, tables and code of an output."""


@cache
def _style() -> Html:
    """Return the style of the components, within an output only."""
    sheet = re.sub(r"/\*.*?\*/", "", components.style_sheet(), flags=re.DOTALL)
    packed = re.sub(r"\s*([{};])\s*", r"\1", sheet).replace(";}", "}")
    return Html(f"<style>.vstate {{ {_COLOURS} {packed.strip()} {_OWN} }}</style>")


def output(caption: str, *parts: object) -> str:
    """Return an output: some HTML below a caption."""
    return str(element("div", _style(), element("p", caption[:_CAPTION], class_="caption"), *parts, class_="vstate"))


def listed(rows: list[Any], made: Html) -> Html:
    """Return a list that was made of some rows, or the word for none."""
    return made if rows else element("p", "nothing", class_="note")


def rest(more: object) -> Html:
    """Return the sign that something is left out, if it is."""
    return element("p", "…", class_="note") if more else Html()


def taken(results: Iterable[Any]) -> tuple[list[Any], bool]:
    """Return the first results, and whether there are others. One beyond those is read."""
    some = list(islice(results, ROWS + 1))
    return some[:ROWS], len(some) > ROWS


def table(caption: str, heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a table of texts."""
    budget = Budget(BYTES)
    shown, more = taken(rows)
    cells = ([element("code", budget.cut(text, 200)) for text in row] for row in shown)
    return output(caption, listed(shown, components.table(list(heads), cells, label=caption[:_CAPTION])), rest(more))


def values(caption: str, previews: Iterable[tuple[str, str]]) -> str:
    """Return keys, each with its value on one line."""
    budget = Budget(BYTES)
    shown, more = taken(previews)
    plain = {"path": None, "opens": False, "type": "", "size": "", "picture": None}
    rows = [{**plain, "label": budget.cut(key, 300), "line": budget.cut(line, 300)} for key, line in shown]
    return output(caption, listed(rows, components.tree(rows)), rest(more))


def log(results: Iterable[Commit], caption: str) -> str:
    """Return commits with the lanes of their graph."""
    budget = Budget(BYTES)
    shown, more = taken(results)
    rows, _ = lanes((each.id, each.parents_but_root) for each in shown)
    width = max((row["width"] for row in rows), default=1)
    entries = [{**commits.facts(each, budget), "graph": row} for each, row in zip(shown, rows, strict=True)]
    return output(caption, listed(entries, components.log(entries, width)), rest(more))


def commit(it: Commit) -> str:
    """Return one commit, with its meta."""
    budget = Budget(BYTES)
    said = commits.said(it, budget)
    return output(it.message.partition("\n")[0] or "no message", components.commit_facts(said))


def refs(caption: str, results: Iterable[RefInfo]) -> str:
    """Return branches or tags, each with its newest commit."""
    budget = Budget(BYTES)
    shown, more = taken(results)
    return output(caption, listed(shown, components.refs(commits.ref(each, budget) for each in shown)), rest(more))
