"""``vstate show``: one commit, and what it changed. Layer: cli."""

from __future__ import annotations

import click

from versioned_state.cli.commands.read.diff import diff_of, print_changes
from versioned_state.cli.render.text import commit_header, commit_json, names_of, stat_json
from versioned_state.cli.shared.settings import Settings, full_option, json_option, revision_argument, verb


@verb("show", "Show a commit, and what it changed.", example="vstate show main~2")
@revision_argument("rev", default="HEAD")
@click.option("--stat", is_flag=True, help="Show how much it changed, by key.")
@full_option
@json_option
@click.pass_obj
def show(settings: Settings, rev: str, *, stat: bool, full: bool, as_json: bool) -> None:
    """Show the commit REV (default: HEAD), and what it changed against its first parent.

    With --json: one object, that of vstate log with the changes.
    """
    output = settings.output
    with settings.reading() as repository, output.paged(unless=as_json):
        commit = repository.commit(rev)
        names = names_of(repository)
        changed = diff_of(repository, commit)
        if as_json:
            what = {"stat": stat_json(changed.stat())} if stat else {"changes": changed.to_json()}
            output.json(commit_json(commit, names) | what)
            return
        output.lines(commit_header(commit, names))
        if changed:
            output.print()
        print_changes(output, changed.changes, stat=stat, full=full)
