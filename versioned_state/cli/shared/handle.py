"""A state on the current branch, for the commands that move it, and the lines that report the move. Layer: cli."""

from __future__ import annotations

import getpass
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import takewhile
from typing import Any, Final

import click

from versioned_state.cli.render.changes import ON_A_SCREEN, stat_line
from versioned_state.cli.render.output import Line, Output, Span
from versioned_state.cli.render.text import first_line
from versioned_state.cli.shared.settings import Settings, parse_text
from versioned_state.cli.shared.store import Recorder
from versioned_state.repository.history.commit import Commit
from versioned_state.repository.history.graph import first_parents
from versioned_state.repository.views.diff import behind_line
from versioned_state.state.versioned import Versioned

_AUTHOR = "[default: $VSTATE_AUTHOR, or your login name]"

author_option: Final = click.option(
    "--author", type=parse_text, metavar="NAME", help=f"The author of the commit.  {_AUTHOR}"
)

mover_option: Final = click.option(
    "--author", type=parse_text, metavar="NAME", help=f"Who moves the branch, for the reflog.  {_AUTHOR}"
)


def message_option(default: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add the option ``-m TEXT``, whose help names the message that the commit has without it."""
    text = f"The message of the commit.  [default: {default}]"
    return click.option("-m", "--message", type=parse_text, default="", metavar="TEXT", help=text)


_NAMED: Final = 20
"""Commits that are listed one by one; more are counted."""


@contextmanager
def handle(settings: Settings, author: str | None = None, *, begin: bool = False) -> Iterator[Versioned]:
    """Open a state on the current branch for writing. Merging unpickles nothing.

    Args:
        begin: a store without commits gets its first one.

    Raises:
        UnknownRevisionError: there is no such branch. Nothing was changed.
    """
    with settings.changing() as repository:
        if not begin or next(iter(repository.branches), None) is not None:
            repository.commit("HEAD")  # a handle on a branch that does not exist would begin it
        yield Versioned(repository, branch=repository.default_branch(), author=author or user())


def user() -> str | None:
    """Return the author of commits unless an option names one: ``VSTATE_AUTHOR``, or the login name of this user."""
    try:
        return os.environ.get("VSTATE_AUTHOR") or getpass.getuser()
    except (OSError, KeyError, ImportError):  # a user without a name, as in a container
        return None


def print_effects_behind(output: Output, state: Versioned) -> None:
    """Print a note about each effect that lies behind the head, since undo and reset take back the state alone."""
    behind = state.status().effects
    for effect in behind:
        output.note(behind_line(effect))
    if any(effect.on_rollback for effect in behind):
        output.note(Span("vstate effects roll-back --using MODULE:FUNCTION calls their functions", "hint"))


def print_move(output: Output, state: Versioned, before: Commit, head: Commit, *, nothing: str) -> None:
    """Print ``[main 3f9c…] message`` and the number of changes or, if the branch did not move, a note that says why.

    Args:
        head: the commit that the call returned. Others may have moved the branch again since.
    """
    if head == before:
        output.note(nothing)
        return
    output.crop(*head_line(state.branch, head))
    _tell_stat(output, state, before, head)


def print_commits(output: Output, state: Versioned, head: Commit, *, nothing: str) -> None:
    """Print the commits of a call that may have made several, each on a line, oldest first.

    Commits that others made meanwhile, below those of the call, are left out.
    """
    database = state.repository.database
    assert isinstance(database, Recorder)
    made = list(takewhile(lambda commit: commit.id in database.made, first_parents(head, database.commits.read)))
    if not made:
        output.note(nothing)
        return
    if len(made) > _NAMED:
        output.print(f"and {len(made) - _NAMED:,} commits before these:")
    for commit in reversed(made[:_NAMED]):
        output.crop(*head_line(state.branch, commit))
    _tell_stat(output, state, database.commits.read(made[-1].parent_addresses[0]), head)


def _tell_stat(output: Output, state: Versioned, before: Commit, head: Commit) -> None:
    changed = state.repository.diff(before, head, limit=ON_A_SCREEN)
    if changed:
        output.crop(" ", *stat_line(changed.stat()), *([", and more"] if changed.more else []))


def head_line(branch: str, commit: Commit) -> Line:
    """Return a branch and its new commit on one line."""
    return ["[", Span(branch, "ref"), " ", Span(commit.short, "id"), "] ", first_line(commit.message)]
