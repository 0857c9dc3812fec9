"""``vstate view``: a state at a glance. Layer: cli."""

from __future__ import annotations

import click

from versioned_state.agents.view import view as view_of
from versioned_state.cli.shared.place import explained
from versioned_state.cli.shared.settings import Settings, json_option, revision_argument, verb


@verb("view", example="vstate view main~3 --full")
@revision_argument("rev", default="HEAD")
@click.option("--full", is_flag=True, help="Show the keys in order, and each value as a whole while there is room.")
@click.option(
    "--budget",
    type=click.IntRange(min=1),
    default=4000,
    show_default=True,
    metavar="COUNT",
    help="The most characters to show.",
)
@json_option
@click.pass_obj
def view(settings: Settings, rev: str, *, full: bool, budget: int, as_json: bool) -> None:
    """Show what an agent knew at REV (default: HEAD).

    The keys that changed last come first, and a long list shows its newest elements.

    With --json: one object with the text.
    """
    output = settings.output
    with settings.reading() as repository, output.paged(unless=as_json), explained(repository, "vstate view", rev, ""):
        text = view_of(repository.snapshot(rev, describe=True), "full" if full else "recent", budget)
    if as_json:
        output.json({"view": text})
        return
    for line in text.splitlines():
        output.print(line)
