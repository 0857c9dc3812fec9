"""``vstate revert``: the opposite of earlier changes. Layer: cli."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from versioned_state.cli.render.changes import print_changes
from versioned_state.cli.render.output import Output
from versioned_state.cli.render.text import commit_line, plural
from versioned_state.cli.shared.conflicts import Attempt, Choices, attempt_of, resolution_options, resolved
from versioned_state.cli.shared.filters import parse_when
from versioned_state.cli.shared.handle import handle, message_option, print_commits
from versioned_state.cli.shared.settings import Settings, full_option, parse_text, revision_argument, verb
from versioned_state.errors import InvalidArgumentError, MergeConflictError
from versioned_state.objects.store import Staging
from versioned_state.repository.history.commit import Commit
from versioned_state.repository.history.graph import first_parent_of, first_parents
from versioned_state.repository.merging.merge import Resolution, merge_trees
from versioned_state.repository.merging.policies import Policies, Policy
from versioned_state.repository.names.syntax import split_range
from versioned_state.repository.repository import Repository
from versioned_state.repository.views.diff import Diff
from versioned_state.values.paths.path import StatePath
from versioned_state.values.trees.nodes import Nodes

_NAMED = 20
"""Commits that a dry run lists; more are counted."""


@verb("revert", example="vstate revert --author planner --since 2h --dry-run")
@revision_argument("rev", default=None)
@resolution_options
@click.option(
    "--author",
    type=parse_text,
    metavar="NAME",
    help="Without REV: revert the commits of NAME. With it: the author of the commit.  "
    "[default: $VSTATE_AUTHOR, or your login name]",
)
@click.option(
    "--since",
    metavar="WHEN",
    help="Without REV: only commits made then or later: 2026-11-21, yesterday, '2 hours ago' or 3d.",
)
@click.option("--until", metavar="WHEN", help="Without REV: only commits made then or earlier.")
@click.option("--dry-run", is_flag=True, help="Only show the commits, and the changes or the conflicts.")
@full_option
@message_option("revert ID: MESSAGE")
@click.pass_obj
def revert(
    settings: Settings,
    rev: str | None,
    *,
    chosen: Choices,
    author: str | None,
    since: str | None,
    until: str | None,
    dry_run: bool,
    full: bool,
    message: str,
) -> None:
    """Commit the opposite of the changes of REV, or with A..B of each commit after A up to B, the newest first.

    Without REV: of each commit of the current branch that --author NAME made, which undoes one agent's work, since a
    time if that is given. Merges are left out: their commits have an author each. All are reverted, or none.

    Later changes stay. If one of them is in the way, that is a conflict, which is resolved as in vstate merge.
    """
    if rev is None and author is None:
        raise click.UsageError("revert takes REV, or --author NAME")
    if rev is not None and (since is not None or until is not None):
        raise click.UsageError("--since and --until choose commits of --author, without REV")
    output = settings.output
    what = f"reverting {rev or f'the commits of {author}'}"
    if dry_run:
        with settings.reading() as repository, output.paged():
            commits = (
                _range(repository, rev) if rev is not None else _commits_by(repository, author or "", since, until)
            )
            _preview(repository, output, what, chosen, commits, full=full)
        return
    with handle(settings, None if rev is None else author) as state:
        source: str | Sequence[Commit] = (
            _commits_by(state.repository, author or "", since, until) if rev is None else rev
        )
        run = attempt_of(lambda policies: state.revert(source, message=message, policies=policies))
        head = resolved(output, f"{what} on {state.branch}", chosen, run)
        print_commits(output, state, head, nothing=f"{state.branch} has none of these changes: no commit")


def _commits_by(repository: Repository, author: str, since: str | None, until: str | None) -> list[Commit]:
    """Return the commits of the current branch that an author made, newest first.

    Raises ``InvalidArgumentError`` if there are none.
    """
    times: dict[str, Any] = {
        name: parse_when(given) for name, given in (("since", since), ("until", until)) if given is not None
    }
    commits = [
        commit for commit in repository.log("HEAD", **times) if commit.author == author and len(commit.parents) < 2
    ]
    if not commits:
        when = " in that time" if times else ""
        raise InvalidArgumentError(
            f"{repository.default_branch()} has no commits of {author!r}{when}",
            hint="vstate log --format '{author}' lists the authors",
        )
    return commits


def _range(repository: Repository, rev: str) -> list[Commit]:
    """Return the commits of a revision or range, newest first."""
    ends = split_range(rev)
    if ends is None:
        return [repository.commit(rev)]
    since, until = map(repository.commit, ends)
    line: list[Commit] = []
    for commit in first_parents(until, repository.database.commits.read):
        if commit == since:
            return line
        line.append(commit)
    raise InvalidArgumentError(f"{rev}: {since.short} does not come before {until.short} by first parents")


def _preview(
    repository: Repository, output: Output, what: str, chosen: Choices, commits: Sequence[Commit], *, full: bool
) -> None:
    """Print the commits to revert, and the changes that this would make."""
    changed = resolved(output, f"{what} on {repository.default_branch()}", chosen, _dry_attempt(repository, commits))
    output.print(f"would revert {plural(len(commits), 'commit')}:")
    for commit in commits[:_NAMED]:
        output.crop("  ", *commit_line(commit, {}))
    if len(commits) > _NAMED:
        output.print(f"  and {len(commits) - _NAMED:,} more")
    output.print()
    if changed:
        print_changes(output, changed, full=full, hint=True)
    else:
        output.note(f"{repository.default_branch()} has none of these changes")


def _dry_attempt(repository: Repository, commits: Sequence[Commit]) -> Attempt[Diff]:
    """Return an attempt that only shows the difference that it would make."""
    head = repository.commit("HEAD")
    steps: list[tuple[Commit, Commit]] = []
    for commit in commits:
        parent = first_parent_of(commit, repository.database.commits.read)
        if parent is None:
            what = f"{commit.short} has no parent in the store, so its changes are not known"
            raise InvalidArgumentError(what, remains="nothing was changed")
        steps.append((commit, parent))

    def attempt(policies: Mapping[str, Policy], values: Mapping[StatePath, Any]) -> Diff:
        staging = Staging(repository.database.objects)
        tree = head.tree
        for commit, parent in steps:
            merged = merge_trees(
                Nodes(staging, staging=staging),
                (commit.tree, tree, parent.tree),
                pickles=repository.database.policy,
                policies=Policies(repository.merge_policies, policies),
                resolutions=[Resolution(path, None, value) for path, value in values.items()],
                theirs_first=False,
                counting=False,
            )
            if merged.conflicts:
                error = MergeConflictError(repository.default_branch(), merged.conflicts)
                error.add_note(f"while repeating {commit.short}: {commit.message}")
                raise error
            tree = merged.tree
        return Diff(staging, head.tree, tree)

    return attempt
