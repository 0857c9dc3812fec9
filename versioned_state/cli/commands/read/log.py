"""``vstate log``: commits, newest first. Layer: cli."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice

import click

from versioned_state.cli.commands.read.diff import diff_of
from versioned_state.cli.render.graph import Graph, beside, shown_parents
from versioned_state.cli.render.output import Line, Output, Span
from versioned_state.cli.render.text import commit_json, commit_line, commit_lines, names_of, stat_json, stat_line
from versioned_state.cli.shared.filters import filter_options
from versioned_state.cli.shared.settings import Settings, json_option, revision_argument, verb
from versioned_state.repository.history.commit import ROOT_ID, Commit
from versioned_state.repository.history.graph import walk
from versioned_state.repository.inspect.log_filters import Filters, select
from versioned_state.repository.names.syntax import split_range
from versioned_state.repository.repository import Repository


@verb("log", "Show commits, newest first.", example="vstate log main -n 10 --stat")
@revision_argument(default="HEAD")
@click.option("-n", "--limit", type=click.IntRange(min=0), metavar="COUNT", help="Show so many.")
@click.option("--all", "all_refs", is_flag=True, help="Show the commits of all branches and tags, by time.")
@click.option("--first-parent", is_flag=True, help="Follow only the first parent of each commit.")
@filter_options
@click.option("--oneline", is_flag=True, help="One line each.")
@click.option("--graph", is_flag=True, help="Draw branches and merges.")
@click.option("--stat", is_flag=True, help="Show what each commit changed, by key.")
@json_option
@click.pass_obj
def log(  # noqa: PLR0913 - an option each
    settings: Settings,
    rev: str,
    limit: int | None,
    *,
    all_refs: bool,
    first_parent: bool,
    filters: Filters,
    oneline: bool,
    graph: bool,
    stat: bool,
    as_json: bool,
) -> None:
    """Show the commits of REV (default: HEAD, which is the current branch), newest first; those that all given filters leave.

    A..B shows what leads to B and not to A, such as main..what-if; without A or B, HEAD stands there.

    --path and -S compare a commit with its parents: a merge is shown where it differs from each of them. For -S, what is a number,
    true, null, a list or an object in JSON is looked for as a value as well as a text.

    With --json: one object a line.
    """
    if graph and as_json:
        raise click.UsageError("--graph and --json exclude each other")
    is_range = split_range(rev) is not None
    if is_range and all_refs:
        raise click.UsageError("--all shows what leads to any branch or tag, and takes no range")
    output = settings.output
    with settings.reading() as repository, output.paged(unless=as_json):
        names = names_of(repository)
        commits = (
            _commits_of_all(repository, by_time=not graph, first_parent=first_parent)
            if all_refs
            else repository.log(rev, first_parent=first_parent)
        )
        if as_json:
            for commit in islice(select(repository.database, commits, filters, first_parent=first_parent), limit):
                stats = {"stat": stat_json(diff_of(repository, commit).stat())} if stat else {}
                output.json(commit_json(commit, names) | stats)
            return

        def lines_of(commit: Commit) -> Iterator[Line]:
            yield from [commit_line(commit, names)] if oneline else commit_lines(commit, names)
            if stat:
                yield ["    ", *stat_line(diff_of(repository, commit).stat())]

        if graph:
            drawn = _drawn(repository, commits, filters, first_parent=first_parent, whole=not is_range)
            _print_graph(output, ((lines_of(commit), commit.id, parents) for commit, parents in islice(drawn, limit)), oneline=oneline)
            return
        for count, commit in enumerate(islice(select(repository.database, commits, filters, first_parent=first_parent), limit)):
            if count and not oneline:
                output.print()
            _print(output, lines_of(commit), oneline=oneline)


def _print(output: Output, lines: Iterable[Line], *, oneline: bool) -> None:
    for number, line in enumerate(lines):
        if oneline and not number:
            output.crop(*line)
        else:
            output.print(*line)


def _commits_of_all(repository: Repository, *, by_time: bool, first_parent: bool) -> Iterator[Commit]:
    heads = {commit for refs in (repository.branches, repository.tags) for commit in refs.values()}
    # By time a parent may come before a child of his, where clocks differ.
    order = partial(walk, order=lambda commit: (-commit.time,)) if by_time else walk
    commits = order(heads, repository.database.commits.read, first_parent=first_parent)
    return (commit for commit in commits if commit.id != ROOT_ID)


# The graph


def _drawn(
    repository: Repository, commits: Iterable[Commit], filters: Filters, *, first_parent: bool, whole: bool
) -> Iterator[tuple[Commit, Sequence[str]]]:
    """The commits that are shown, each with those that it is to be connected with. ``whole``: with each commit, all before it are given."""

    def parents_of(commit: Commit) -> list[str]:
        return [id for id in dict.fromkeys(commit.parents[: 1 if first_parent else None]) if id != ROOT_ID]

    if whole and not filters:
        return ((commit, parents_of(commit)) for commit in commits)
    # What a commit is connected with may be as far back as history goes.
    history = list(commits)
    shown = list(select(repository.database, history, filters, first_parent=first_parent))
    parents = shown_parents([(commit.id, parents_of(commit)) for commit in history], {commit.id for commit in shown})
    return ((commit, parents[commit.id]) for commit in shown)


def _print_graph(output: Output, commits: Iterable[tuple[Iterable[Line], str, Sequence[str]]], *, oneline: bool) -> None:
    graph = Graph()
    for lines, id, parents in commits:
        first, rest = graph.draw(id, parents)
        shown: list[Line] = [*lines]
        if not oneline and rest.strip():  # nothing is below the last lane of all
            shown.append([])
        rows = beside(first, rest, len(shown))
        shown += [[]] * (len(rows) - len(shown))
        _print(
            output, ([Span(row if line else row.rstrip(), "dim"), *line] for row, line in zip(rows, shown, strict=True)), oneline=oneline
        )
