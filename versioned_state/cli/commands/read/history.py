"""``vstate history``: the commits that touched a path. Layer: cli."""

from __future__ import annotations

from itertools import islice

import click

from versioned_state.cli.commands.read.blame import hints
from versioned_state.cli.render.output import Line
from versioned_state.cli.render.text import change_in_full, change_lines, commit_json, commit_line, commit_lines, names_of
from versioned_state.cli.shared.settings import Settings, full_option, json_option, revision_argument, verb
from versioned_state.errors import UnknownPathError


@verb("history", "Show the commits that touched a path.", example="vstate history budget.limit main")
@click.argument("path", metavar="PATH")
@revision_argument("rev", default="HEAD")
@click.option("-n", "--limit", type=click.IntRange(min=0), metavar="COUNT", help="Show so many.")
@click.option("--oneline", is_flag=True, help="One line each.")
@full_option
@json_option
@click.pass_obj
def history(settings: Settings, path: str, rev: str, *, limit: int | None, oneline: bool, full: bool, as_json: bool) -> None:
    """Show the commits before REV (default: HEAD) that touched what is at PATH, newest first, and what each changed there.

    An element of a list is followed to where it was before others were put in beside it. What was deleted has a history, too.

    With --json: one object a line, that of vstate log with the changes.
    """
    output = settings.output
    with settings.reading() as repository, output.paged(unless=as_json):
        commit = repository.commit(rev)
        with hints(repository, path, rev):
            touches = repository.history(path, commit)
        names = names_of(repository)
        count = None
        for count, touch in enumerate(islice(touches, limit)):
            if as_json:
                changes = [change.to_json() for change in touch.changes]
                output.json(commit_json(touch.commit, names) | {"path": str(touch.path), "kind": touch.kind, "changes": changes})
            elif oneline:
                output.crop(*commit_line(touch.commit, names))
            else:
                if count:
                    output.print()
                output.lines(commit_lines(touch.commit, names))
                for change in touch.changes:
                    lines = change_in_full(change, output.width - 4) if full else change_lines(change)
                    output.lines(_indented(line) for line in lines)
        if count is None and limit != 0:
            with hints(repository, path, rev):
                raise UnknownPathError(path, at=commit.short)


def _indented(line: Line) -> Line:
    return ["    ", *line]
