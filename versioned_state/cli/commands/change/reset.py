"""``vstate reset``: the current branch moves to another commit. Layer: cli."""

from __future__ import annotations

import click

from versioned_state.cli.render.output import Span
from versioned_state.cli.shared.handle import handle, mover_option, print_effects_behind, print_move
from versioned_state.cli.shared.settings import Settings, revision_argument, verb


@verb("reset", example="vstate reset main~2")
@revision_argument("rev", required=True)
# git's: a branch has no files that could stay behind
@click.option("--hard", is_flag=True, hidden=True, expose_value=False)
@click.option("--soft", "--mixed", "unstaged", is_flag=True, hidden=True)
@mover_option
@click.pass_obj
def reset(settings: Settings, rev: str, *, unstaged: bool, author: str | None) -> None:
    """Move the current branch to REV.

    Commits that only this branch had are no longer part of it. vstate undo brings them back.
    """
    if unstaged:
        raise click.UsageError(
            "a reset moves the branch and its state: vstate squash combines commits and keeps the state"
        )
    output = settings.output
    with handle(settings, author) as state:
        before = state.head
        head = state.reset(rev)
        print_move(output, state, before, head, nothing=f"{state.branch} is at {rev} already")
        if head != before:
            output.note(Span("vstate undo takes it back", "hint"))
        print_effects_behind(output, state)
