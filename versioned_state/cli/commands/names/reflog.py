"""``vstate reflog``: where a branch has pointed. Layer: cli."""

from __future__ import annotations

from itertools import islice

import click

from versioned_state.cli.render.output import Line, Span
from versioned_state.cli.render.text import first_line, human_instant, iso_instant
from versioned_state.cli.shared.settings import Settings, json_option, revision_argument, verb
from versioned_state.errors import UnknownRevisionError
from versioned_state.objects.keys import RefKind
from versioned_state.repository.refs.reflog import Position


@verb("reflog", "Show where a branch has pointed.", example="vstate reflog main -n 10")
@revision_argument("ref")
@click.option("-n", "--limit", type=click.IntRange(min=0), metavar="COUNT", help="Show so many.")
@json_option
@click.pass_obj
def reflog(settings: Settings, ref: str | None, limit: int | None, *, as_json: bool) -> None:
    """Show where the branch or tag REF (default: the current branch) has pointed, newest first, and what moved it.

    Deleted ones are shown too: vstate branch NAME 'NAME@{1}' brings a branch back. With --json: one object a line.
    """
    output = settings.output
    with settings.reading() as repository, output.paged(unless=as_json):
        name = ref or repository.default_branch()
        kind: RefKind = "branch"
        if repository.database.ref(kind, name).stored is None:
            kind = "tag"
        if repository.database.ref(kind, name).stored is None:
            raise UnknownRevisionError(name, reason="there never was a branch or tag of that name")
        for count, position in enumerate(islice(repository.reflog(name, kind=kind), limit)):
            at = f"{name}@{{{count}}}"
            if as_json:
                output.json(_json(at, position))
            else:
                output.crop(*_line(at, position))


def _line(at: str, position: Position) -> Line:
    commit = position.commit
    id, message = ("-" * 12, "") if commit is None else (commit.short, first_line(commit.message))
    what = f"{position.action}: {message}" if message else position.action
    return [Span(id, "id"), "  ", Span(human_instant(position.time), "time"), "  ", Span(at, "ref"), "  ", what]


def _json(at: str, position: Position) -> dict[str, str | None]:
    commit = position.commit
    return {
        "rev": at,
        "commit": None if commit is None else commit.id,
        "time": iso_instant(position.time),
        "action": position.action,
        "message": None if commit is None else commit.message,
    }
