"""``vstate squash``: one commit instead of several. Layer: cli."""

from __future__ import annotations

import click

from versioned_state.cli.shared.handle import author_option, handle, message_option, print_move
from versioned_state.cli.shared.settings import Settings, revision_argument, verb


@verb("squash", example="vstate squash HEAD~3 -m 'Plan the trip'")
@revision_argument("since", required=True)
@revision_argument("until", default="HEAD")
@message_option("the messages of the commits")
@author_option
@click.pass_obj
def squash(settings: Settings, since: str, until: str, *, message: str, author: str | None) -> None:
    """Combine the commits after SINCE up to UNTIL (default: HEAD) into one.

    The states of UNTIL and of later commits stay as they are.

    vstate undo takes it back.
    """
    with handle(settings, author) as state:
        before = state.head
        # The author of the handle, unless --author names one: later commits keep their own authors.
        head = state.squash(since, until, message=message, author=author)
        print_move(settings.output, state, before, head, nothing="that is one commit already")
