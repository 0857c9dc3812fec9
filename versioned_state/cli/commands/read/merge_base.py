"""``vstate merge-base``: the commit at which two lines of history parted. Layer: cli."""

from __future__ import annotations

import click

from versioned_state.cli.render.text import commit_json, commit_line, names_of
from versioned_state.cli.shared.settings import Settings, json_option, revision_argument, verb
from versioned_state.errors import StateError
from versioned_state.repository.history.commit import ROOT_ID


@verb("merge-base", example="vstate merge-base main what-if")
@revision_argument("a", required=True)
@revision_argument("b", required=True)
@click.option("--id", "only_id", is_flag=True, help="Print only the full id.")
@json_option
@click.pass_obj
def merge_base(settings: Settings, a: str, b: str, *, only_id: bool, as_json: bool) -> None:
    """Show the newest commit that both A and B have: the one from which vstate merge compares them.

    With --json: one object, as in vstate log.
    """
    if only_id and as_json:
        raise click.UsageError("--id and --json exclude each other")
    with settings.reading() as repository:
        base = repository.merge_base(a, b)
        if base.id == ROOT_ID:
            raise StateError(
                f"{a} and {b} have no commit in common", hint="vstate merge compares both with the empty state"
            )
        if as_json:
            settings.output.json(commit_json(base, names_of(repository)))
        elif only_id:
            settings.output.print(base.id)
        else:
            settings.output.crop(*commit_line(base, names_of(repository)))
