"""Results that are iterators or lists, and show themselves in a notebook. Layer: repository."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Self, cast

from versioned_state.repository.history.commit import Commit

if TYPE_CHECKING:  # a log in a terminal needs neither
    from versioned_state.repository.inspect.blame import Blame
    from versioned_state.repository.inspect.grep import Match
    from versioned_state.repository.inspect.path_log import PathChange, PathLog
    from versioned_state.values.paths.path import StatePath


class Bound:
    """The end of a log: after a number of commits, or after a time.

    Args:
        limit: the most commits to take, or None.
        deadline: the seconds for which commits are examined, from the first one on, or None.

    Attributes:
        complete: whether neither has ended the log so far.
    """

    def __init__(self, limit: int | None = None, deadline: float | None = None) -> None:
        self._limit = limit
        self._deadline = deadline
        self.complete: bool = True

    def again(self) -> Bound:
        """Return the same bound of another walk."""
        return Bound(self._limit, self._deadline)

    def examined(self, commits: Iterable[Commit]) -> Iterator[Commit]:
        """Yield commits until the time is over, but one at least."""
        if self._deadline is None:
            yield from commits
            return
        until = time.monotonic() + self._deadline
        for commit in commits:
            yield commit
            if time.monotonic() >= until:
                self.complete = False
                return

    def taken(self, commits: Iterator[Commit]) -> Iterator[Commit]:
        """Yield as many commits as may be taken. No further one is looked for."""
        if self._limit is None:
            yield from commits
            return
        for _ in range(self._limit):
            commit = next(commits, None)
            if commit is None:
                return
            yield commit
        self.complete = False


class _Walk:
    """Results, each found when it is taken. Showing them in a notebook consumes none of them.

    Args:
        walk: begins at the first one each time.
    """

    def __init__(self, walk: Callable[[], Iterator[Any]]) -> None:
        self._walk = walk
        self._results = walk()

    def __iter__(self) -> Self:
        return self


class History(_Walk, Iterator["PathChange"]):
    """The commits that changed the value at a path, newest first."""

    _results: PathLog

    @property
    def complete(self) -> bool:
        """Whether no deadline has ended it: false if it ended there, and there may be more changes."""
        return self._results.complete

    @property
    def rest(self) -> list[tuple[Commit, StatePath]]:
        """The commits at which the changes that were not taken begin, each with the path there.

        ``history(path, commit)`` goes on from one.
        """
        return self._results.rest

    def __next__(self) -> PathChange:
        return next(self._results)

    def __repr__(self) -> str:
        return "<History: iterate it for the changes of a path, newest first>"

    def _repr_html_(self) -> str:
        from versioned_state.repository.shown import notebook_values

        return notebook_values.history(self._walk())


class Matches(_Walk, Iterator["Match"]):
    """The lines of a state that match a regular expression, by path."""

    def __next__(self) -> Match:
        return cast("Match", next(self._results))

    def __repr__(self) -> str:
        return "<Matches: iterate it for the lines that match, by path>"

    def _repr_html_(self) -> str:
        from versioned_state.repository.shown import notebook_values

        return notebook_values.matches(self._walk())


class Log(Iterator[Commit]):
    """Commits, newest first, each read when it is taken. Showing a log in a notebook consumes none of it.

    Args:
        walk: begins at the first commit each time.
        bound: where it ends.
    """

    def __init__(self, walk: Callable[[Bound], Iterator[Commit]], bound: Bound) -> None:
        self._walk = walk
        self._bound = bound
        self._commits = walk(bound)

    @property
    def complete(self) -> bool:
        """Whether no limit or deadline has ended the log. If it is false, there may be more commits."""
        return self._bound.complete

    def __repr__(self) -> str:
        return "<Log: iterate it for its commits, newest first>"

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Commit:
        return next(self._commits)

    def _repr_html_(self) -> str:
        from versioned_state.repository.shown import notebook

        return notebook.log(self._walk(self._bound.again()), "log")


class BlameList(list["Blame"]):
    """The parts of a value in their order, each with its commit."""

    @property
    def complete(self) -> bool:
        """Whether the commits of all parts are known: false if a deadline ended the search."""
        return all(part.complete for part in self)

    def _repr_html_(self) -> str:
        from versioned_state.repository.shown import notebook_values

        return notebook_values.blame(self)
