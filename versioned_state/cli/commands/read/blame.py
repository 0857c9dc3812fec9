"""``vstate blame``: which commit each part of a value comes from. Layer: cli."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from versioned_state.cli.render.output import Line, Span, columns, padded
from versioned_state.cli.render.text import human_time, iso_time
from versioned_state.cli.shared.place import value_at
from versioned_state.cli.shared.settings import Settings, json_option, revision_argument, verb
from versioned_state.errors import InvalidPathError, UnknownPathError
from versioned_state.repository.inspect.blame import Blame
from versioned_state.repository.repository import Repository
from versioned_state.repository.views.render import json_value, one_line

_Span = tuple[int | None, int | None]


class _Range(click.ParamType[_Span]):
    """``START:END`` as in a slice of Python's; either may be left out."""

    name = "range"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> _Span:
        if isinstance(value, tuple):
            return value
        match = re.fullmatch(r"(-?\d{1,15})?:(-?\d{1,15})?", value, re.ASCII)
        if match is None:
            self.fail(f"{value!r} is not START:END, such as 10:20, -50: or :5", param, ctx)
        start, end = (None if part is None else int(part) for part in match.groups())
        return start, end


@verb("blame", "Show which commit each part of a value comes from.", example="vstate blame messages main -n 50")
@click.argument("path", default="", metavar="[PATH]")
@revision_argument("rev", default="HEAD")
@click.option("-n", "--last", type=click.IntRange(min=1), metavar="COUNT", help="Ask only for the last so many parts.")
@click.option("-L", "--range", "span", type=_Range(), metavar="START:END", help="Ask only for these parts, from 0 on; -5: are the last 5.")
@json_option
@click.pass_obj
def blame(settings: Settings, path: str, rev: str, *, last: int | None, span: _Span | None, as_json: bool) -> None:
    """Show, for each part of the value at PATH in REV (default: HEAD), the commit that added it or last changed it.

    The parts of a list are its elements, of a dict its entries, of a text its lines; any other value is one part. Without PATH:
    the keys of the state; with @name, those of a namespace. An element keeps its commit when others are put in before it.

    A ^ says that history was cut there: the part is of that commit, or older. With --json: one part a line.
    """
    if last is not None and span is not None:
        raise click.UsageError("-n and -L exclude each other")
    start, end = span or (None if last is None else -last, None)
    output = settings.output
    with settings.reading() as repository, output.paged(unless=as_json):
        with hints(repository, path, rev):
            parts = repository.blame(path, rev, start=start, end=end)
        wheres = [str(part.path) if part.line is None else str(part.line) for part in parts]
        width = max(map(columns, wheres), default=0)
        authors = max((columns(part.commit.author or "") for part in parts), default=0)
        for part, where in zip(parts, wheres, strict=True):
            if as_json:
                output.json(_json(part))
            else:
                output.crop(*_line(part, padded(where, width, right=part.line is not None), authors))


def _line(part: Blame, where: str, authors: int) -> Line:
    commit = part.commit
    by: Line = [Span(padded(commit.author or "", authors), "author"), "  "] if authors else []
    value = one_line(part.value, quote=part.line is None)
    return [
        Span(f"{'^' if commit.shallow else ''}{commit.short}", "id"),
        "  ",
        Span(human_time(commit), "time"),
        "  ",
        *by,
        where,
        "  ",
        value,
    ]


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
        **({"cut": True} if commit.shallow else {}),
    }


@contextmanager
def hints(repository: Repository, path: str, rev: str) -> Iterator[None]:
    """Say how a path is written, or what there is beside it, where it leads nowhere."""
    try:
        yield
    except (InvalidPathError, UnknownPathError):
        if not path.startswith("@"):
            value_at(repository.snapshot(rev, describe=True), path, lambda _: None)
        raise
