"""``vstate diff``: what changed from one commit to another. Layer: cli."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import click

from versioned_state.cli.render.output import Output
from versioned_state.cli.render.text import change_in_full, change_lines, stat_json, stat_lines
from versioned_state.cli.render.words import word_lines
from versioned_state.cli.shared.settings import Settings, full_option, json_option, revision_argument, verb
from versioned_state.repository.history.commit import Commit
from versioned_state.repository.names.syntax import split_range
from versioned_state.repository.repository import Repository
from versioned_state.repository.views.change import Change
from versioned_state.repository.views.diff import Diff, DiffStat
from versioned_state.repository.views.patch import write_patch


@verb("diff", "Show what changed between two commits, by path.", example="vstate diff main~3 main --path budget")
@revision_argument("a")
@revision_argument("b")
@click.option("--path", metavar="PATH", help="Show only what changed there, such as messages[17] or budget.limit.")
@click.option("--stat", "how", flag_value="stat", help="Show how much changed, by key.")
@click.option("--word", "how", flag_value="word", help="Show the words that changed in their place: [-old-]{+new+}.")
@click.option("--patch", "how", flag_value="patch", help="Print a patch, which vstate apply takes: JSON that loses nothing.")
@full_option
@click.option("--exit-code", is_flag=True, help="Exit with 1 where there are changes.")
@json_option
@click.pass_context
def diff(
    context: click.Context,
    a: str | None,
    b: str | None,
    *,
    path: str | None,
    how: Literal["stat", "word", "patch"] | None,
    full: bool,
    exit_code: bool,
    as_json: bool,
) -> None:
    """Show what changed from A to B, by path.

    Without B: from A to HEAD. Without both: the last commit, HEAD~1 to HEAD. A..B is the same as A B, where
    HEAD stands for what is left out.

    With --json: one change a line; with --stat, one object.
    """
    settings: Settings = context.obj
    output = settings.output
    if how == "word" and as_json:
        raise click.UsageError("--word and --json exclude each other")
    if a is not None and b is None:
        a, b = split_range(a) or (a, None)
    with settings.reading() as repository, output.paged(unless=as_json or how == "patch"):
        found = repository.diff(a or "HEAD~1", b or "HEAD")
        changes = found.changes if path is None else found.under(path).changes
        if how == "patch":
            output.json(write_patch(changes))
        elif not as_json:
            print_changes(output, changes, stat=how == "stat", full=full, word=how == "word")
        elif how == "stat":
            output.json(stat_json(DiffStat.of(changes)))
        else:
            for change in changes:
                output.json(change.to_json())
    if exit_code and changes:
        context.exit(1)


def print_changes(output: Output, changes: Sequence[Change], *, stat: bool = False, full: bool = False, word: bool = False) -> None:
    """The changes, each on a line, in full, or by words; or how many there are by key."""
    if stat:
        output.lines(stat_lines(DiffStat.of(changes)))
        return
    for change in changes:
        if word:
            output.lines(word_lines(change, full=full))
        else:
            output.lines(change_in_full(change, output.width) if full else change_lines(change))


def diff_of(repository: Repository, commit: Commit) -> Diff:
    """What a commit changed against its first parent."""
    return repository.diff(repository.database.commits.read(commit.parent_addresses[0]) if commit.parents else commit, commit)
