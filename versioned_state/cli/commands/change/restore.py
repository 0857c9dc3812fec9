"""``vstate restore``: what is at one path, as it was. Layer: cli."""

from __future__ import annotations

import click

from versioned_state.cli.shared.handle import author_option, handle, message_option, tell_made
from versioned_state.cli.shared.hints import message_of
from versioned_state.cli.shared.place import value_at
from versioned_state.cli.shared.settings import Settings, complete_revision, verb
from versioned_state.errors import PickleRefusedError, StateError, UnknownPathError


@verb("restore", "Bring what is at a path back to what it was.", example="vstate restore plan --from HEAD~5")
@click.argument("path")
@click.option(
    "--from", "rev", required=True, metavar="REV", shell_complete=complete_revision, help="The commit that has it as it should be."
)
@message_option
@author_option
@click.pass_obj
def restore(settings: Settings, path: str, *, rev: str, message: str, author: str | None) -> None:
    """Commit what is at PATH as it was in REV, and leave everything else as it is. Where there was nothing, it is removed."""
    with handle(settings, author) as state:
        before = state.head
        try:
            state.restore(path, rev)
        except PickleRefusedError as error:
            raise StateError(message_of(error), hint=f"vstate never unpickles; in Python: state.restore({path!r}, at={rev!r})") from error
        except UnknownPathError:
            # It is in neither; what comes near is said as for any path.
            value_at(state.repository.snapshot(before, describe=True), path)
            raise
        head = state.commit(message or f"restore {path} from {rev}")
        tell_made(settings.output, state, head, nothing=f"{path} is what it was in {rev}: no commit")
