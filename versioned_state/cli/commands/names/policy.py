"""``vstate policy``: the merge policies that a repository keeps. Layer: cli."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from versioned_state.cli.render.output import Span
from versioned_state.cli.shared.settings import Settings, json_option, verb
from versioned_state.errors import InvalidArgumentError
from versioned_state.repository.merging.policies import NAMES


@verb("policy", example="vstate policy 'users.*.score' sum")
@click.argument("pattern", required=False)
@click.argument("name", required=False, type=click.Choice(NAMES), metavar="[NAME]")
@click.option("-d", "--delete", is_flag=True, help="Remove the policy of PATTERN.")
@json_option
@click.pass_obj
def policy(settings: Settings, pattern: str | None, name: Any, *, delete: bool, as_json: bool) -> None:
    """Show the merge policies that the repository keeps for everybody, or set the policy of PATTERN to NAME.

    \b
    ours, theirs  take that side
    union         keep the elements of both sides, each once
    append        keep the elements of both sides, all, the older first
    sum           add up both changes of a number
    max, min      take the greater, or the lesser, of two numbers
    text          merge a text by lines, which is the default

    PATTERN is a path in which * stands for any one step and ** for any number of them: messages, users.*.score, **.log.
    If several match, the one that was set last decides. With --json: one object.
    """  # noqa: D301 - the escape is click's mark for lines that stay as they are
    if (name or delete) and pattern is None:
        raise click.UsageError("name the PATTERN of the policy")
    if name and delete:
        raise click.UsageError("NAME and --delete exclude each other")
    output = settings.output
    if name or delete:
        assert pattern is not None
        with settings.changing() as repository:
            if delete:
                _check_kept(pattern, repository.merge_policies)
            repository.set_merge_policy(pattern, name)
        return
    with settings.reading() as repository:
        kept = repository.merge_policies
    if pattern is not None:
        _check_kept(pattern, kept)
        kept = {pattern: kept[pattern]}
    if as_json:
        output.json(kept)
    else:
        output.lines([Span(each, "path"), " = ", named] for each, named in kept.items())


def _check_kept(pattern: str, kept: Mapping[str, str]) -> None:
    if pattern not in kept:
        raise InvalidArgumentError(f"there is no policy for {pattern}", hint="vstate policy lists the policies")
