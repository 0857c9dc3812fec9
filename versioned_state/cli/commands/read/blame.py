"""``vstate blame``: which commit each part of a value comes from. Layer: cli."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import click

from versioned_state.cli.render.output import Line, Span, columns, padded
from versioned_state.cli.render.rows import Cells, fit_rows
from versioned_state.cli.render.text import human_time, iso_time
from versioned_state.cli.shared.place import explained, path_in
from versioned_state.cli.shared.settings import Settings, json_option, place_argument, revision_argument, verb
from versioned_state.repository.inspect.blame import Blame
from versioned_state.repository.views.json_form import json_value

_Span = tuple[int | None, int | None]


def _parse_range(value: str) -> _Span:
    """Return the range of an argument ``START:END``, as in a Python slice. Either end may be left out."""
    match = re.fullmatch(r"(-?\d{1,15})?:(-?\d{1,15})?", value, re.ASCII)
    if match is None:
        raise click.BadParameter(f"{value!r} is not START:END, such as 10:20, -50: or :5")
    start, end = (None if part is None else int(part) for part in match.groups())
    return start, end


@verb("blame", example="vstate blame main:messages -n 50")
@place_argument(default="", metavar="[[REV:]PATH]")
@revision_argument("rev", default=None)
@click.option("-n", "--last", type=click.IntRange(min=1), metavar="COUNT", help="Show only the last COUNT parts.")
@click.option(
    "-L",
    "--range",
    "span",
    type=_parse_range,
    metavar="START:END",
    help="Show only these parts, counted from 0; -5: is the last 5.",
)
@json_option
@click.pass_obj
def blame(
    settings: Settings, place: str, rev: str | None, *, last: int | None, span: _Span | None, as_json: bool
) -> None:
    """Show, for each part of the value at PATH in REV (default: HEAD), the commit that added or last changed it.

    The parts of a list are its elements, of a dict its entries, of a text its lines; any other value is one part.
    Without PATH: the keys of the state; with @name, those of a namespace. An element keeps its commit when others are
    inserted before it.

    A ^ marks the oldest commit that is kept: the part is from that commit, or an earlier one. With --json: one part a
    line.
    """
    if last is not None and span is not None:
        raise click.UsageError("-n and -L exclude each other")
    start, end = span or (None if last is None else -last, None)
    output = settings.output
    rev, path = path_in(place, rev)
    with settings.reading() as repository, output.paged(unless=as_json):
        with explained(repository, "vstate blame", rev, path):
            parts = repository.blame(path, rev, start=start, end=end)
        if as_json:
            for part in parts:
                output.json(_json(part))
        else:
            for line in _lines(parts, output.columns):
                output.crop(*line)


def _lines(parts: Sequence[Blame], width: int | None) -> Iterator[Line]:
    """Return a line for each part.

    A narrow terminal drops the seconds first, then the author, then the time, but never the path or the value.
    """
    wheres = [str(part.path) if part.line is None else str(part.line) for part in parts]
    longest = max(map(columns, wheres), default=0)

    def cells(
        *, seconds: bool = False, author: bool = False, time: bool = True
    ) -> Callable[[tuple[Blame, str]], Cells]:
        def of(item: tuple[Blame, str]) -> Cells:
            part, where = item
            commit = part.commit
            return [
                Span(f"{'^' if commit.shallow else ''}{commit.short}", "id"),
                Span(human_time(commit, seconds=seconds), "time") if time else "",
                Span(commit.author or "", "author") if author else "",
                padded(where, longest, right=part.line is not None),
                part.preview(),
            ]

        return of

    variants = [cells(seconds=True, author=True), cells(author=True), cells(), cells(time=False)]
    return fit_rows(list(zip(parts, wheres, strict=True)), variants, width)


def _json(part: Blame) -> dict[str, Any]:
    commit = part.commit
    return {
        "path": str(part.path),
        **({} if part.line is None else {"line": part.line}),
        "commit": commit.id,
        "time": iso_time(commit),
        "author": commit.author,
        "message": commit.message,
        "value": json_value(part.value),
        **({"shallow": True} if commit.shallow else {}),
    }
