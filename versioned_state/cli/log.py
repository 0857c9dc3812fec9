"""``vstate log``: commits, newest first. Layer: cli."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import click

from versioned_state.cli.diff import diff_of
from versioned_state.cli.settings import Settings, json_option, revision_argument, verb
from versioned_state.cli.text import commit_json, commit_line, commit_lines, names_of, stat_json, stat_line
from versioned_state.repository.commit import ROOT_ID, Commit
from versioned_state.repository.history import walk
from versioned_state.repository.repository import Repository


@verb("log", "Show commits, newest first.", example="vstate log main -n 10 --stat")
@revision_argument(default="HEAD")
@click.option("-n", "--limit", type=click.IntRange(min=0), metavar="COUNT", help="Show so many.")
@click.option("--all", "all_refs", is_flag=True, help="Show the commits of all branches and tags, by time.")
@click.option("--first-parent", is_flag=True, help="Follow only the first parent of each commit.")
@click.option("--oneline", is_flag=True, help="One line each.")
@click.option("--stat", is_flag=True, help="Show what each commit changed, by key.")
@json_option
@click.pass_obj
def log(
    settings: Settings, rev: str, limit: int | None, *, all_refs: bool, first_parent: bool, oneline: bool, stat: bool, as_json: bool
) -> None:
    """Show the commits of REV (default: HEAD, which is main or the only branch), newest first.

    With --json: one object a line.
    """
    output = settings.output
    with settings.reading() as repository, output.paged(unless=as_json):
        commits = _commits_of_all(repository) if all_refs else repository.log(rev, first_parent=first_parent)
        names = names_of(repository)
        for count, commit in enumerate(islice(commits, limit)):
            stats = diff_of(repository, commit).stat() if stat else None
            if as_json:
                output.json(commit_json(commit, names) | ({} if stats is None else {"stat": stat_json(stats)}))
            elif oneline:
                output.crop(*commit_line(commit, names))
                if stats is not None:
                    output.print("    ", *stat_line(stats))
            else:
                if count:
                    output.print()
                output.lines(commit_lines(commit, names))
                if stats is not None:
                    output.print("    ", *stat_line(stats))


def _commits_of_all(repository: Repository) -> Iterator[Commit]:
    heads = {commit for refs in (repository.branches, repository.tags) for commit in refs.values()}
    return (commit for commit in walk(heads, repository.read, order=lambda commit: (-commit.time,)) if commit.id != ROOT_ID)
