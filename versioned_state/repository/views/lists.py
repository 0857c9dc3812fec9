"""Results that are iterators or lists, and are shown as tables in a notebook. Layer: repository."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Self

from versioned_state.repository.history.commit import Commit

if TYPE_CHECKING:  # a log in a terminal needs neither
    from versioned_state.repository.inspect.blame import Blame


class Log(Iterator[Commit]):
    """Commits, newest first, each read when it is taken. Showing a log in a notebook consumes none of it.

    Args:
        walk: begins at the first commit each time.
    """

    def __init__(self, walk: Callable[[], Iterator[Commit]]) -> None:
        self._walk = walk
        self._commits = walk()

    def __repr__(self) -> str:
        return "<Log: iterate it for its commits, newest first>"

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Commit:
        return next(self._commits)

    def _repr_html_(self) -> str:
        from versioned_state.repository.views.html import commits_table

        return commits_table(self._walk(), caption="log")


class BlameList(list["Blame"]):
    """The parts of a value in their order, each with its commit."""

    def _repr_html_(self) -> str:
        from versioned_state.repository.views.html import blame_table

        return blame_table(self)
