"""``vstate log``: commits, newest first. Layer: cli."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from versioned_state.cli.render.output import Line, Output, Span
from versioned_state.cli.render.text import commit_json, commit_line, commit_lines, names_of
from versioned_state.cli.shared.filters import filter_options
from versioned_state.cli.shared.follow import PAUSE_S, begin_to_follow
from versioned_state.cli.shared.place import explained, near_path, parse_place
from versioned_state.cli.shared.settings import (
    Settings,
    full_option,
    html_option,
    json_option,
    limit_option,
    place_argument,
    verb,
)
from versioned_state.errors import InvalidArgumentError
from versioned_state.records import dataclass, replace
from versioned_state.repository.history.commit import ROOT_ID, Commit
from versioned_state.repository.history.graph import only_in, walk
from versioned_state.repository.names.syntax import split_range
from versioned_state.repository.views.json_form import json_value

if TYPE_CHECKING:
    from versioned_state.cli.render.commit_format import CommitFormat
    from versioned_state.repository.inspect.log_filters import Filters
    from versioned_state.repository.names.watching import Watch
    from versioned_state.repository.repository import Repository
    from versioned_state.repository.views.change import Change


T = TypeVar("T")

_FOLLOWED: Final = 10
"""Commits that ``log -f`` shows before it waits for new ones, as ``tail -f`` shows ten lines."""


@verb("log", example="vstate log main -n 10 --stat")
@place_argument(default="HEAD", metavar="[REV[:PATH]]")
@limit_option("Show at most COUNT commits.")
@click.option("--all", "all_refs", is_flag=True, help="Show the commits of all branches and tags, by time.")
@click.option("--first-parent", is_flag=True, help="Follow only the first parent of each commit.")
@filter_options
@click.option("--oneline", is_flag=True, help="Show each commit on one line.")
@click.option(
    "--format",
    "template",
    metavar="TEXT",
    help="Show each commit as TEXT, such as '{short} {age} {author} {meta[step]} {message}'.",
)
@click.option("--reverse", is_flag=True, help="Show the chosen commits oldest first.")
@click.option("--source", is_flag=True, help="Show the branch or tag by which each commit was found, for --all.")
@click.option(
    "-f", "--follow", is_flag=True, help="Keep running, and show new commits of the branch REV as they are made."
)
@click.option("--graph", is_flag=True, help="Draw branches and merges.")
@click.option("--stat", is_flag=True, help="Show the number of changes of each commit, by key.")
@click.option("-p", "--patch", is_flag=True, help="Show the changes of each commit.")
@click.option("--notes", is_flag=True, help="Show the note of each commit.")
@full_option
@json_option
@html_option
@click.pass_obj
def log(settings: Settings, /, place: str, **options: Any) -> None:
    """Show the commits of REV (default: HEAD, the current branch), newest first.

    A commit is shown if it passes all filters.

    A..B shows the commits of B that A does not have, such as main..what-if; HEAD stands for a side that is left out.

    --path and -S compare a commit with its parents: a merge is shown if it differs from each of them. REV:PATH is short
    for --path. -S looks for a number, true, null, a list or an object in JSON both as a value and as text.

    The fields of --format are {id} {short} {time} {age} {author} {message} (its first line) {body} (all of it)
    {meta[KEY]} {meta} {branches} {tags} {source} {note[KEY]} {stamp[KEY]} {parents} {root}; {author:<10} is ten columns
    wide.

    --html writes one file with the list of the commits and the changes of each, 50 unless -n is given, to attach to a
    ticket.

    With --json: one object a line.
    """
    chosen = _Options(**options)
    _check_together(chosen)
    rev, is_range = _revision(place, chosen.filters, all_refs=chosen.all_refs)
    if chosen.follow and is_range:
        raise click.UsageError("--follow takes a branch, not a range")
    output, template = settings.output, _template(chosen.template)
    if template is not None and "source" in template.fields:
        chosen = replace(chosen, source=True)
    with (
        settings.reading() as repository,
        output.paged(unless=chosen.is_stream),
        explained(repository, "vstate log", rev, ""),
    ):
        if chosen.follow:
            begin_to_follow(settings, repository, rev)
        listing = _Listing(repository, output, chosen, rev)
        if chosen.html is not None:
            from versioned_state.cli.shared.html_file import write_html

            limit = {} if chosen.limit is None else {"limit": chosen.limit}
            write_html(settings, repository, listing.without_end(), chosen.html, title=place, **limit)
        elif chosen.as_json:
            listing.print_json()
        elif template is not None:
            listing.print_formatted(template)
        elif chosen.graph:
            listing.print_graph(whole=not is_range)
        else:
            listing.print()
        if listing.is_empty and chosen.limit != 0 and (chosen.filters or is_range):
            output.nothing("no commits match" if chosen.filters else f"no commits are in {rev}", listing.hint())


@dataclass(frozen=True, slots=True)
class _Options:
    """The options of the command line."""

    task: str | None
    limit: int | None
    all_refs: bool
    first_parent: bool
    filters: Filters
    oneline: bool
    template: str | None
    reverse: bool
    source: bool
    follow: bool
    graph: bool
    stat: bool
    patch: bool
    notes: bool
    full: bool
    as_json: bool
    html: Path | None

    @property
    def is_stream(self) -> bool:
        """Whether the output is for a program, or has no end, and is not paged."""
        return self.as_json or self.follow or self.html is not None


class _Listing:
    """The requested commits, and how each is printed."""

    def __init__(self, repository: Repository, output: Output, options: _Options, rev: str) -> None:
        self._repository = repository
        self._output = output
        self._options = options
        self._rev = rev
        self._names = names_of(repository)
        self.is_empty = True  # nothing was printed so far
        self._sources: dict[str, str] | None = {} if options.all_refs and options.source else None
        self._source = repository.default_branch() if options.source and rev == "HEAD" else rev

    def without_end(self) -> Iterable[Commit]:
        """Return all commits that pass the filters, newest first, however many are to be shown."""
        options = self._options
        return _selected(self._repository, self._commits(), options.filters, first_parent=options.first_parent)

    def print_json(self) -> None:
        """Print each commit as an object on a line."""
        options = self._options
        for commit in self._shown():
            found = {"source": self._source_of(commit)} if options.source else {}
            note = {"note": json_value(self._repository.notes.get(commit))} if options.notes else {}
            changes = _changes_json(self._repository, commit, options.filters, stat=options.stat, patch=options.patch)
            self._output.json(commit_json(commit, self._names) | found | note | changes)

    def print_formatted(self, template: CommitFormat) -> None:
        """Print each commit by a template."""
        for commit in self._shown():
            self._output.text(template.of(self._repository, commit, self._names, self._source_of(commit) or ""))
            self._print_patch(commit)

    def print_graph(self, *, whole: bool) -> None:
        """Print the commits with the lanes that lead from one to the other.

        Args:
            whole: all ancestors of each commit are among them.
        """
        options = self._options
        drawn = _drawn(
            self._repository, self._commits(), options.filters, first_parent=options.first_parent, whole=whole
        )
        shown = (
            (self._lines_of(commit), commit.id, parents)
            for commit, parents in self._noticed(islice(drawn, options.limit))
        )
        _print_graph(self._output, shown, oneline=options.oneline)

    def print(self) -> None:
        """Print each commit on several lines, or on one."""
        for count, commit in enumerate(self._shown()):
            if count and not self._options.oneline:
                self._output.print()
            _print(self._output, self._lines_of(commit), oneline=self._options.oneline)
            self._print_patch(commit)

    def hint(self) -> str:
        """Return the paths or the tasks near those that no commit has."""
        filters, task = self._options.filters, self._options.task
        *_, rev = split_range(self._rev) or (self._rev,)
        if "path" in filters and (near := near_path(self._repository, rev, str(filters["path"]))):
            return near
        if task is None:
            return ""
        from versioned_state.cli.shared.names import near_name, task_names

        return near_name(task, task_names(self._commits()))

    def _shown(self) -> Iterator[Commit]:
        return self._noticed(self._chosen())

    def _noticed(self, items: Iterable[T]) -> Iterator[T]:
        for item in items:
            self.is_empty = False
            yield item

    def _commits(self) -> Iterable[Commit]:
        options = self._options
        if not options.all_refs:
            return self._repository.log(self._rev, first_parent=options.first_parent)
        by_time = not options.graph
        return _commits_of_all(
            self._repository, by_time=by_time, first_parent=options.first_parent, sources=self._sources
        )

    def _chosen(self) -> Iterator[Commit]:
        """Yield the commits that pass the filters, in the order in which they are shown."""
        options = self._options
        found = _selected(self._repository, self._commits(), options.filters, first_parent=options.first_parent)
        if not options.follow:
            found = islice(found, options.limit)
            yield from reversed(list(found)) if options.reverse else found
            return
        branch = self._repository.default_branch() if self._rev == "HEAD" else self._rev
        # first: nothing made during the listing is missed
        watch = self._repository.watch(branches=[branch], interval=PAUSE_S)
        last = self._repository.commit(self._rev)
        yield from reversed(list(islice(found, _FOLLOWED if options.limit is None else options.limit)))
        yield from self._new(last, watch)

    def _new(self, last: Commit, watch: Watch) -> Iterator[Commit]:
        """Yield the commits that the branch gets from now on, oldest first. It never ends."""
        options, read = self._options, self._repository.database.commits.read
        self._output.flush()  # a pipe is not flushed at the end of a line
        for move in watch:
            if move.head is None:
                self._output.note(f"the branch {move.name} was deleted: waiting for one of that name")
                continue
            new = only_in(move.head, [last], read, first_parent=options.first_parent)
            yield from reversed(
                list(_selected(self._repository, new, options.filters, first_parent=options.first_parent))
            )
            last = move.head
            self._output.flush()

    def _source_of(self, commit: Commit) -> str | None:
        if not self._options.source:
            return None
        return self._source if self._sources is None else self._sources.get(commit.id, "")

    def _lines_of(self, commit: Commit) -> Iterator[Line]:
        options, source = self._options, self._source_of(commit)
        yield from (
            [commit_line(commit, self._names, source)] if options.oneline else commit_lines(commit, self._names, source)
        )
        if options.notes:
            from versioned_state.cli.commands.names.note import note_lines

            for line in note_lines(self._repository.notes.get(commit) or {}):
                yield ["    ", Span(f"note {line}", "meta")]
        if options.stat:
            from versioned_state.cli.commands.read.diff import diff_of
            from versioned_state.cli.render.changes import stat_line

            yield ["    ", *stat_line(diff_of(self._repository, commit).stat())]

    def _print_patch(self, commit: Commit) -> None:
        if self._options.patch:
            from versioned_state.cli.render.changes import print_changes

            changes = _changes_of(self._repository, commit, self._options.filters)
            print_changes(self._output, changes, full=self._options.full, indent="    ")


def _template(text: str | None) -> CommitFormat | None:
    if text is None:
        return None
    from versioned_state.cli.render.commit_format import CommitFormat

    return CommitFormat(text)


def _check_together(options: _Options) -> None:
    """Raise ``UsageError`` if an option is given with one that it excludes."""
    formatted = options.template is not None
    plain = {"--json": options.as_json, "--oneline": options.oneline, "--stat": options.stat, "--notes": options.notes}
    other = {"--json": options.as_json, "--patch": options.patch, "--follow": options.follow, "--format": formatted}
    for option, given, others in (
        ("--graph", options.graph, {"--reverse": options.reverse, **other}),
        ("--format", formatted, plain),
        (
            "--html",
            options.html is not None,
            {"--graph": options.graph, "--reverse": options.reverse, "--full": options.full, **plain, **other},
        ),
        ("--follow", options.follow, {"--all": options.all_refs, "--reverse": options.reverse}),
    ):
        for excluded, also in others.items():
            if given and also:
                raise click.UsageError(f"{option} and {excluded} exclude each other")


def _selected(
    repository: Repository, commits: Iterable[Commit], filters: Filters, *, first_parent: bool
) -> Iterable[Commit]:
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
        raise InvalidArgumentError(
            f"{rev!r} is not a range", hint=f"vstate log {one} and vstate log {other} show what one side has alone"
        )
    is_range = split_range(rev) is not None
    if is_range and all_refs:
        raise click.UsageError("--all shows the commits of all branches and tags, and takes no range")
    return rev, is_range


def _changes_of(repository: Repository, commit: Commit, filters: Filters) -> Sequence[Change]:
    """Return the changes of a commit, or only those at the path if the log is of a path."""
    from versioned_state.cli.commands.read.diff import changes_at, diff_of

    return changes_at(diff_of(repository, commit), str(filters.get("path", "")))


def _changes_json(
    repository: Repository, commit: Commit, filters: Filters, *, stat: bool, patch: bool
) -> dict[str, Any]:
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


def _commits_of_all(
    repository: Repository, *, by_time: bool, first_parent: bool, sources: dict[str, str] | None = None
) -> Iterator[Commit]:
    """Return the commits of all branches and tags.

    Args:
        sources: is filled with the name by which each commit that was yielded was found, by its id.
    """
    heads: dict[Commit, str] = {}
    for refs in (repository.branches, repository.tags):
        for name, commit in refs.items():
            heads.setdefault(commit, name)
    # By time a parent may come before its child, if clocks differ.
    order = partial(walk, order=lambda commit: (-commit.time,)) if by_time else walk
    commits = order(heads, repository.database.commits.read, first_parent=first_parent)
    if sources is not None:
        sources.update({commit.id: name for commit, name in heads.items()})
        commits = _with_sources(commits, sources, first_parent=first_parent)
    return (commit for commit in commits if commit.id != ROOT_ID)


def _with_sources(commits: Iterable[Commit], sources: dict[str, str], *, first_parent: bool) -> Iterator[Commit]:
    for commit in commits:
        for parent in commit.parents[: 1 if first_parent else None]:
            sources.setdefault(parent, sources[commit.id])
        yield commit


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


def _print_graph(
    output: Output, commits: Iterable[tuple[Iterable[Line], str, Sequence[str]]], *, oneline: bool
) -> None:
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
