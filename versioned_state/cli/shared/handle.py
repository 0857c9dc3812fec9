"""A state on the current branch, for the commands that move it; and how they tell where it stands then. Layer: cli."""

from __future__ import annotations

import getpass
import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import takewhile

import click

from versioned_state.cli.render.output import Line, Output, Span
from versioned_state.cli.render.text import first_line, stat_line
from versioned_state.cli.shared.settings import Settings
from versioned_state.cli.shared.store import Recorder
from versioned_state.repository.history.commit import Commit
from versioned_state.repository.history.graph import first_parents
from versioned_state.state.versioned import Versioned

author_option = click.option("--author", metavar="NAME", help="Who commits.  [default: $VSTATE_AUTHOR, or your name here]")

message_option = click.option("-m", "--message", default="", metavar="TEXT", help="The message of the commit.")

_NAMED = 20
"""Commits that are told one by one; more are counted."""


@contextmanager
def handle(settings: Settings, author: str | None = None) -> Iterator[Versioned]:
    """A state on the current branch, which must have commits, for writing. What it merges it does not unpickle.

    Raises:
        UnknownRevisionError: there is no such branch. Nothing was made.
    """
    with settings.changing() as repository:
        repository.commit("HEAD")  # a handle on a branch that is not there would begin one
        yield Versioned(repository, branch=repository.default_branch(), author=author or user())


def user() -> str | None:
    """Who commits, unless an option says otherwise: ``VSTATE_AUTHOR``, or the name by which this user logged in."""
    try:
        return os.environ.get("VSTATE_AUTHOR") or getpass.getuser()
    except (OSError, KeyError, ImportError):  # a user without a name, as in a container
        return None


def tell_move(output: Output, state: Versioned, before: Commit, head: Commit, *, nothing: str) -> None:
    """``[main 3f9c…] message``, then how much changed; or, where the branch did not move, a note that says why.

    Args:
        head: what the call returned that may have moved the branch. Where others move it as well, it need not be there any more.
    """
    if head == before:
        output.note(nothing)
        return
    output.crop(*head_line(state.branch, head))
    _tell_stat(output, state, before, head)


def tell_made(output: Output, state: Versioned, head: Commit, *, nothing: str) -> None:
    """The same for a call that may have made commits on top of what was there: each on a line, oldest first.

    What others committed meanwhile, and the call put its own on top of, is not told.
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
    changed = state.repository.diff(before, head)
    if changed:
        output.crop(" ", *stat_line(changed.stat()))


def head_line(branch: str, commit: Commit) -> Line:
    """A branch, and a commit that it got, on one line."""
    return ["[", Span(branch, "ref"), " ", Span(commit.short, "id"), "] ", first_line(commit.message)]
