"""``vstate diff``: the changes from one commit to another. Layer: cli."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import click

from versioned_state.cli.render.changes import most_changes, print_changes, stat_json
from versioned_state.cli.render.git_patch import patch_lines
from versioned_state.cli.render.output import Line, Output
from versioned_state.cli.render.words import word_lines
from versioned_state.cli.shared.place import explained, near_path, parse_place
from versioned_state.cli.shared.settings import (
    Settings,
    full_option,
    json_option,
    limit_option,
    name_option,
    path_option,
    place_argument,
    verb,
)
from versioned_state.errors import UnknownPathError
from versioned_state.repository.history.commit import Commit
from versioned_state.repository.names.syntax import split_range
from versioned_state.repository.repository import Repository
from versioned_state.repository.views.change import Change
from versioned_state.repository.views.diff import Diff, DiffStat
from versioned_state.repository.views.patch import write_patch
from versioned_state.repository.views.snapshot import Snapshot
from versioned_state.values.paths.path import Key, StatePath


@verb("diff", example="vstate diff main~3 main --path budget")
@place_argument("a", default=None, required=False, metavar="[A]")
@place_argument("b", default=None, required=False, metavar="[B]")
@path_option("Show only the changes at PATH, such as messages[17] or budget.limit.")
@click.option("--stat", "how", flag_value="stat", help="Show only the number of changes under each key.")
@click.option("--word", "how", flag_value="word", help="Mark the changed words within their text: [-old-]{+new+}.")
@click.option("-p", "how", flag_value="changes", hidden=True)  # what git calls a patch is shown anyway
@click.option("--patch", "how", flag_value="patch", help="Print a patch for vstate apply: JSON that loses nothing.")
@click.option(
    "--files", "how", flag_value="files", help="Show the files of a workspace alone, as git does; git apply reads it."
)
@name_option
@full_option
@limit_option("Show the first COUNT changes; by default all, and on a terminal 1,000.")
@click.option("--exit-code", is_flag=True, help="Exit with 1 if there are changes.")
@json_option
@click.pass_context
def diff(  # noqa: PLR0913 - an option each
    context: click.Context,
    a: str | None,
    b: str | None,
    *,
    path: str | None,
    how: Literal["stat", "word", "changes", "patch", "files"] | None,
    name: str,
    full: bool,
    limit: int | None,
    exit_code: bool,
    as_json: bool,
) -> None:
    """Show the changes from A to B, by path.

    Without B: from A to HEAD. Without both: the last commit, HEAD~1 to HEAD. A..B is the same as A B, and A...B shows
    the changes of B since it left A; HEAD stands for a side that is left out. A:PATH shows only the changes at PATH, as
    --path does.

    With --files: only the files of a workspace, as a git patch; --path 'workspace["src/main.py"]' chooses one.

    With --json: one change a line, or with --stat one object.
    """
    settings: Settings = context.obj
    output = settings.output
    if limit is not None and how in ("stat", "patch", "files"):
        raise click.UsageError(f"--{how} takes all changes, and -n only some")
    if how in ("word", "files") and as_json:
        raise click.UsageError(f"--{how} and --json exclude each other")
    a, b, path = _sides(a, b, path)
    if how == "files":
        path = str(StatePath().key(name)) if path is None else path
    with settings.reading() as repository, output.paged(unless=as_json or how == "patch"):
        with explained(repository, "vstate diff", "HEAD", path or ""):
            most = most_changes(output, limit, unless=as_json or how in ("stat", "patch", "files"))
            changes = changes_at(_diff(repository, a, b, most), path)
        if how == "patch":
            output.json(write_patch(changes))
        elif as_json and how == "stat":
            output.json(stat_json(DiffStat.of(changes)))
        elif as_json:
            for change in changes:
                output.json(change.to_json())
        elif how == "files":
            output.lines(_patch_lines(repository, a, b, changes))
        elif how == "word":
            output.lines(line for change in changes for line in word_lines(change, full=full))
        else:
            print_changes(output, changes, stat=how == "stat", full=full, more=changes.more, hint=True)
        if not as_json:
            _tell_of_others(output, repository, (a, b), changes, path or "")
    if exit_code and changes:
        context.exit(1)


def _tell_of_others(
    output: Output, repository: Repository, sides: tuple[str | None, str | None], changes: Diff, path: str
) -> None:
    """Tell of changes beyond the limit, or that neither side has a value at the path, and of the paths near it."""
    if changes.more:
        output.note("-n COUNT shows more of them, --stat counts all, --path chooses")
    if path and not changes:
        near = [near_path(repository, commit.id, path) for commit in _commits(repository, *sides)]
        if all(near):
            output.nothing(f"neither side has anything at {path}", near[-1])


def _patch_lines(repository: Repository, a: str | None, b: str | None, changes: Sequence[Change]) -> Iterator[Line]:
    """Yield the changes of files as git shows them: one for each file, whatever changed in it."""
    before, after = (repository.snapshot(commit, describe=True) for commit in _commits(repository, a, b))
    paths: dict[StatePath, None] = {}
    for change in changes:
        if len(change.path) > 1:
            paths[StatePath(change.path.steps[:2])] = None
            continue
        for side in (before, after):  # all of them were added or removed
            files = side.keys_at(change.path) if has(side, change.path) else ()
            paths.update((change.path.key(name), None) for name in (files if isinstance(files, list) else ()))
    for path in sorted(paths, key=str):
        old, new = (side.at(path) if has(side, path) else None for side in (before, after))
        step = path.steps[-1]
        if old != new and isinstance(step, Key):
            yield from patch_lines(str(step.key), old, new)


def has(snapshot: Snapshot, path: StatePath) -> bool:
    """Return whether a snapshot has anything at a path."""
    try:
        snapshot.cell_at(path)
    except UnknownPathError:
        return False
    return True


def _sides(a: str | None, b: str | None, path: str | None) -> tuple[str | None, str | None, str | None]:
    """Return both revisions and the path, wherever the path was given."""
    paths = {path} if path else set()
    sides = []
    for side in (a, b):
        rev, found = (None, "") if side is None else parse_place(side)
        sides.append(side if rev is None else rev)
        paths |= {found} if rev is not None and found else set()
    if len(paths) > 1:
        raise click.UsageError(f"vstate diff compares one path in two commits, not {' and '.join(sorted(paths))}")
    return sides[0], sides[1], next(iter(paths), None)


def _diff(repository: Repository, a: str | None, b: str | None, limit: int | None) -> Diff:
    return repository.diff(*_commits(repository, a, b), limit=limit)


def _commits(repository: Repository, a: str | None, b: str | None) -> tuple[Commit, Commit]:
    """Return the two commits that are compared."""
    if a is not None and b is None:
        before, dots, after = a.partition("...")
        if dots:
            theirs = repository.commit(after or "HEAD")
            return repository.merge_base(before or "HEAD", theirs), theirs
        a, b = split_range(a) or (a, None)
    return repository.commit(a or "HEAD~1"), repository.commit(b or "HEAD")


def diff_of(repository: Repository, commit: Commit, limit: int | None = None) -> Diff:
    """Return the changes of a commit against its first parent."""
    before = repository.database.commits.read(commit.parent_addresses[0]) if commit.parents else commit
    return repository.diff(before, commit, limit=limit)


def changes_at(found: Diff, path: str | None) -> Diff:
    """Return the changes at a path, or all of them without one."""
    return found.under(path) if path else found
