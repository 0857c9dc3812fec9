"""``vstate cherry-pick``: the changes of other commits, repeated. Layer: cli."""

from __future__ import annotations

import click

from versioned_state.cli.shared.conflicts import Choices, attempt_of, resolution_options, resolved
from versioned_state.cli.shared.handle import handle, message_option, print_commits
from versioned_state.cli.shared.settings import Settings, revision_argument, verb


@verb("cherry-pick", example="vstate cherry-pick what-if~3..what-if")
@revision_argument("rev", required=True)
@resolution_options
@message_option("the message of each commit")
@click.option("--author", metavar="NAME", help="The author of the commits.  [default: the author of each commit]")
@click.pass_obj
def cherry_pick(
    settings: Settings,
    rev: str,
    *,
    chosen: Choices,
    message: str,
    author: str | None,
) -> None:
    """Commit the changes of REV again on the current branch, or with A..B those of each commit after A up to B.

    Messages and authors stay. A change that the branch already has makes no commit. Conflicts are resolved as in vstate
    merge.
    """
    output = settings.output
    with handle(settings) as state:
        run = attempt_of(lambda policies: state.cherry_pick(rev, message=message, author=author, policies=policies))
        head = resolved(output, f"picking {rev} onto {state.branch}", chosen, run)
        print_commits(output, state, head, nothing=f"{state.branch} has these changes already: no commit")
