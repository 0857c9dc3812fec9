"""``vstate log``: commits, newest first. Layer: cli."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from versioned_state.cli.render.output import Line, Output, Span
from versioned_state.cli.render.text import commit_json, commit_line, commit_lines, names_of
from versioned_state.cli.shared.filters import filter_options
from versioned_state.cli.shared.place import explained, parse_place
from versioned_state.cli.shared.settings import Settings, full_option, json_option, limit_option, place_argument, verb
from versioned_state.errors import InvalidArgumentError
from versioned_state.repository.history.commit import ROOT_ID, Commit
from versioned_state.repository.history.graph import walk
from versioned_state.repository.names.syntax import split_range
from versioned_state.repository.views.json_form import json_value

if TYPE_CHECKING:
    from versioned_state.repository.inspect.log_filters import Filters
    from versioned_state.repository.repository import Repository
    from versioned_state.repository.views.change import Change


@verb("log", "Show commits, newest first.", example="vstate log main -n 10 --stat")
@place_argument(default="HEAD", metavar="[REV[:PATH]]")
@limit_option("Show at most COUNT commits.")
@click.option("--all", "all_refs", is_flag=True, help="Show the commits of all branches and tags, by time.")
@click.option("--first-parent", is_flag=True, help="Follow only the first parent of each commit.")
@filter_options
@click.option("--oneline", is_flag=True, help="Show each commit on one line.")
@click.option("--graph", is_flag=True, help="Draw branches and merges.")
@click.option("--stat", is_flag=True, help="Show the number of changes of each commit, by key.")
@click.option("-p", "--patch", is_flag=True, help="Show the changes of each commit.")
@click.option("--notes", is_flag=True, help="Show the note of each commit.")
@full_option
@json_option
@click.pass_obj
def log(  # noqa: PLR0913 - an option each
    settings: Settings,
    place: str,
    limit: int | None,
    *,
    all_refs: bool,
    first_parent: bool,
    filters: Filters,
    oneline: bool,
    graph: bool,
    stat: bool,
    patch: bool,
    notes: bool,
    full: bool,
    as_json: bool,
) -> None:
    """Show the commits of REV (default: HEAD, the current branch), newest first. A commit is shown if it passes all filters.

    A..B shows the commits of B that A does not have, such as main..what-if; HEAD stands for a side that is left out.

    --path and -S compare a commit with its parents: a merge is shown if it differs from each of them. REV:PATH is short for --path.
    -S looks for a number, true, null, a list or an object in JSON both as a value and as text.

    With --json: one object a line.
    """
    if graph and (as_json or patch):
        raise click.UsageError(f"--graph and {'--json' if as_json else '--patch'} exclude each other")
    rev, is_range = _revision(place, filters, all_refs=all_refs)
    output = settings.output
    with settings.reading() as repository, output.paged(unless=as_json), explained(repository, "vstate log", rev, ""):
        names = names_of(repository)
        commits = (
            _commits_of_all(repository, by_time=not graph, first_parent=first_parent)
            if all_refs
            else repository.log(rev, first_parent=first_parent)
        )
        if as_json:
            for commit in islice(_selected(repository, commits, filters, first_parent=first_parent), limit):
                note = {"note": json_value(repository.notes.get(commit))} if notes else {}
                output.json(commit_json(commit, names) | note | _changes_json(repository, commit, filters, stat=stat, patch=patch))
            return

        def lines_of(commit: Commit) -> Iterator[Line]:
            yield from [commit_line(commit, names)] if oneline else commit_lines(commit, names)
            if notes:
                from versioned_state.cli.commands.names.note import note_lines

                for line in note_lines(repository.notes.get(commit) or {}):
                    yield ["    ", Span(f"note {line}", "meta")]
            if stat:
                from versioned_state.cli.commands.read.diff import diff_of
                from versioned_state.cli.render.changes import stat_line

                yield ["    ", *stat_line(diff_of(repository, commit).stat())]

        if graph:
            drawn = _drawn(repository, commits, filters, first_parent=first_parent, whole=not is_range)
            _print_graph(output, ((lines_of(commit), commit.id, parents) for commit, parents in islice(drawn, limit)), oneline=oneline)
            return
        for count, commit in enumerate(islice(_selected(repository, commits, filters, first_parent=first_parent), limit)):
            if count and not oneline:
                output.print()
            _print(output, lines_of(commit), oneline=oneline)
            if patch:
                from versioned_state.cli.render.changes import print_changes

                print_changes(output, _changes_of(repository, commit, filters), full=full, indent="    ")


def _selected(repository: Repository, commits: Iterable[Commit], filters: Filters, *, first_parent: bool) -> Iterable[Commit]:
    """Return the commits that the filters let through."""
    if not filters:
        return commits
    from versioned_state.repository.inspect.log_filters import select

    return select(repository.database, commits, filters, first_parent=first_parent)


def _revision(place: str, filters: Filters, *, all_refs: bool) -> tuple[str, bool]:
    """Return the revision or range to show, and whether it is a range. The path of ``REV:PATH`` becomes a filter."""
    named, path = parse_place(place)
    rev = place if named is None else named
    if path and named is not None and filters.setdefault("path", path) != path:
        raise click.UsageError(f"{place!r} names a path, and --path another one")
    before, three_dots, after = rev.partition("...")
    if three_dots:
        one, other = quote(f"{before}..{after}"), quote(f"{after}..{before}")
        raise InvalidArgumentError(f"{rev!r} is not a range", hint=f"vstate log {one} and vstate log {other} show what one side has alone")
    is_range = split_range(rev) is not None
    if is_range and all_refs:
        raise click.UsageError("--all shows the commits of all branches and tags, and takes no range")
    return rev, is_range


def _changes_of(repository: Repository, commit: Commit, filters: Filters) -> Sequence[Change]:
    """Return the changes of a commit, or only those at the path if the log is of a path."""
    from versioned_state.cli.commands.read.diff import changes_at, diff_of

    return changes_at(diff_of(repository, commit), str(filters.get("path", "")))


def _changes_json(repository: Repository, commit: Commit, filters: Filters, *, stat: bool, patch: bool) -> dict[str, Any]:
    shown: dict[str, Any] = {}
    if stat:
        from versioned_state.cli.commands.read.diff import diff_of
        from versioned_state.cli.render.changes import stat_json

        shown["stat"] = stat_json(diff_of(repository, commit).stat())
    if patch:
        shown["changes"] = [change.to_json() for change in _changes_of(repository, commit, filters)]
    return shown


def _print(output: Output, lines: Iterable[Line], *, oneline: bool) -> None:
    for number, line in enumerate(lines):
        if oneline and not number:
            output.crop(*line)
        else:
            output.wrapped([line])


def _commits_of_all(repository: Repository, *, by_time: bool, first_parent: bool) -> Iterator[Commit]:
    heads = {commit for refs in (repository.branches, repository.tags) for commit in refs.values()}
    # By time a parent may come before its child, if clocks differ.
    order = partial(walk, order=lambda commit: (-commit.time,)) if by_time else walk
    commits = order(heads, repository.database.commits.read, first_parent=first_parent)
    return (commit for commit in commits if commit.id != ROOT_ID)


# The graph


def _drawn(
    repository: Repository, commits: Iterable[Commit], filters: Filters, *, first_parent: bool, whole: bool
) -> Iterator[tuple[Commit, Sequence[str]]]:
    """Return the commits to show, each with the commits that its lane leads to.

    Args:
        whole: ``commits`` holds all ancestors of each of its commits.
    """

    def parents_of(commit: Commit) -> list[str]:
        return [id for id in dict.fromkeys(commit.parents[: 1 if first_parent else None]) if id != ROOT_ID]

    if whole and not filters:
        return ((commit, parents_of(commit)) for commit in commits)
    # The next commit of a lane may be as far back as history goes.
    from versioned_state.cli.render.graph import shown_parents

    history = list(commits)
    shown = list(_selected(repository, history, filters, first_parent=first_parent))
    parents = shown_parents([(commit.id, parents_of(commit)) for commit in history], {commit.id for commit in shown})
    return ((commit, parents[commit.id]) for commit in shown)


def _print_graph(output: Output, commits: Iterable[tuple[Iterable[Line], str, Sequence[str]]], *, oneline: bool) -> None:
    from versioned_state.cli.render.graph import Graph, beside

    graph = Graph()
    for lines, id, parents in commits:
        first, rest = graph.draw(id, parents)
        shown: list[Line] = [*lines]
        if not oneline and rest.strip():  # nothing is below the last lane of all
            shown.append([])
        rows = beside(first, rest, len(shown))
        shown += [[]] * (len(rows) - len(shown))
        for row, line in zip(rows, shown, strict=True):  # not wrapped, which would break the lanes
            output.crop(Span(row if line else row.rstrip(), "dim"), *line)
