"""Bisect: the first bad commit of a line, found by halving. Layer: repository."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from versioned_state.errors import InvalidArgumentError
from versioned_state.repository.history import graph

if TYPE_CHECKING:
    from versioned_state.repository.history.commit import Commit
    from versioned_state.repository.views.diff import Diff
    from versioned_state.repository.views.snapshot import Snapshot


class Skip(Exception):  # noqa: N818 - a message to bisect, as StopIteration is one to a loop
    """Raised by a predicate of ``bisect`` that cannot judge a commit."""


@dataclass(frozen=True, slots=True)
class Bisection:
    """The result of a bisect.

    Attributes:
        commit: the first bad commit: the one before it on the line is good, or was skipped.
        suspects: all commits that may be the first bad one, oldest first: the skipped ones right before ``commit``, and
            ``commit``.
        diff: the changes of ``commit`` against its first parent.
        steps: how often the predicate was called.
    """

    commit: Commit
    suspects: tuple[Commit, ...]
    diff: Diff
    steps: int

    @property
    def is_certain(self) -> bool:
        """Whether ``commit`` is certainly the first bad one: no commit before it was skipped."""
        return len(self.suspects) == 1


def bisect(
    first: Commit,
    last: Commit,
    is_bad: Callable[[Snapshot], object],
    *,
    read: graph.Read,
    snapshot: Callable[[Commit], Snapshot],
    diff: Callable[[Commit, Commit], Diff],
) -> Bisection:
    """Return the first bad commit on the line of first parents from a good commit to a bad one.

    Both ends are tested too, so that an inverted predicate is noticed at once. If the line changes between good and bad
    more than once, one of the changes from good to bad is found. Cost: two and O(log n) calls of the predicate over n
    commits, O(log n) reads to get to each, and what the predicate reads. More if the predicate skips, and all commits
    if it skips all.

    Args:
        first, last: the good commit, and the bad one.
        is_bad: whether a commit is bad. It raises ``Skip`` if it cannot tell.

    Raises:
        InvalidArgumentError: ``good`` does not come before ``bad`` by first parents, or is bad, or ``bad`` is good.
        UnknownRevisionError: the history between them was pruned.
    """
    _check_line(first, last, read)
    search = _Search(lambda height: graph.ancestor_at(last, height, read), lambda commit: is_bad(snapshot(commit)))
    if search.ask(first.height) is True:
        raise InvalidArgumentError(
            f"{first.short} is bad already, so the first bad commit is not after it",
            hint="begin with an earlier commit",
        )
    if search.ask(last.height) is False:
        raise InvalidArgumentError(
            f"{last.short} is good, so there is no bad commit to find", hint="is the condition the wrong way round?"
        )
    low, high = search.run(first.height, last.height)
    suspects = tuple(search.at(height) for height in range(low + 1, high + 1))
    commit = suspects[-1]
    parent = graph.first_parent_of(commit, read)
    assert parent is not None  # the good end of the line is an ancestor
    return Bisection(commit, suspects, diff(parent, commit), search.steps)


def _check_line(first: Commit, last: Commit, read: graph.Read) -> None:
    if first == last:
        raise InvalidArgumentError(f"{first.short} cannot be both the good and the bad commit")
    if first.height < last.height and graph.ancestor_at(last, first.height, read) == first:
        return
    if graph.is_ancestor(last, first, read):
        raise InvalidArgumentError(
            f"{first.short}, the good commit, comes after {last.short}, the bad one",
            hint="the good one must be the earlier one",
        )
    hint = "name a good commit on the line of first parents of the bad one, as vstate log --first-parent shows it"
    raise InvalidArgumentError(
        f"first parents do not lead from {last.short}, the bad commit, back to {first.short}, the good one", hint=hint
    )


class _Search:
    """A search along first parents: ``at`` returns the commit at a height, ``steps`` counts the questions."""

    def __init__(self, at: Callable[[int], Commit], is_bad: Callable[[Commit], object]) -> None:
        self.at = at
        self._is_bad = is_bad
        self._skipped: set[int] = set()
        self.steps = 0

    def ask(self, height: int) -> bool | None:
        """Return whether that commit is bad, or None if the predicate cannot tell."""
        self.steps += 1
        try:
            return bool(self._is_bad(self.at(height)))
        except Skip:
            self._skipped.add(height)
            return None

    def run(self, low: int, high: int) -> tuple[int, int]:
        """Return the heights of a good commit and a bad one with only skipped commits between them."""
        while True:
            height = next((height for height in _halves(low, high) if height not in self._skipped), None)
            if height is None:
                return low, high
            verdict = self.ask(height)
            if verdict is not None:
                low, high = (low, height) if verdict else (height, high)


def _halves(low: int, high: int) -> Iterator[int]:
    """Yield the heights between two heights: the middle, then the middles of both halves, and so on."""
    pending = deque([(low, high)])
    while pending:
        low, high = pending.popleft()
        if high - low > 1:
            middle = (low + high) // 2
            yield middle
            pending += ((low, middle), (middle, high))
