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
    from versioned_state.repository.inspect.grep import Match
    from versioned_state.repository.inspect.path_log import PathChange
    from versioned_state.repository.names.listing import RefInfo
    from versioned_state.repository.views.diff import Diff

ROWS: Final = 50
"""Rows of a table; a notebook keeps its output in its file."""

_CHARACTERS: Final = 200
"""Of one cell."""

_LINES: Final = 20
"""Of one cell."""

_UNBROKEN: Final = 20
"""Characters of a cell that is never broken, such as a time or an id."""

_TINTS: Final = {"+": "46, 160, 67", "-": "248, 81, 73", "~": "210, 153, 34", "!": "210, 153, 34"}
"""Backgrounds: behind the text of a light or a dark notebook, whatever its colour."""


class _Markup(str):
    """A cell that is escaped already."""

    __slots__ = ()


def table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table of texts, of at most ``ROWS`` rows, with a note if there are more, or none. Reads one row beyond those it shows."""
    source = iter(rows)
    shown = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in islice(source, ROWS))
    if next(source, None) is not None:
        shown += f'<tr><td colspan="{len(heads)}">…</td></tr>'
    shown = shown or f'<tr><td colspan="{len(heads)}" style="text-align: left">nothing</td></tr>'
    head = "".join(f'<th style="text-align: left">{escape(name)}</th>' for name in heads)
    # Without nowrap a caption is as wide as the columns, which are narrow in an empty table.
    named = f'<caption style="white-space: nowrap; text-align: left">{escape(_short(caption))}</caption>'
    return f"<table>{named}<thead><tr>{head}</tr></thead><tbody>{shown}</tbody></table>"


def _cell(text: str) -> str:
    # A table of a notebook is set in a proportional font to the right: values are code, and read from the left.
    shown = text if isinstance(text, _Markup) else "<br/>".join(map(_line, _lines(text)))
    wrap = "; white-space: nowrap" if len(text) <= _UNBROKEN else ""
    return f'<td style="text-align: left; vertical-align: top{wrap}{_tint(text)}"><code style="background: none">{shown}</code></td>'


def _lines(text: str) -> list[str]:
    lines = text.split("\n", _LINES)
    return lines if len(lines) <= _LINES else [*lines[:_LINES], "…"]


def _line(text: str) -> str:
    """Return a line of a cell. One that a change added or removed begins with a sign behind blanks, and has its colour."""
    body = text.lstrip(" ")
    blanks, sign = len(text) - len(body), body[:2].rstrip(" ")
    shown = "&nbsp;" * min(blanks, 8) + escape(_short(body))
    return f'<span style="{_tint(sign)[2:]}">{shown}</span>' if blanks and sign in _TINTS else shown


def _tint(sign: str) -> str:
    return f"; background: rgba({_TINTS[sign]}, 0.25)" if sign in _TINTS else ""


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
        yield _signed(str(change))
    for line in diff._rest_lines():
        yield _signed(line)


def _signed(line: str) -> tuple[str, str]:
    sign, _, text = line.partition(" ")
    return sign, text


def history_table(changes: Iterable[PathChange]) -> str:
    """Return a row for each commit that changed a path."""
    rows = ((*_commit_row(each.commit)[:4], "\n".join(map(str, each.changes))) for each in changes)
    return table("history", ("commit", "time (UTC)", "author", "message", "changes"), rows)


def matches_table(matches: Iterable[Match]) -> str:
    """Return a row for each line that matches, with the matches marked."""
    return table("matches", ("path", "line"), ((_place_of_match(each), _marked(each)) for each in matches))


def _place_of_match(match: Match) -> str:
    return str(match.path) if match.number == 1 else f"{match.path}, line {match.number}"


def _marked(match: Match) -> _Markup:
    parts, end = [], 0
    for start, stop in match.spans:
        if start >= _CHARACTERS:
            break
        found = escape(_short(match.line[start:stop]))
        parts += [escape(printable(match.line[end:start])), f'<span style="{_tint("~")[2:]}">{found}</span>']
        end = stop
    return _Markup("".join(parts) + escape(_short(match.line[end:])))


def refs_table(caption: str, refs: Iterable[RefInfo]) -> str:
    """Return a row for each branch or tag."""
    rows = ((each.name, *_commit_row(each.head)[:4]) for each in refs)
    return table(caption, ("name", "commit", "time (UTC)", "author", "message"), rows)


def blame_table(parts: Iterable[Blame]) -> str:
    """Return a row for each part of a value."""
    rows = ((part.commit.short, part.commit.author or "", _place(part), one_line(part.value)) for part in parts)
    return table("blame", ("commit", "author", "path", "value"), rows)


def _place(part: Blame) -> str:
    return str(part.path) if part.line is None else f"{part.path}, line {part.line}"
