"""``vstate history``: the commits that changed a path. Layer: cli."""

from __future__ import annotations

from itertools import islice

import click

from versioned_state.cli.render.changes import print_changes
from versioned_state.cli.render.text import commit_json, commit_line, commit_lines, names_of
from versioned_state.cli.shared.place import explained, path_in
from versioned_state.cli.shared.settings import (
    Settings,
    full_option,
    json_option,
    limit_option,
    place_argument,
    revision_argument,
    verb,
)
from versioned_state.errors import UnknownPathError


@verb("history", example="vstate history main:budget.limit")
@place_argument(metavar="[REV:]PATH")
@revision_argument("rev", default=None)
@limit_option("Show at most COUNT commits.")
@click.option("--oneline", is_flag=True, help="Show each commit on one line.")
@click.option("-p", is_flag=True, hidden=True, expose_value=False)  # the changes are shown anyway
@full_option
@json_option
@click.pass_obj
def history(
    settings: Settings, place: str, rev: str | None, *, limit: int | None, oneline: bool, full: bool, as_json: bool
) -> None:
    """Show the commits up to REV (default: HEAD) that changed the value at PATH, newest first, with the changes there.

    An element of a list is followed to its earlier positions. A deleted value has a history too.

    With --json: one object a line, as in vstate log, with the changes.
    """
    output = settings.output
    rev, path = path_in(place, rev)
    with (
        settings.reading() as repository,
        output.paged(unless=as_json),
        explained(repository, "vstate history", rev, path),
    ):
        commit = repository.commit(rev)
        found = repository.history(path, commit)
        names = names_of(repository)
        count = None
        for count, touch in enumerate(islice(found, limit)):
            if as_json:
                changes = [change.to_json() for change in touch.changes]
                output.json(
                    commit_json(touch.commit, names) | {"path": str(touch.path), "kind": touch.kind, "changes": changes}
                )
            elif oneline:
                output.crop(*commit_line(touch.commit, names))
            else:
                if count:
                    output.print()
                output.wrapped(commit_lines(touch.commit, names))
                print_changes(output, touch.changes, full=full, indent="    ")
        if count is None and limit != 0:
            raise UnknownPathError(path, at=commit.short)
