"""``vstate branch``: list, create, rename and delete branches. Layer: cli."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Any, Literal

import click

from versioned_state.cli.render.output import Line, Output, Span, columns, padded
from versioned_state.cli.render.text import age, first_line, iso_time, plural
from versioned_state.cli.shared import current, store
from versioned_state.cli.shared.handle import head_line
from versioned_state.cli.shared.settings import Settings, complete_branch, json_option, verb
from versioned_state.errors import InvalidArgumentError
from versioned_state.repository.names.branches import BranchInfo
from versioned_state.repository.repository import Repository

_Action = Literal["delete", "force", "rename"]


@verb("branch", "List, create, rename or delete branches.", example="vstate branch what-if main~3")
@click.argument("names", nargs=-1, metavar="[NAME [REV]]", shell_complete=complete_branch)
@click.option("-l", "--list", "listed", is_flag=True, help="List those that are like a NAME, such as 'user/*'; without one, all.")
@click.option("-v", "--verbose", is_flag=True, help="Show heads, and how far they are ahead of the current branch (+) and behind it (-).")
@click.option("-d", "--delete", "action", flag_value="delete", help="Delete each NAME, unless only it leads to its commits.")
@click.option("-D", "--delete-unmerged", "action", flag_value="force", help="Delete each NAME in any case; its reflog keeps the commits.")
@click.option("-m", "--rename", "action", flag_value="rename", help="Rename: -m OLD NEW, or -m NEW for the current branch.")
@json_option
@click.pass_obj
def branch(settings: Settings, names: tuple[str, ...], *, listed: bool, verbose: bool, action: _Action | None, as_json: bool) -> None:
    """List the branches, with * before the current one; or create NAME at REV (default: HEAD), without switching to it.

    What is deleted is kept by its reflog: vstate branch NAME 'NAME@{1}' brings it back. With --json: one object a line.
    """
    if action is not None and listed:
        raise click.UsageError("-l only lists")
    if action is not None:
        if not names or (action == "rename" and len(names) > 2):
            raise click.UsageError("-m takes OLD and NEW, or NEW alone" if action == "rename" else "which branch is to be deleted?")
        if action == "rename":
            _rename(settings, *names)
        else:
            _delete(settings, names, force=action == "force")
    elif listed or not names:
        with settings.reading() as repository, settings.output.paged(unless=as_json):
            _list(settings.output, repository, names or ("*",), verbose=verbose, as_json=as_json)
    elif len(names) > 2:
        raise click.UsageError(f"one NAME and one REV, and not {' '.join(names[2:])}")
    else:
        with settings.changing() as repository:
            head = repository.branches.create(*names)
        settings.output.crop(*head_line(names[0], head))


def _delete(settings: Settings, names: tuple[str, ...], *, force: bool) -> None:
    with settings.changing() as repository:
        for name in names:
            if name == repository.current_branch:
                raise InvalidArgumentError(f"{name!r} is the current branch; it was not deleted", hint="vstate switch chooses another one")
            head = repository.branches.delete(name, force=force)
            settings.output.crop("deleted ", Span(name, "ref"), ", which was at ", Span(head.short, "id"), "  ", first_line(head.message))


def _rename(settings: Settings, *names: str) -> None:
    with settings.changing() as repository:
        here = repository.default_branch()
        old, new = names if len(names) == 2 else (here, names[0])
        head = repository.branches.rename(old, new)
    # As in git, whoever stood on the branch stands on it still, also where it was current without having been chosen.
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
    found = sorted((info for info in repository.branches.iter_info() if is_like(info.name, patterns)), key=lambda info: info.name)
    if as_json:
        for info in found:
            output.json(_json(info) | {"current": info.name == here})
    else:
        for line in _rows(found, here):
            output.crop(*line)


def is_like(name: str, patterns: Iterable[str]) -> bool:
    """Whether a name is like one of some patterns with ``*``, ``?`` and ``[…]``."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _rows(found: list[BranchInfo], here: str) -> Iterator[Line]:
    told = [(info.name, plural(info.head.height, "round"), _beside(info), age(info.head)) for info in found]
    widths = [max((columns(row[column]) for row in told), default=0) for column in range(4)]
    for info, row in zip(found, told, strict=True):
        name, rounds, beside, when = map(padded, row, widths)
        line: Line = ["* " if info.name == here else "  ", Span(name, "ref"), "  ", Span(info.head.short, "id"), f"  {rounds}  "]
        line += [beside, "  "] if beside else []
        yield [*line, Span(when, "time"), "  ", first_line(info.head.message)]


def _beside(info: BranchInfo) -> str:
    counts = ((info.ahead, "+"), (info.behind, "-"))
    return " ".join(f"{sign}{count:,}" for count, sign in counts if count)


def _json(info: BranchInfo) -> dict[str, Any]:
    head = info.head
    return {
        "name": info.name,
        "commit": head.id,
        "rounds": head.height,
        "time": iso_time(head),
        "message": head.message,
        "base": info.base,
        "ahead": info.ahead,
        "behind": info.behind,
    }
