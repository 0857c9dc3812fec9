"""``vstate diff``: the changes from one commit to another. Layer: cli."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import click

from versioned_state.cli.render.changes import print_changes, stat_json
from versioned_state.cli.render.words import word_lines
from versioned_state.cli.shared.place import explained, parse_place
from versioned_state.cli.shared.settings import Settings, full_option, json_option, path_option, place_argument, verb
from versioned_state.repository.history.commit import Commit
from versioned_state.repository.names.syntax import split_range
from versioned_state.repository.repository import Repository
from versioned_state.repository.views.change import Change
from versioned_state.repository.views.diff import Diff, DiffStat
from versioned_state.repository.views.patch import write_patch


@verb("diff", "Show the changes between two commits, by path.", example="vstate diff main~3 main --path budget")
@place_argument("a", default=None, required=False, metavar="[A]")
@place_argument("b", default=None, required=False, metavar="[B]")
@path_option("Show only the changes at PATH, such as messages[17] or budget.limit.")
@click.option("--stat", "how", flag_value="stat", help="Show only the number of changes under each key.")
@click.option("--word", "how", flag_value="word", help="Mark the changed words within their text: [-old-]{+new+}.")
@click.option("-p", "how", flag_value="changes", hidden=True)  # what git calls a patch is shown anyway
@click.option("--patch", "how", flag_value="patch", help="Print a patch for vstate apply: JSON that loses nothing.")
@full_option
@click.option("--exit-code", is_flag=True, help="Exit with 1 if there are changes.")
@json_option
@click.pass_context
def diff(
    context: click.Context,
    a: str | None,
    b: str | None,
    *,
    path: str | None,
    how: Literal["stat", "word", "changes", "patch"] | None,
    full: bool,
    exit_code: bool,
    as_json: bool,
) -> None:
    """Show the changes from A to B, by path.

    Without B: from A to HEAD. Without both: the last commit, HEAD~1 to HEAD. A..B is the same as A B, and A...B shows the changes
    of B since it left A; HEAD stands for a side that is left out. A:PATH shows only the changes at PATH, as --path does.

    With --json: one change a line; with --stat, one object.
    """
    settings: Settings = context.obj
    output = settings.output
    if how == "word" and as_json:
        raise click.UsageError("--word and --json exclude each other")
    a, b, path = _sides(a, b, path)
    with settings.reading() as repository, output.paged(unless=as_json or how == "patch"):
        with explained(repository, "vstate diff", "HEAD", path or ""):
            changes = changes_at(_diff(repository, a, b), path)
        if how == "patch":
            output.json(write_patch(changes))
        elif as_json and how == "stat":
            output.json(stat_json(DiffStat.of(changes)))
        elif as_json:
            for change in changes:
                output.json(change.to_json())
        elif how == "word":
            output.lines(line for change in changes for line in word_lines(change, full=full))
        else:
            print_changes(output, changes, stat=how == "stat", full=full)
    if exit_code and changes:
        context.exit(1)


def _sides(a: str | None, b: str | None, path: str | None) -> tuple[str | None, str | None, str | None]:
    """Both revisions and the path, wherever the path was given."""
    paths = {path} if path else set()
    sides = []
    for side in (a, b):
        rev, found = (None, "") if side is None else parse_place(side)
        sides.append(side if rev is None else rev)
        paths |= {found} if rev is not None and found else set()
    if len(paths) > 1:
        raise click.UsageError(f"vstate diff compares one path in two commits, not {' and '.join(sorted(paths))}")
    return sides[0], sides[1], next(iter(paths), None)


def _diff(repository: Repository, a: str | None, b: str | None) -> Diff:
    if a is not None and b is None:
        before, dots, after = a.partition("...")
        if dots:
            theirs = repository.commit(after or "HEAD")
            return repository.diff(repository.merge_base(before or "HEAD", theirs), theirs)
        a, b = split_range(a) or (a, None)
    return repository.diff(a or "HEAD~1", b or "HEAD")


def diff_of(repository: Repository, commit: Commit) -> Diff:
    """The changes of a commit against its first parent."""
    return repository.diff(repository.database.commits.read(commit.parent_addresses[0]) if commit.parents else commit, commit)


def changes_at(found: Diff, path: str | None) -> Sequence[Change]:
    """The changes at a path; all of them without one."""
    return found.under(path).changes if path else found.changes
