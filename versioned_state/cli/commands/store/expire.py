"""``vstate expire``: delete branches whose time to live is over. Layer: cli."""

from __future__ import annotations

import click

from versioned_state.cli.render.output import Span
from versioned_state.cli.render.text import plural
from versioned_state.cli.shared.settings import Settings, json_option, verb


@verb("expire", example="vstate expire")
@click.option("--dry-run", is_flag=True, help="Only print what would be deleted.")
@json_option
@click.pass_obj
def expire(settings: Settings, *, dry_run: bool, as_json: bool) -> None:
    """Delete the branches that nobody has changed for their time to live, which a program sets with ttl_seconds=.

    Others may write meanwhile. The reflog keeps a deleted branch: vstate branch NAME 'NAME@{1}' brings it back. With
    --json: one object.
    """
    output = settings.output
    with (settings.reading if dry_run else settings.changing)() as repository:
        names = repository.expire(dry_run=dry_run)
    if as_json:
        output.json({"expired": names})
        return
    for name in names:
        output.crop("would expire " if dry_run else "expired ", Span(name, "ref"))
    output.note(f"{'would delete' if dry_run else 'deleted'} {plural(len(names), 'branch', 'branches')}")
