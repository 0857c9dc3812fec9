"""``vstate branch``: list, create, rename and delete branches. Layer: cli."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, Literal

import click

from versioned_state.cli.render.output import Output, Span
from versioned_state.cli.render.rows import Cells, fit_rows
from versioned_state.cli.render.text import age, first_line, iso_time, plural
from versioned_state.cli.shared import completion, current, store
from versioned_state.cli.shared.handle import head_line
from versioned_state.cli.shared.settings import Settings, json_option, verb
from versioned_state.errors import InvalidArgumentError
from versioned_state.repository.names.branches import BranchComparison
from versioned_state.repository.repository import Repository

_Action = Literal["delete", "force", "rename"]


@verb("branch", "List, create, rename or delete branches.", example="vstate branch what-if main~3")
@click.argument("names", nargs=-1, metavar="[NAME [REV]]", shell_complete=completion.branch)
@click.option("-l", "--list", "listed", is_flag=True, help="List the branches that match a NAME such as 'user/*'; without one, all.")
@click.option("-a", "--all", "listed", is_flag=True, hidden=True)  # git's; a store has no remote branches
@click.option(
    "-v", "--verbose", is_flag=True, help="Show heads, and how many commits each is ahead of the current branch (+) and behind (-)."
)
@click.option("-d", "--delete", "action", flag_value="delete", help="Delete each NAME, unless its commits would be lost.")
@click.option("-D", "--delete-unmerged", "action", flag_value="force", help="Delete each NAME in any case; its reflog keeps the commits.")
@click.option("-m", "--rename", "action", flag_value="rename", help="Rename: -m OLD NEW, or -m NEW for the current branch.")
@json_option
@click.pass_obj
def branch(settings: Settings, names: tuple[str, ...], *, listed: bool, verbose: bool, action: _Action | None, as_json: bool) -> None:
    """List the branches, with * before the current one; or create NAME at REV (default: HEAD), without switching to it.

    The reflog keeps a deleted branch: vstate branch NAME 'NAME@{1}' brings it back. With --json: one object a line.
    """
    if action is not None and listed:
        raise click.UsageError("-l only lists branches")
    if action is not None:
        if not names or (action == "rename" and len(names) > 2):
            raise click.UsageError(
                "-m takes OLD and NEW, or NEW alone" if action == "rename" else "-d takes the NAME of each branch to delete"
            )
        if action == "rename":
            _rename(settings, *names)
        else:
            _delete(settings, names, force=action == "force")
    elif listed or not names:
        with settings.reading() as repository, settings.output.paged(unless=as_json):
            _list(settings.output, repository, names or ("*",), verbose=verbose, as_json=as_json)
    elif len(names) > 2:
        raise click.UsageError(f"vstate branch takes one NAME and one REV, not also {' '.join(names[2:])}")
    else:
        with settings.changing() as repository:
            head = repository.branches.create(*names)
        settings.output.crop(*head_line(names[0], head))


def _delete(settings: Settings, names: tuple[str, ...], *, force: bool) -> None:
    with settings.changing() as repository:
        for name in names:
            if name == repository.current_branch:
                raise InvalidArgumentError(
                    f"{name!r} is the current branch", remains="it was not deleted", hint="vstate switch chooses another one"
                )
            head = repository.branches.delete(name, force=force)
            settings.output.crop("deleted ", Span(name, "ref"), ", which was at ", Span(head.short, "id"), "  ", first_line(head.message))


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


def _list(output: Output, repository: Repository, patterns: Sequence[str], *, verbose: bool, as_json: bool) -> None:
    here = repository.default_branch()
    if not verbose and not as_json:
        for name in sorted(repository.branches):
            if is_like(name, patterns):
                output.print("* " if name == here else "  ", Span(name, "ref"))
        return
    found = sorted((info for info in repository.branches.compare() if is_like(info.name, patterns)), key=lambda info: info.name)
    if as_json:
        for info in found:
            output.json(_json(info) | {"current": info.name == here})
    else:
        for line in fit_rows(found, [partial(_cells, here=here, details=count) for count in (2, 1, 0)], output.columns):
            output.crop(*line)


def is_like(name: str, patterns: Iterable[str]) -> bool:
    """Whether a name matches one of the patterns with ``*``, ``?`` and ``[…]``."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


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
    head = info.head
    return {
        "name": info.name,
        "commit": head.id,
        "commits": head.height,
        "time": iso_time(head),
        "message": head.message,
        "base": info.base,
        "ahead": info.ahead,
        "behind": info.behind,
    }
