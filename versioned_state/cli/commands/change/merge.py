"""``vstate merge``: another branch into the current one, by path. Layer: cli."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import click

from versioned_state.cli.render.changes import print_changes
from versioned_state.cli.render.output import Output
from versioned_state.cli.render.text import commit_json
from versioned_state.cli.shared.conflicts import (
    Choices,
    attempt_of,
    conflict_json,
    explained,
    resolution_options,
    resolved,
)
from versioned_state.cli.shared.handle import author_option, handle, message_option, print_commits, print_move
from versioned_state.cli.shared.settings import Settings, json_option, revision_argument, verb
from versioned_state.errors import MergeConflictError
from versioned_state.repository.history.commit import Commit
from versioned_state.repository.merging.merge import Resolution, preview_merge
from versioned_state.repository.merging.policies import Policies, Policy
from versioned_state.repository.repository import Repository
from versioned_state.repository.views.diff import Diff
from versioned_state.values.paths.path import StatePath

_DONE = "already up to date"


@verb("merge", example="vstate merge what-if --policy messages=append")
@revision_argument("rev", required=True)
@resolution_options
@message_option("merge REV into BRANCH")
@author_option
@click.option("--no-ff", is_flag=True, help="Make a commit even if the branch could just move to REV.")
@click.option("--dry-run", is_flag=True, help="Only show the changes, or the conflicts.")
@json_option
@click.pass_obj
def merge(
    settings: Settings,
    rev: str,
    *,
    chosen: Choices,
    message: str,
    author: str | None,
    no_ff: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Merge REV, a branch or any commit, into the current branch: by path, to any depth.

    A path that only one side changed takes that change. A path that both changed is a conflict, unless a policy
    decides. The command then prints the conflicts, changes nothing and exits with 1: repeat it with --ours, --theirs or
    --set for each, or with --policy.

    With --json: one object with the head, the conflicts and, with --dry-run, the changes.
    """
    output = settings.output
    if dry_run:
        with settings.reading() as repository, output.paged(unless=as_json):
            _preview(repository, output, rev, chosen, as_json=as_json)
        return
    with handle(settings, author) as state:
        before, theirs = state.head, state.repository.commit(rev)
        named = message or f"merge {rev} into {state.branch}"
        run = attempt_of(lambda policies: state.merge(theirs, message=named, policies=policies, fast_forward=not no_ff))
        what = f"merging {rev} into {state.branch}"
        if as_json:
            with _conflicts_as_json(output, what, lambda: {"branch": state.branch, "head": state.head.id}):
                head = chosen.run(run)
            output.json({"branch": state.branch, "head": head.id, "conflicts": [], "commit": commit_json(head, {})})
        else:
            head = resolved(output, what, chosen, run)
            if head == theirs:  # the branch just moved there
                print_move(output, state, before, head, nothing=_DONE)
            else:
                print_commits(output, state, head, nothing=_DONE)


@contextmanager
def _conflicts_as_json(output: Output, what: str, facts: Callable[[], dict[str, Any]]) -> Iterator[None]:
    """Print the conflicts that the block raises, beside these facts, and raise them as an error of one line."""
    try:
        yield
    except MergeConflictError as error:
        output.json({**facts(), "conflicts": [conflict_json(each) for each in error.conflicts]})
        raise explained(error, what) from None


def _preview(repository: Repository, output: Output, rev: str, chosen: Choices, *, as_json: bool) -> None:
    """Print what a merge would change, without writing anything."""
    ours, theirs = repository.commit("HEAD"), repository.commit(rev)
    what = f"merging {rev} into {repository.default_branch()}"
    run = _dry_attempt(repository, ours, theirs)
    if not as_json:
        changed = resolved(output, what, chosen, run)
        if changed:
            print_changes(output, changed.changes)
        else:
            output.note(_DONE)
        return
    facts = {"branch": repository.default_branch(), "head": ours.id}
    with _conflicts_as_json(output, what, lambda: facts):
        changed = chosen.run(run)
    output.json({**facts, "conflicts": [], "changes": changed.to_json()})


def _dry_attempt(repository: Repository, ours: Commit, theirs: Commit) -> Any:
    """Return an attempt that only shows the difference that it would make to ours."""

    def attempt(policies: Mapping[str, Policy], values: Mapping[StatePath, Any]) -> Diff:
        merged, staging = preview_merge(
            repository.database,
            ours,
            theirs,
            policies=Policies(repository.merge_policies, policies),
            resolutions=[Resolution(path, None, value) for path, value in values.items()],
        )
        if merged.conflicts:
            raise MergeConflictError(repository.default_branch(), merged.conflicts)
        return Diff(staging, ours.tree, merged.tree)

    return attempt
