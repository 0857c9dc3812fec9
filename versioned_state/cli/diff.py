"""``vstate diff``: what changed from one commit to another. Layer: cli."""

from __future__ import annotations

from collections.abc import Sequence

import click

from versioned_state.cli.output import Output
from versioned_state.cli.settings import Settings, full_option, json_option, revision_argument, verb
from versioned_state.cli.text import change_in_full, change_lines, stat_json, stat_lines
from versioned_state.repository.commit import Commit
from versioned_state.repository.diff import Change, Diff, DiffStat
from versioned_state.repository.repository import Repository


@verb("diff", "Show what changed between two commits, by path.", example="vstate diff main~3 main --path budget")
@revision_argument("a")
@revision_argument("b")
@click.option("--path", metavar="PATH", help="Show only what changed there, such as messages[17] or budget.limit.")
@click.option("--stat", is_flag=True, help="Show how much changed, by key.")
@full_option
@click.option("--exit-code", is_flag=True, help="Exit with 1 where there are changes.")
@json_option
@click.pass_context
def diff(
    context: click.Context, a: str | None, b: str | None, *, path: str | None, stat: bool, full: bool, exit_code: bool, as_json: bool
) -> None:
    """Show what changed from A to B, by path.

    Without B: from A to HEAD. Without both: the last commit, HEAD~1 to HEAD. A..B is the same as A B.

    With --json: one change a line; with --stat, one object.
    """
    settings: Settings = context.obj
    output = settings.output
    if a and b is None and ".." in a:
        a, _, b = a.partition("..")
    with settings.reading() as repository, output.paged(unless=as_json):
        found = repository.diff(a or "HEAD~1", b or "HEAD")
        changes = found.changes if path is None else found.under(path)
        if not as_json:
            print_changes(output, changes, stat=stat, full=full)
        elif stat:
            output.json(stat_json(DiffStat.of(changes)))
        else:
            for change in changes:
                output.json(change.to_json())
    if exit_code and changes:
        context.exit(1)


def print_changes(output: Output, changes: Sequence[Change], *, stat: bool = False, full: bool = False) -> None:
    """The changes, each on a line or in full, or how many there are by key."""
    if stat:
        output.lines(stat_lines(DiffStat.of(changes)))
        return
    for change in changes:
        output.lines(change_in_full(change, output.width) if full else change_lines(change))


def diff_of(repository: Repository, commit: Commit) -> Diff:
    """What a commit changed against its first parent."""
    return repository.diff(repository.read(commit.parents[0]) if commit.parents else commit, commit)
