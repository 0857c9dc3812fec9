"""``vstate redo``: repeat moves that undo took back. Layer: cli."""

from __future__ import annotations

import click

from versioned_state.cli.commands.change.undo import NOTHING, explained, steps_argument
from versioned_state.cli.shared.handle import handle, mover_option, print_move
from versioned_state.cli.shared.settings import Settings, verb


@verb("redo", example="vstate redo")
@steps_argument
@mover_option
@click.pass_obj
def redo(settings: Settings, steps: int, *, author: str | None) -> None:
    """Repeat the last move that vstate undo took back, or the last COUNT moves."""
    with handle(settings, author) as state:
        before = state.head
        with explained():
            head = state.redo(steps)
        print_move(settings.output, state, before, head, nothing=NOTHING)
