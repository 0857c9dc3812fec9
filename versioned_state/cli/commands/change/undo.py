"""``vstate undo``: take back moves of the current branch. Layer: cli."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import click

from versioned_state.cli.shared.handle import handle, mover_option, print_effects_behind, print_move
from versioned_state.cli.shared.settings import Settings, verb
from versioned_state.errors import StateError, UnknownRevisionError

NOTHING: Final = "that move ended where it began: nothing to change"

steps_argument: Final = click.argument("steps", type=click.IntRange(min=1), default=1, metavar="[COUNT]")


@verb("undo", example="vstate undo 2")
@steps_argument
@mover_option
@click.pass_obj
def undo(settings: Settings, steps: int, *, author: str | None) -> None:
    """Take back the last move of the current branch, or the last COUNT moves: commits, merges, resets, rebases.

    vstate redo repeats them, as long as nothing was committed since. vstate reflog lists the moves.
    """
    with handle(settings, author) as state:
        before = state.head
        with explained():
            head = state.undo(steps)
        print_move(settings.output, state, before, head, nothing=NOTHING)
        print_effects_behind(settings.output, state)


@contextmanager
def explained() -> Iterator[None]:
    """Point at the moves if there are too few, instead of at a revision that was not typed."""
    try:
        yield
    except UnknownRevisionError as error:
        raise StateError(error.what, hint="vstate reflog lists the moves") from error
