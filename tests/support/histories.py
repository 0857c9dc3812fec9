"""Histories for tests: a clock under control, random commit graphs, and the ancestors that a plain walk finds."""

from __future__ import annotations

import random
from collections.abc import Iterable

from versioned_state import Commit, Repository, Versioned
from versioned_state.objects.store import Staging
from versioned_state.repository.history.commit import ROOT_ID

SECOND = 1_000_000


class Clock:
    """Microseconds that pass only when they are looked at, a step at each look, or when a test sleeps."""

    def __init__(self, now: int = 1_700_000_000_000_000, *, step: int = SECOND) -> None:
        self.now = now
        self.step = step

    def __call__(self) -> int:
        self.now += self.step
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += int(seconds * SECOND)


def numbered(state: Versioned, numbers: Iterable[int], *, key: str = "n") -> list[Commit]:
    """Commit each number as the value of a key, and as the message."""
    commits = []
    for number in numbers:
        state[key] = number
        commits.append(state.commit(str(number)))
    return commits


def make_graph(repository: Repository, size: int, *, merges: float, seed: int) -> list[Commit]:
    """Commits at random: each on top of an earlier one, or a merge of two."""
    rng = random.Random(seed)
    commits = [repository.commit(ROOT_ID)]
    for n in range(size):
        parents = [rng.choice(commits[-6:])]
        if rng.random() < merges:
            other = rng.choice(commits)
            if other not in parents:
                parents.append(other)
        staging = Staging(repository.database.objects)
        commits.append(
            repository.database.write_commit(commits[0].tree, tuple(parents), staging=staging, message=str(n))
        )
        repository.store.apply({}, {}, objects=staging.sealed())
    return commits


def ancestors(repository: Repository, commit: Commit) -> set[str]:
    """Return the ids of a commit and all its ancestors, found by looking at every parent."""
    seen: set[str] = set()
    stack = [commit.id]
    while stack:
        id = stack.pop()
        if id not in seen:
            seen.add(id)
            stack += repository.commit(id).parents
    return seen
