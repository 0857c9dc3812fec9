"""``vstate grep``: the strings of a state that match. Layer: cli."""

from __future__ import annotations

import re

import click

from versioned_state.cli.render.output import Line, Span
from versioned_state.cli.render.text import plural
from versioned_state.cli.shared import filters
from versioned_state.cli.shared.settings import Settings, json_option, revision_argument, verb
from versioned_state.repository.inspect.grep import Match

_SHOWN = 200
"""Characters of a line that are shown: a line of a state may be as long as a book."""


@verb("grep", "Search the strings of a state.", example="vstate grep 'AP \\d+' main~3 --path messages")
@click.argument("regex")
@revision_argument(default="HEAD")
@click.option("--path", default="", metavar="PATH", help="Search only there.")
@click.option("-i", "--ignore-case", is_flag=True, help="Take upper and lower case for the same.")
@click.option("-F", "--fixed-strings", is_flag=True, help="REGEX is a text, not a regular expression.")
@click.option("-l", "--name-only", "paths_only", is_flag=True, help="Print only paths.")
@click.option("-c", "--count", is_flag=True, help="Print only how many lines match.")
@json_option
@click.pass_context
def grep(
    context: click.Context,
    regex: str,
    rev: str,
    *,
    path: str,
    ignore_case: bool,
    fixed_strings: bool,
    paths_only: bool,
    count: bool,
    as_json: bool,
) -> None:
    """Show the lines of strings in REV (default: HEAD), keys included, in which the regular expression REGEX is found.

    A line is shown as PATH: LINE, with its number where the text has several, PATH:NUMBER: LINE. Exits with 1 where nothing is found.

    With --json: one object a line.
    """
    settings: Settings = context.obj
    output = settings.output
    pattern = filters.regex(
        re.escape(regex) if fixed_strings else regex, re.IGNORECASE if ignore_case else 0, hint="-F takes it for a text, as it is"
    )
    found = 0
    last = ""
    with settings.reading() as repository, output.paged(unless=as_json):
        for match in repository.grep(pattern, rev, path=path):
            found += 1
            if count:
                continue
            where = str(match.path)
            if paths_only:
                if where != last:
                    output.print(Span(where, "path"))
            elif as_json:
                output.json(match.to_json())
            else:
                output.print(*_line(match))
            last = where
        if count:
            output.print(plural(found, "line"))
    if not found:
        context.exit(1)


def _line(match: Match) -> Line:
    number = f":{match.number}" if match.number > 1 else ""
    what = " (key)" if match.is_key else ""
    return [Span(str(match.path), "path"), Span(f"{number}{what}: ", "dim"), *_marked(match)]


def _marked(match: Match) -> Line:
    """The line, or what is around its first match, with the matches in colour."""
    text = match.line
    start = max(0, match.spans[0][0] - _SHOWN // 4) if len(text) > _SHOWN else 0
    end = min(len(text), start + _SHOWN)
    line: Line = ["…"] if start else []
    position = start
    for first, last in match.spans:
        if first >= end:
            break
        line += [text[position:first], Span(text[first : min(last, end)], "error")]
        position = min(last, end)
    return [*line, text[position:end], "…" if end < len(text) else ""]
