"""``vstate tag``: list, create and delete tags. Layer: cli."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from versioned_state.cli.render.output import Line, Output, Span, columns, padded
from versioned_state.cli.render.text import first_line, iso_instant, iso_time
from versioned_state.cli.shared import completion
from versioned_state.cli.shared.handle import user
from versioned_state.cli.shared.settings import Settings, json_option, verb
from versioned_state.repository.names.tags import TagInfo
from versioned_state.repository.repository import Repository


@verb("tag", example="vstate tag v1 main~2 -m 'before the agent paid'")
@click.argument("names", nargs=-1, metavar="[NAME [REV]]", shell_complete=completion.tag)
@click.option(
    "-l", "--list", "listed", is_flag=True, help="List the tags that match a NAME such as 'v1.*'; without one, all."
)
@click.option("-m", "--message", metavar="TEXT", help="Annotate the tag with TEXT, your name and the time.")
@click.option(
    "--author", metavar="NAME", help="The author of the annotation.  [default: $VSTATE_AUTHOR, or your login name]"
)
@click.option("-d", "--delete", is_flag=True, help="Delete each NAME.")
@json_option
@click.pass_obj
def tag(
    settings: Settings,
    names: tuple[str, ...],
    *,
    listed: bool,
    message: str | None,
    author: str | None,
    delete: bool,
    as_json: bool,
) -> None:
    """List the tags, or create NAME at REV (default: HEAD).

    A tag does not move: to point it elsewhere, delete it first.

    With --json: one object a line.
    """
    output = settings.output
    if delete and (listed or not names):
        raise click.UsageError("-l only lists tags" if listed else "-d takes the NAME of each tag to delete")
    if listed or not names:
        with settings.reading() as repository, output.paged(unless=as_json):
            _list(output, repository, names or ("*",), as_json=as_json)
    elif delete:
        with settings.changing() as repository:
            for name in names:
                commit = repository.tags.delete(name)
                output.crop(
                    "deleted ",
                    Span(name, "ref"),
                    ", which was ",
                    Span(commit.short, "id"),
                    "  ",
                    first_line(commit.message),
                )
    elif len(names) > 2:
        raise click.UsageError(f"vstate tag takes one NAME and one REV, not also {' '.join(names[2:])}")
    else:
        with settings.changing() as repository:
            commit = repository.tags.create(
                *names, message=message, author=None if message is None else author or user()
            )
        output.crop(Span(names[0], "ref"), " is ", Span(commit.short, "id"), "  ", first_line(commit.message))


def _list(output: Output, repository: Repository, patterns: Sequence[str], *, as_json: bool) -> None:
    found = sorted(repository.tags.iter_info(like=patterns), key=lambda info: info.name)
    width = max((columns(info.name) for info in found), default=0)
    for info in found:
        if as_json:
            output.json(_json(info))
            continue
        said = info.annotation
        line: Line = [Span(padded(info.name, width), "ref"), "  ", Span(info.head.short, "id"), "  "]
        who: Line = [] if said is None or not said.author else ["  ", Span(said.author, "author")]
        output.crop(*line, first_line(info.head.message if said is None else said.message), *who)


def _json(info: TagInfo) -> dict[str, Any]:
    commit, said = info.head, info.annotation
    return {
        "name": info.name,
        "commit": commit.id,
        "time": iso_time(commit),
        "message": commit.message,
        "annotation": None
        if said is None
        else {"message": said.message, "author": said.author, "time": iso_instant(said.time)},
    }
