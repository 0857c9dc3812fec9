"""``vstate squash``: one commit of several. Layer: cli."""

from __future__ import annotations

import click

from versioned_state.cli.shared.handle import author_option, handle, message_option, tell_move
from versioned_state.cli.shared.settings import Settings, revision_argument, verb


@verb("squash", "Make one commit of several.", example="vstate squash HEAD~3 -m 'Plan the trip'")
@revision_argument("since", required=True)
@revision_argument("until", default="HEAD")
@message_option
@author_option
@click.pass_obj
def squash(settings: Settings, since: str, until: str, *, message: str, author: str | None) -> None:
    """Make one commit of those after SINCE up to UNTIL (default: HEAD). The states of UNTIL and of what follows stay as they are.

    Without a message it gets those of the commits. vstate undo takes it back.
    """
    with handle(settings, author) as state:
        before = state.head
        # The handle's author made it, unless the commits that follow say otherwise.
        head = state.squash(since, until, message=message, author=author)
        tell_move(settings.output, state, before, head, nothing="that is one commit already")
