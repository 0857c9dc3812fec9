"""Changes as lines of text: each with its path and values, folded to runs, or counted by key. Layer: cli."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, Final

from versioned_state.cli.render.output import Line, Output, Span, Style, columns, crop, is_utf8, padded
from versioned_state.cli.render.text import plural, value_lines
from versioned_state.repository.views.change import Change, ChangeRun, fold
from versioned_state.repository.views.diff import DiffStat
from versioned_state.repository.views.render import one_line

_SIGNS: Final[dict[str, tuple[str, Style]]] = {
    "added": ("+", "added"),
    "removed": ("-", "removed"),
    "changed": ("~", "changed"),
}
_STYLES: Final[dict[str, Style]] = {"+": "added", "-": "removed", "@": "dim"}

_MANY: Final = 10
"""More changes than these begin with their statistics."""

_ROOM: Final = 20
"""Columns that a value needs beside its path; with fewer it has a line of its own."""


ON_A_SCREEN: Final = 1_000
"""Changes shown on a terminal unless more are asked for: two commits that are far apart may differ in millions."""


def most_changes(output: Output, limit: int | None, *, unless: bool = False) -> int | None:
    """Return the most changes to find: the number given, or else on a terminal ``ON_A_SCREEN``, or None for all.

    Args:
        unless: all of them are needed, unless a number was given.
    """
    return limit if limit is not None or unless or not output.is_terminal else ON_A_SCREEN


def print_changes(
    output: Output,
    changes: Iterable[Change],
    *,
    stat: bool = False,
    full: bool = False,
    indent: str = "",
    more: bool = False,
    hint: bool = False,
) -> None:
    """Print changes.

    Args:
        more: whether there are others beyond these.
        hint: on a terminal, say which option of the command shows the values that were cut.
        stat: only how many there are, by key.
        full: whole values, and every change; else many changes begin with their statistics, and runs in a list are
            folded.
    """
    known = list(changes)
    cut = False
    width = output.columns and output.columns - len(indent)
    lines: Iterator[Line]
    if stat:
        lines = stat_lines(DiffStat.of(known))
    elif full:
        lines = (line for change in known for line in change_in_full(change, output.width - len(indent)))
    else:
        lines = _brief(known, width, of_the_first=more)
        if hint and output.is_terminal:
            shown = list(lines)
            cut = any("…" in (part if isinstance(part, str) else part.text) for line in shown for part in line)
            lines = iter(shown)
    if more:
        rest: Line = [Span("… and more changes" if is_utf8() else "... and more changes", "dim")]
        lines = chain(lines, [rest])
    if cut:
        lines = chain(lines, [[Span("--full shows whole values", "hint")]])
    output.lines([indent, *line] if indent else line for line in lines)


def _brief(changes: list[Change], width: int | None, *, of_the_first: bool) -> Iterator[Line]:
    if len(changes) > _MANY:
        if of_the_first:
            yield [f" of the first {len(changes):,} changes:"]
        yield from stat_lines(DiffStat.of(changes))
        yield []
    for each in fold(changes):
        if isinstance(each, ChangeRun):
            paths, _, count = str(each).rpartition(": ")
            yield [Span(paths if is_utf8() else paths.replace("…", "..."), _SIGNS[each.kind][1]), f": {count}"]
        else:
            yield from change_lines(each, width)


# One change


def change_lines(change: Change, width: int | None = None) -> Iterator[Line]:
    """Yield a change: its sign and path, then its values, or the changed lines of a long text.

    Args:
        width: the columns that a line may take; a value is cut to them, a path never. None: as many as a line takes.
    """
    sign, style = _SIGNS[change.kind]
    first, *rest = str(change).split("\n")
    head = f"{sign} {change.path}"
    value = first.removeprefix(head)
    is_plain = change.kind == "changed" and change.cells.keys is None and not rest
    if width is None or columns(first) <= width:
        yield [Span(head, style), *(_sides(*change.previews()) if is_plain else [value])]
    elif is_plain:
        yield [Span(head, style)]
        old, new = change.previews(width=width)
        yield crop([Span("    - ", "removed"), old], width)
        yield crop([Span("    + ", "added"), new], width)
    elif width - columns(head) >= _ROOM or not value:
        yield [Span(head, style), *crop([value], width - columns(head))]
    else:
        yield [Span(head, style)]
        yield crop(["   ", value], width)
    for line in rest:
        yield [Span(_cut(line, width), _STYLES.get(line.lstrip()[:1], "dim"))]


def _sides(old: str, new: str) -> Line:
    return [" = ", Span(old, "removed"), " -> ", Span(new, "added")]


def _cut(text: str, width: int | None) -> str:
    return text if width is None else "".join(part for part in crop([text], width) if isinstance(part, str))


def _aside(change: Change) -> str:
    """Return the subject of a change, if it is not the value at its path."""
    return " keys in another order" if change.reordered else " was given other fields" if change.given else ""


def change_in_full(change: Change, width: int) -> Iterator[Line]:
    """Yield a change with whole values, on as many lines as they take."""
    sign, style = _SIGNS[change.kind]
    yield [Span(f"{sign} {change.path}", style), _aside(change)]
    lines: Iterable[tuple[str, str]] = change.lines()
    if not lines:
        old = [] if change.kind == "added" else value_lines(change.old, width - 6)
        new = [] if change.kind == "removed" else value_lines(change.new, width - 6)
        lines = [*(("-", line) for line in old), *(("+", line) for line in new)]
    for mark, line in lines:
        yield [Span(f"    {mark} {line}", _STYLES[mark])]


# Statistics


def stat_lines(stat: DiffStat) -> Iterator[Line]:
    """Yield the number of changes under each key, then in all."""
    shown = [one_line(key, quote=False) for key in stat.keys]
    width = max(map(columns, shown), default=0)
    for key, counts in zip(shown, stat.keys.values(), strict=True):
        yield [" ", Span(padded(key, width), "path"), "  ", *_counts(counts)]
    total = ", ".join(
        f"{count:,} {kind}"
        for kind, count in (("added", stat.added), ("removed", stat.removed), ("changed", stat.changed))
        if count
    )
    yield [f" {plural(len(stat.keys), 'key')}: {total or 'no changes'}"]


def stat_line(stat: DiffStat) -> Line:
    """Return the statistics on one line."""
    line: Line = []
    for key, counts in stat.keys.items():
        line += [", " if line else "", Span(one_line(key, quote=False), "path"), " ", *_counts(counts)]
    return line or ["no changes"]


def _counts(counts: tuple[int, int, int]) -> Line:
    spans = [
        Span(f"{sign}{count:,}", style) for count, (sign, style) in zip(counts, _SIGNS.values(), strict=True) if count
    ]
    line: Line = []
    for span in spans:
        line += [" ", span] if line else [span]
    return line


def stat_json(stat: DiffStat) -> dict[str, Any]:
    """Return the statistics in JSON types."""

    def counts(added: int, removed: int, changed: int) -> dict[str, int]:
        return {"added": added, "removed": removed, "changed": changed}

    return {
        **counts(stat.added, stat.removed, stat.changed),
        "keys": {key: counts(*of_key) for key, of_key in stat.keys.items()},
    }
