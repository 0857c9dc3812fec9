"""``vstate undo`` and ``vstate redo``: moves of the current branch, taken back and brought back. Layer: cli."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click

from versioned_state.cli.shared.handle import author_option, handle, tell_move
from versioned_state.cli.shared.settings import Settings, verb
from versioned_state.errors import StateError, UnknownRevisionError

_steps = click.argument("steps", type=click.IntRange(min=1), default=1, metavar="[COUNT]")


@verb("undo", "Take back the last move of the current branch.", example="vstate undo 2")
@_steps
@author_option
@click.pass_obj
def undo(settings: Settings, steps: int, *, author: str | None) -> None:
    """Take back the last move of the current branch, or the last COUNT, whatever they were: a commit, a merge, a reset, a rebase.

    vstate redo brings it back, as long as nothing was committed since. vstate reflog lists the moves.
    """
    with handle(settings, author) as state:
        before = state.head
        with _explained(steps, "undo"):
            head = state.undo(steps)
        tell_move(settings.output, state, before, head, nothing="that move led to where it began: nothing to change")


@verb("redo", "Bring back what undo took back.", example="vstate redo")
@_steps
@author_option
@click.pass_obj
def redo(settings: Settings, steps: int, *, author: str | None) -> None:
    """Bring back the last move that vstate undo took back, or the last COUNT."""
    with handle(settings, author) as state:
        before = state.head
        with _explained(steps, "redo"):
            head = state.redo(steps)
        tell_move(settings.output, state, before, head, nothing="that move led to where it began: nothing to change")


@contextmanager
def _explained(steps: int, call: str) -> Iterator[None]:
    try:
        yield
    except UnknownRevisionError as error:
        message = f"there is nothing to {call}" if steps == 1 else f"there are not {steps:,} moves to {call}"
        raise StateError(message, hint="vstate reflog lists the moves") from error
