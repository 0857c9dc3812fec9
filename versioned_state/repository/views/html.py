"""Tables for ``_repr_html_`` in notebooks. Every text is escaped, and no table is large. Layer: repository."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from itertools import islice
from typing import TYPE_CHECKING, Final

from versioned_state.repository.views.render import escape as printable, one_line

if TYPE_CHECKING:
    from versioned_state.repository.history.commit import Commit
    from versioned_state.repository.inspect.blame import Blame
    from versioned_state.repository.views.diff import Diff

ROWS: Final = 50
"""Rows of a table; a notebook keeps its output in its file."""

_CHARACTERS: Final = 200
"""Of one cell."""

_COLOURS: Final = {"+": "#1a7f37", "-": "#cf222e", "~": "#9a6700"}


def table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table of texts, of at most ``ROWS`` rows, with a note if there are more. Reads one row beyond those it shows."""
    source = iter(rows)
    shown = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in islice(source, ROWS))
    if next(source, None) is not None:
        shown += f'<tr><td colspan="{len(heads)}">…</td></tr>'
    head = "".join(f"<th>{escape(name)}</th>" for name in heads)
    return f"<table><caption>{escape(_short(caption))}</caption><thead><tr>{head}</tr></thead><tbody>{shown}</tbody></table>"


def _cell(text: str) -> str:
    # A table of a notebook is set in a proportional font to the right: values are code, and read from the left.
    colour = f"; color: {_COLOURS[text]}" if text in _COLOURS else ""
    return f'<td style="text-align: left{colour}"><code>{escape(_short(text))}</code></td>'


def _short(text: str) -> str:
    text = printable(text[: _CHARACTERS + 1])
    return text if len(text) <= _CHARACTERS else text[:_CHARACTERS] + "…"


def commits_table(commits: Iterable[Commit], *, caption: str = "commits") -> str:
    """Return a row for each commit."""
    return table(caption, ("commit", "time (UTC)", "author", "message", "meta"), map(_commit_row, commits))


def _commit_row(commit: Commit) -> tuple[str, ...]:
    meta = one_line(commit.meta) if commit.meta_cell is not None else ""
    return commit.short, f"{commit.datetime:%Y-%m-%d %H:%M:%S}", commit.author or "", commit.message, meta


def diff_table(diff: Diff) -> str:
    """Return a row for each change, with runs of changes folded into one."""
    stat = diff.stat()
    more = ", and more" if diff.more else ""
    return table(f"{stat.added} added, {stat.removed} removed, {stat.changed} changed{more}", ("", "change"), _diff_rows(diff))


def _diff_rows(diff: Diff) -> Iterator[tuple[str, str]]:
    for change in diff.folded():
        sign, _, text = str(change).partition(" ")
        yield sign, text


def blame_table(parts: Iterable[Blame]) -> str:
    """Return a row for each part of a value."""
    rows = ((part.commit.short, part.commit.author or "", _place(part), one_line(part.value)) for part in parts)
    return table("blame", ("commit", "author", "path", "value"), rows)


def _place(part: Blame) -> str:
    return str(part.path) if part.line is None else f"{part.path}, line {part.line}"
