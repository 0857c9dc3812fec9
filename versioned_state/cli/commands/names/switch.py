"""``vstate switch``: choose the current branch. Layer: cli."""

from __future__ import annotations

import os
from shlex import quote

import click

from versioned_state.cli.render.output import Span
from versioned_state.cli.render.text import first_line
from versioned_state.cli.shared import completion, current, store
from versioned_state.cli.shared.settings import Settings, verb
from versioned_state.errors import InvalidArgumentError, UnknownRevisionError


@verb("switch", example="vstate switch -c what-if main~3")
@click.argument("branch", shell_complete=completion.branch)
@click.argument("rev", default="HEAD", metavar="[REV]", shell_complete=completion.revision)
@click.option("-c", "--create", is_flag=True, help="Create BRANCH first, at REV (default: HEAD).")
@click.pass_obj
def switch(settings: Settings, branch: str, rev: str, *, create: bool) -> None:
    """Make BRANCH the current one, which HEAD means and commands move, until you switch again. - is the previous one.

    The choice is yours alone: your home directory keeps it for each store. The store does not change, unless -c creates
    the branch. --branch chooses for one command, VSTATE_BRANCH for a shell.
    """
    output = settings.output
    url = store.locate(settings.store)
    if create:
        with settings.changing() as repository:
            here = repository.default_branch()
            head = repository.branches.create(branch, rev)
    elif rev != "HEAD":
        raise click.UsageError(f"-c creates a branch at a REV: vstate switch -c {branch} {rev}")
    else:
        with settings.reading() as repository:
            here = repository.default_branch()
            branch = _before(url) if branch == "-" else branch
            try:
                head = repository.branches[branch]
            except UnknownRevisionError as error:
                if branch in repository.tags:
                    hint = f"vstate switch -c NAME {branch} begins a branch there"
                    raise InvalidArgumentError(f"{branch} is a tag, not a branch", hint=hint) from error
                error.hint = f"vstate switch -c {quote(branch)} creates it"
                raise
    current.choose(url, branch, before=here)
    output.crop("on ", Span(branch, "ref"), ", at ", Span(head.short, "id"), "  ", first_line(head.message))
    if os.environ.get("VSTATE_BRANCH"):
        output.note(Span("VSTATE_BRANCH is set, and overrides it", "hint"))


def _before(url: str) -> str:
    branch = current.before(url)
    if branch is None:
        raise InvalidArgumentError("there is no branch before the current one", hint="vstate branch lists the branches")
    return branch
