"""``vstate cherry-pick`` and ``vstate revert``: what commits changed, made again or taken back. Layer: cli."""

from __future__ import annotations

import click

from versioned_state.cli.shared.conflicts import Choices, attempt_of, settle_options, settled
from versioned_state.cli.shared.handle import author_option, handle, message_option, tell_made
from versioned_state.cli.shared.settings import Settings, revision_argument, verb


@verb("cherry-pick", "Make what other commits changed again here.", example="vstate cherry-pick what-if~3..what-if")
@revision_argument("rev", required=True)
@settle_options
@message_option
@click.option("--author", metavar="NAME", help="Who commits.  [default: the author of each commit]")
@click.pass_obj
def cherry_pick(
    settings: Settings,
    rev: str,
    *,
    chosen: Choices,
    message: str,
    author: str | None,
) -> None:
    """Commit what the commit REV changed on the current branch again; with A..B what each commit after A up to B did.

    Messages and authors stay those of the commits. What is there already makes no commit. Conflicts are settled as in vstate merge.
    """
    output = settings.output
    with handle(settings) as state:
        run = attempt_of(lambda policies: state.cherry_pick(rev, message=message, author=author, policies=policies))
        head = settled(output, f"picking {rev} onto {state.branch}", chosen, run)
        tell_made(output, state, head, nothing=f"{state.branch} has that already: no commit")


@verb("revert", "Commit the opposite of what commits changed.", example="vstate revert HEAD~2")
@revision_argument("rev", required=True)
@settle_options
@message_option
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
    """Commit the opposite of what the commit REV changed; with A..B that of each commit after A up to B, the newest first.

    What was changed since stays; where that is in the way it is a conflict, which is settled as in vstate merge.
    """
    output = settings.output
    with handle(settings, author) as state:
        run = attempt_of(lambda policies: state.revert(rev, message=message, policies=policies))
        head = settled(output, f"reverting {rev} on {state.branch}", chosen, run)
        tell_made(output, state, head, nothing=f"{state.branch} has none of that: no commit")
