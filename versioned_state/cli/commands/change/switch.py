"""``vstate switch``: choose the current branch. Layer: cli."""

from __future__ import annotations

import os

import click

from versioned_state.cli.render.output import Span
from versioned_state.cli.render.text import first_line
from versioned_state.cli.shared import current, store
from versioned_state.cli.shared.settings import Settings, complete_branch, complete_revision, verb


@verb("switch", "Choose the current branch.", example="vstate switch -c what-if main~3")
@click.argument("branch", shell_complete=complete_branch)
@click.argument("rev", default="HEAD", metavar="[REV]", shell_complete=complete_revision)
@click.option("-c", "--create", is_flag=True, help="Create it, at REV (default: HEAD).")
@click.pass_obj
def switch(settings: Settings, branch: str, rev: str, *, create: bool) -> None:
    """Make BRANCH the current one, which HEAD means and which commands move, until you switch again.

    The choice is yours alone: it is kept in your home directory for each store, and the store is not touched, unless -c creates the
    branch. --branch chooses for one command, VSTATE_BRANCH for a shell.
    """
    output = settings.output
    if create:
        with settings.changing() as repository:
            head = repository.branches.create(branch, rev)
    elif rev != "HEAD":
        raise click.UsageError("a REV goes with -c, which creates a branch there")
    else:
        with settings.reading() as repository:
            head = repository.branches[branch]
    current.choose(store.locate(settings.store), branch)
    output.crop("on ", Span(branch, "ref"), ", at ", Span(head.short, "id"), "  ", first_line(head.message))
    if os.environ.get("VSTATE_BRANCH"):
        output.note(Span("VSTATE_BRANCH is set, and goes before it", "hint"))
