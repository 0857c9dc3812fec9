"""Following a branch: what ``log -f`` and ``events -f`` do until Ctrl-C. Layer: cli."""

from __future__ import annotations

import time
from typing import Final

from versioned_state.cli.render.output import Output
from versioned_state.cli.shared.settings import Settings
from versioned_state.errors import InvalidArgumentError, UnknownRevisionError
from versioned_state.repository.repository import Repository

PAUSE_S: Final = 0.5
"""Between two looks at a branch that is followed."""


def begin_to_follow(settings: Settings, repository: Repository, rev: str) -> None:
    """Wait for the first commit of a store. From here on Ctrl-C ends the command quietly.

    Raises ``InvalidArgumentError`` if the revision is not a branch.
    """
    settings.is_endless = True
    _wait_for_commit(repository, settings.output, rev)
    if rev != "HEAD" and rev not in repository.branches:
        raise InvalidArgumentError(f"--follow takes a branch, not {rev!r}", hint="vstate branch lists them")


def _wait_for_commit(repository: Repository, output: Output, rev: str) -> None:
    """Wait until a store that is still without a commit has one: a program that makes it may begin later."""
    told = False
    while True:
        try:
            repository.commit(rev)
        except UnknownRevisionError as error:
            if not error.is_empty and next(iter(repository.branches), None) is not None:
                return  # the caller's own read says what is wrong
        else:
            return
        if not told:
            output.note("there are no commits yet: waiting for the first one")
            told = True
        time.sleep(PAUSE_S)
