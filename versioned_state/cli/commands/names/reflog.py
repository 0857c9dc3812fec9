"""``vstate reflog``: where a branch has pointed. Layer: cli."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import Final

import click

from versioned_state.cli.render.output import Span
from versioned_state.cli.render.rows import Cells, fit_rows
from versioned_state.cli.render.text import first_line, human_instant, iso_instant
from versioned_state.cli.shared.settings import Settings, json_option, limit_option, revision_argument, verb
from versioned_state.errors import UnknownRevisionError
from versioned_state.objects.keys import RefKind
from versioned_state.repository.refs.reflog import Position

_PAGE: Final = 200
"""Moves whose columns are aligned: a long reflog is printed as it is read."""


@verb("reflog", example="vstate reflog main -n 10")
@revision_argument("ref")
@limit_option("Show at most COUNT moves.")
@json_option
@click.pass_obj
def reflog(settings: Settings, ref: str | None, limit: int | None, *, as_json: bool) -> None:
    """Show where the branch or tag REF (default: the current branch) has pointed, newest first, and what moved it.

    This works for a deleted branch too: vstate branch NAME 'NAME@{1}' brings it back. With --json: one object a line.
    """
    output = settings.output
    with settings.reading() as repository, output.paged(unless=as_json):
        name = ref or repository.default_branch()
        kind: RefKind = "branch"
        if repository.database.ref(kind, name).stored is None:
            kind = "tag"
        if repository.database.ref(kind, name).stored is None:
            raise UnknownRevisionError(name, reason="no branch or tag ever had that name")
        positions = enumerate(islice(repository.reflog(name, kind=kind), limit))
        if as_json:
            for count, position in positions:
                output.json(_json(_revision(name, count), position))
            return
        variants = [partial(_cells, name=name, time=time) for time in (_full_time, _short_time, lambda _: "")]
        while page := list(islice(positions, _PAGE)):
            for line in fit_rows(page, variants, output.columns):
                output.crop(*line)


def _revision(name: str, count: int) -> str:
    return f"{name}@{{{count}}}"


def _full_time(position: Position) -> str:
    return human_instant(position.time)


def _short_time(position: Position) -> str:
    return human_instant(position.time, seconds=False)


def _cells(row: tuple[int, Position], *, name: str, time: Callable[[Position], str]) -> Cells:
    count, position = row
    commit = position.commit
    id, message = ("-" * 12, "") if commit is None else (commit.short, first_line(commit.message))
    text = f"{position.action}: {message}" if message else position.action
    return [Span(id, "id"), Span(time(position), "time"), Span(_revision(name, count), "ref"), text]


def _json(at: str, position: Position) -> dict[str, str | None]:
    commit = position.commit
    return {
        "rev": at,
        "commit": None if commit is None else commit.id,
        "time": iso_instant(position.time),
        "action": position.action,
        "message": None if commit is None else commit.message,
    }
