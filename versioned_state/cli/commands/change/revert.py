"""``vstate revert``: the opposite of earlier changes. Layer: cli."""

from __future__ import annotations

import click

from versioned_state.cli.shared.conflicts import Choices, attempt_of, resolution_options, resolved
from versioned_state.cli.shared.handle import author_option, handle, message_option, print_commits
from versioned_state.cli.shared.settings import Settings, revision_argument, verb


@verb("revert", "Commit the opposite of earlier changes.", example="vstate revert HEAD~2")
@revision_argument("rev", required=True)
@resolution_options
@message_option("revert ID: MESSAGE")
@author_option
@click.pass_obj
def revert(
    settings: Settings,
    rev: str,
    *,
    chosen: Choices,
    message: str,
    author: str | None,
) -> None:
    """Commit the opposite of the changes of the commit REV, or with A..B of each commit after A up to B, the newest first.

    Later changes stay. If one of them is in the way, that is a conflict, which is resolved as in vstate merge.
    """
    output = settings.output
    with handle(settings, author) as state:
        run = attempt_of(lambda policies: state.revert(rev, message=message, policies=policies))
        head = resolved(output, f"reverting {rev} on {state.branch}", chosen, run)
        print_commits(output, state, head, nothing=f"{state.branch} has none of these changes: no commit")
