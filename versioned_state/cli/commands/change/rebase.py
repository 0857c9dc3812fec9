"""``vstate rebase``: the commits of the current branch on top of another one. Layer: cli."""

from __future__ import annotations

import click

from versioned_state.cli.shared.conflicts import Choices, attempt_of, settle_options, settled
from versioned_state.cli.shared.handle import author_option, handle, tell_move
from versioned_state.cli.shared.settings import Settings, revision_argument, verb


@verb("rebase", "Make the commits of a branch again on top of another.", example="vstate -b what-if rebase main")
@revision_argument("onto", required=True)
@settle_options
@author_option
@click.pass_obj
def rebase(
    settings: Settings,
    onto: str,
    *,
    chosen: Choices,
    author: str | None,
) -> None:
    """Make the commits that the current branch has over ONTO again on top of that, and move the branch there; vstate undo takes it back.

    Messages and authors stay. In a conflict, ours is what is there by then, and theirs what the commit changed. It is settled as in
    vstate merge, and the same choice holds for each commit.
    """
    output = settings.output
    with handle(settings, author) as state:
        before = state.head
        run = attempt_of(lambda policies: state.rebase(onto, policies=policies))
        head = settled(output, f"rebasing {state.branch} onto {onto}", chosen, run)
        tell_move(output, state, before, head, nothing=f"{state.branch} stands on that already")
