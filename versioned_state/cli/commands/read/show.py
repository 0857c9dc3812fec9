"""``vstate show``: one commit and its changes, or a value in it. Layer: cli."""

from __future__ import annotations

from pathlib import Path

import click

from versioned_state.cli.commands.read.diff import changes_at, diff_of
from versioned_state.cli.commands.read.get import print_value
from versioned_state.cli.render.changes import most_changes, print_changes, stat_json
from versioned_state.cli.render.text import commit_header, commit_json, message_lines, names_of
from versioned_state.cli.shared.place import explained, parse_place
from versioned_state.cli.shared.settings import (
    Settings,
    full_option,
    html_option,
    json_option,
    path_option,
    place_argument,
    verb,
)
from versioned_state.repository.views.diff import DiffStat
from versioned_state.repository.views.json_form import json_value


@verb("show", example="vstate show main~2")
@place_argument(default="HEAD", metavar="[REV[:PATH]]")
@path_option("Show only the changes at PATH.")
@click.option("--stat", is_flag=True, help="Show only the number of changes under each key.")
@full_option
@json_option
@html_option
@click.pass_obj
def show(
    settings: Settings, place: str, *, path: str | None, stat: bool, full: bool, as_json: bool, html: Path | None
) -> None:
    """Show the commit REV (default: HEAD) and its changes against its first parent.

    REV:PATH shows the value there, as vstate get does.

    Many changes begin with their number under each key, and neighbours in a list are shown as one line; --full shows
    them all.

    --html writes one file with the commit, its changes and the first level of its state, to attach to a ticket.

    With --json: one object, as in vstate log, with the changes, and with the stamp that the commit was made with, if it
    has one.
    """
    rev, value_path = parse_place(place)
    if rev is not None and (path or stat):
        raise click.UsageError("REV:PATH shows a value, which has no changes: give REV, and --path PATH")
    if html is not None and (rev is not None or path or stat or full or as_json):
        raise click.UsageError("--html shows a whole commit: give REV alone")
    output = settings.output
    with settings.reading() as repository, output.paged(unless=as_json or html is not None):
        if rev is not None:
            with explained(repository, "vstate show", rev, value_path):
                print_value(output, repository, rev, value_path, convert=json_value if as_json else None)
            return
        with explained(repository, "vstate show", place, path or ""):
            commit = repository.commit(place)
        if html is not None:
            from versioned_state.cli.shared.html_file import write_html

            write_html(settings, repository, [commit], html, title=place, with_state=True)
            return
        names = names_of(repository)
        changes = changes_at(diff_of(repository, commit, most_changes(output, None, unless=as_json or stat)), path)
        stamp = repository.stamp(commit)
        if as_json:
            shown = (
                {"stat": stat_json(DiffStat.of(changes))}
                if stat
                else {"changes": [change.to_json() for change in changes]}
            )
            output.json(commit_json(commit, names) | ({"stamp": json_value(stamp)} if stamp else {}) | shown)
            return
        output.wrapped(commit_header(commit, names, stamp), indent=8)
        if commit.message:
            output.print()
            output.wrapped(message_lines(commit))
        if changes:
            output.print()
        if changes or stat:
            print_changes(output, changes, stat=stat, full=full, more=changes.more, hint=True)
        if changes.more:
            output.note(f"vstate diff {commit.short}~ {commit.short} -n COUNT shows more of them, --stat counts all")
