"""``vstate grep``: the strings of a state that match. Layer: cli."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress

import click

from versioned_state.cli.render.output import Line, Span
from versioned_state.cli.render.text import plural
from versioned_state.cli.shared import completion, filters
from versioned_state.cli.shared.place import explained, revision_and_path
from versioned_state.cli.shared.settings import Settings, json_option, path_option, place_argument, verb
from versioned_state.errors import UnknownPathError
from versioned_state.repository.inspect.grep import Match
from versioned_state.repository.repository import Repository

_SHOWN = 200
"""Characters of a line that are shown: a line of a state may be as long as a book."""


@verb("grep", example="vstate grep 'AP \\d+' main~3:messages")
@click.argument("regex")
@place_argument(default="HEAD", metavar="[REV[:PATH]]")
@path_option("Search only at PATH.")
@click.option("--all", "all_branches", is_flag=True, help="Search the states of all branches.")
@click.option(
    "--prefix",
    metavar="TEXT",
    help="Search the branches whose name begins with TEXT.",
    shell_complete=completion.branch,
)
@click.option("-i", "--ignore-case", is_flag=True, help="Ignore the difference between upper and lower case.")
@click.option("-F", "--fixed-strings", is_flag=True, help="Take REGEX as plain text, not as a regular expression.")
@click.option("-l", "--name-only", "paths_only", is_flag=True, help="Print only the paths.")
@click.option("-c", "--count", is_flag=True, help="Print only the number of matching lines.")
@json_option
@click.pass_context
def grep(  # noqa: PLR0913 - an option each
    context: click.Context,
    regex: str,
    place: str,
    *,
    path: str | None,
    all_branches: bool,
    prefix: str | None,
    ignore_case: bool,
    fixed_strings: bool,
    paths_only: bool,
    count: bool,
    as_json: bool,
) -> None:
    """Show the lines of strings in REV (default: HEAD), keys included, that match the regular expression REGEX.

    A line is shown as PATH: LINE; if the text has several lines, as PATH:NUMBER: LINE; with --all as BRANCH:PATH: LINE.
    Exits with 1 if nothing matches.

    With --json: one object a line.
    """
    several = all_branches or prefix is not None
    if several and place != "HEAD":
        raise click.UsageError("--all and --prefix search branches: give no REV, and --path PATH")
    settings: Settings = context.obj
    output = settings.output
    pattern = filters.regex(
        re.escape(regex) if fixed_strings else regex,
        re.IGNORECASE if ignore_case else 0,
        hint="-F takes it as plain text",
    )
    rev, path = revision_and_path(place, path)
    found = 0
    last = ""
    with (
        settings.reading() as repository,
        output.paged(unless=as_json),
        explained(repository, "vstate grep REGEX", rev, path),
    ):
        matches = (
            _matches(repository, pattern, path, prefix or "")
            if several
            else _matches_in(repository, pattern, rev, path)
        )
        for branch, match in matches:
            found += 1
            if count:
                continue
            where = f"{branch}:{match.path}" if several else str(match.path)
            if paths_only:
                if where != last:
                    output.print(Span(where, "path"))
            elif as_json:
                output.json({"branch": branch, **match.to_json()} if several else match.to_json())
            else:
                output.print(*_line(match, branch))
            last = where
        if count:
            output.print(plural(found, "line"))
    if not found:
        context.exit(1)


def _matches_in(repository: Repository, pattern: re.Pattern[str], rev: str, path: str) -> Iterator[tuple[str, Match]]:
    return (("", match) for match in repository.grep(pattern, rev, path=path))


def _matches(repository: Repository, pattern: re.Pattern[str], path: str, prefix: str) -> Iterator[tuple[str, Match]]:
    """Yield the matches in each branch. One that has nothing at the path has none."""
    for info in repository.branches.iter_info(prefix=prefix):
        with suppress(UnknownPathError):
            for match in repository.grep(pattern, info.head, path=path):
                yield info.name, match


def _line(match: Match, branch: str) -> Line:
    number = f":{match.number}" if match.number > 1 else ""
    what = " (key)" if match.is_key else ""
    source: Line = [Span(branch, "ref"), ":"] if branch else []
    return [*source, Span(str(match.path), "path"), Span(f"{number}{what}: ", "dim"), *_marked(match)]


def _marked(match: Match) -> Line:
    """Return the line, or the part around its first match, with the matches in colour."""
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
