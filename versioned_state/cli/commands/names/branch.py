"""``vstate branch``: list, create, rename and delete branches. Layer: cli."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice, takewhile
from typing import Any, Final, Literal

import click

from versioned_state.cli.render.output import Output, Span
from versioned_state.cli.render.rows import Cells, fit_rows
from versioned_state.cli.render.text import age, first_line, head_json, iso_instant, plural
from versioned_state.cli.shared import completion, current, store
from versioned_state.cli.shared.filters import parse_when
from versioned_state.cli.shared.handle import head_line
from versioned_state.cli.shared.settings import Settings, json_option, limit_option, verb
from versioned_state.errors import InvalidArgumentError
from versioned_state.objects.address import Address
from versioned_state.repository.history.graph import is_ancestor
from versioned_state.repository.names.branches import BranchComparison, BranchInfo
from versioned_state.repository.names.listing import Order
from versioned_state.repository.repository import Repository

_WILD: Final = re.compile(r"[*?\[]")

_Action = Literal["delete", "force", "rename"]


@verb("branch", example="vstate branch what-if main~3")
@click.argument("names", nargs=-1, metavar="[NAME [REV]]", shell_complete=completion.branch)
@click.option(
    "-l",
    "--list",
    "listed",
    is_flag=True,
    help="List the branches that match a NAME such as 'user/*'; without one, all.",
)
@click.option("-a", "--all", "listed", is_flag=True, hidden=True)  # git's; a store has no remote branches
@click.option(
    "-v",
    "--verbose",
    is_flag=True,
    help="Show heads, and how many commits each is ahead of the current branch (+) and behind (-).",
)
@click.option(
    "--prefix", default="", metavar="TEXT", help="List only branches whose name begins with TEXT, such as 'user-7/'."
)
@click.option(
    "--since",
    metavar="WHEN",
    help="List only branches that changed then or later: 2026-11-21, yesterday, '2 hours ago' or 3d.",
)
@click.option(
    "--sort",
    type=click.Choice(["name", "changed"]),
    default="name",
    help="Sort by name, or by the last change, newest first.",
)
@click.option(
    "--contains",
    metavar="REV",
    help="List only branches whose history has this commit.",
    shell_complete=completion.revision,
)
@limit_option("List at most COUNT branches.")
@click.option("--dry-run", is_flag=True, help="With -d or -D: only print what would be deleted.")
@click.option(
    "-d",
    "--delete",
    "action",
    flag_value="delete",
    help="Delete each NAME, or all that match a pattern, unless commits would be lost.",
)
@click.option(
    "-D",
    "--delete-unmerged",
    "action",
    flag_value="force",
    help="Delete each NAME in any case; its reflog keeps the commits.",
)
@click.option(
    "-m", "--rename", "action", flag_value="rename", help="Rename: -m OLD NEW, or -m NEW for the current branch."
)
@json_option
@click.pass_obj
def branch(  # noqa: PLR0913 - an option each
    settings: Settings,
    names: tuple[str, ...],
    *,
    listed: bool,
    verbose: bool,
    prefix: str,
    since: str | None,
    sort: Order,
    contains: str | None,
    limit: int | None,
    dry_run: bool,
    action: _Action | None,
    as_json: bool,
) -> None:
    """List the branches, with * before the current one, or create NAME at REV (default: HEAD) without switching to it.

    The reflog keeps a deleted branch: vstate branch NAME 'NAME@{1}' brings it back. With --json: one object a line.
    """
    chosen = bool(prefix or since is not None or sort != "name" or limit is not None or contains is not None)
    if action is not None and (listed or chosen):
        raise click.UsageError("-l, --prefix, --since, --sort, --contains and -n only list branches")
    if dry_run and action not in ("delete", "force"):
        raise click.UsageError("--dry-run goes with -d and -D")
    if action is not None:
        if not names or (action == "rename" and len(names) > 2):
            raise click.UsageError(
                "-m takes OLD and NEW, or NEW alone"
                if action == "rename"
                else "-d takes the NAME of each branch to delete"
            )
        if action == "rename":
            _rename(settings, *names)
        else:
            _delete(settings, names, force=action == "force", dry_run=dry_run)
    elif listed or chosen or not names:
        with settings.reading() as repository, settings.output.paged(unless=as_json):
            infos = _chosen(repository, names, prefix, since, sort, limit, contains)
            _list(settings.output, repository, infos, verbose=verbose, as_json=as_json)
    elif len(names) > 2:
        raise click.UsageError(f"vstate branch takes one NAME and one REV, not also {' '.join(names[2:])}")
    else:
        with settings.changing() as repository:
            head = repository.branches.create(*names)
        settings.output.crop(*head_line(names[0], head))


def _delete(settings: Settings, names: tuple[str, ...], *, force: bool, dry_run: bool) -> None:
    with (settings.reading if dry_run else settings.changing)() as repository:
        for name in [name for pattern in names for name in _matching(repository, pattern)]:
            if name == repository.current_branch:
                raise InvalidArgumentError(
                    f"{name!r} is the current branch",
                    remains="it was not deleted",
                    hint="vstate switch chooses another one",
                )
            head = repository.branches.delete(name, force=force, dry_run=dry_run)
            told = ("would delete ", "is") if dry_run else ("deleted ", "was")
            settings.output.crop(
                told[0],
                Span(name, "ref"),
                f", which {told[1]} at ",
                Span(head.short, "id"),
                "  ",
                first_line(head.message),
            )


def _matching(repository: Repository, pattern: str) -> list[str]:
    """Return the branches that match a pattern.

    A plain name stands for itself. Raises ``InvalidArgumentError`` if there are none.
    """
    if not _WILD.search(pattern):
        return [pattern]
    found = [info.name for info in _chosen(repository, (pattern,), "", None, "name", None)]
    if not found:
        raise InvalidArgumentError(f"no branch matches {pattern!r}")
    return found


def _instant(since: str) -> int:
    from versioned_state.repository.names.times import instants

    return instants(parse_when(since))[0]


def _chosen(
    repository: Repository,
    patterns: Sequence[str],
    prefix: str,
    since: str | None,
    sort: Order,
    limit: int | None,
    contains: str | None = None,
) -> Iterator[BranchInfo]:
    """Return the branches to list, in order. Only the names of the others are read."""
    earliest = None if since is None else _instant(since)
    by: Order = "changed" if sort == "changed" or earliest is not None else "name"
    found: Iterator[BranchInfo] = repository.branches.iter_info(prefix=prefix, by=by, like=patterns)
    if earliest is not None:
        found = takewhile(lambda info: info.changed >= earliest, found)
    if contains is not None:
        commit, without = repository.commit(contains), set[Address]()
        read = repository.database.commits.read
        found = (info for info in found if is_ancestor(commit, info.head, read, seen=without))
    if sort != by:
        found = iter(sorted(found, key=lambda info: info.name))
    return islice(found, limit)


def _rename(settings: Settings, *names: str) -> None:
    with settings.changing() as repository:
        here = repository.default_branch()
        old, new = names if len(names) == 2 else (here, names[0])
        head = repository.branches.rename(old, new)
    # As in git, the current branch stays current under its new name, even if nobody had chosen it.
    url = store.locate(settings.store)
    if current.chosen(url) == old or (settings.current_branch() is None and old == here):
        current.choose(url, new)
    settings.output.crop(*head_line(new, head))


def _list(output: Output, repository: Repository, infos: Iterator[BranchInfo], *, verbose: bool, as_json: bool) -> None:
    here = repository.default_branch()
    if not verbose and not as_json:
        for info in infos:
            output.print("* " if info.name == here else "  ", Span(info.name, "ref"))
        return
    listed = list(infos)
    found = list(repository.branches.compare(among=listed))
    if as_json:
        for each, info in zip(found, listed, strict=True):
            output.json(_json(each) | {"changed": iso_instant(info.changed), "current": info.name == here})
    else:
        for line in fit_rows(found, [partial(_cells, here=here, details=count) for count in (2, 1, 0)], output.columns):
            output.crop(*line)


def _cells(info: BranchComparison, *, here: str, details: int) -> Cells:
    head = info.head
    count = plural(head.height, "commit") if details > 1 else ""
    when = Span(age(head), "time") if details else ""
    return [
        Span(f"{'*' if info.name == here else ' '} {info.name}", "ref"),
        Span(head.short, "id"),
        count,
        _beside(info),
        when,
        first_line(head.message),
    ]


def _beside(info: BranchComparison) -> str:
    counts = ((info.ahead, "+"), (info.behind, "-"))
    return " ".join(f"{sign}{count:,}" for count, sign in counts if count)


def _json(info: BranchComparison) -> dict[str, Any]:
    return {"name": info.name, **head_json(info.head), "base": info.base, "ahead": info.ahead, "behind": info.behind}
