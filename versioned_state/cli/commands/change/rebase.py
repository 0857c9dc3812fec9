"""``vstate rebase``: the commits of the current branch on top of another one. Layer: cli."""

from __future__ import annotations

import click

from versioned_state.cli.shared.conflicts import Choices, attempt_of, resolution_options, resolved
from versioned_state.cli.shared.handle import handle, mover_option, print_move
from versioned_state.cli.shared.settings import Settings, revision_argument, verb


@verb("rebase", example="vstate -b what-if rebase main")
@revision_argument("onto", required=True)
@resolution_options
@mover_option
@click.pass_obj
def rebase(
    settings: Settings,
    onto: str,
    *,
    chosen: Choices,
    author: str | None,
) -> None:
    """Repeat the commits that the current branch has and ONTO has not on top of ONTO, and move the branch there.

    Messages and authors stay. In a conflict, ours is the new base, and theirs the commit that is repeated. Conflicts
    are resolved as in vstate merge; one resolution holds for every commit. vstate undo takes the rebase back.
    """
    output = settings.output
    with handle(settings, author) as state:
        before = state.head
        run = attempt_of(lambda policies: state.rebase(onto, policies=policies))
        head = resolved(output, f"rebasing {state.branch} onto {onto}", chosen, run)
        print_move(output, state, before, head, nothing=f"{state.branch} is based on {onto} already")
