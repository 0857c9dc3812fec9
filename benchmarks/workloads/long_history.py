"""A long history of a large state, made the same way on ours and on kvgit: what the workload ``history`` looks back in.

kvgit has the same keys, the same commits and the same branches, but no list: it would store the list again in each commit, 10 MB each
time.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.data import Data
from benchmarks.sides import OURS
from benchmarks.workloads.keys import state_of
from versioned_state import Disk, Versioned

KVGIT = "kvgit"
LINE, TIP, ASIDE = "main", "long", "aside"
"""Branches: the first half of the commits, all of them, and one commit of its own on the first half."""


@dataclass(frozen=True)
class Sizes:
    """How large the history is."""

    keys: int
    messages: int
    commits: int
    turns: int = 10
    edits: int = 5
    blamed: int = 50
    gc_turns: int = 1
    """One: kvgit's gc takes minutes."""
    what_if: int = 100
    """Commits of each branch that is deleted before gc. Of one branch of 5,000 kvgit's gc walks what its commits share once for each of
    them: it had taken 5 minutes and 2.6 GB when it was stopped."""
    counted: int = 3
    """Times that each question is asked again over a ``Counting``, which costs time itself."""

    @property
    def half(self) -> int:
        return self.commits // 2

    @property
    def asked(self) -> int:
        """Times that each question is asked in all; each merge has branches of its own."""
        return self.turns + self.counted

    def what_ifs(self) -> Iterator[tuple[str, int, range]]:
        """The branches that become garbage, as many commits as are kept: name, how far back it begins, and the numbers of its commits."""
        for count, first in enumerate(range(self.half, self.commits, self.what_if)):
            yield f"what-if-{count}", count * self.what_if // 2 % self.half, range(first, min(first + self.what_if, self.commits))


FULL = Sizes(keys=100_000, messages=10_000, commits=10_000)
QUICK = Sizes(keys=1000, messages=200, commits=200, turns=2, blamed=10, what_if=10)


@dataclass(frozen=True)
class Edits:
    """What is done to the state: by the number of the commit, and on each side of a merge."""

    sizes: Sizes
    data: Data

    def of_commit(self, number: int) -> tuple[str, dict[str, Any], Any]:
        """A key, its new value, and a message to append."""
        key = f"item-{random.Random(number).randrange(self.sizes.keys):06}"
        return key, {"id": number, "score": -1, "tag": "changed in a commit"}, self.data.messages(1, start=self.sizes.messages + number)[0]

    def of_side(self, turn: int, side: str) -> dict[str, Any]:
        """What one side of a merge sets: other keys than the other side, and than in other turns."""
        keys = random.Random(1).sample(range(self.sizes.keys), 2 * self.sizes.edits * self.sizes.asked)
        first = (2 * turn + (side == "theirs")) * self.sizes.edits
        return {f"item-{key:06}": {"id": key, "score": -2, "tag": side} for key in keys[first : first + self.sizes.edits]}

    def messages_of_side(self, turn: int, side: str) -> tuple[int, Any]:
        """A place in the list, and what is put there."""
        count = self.sizes.messages
        return (count * (turn + 1) // (self.sizes.asked + 2) + (side == "theirs") * count // 50), {"role": "user", "content": side * 100}


# Making the history. Each part takes the branches from where the part before it left them.


def _begin_ours(folder: Path, edits: Edits) -> list[str]:
    """The first half of the commits, on ``LINE``; their ids."""
    with Versioned(Disk(folder)) as state:
        state.update(state_of(edits.sizes.keys))
        state["messages"] = edits.data.messages(edits.sizes.messages)
        state.commit("all of it")
    # Opened anew, since the handle that made the state watches all of it.
    with Versioned(Disk(folder)) as state:
        return _commit_ours(state, edits, range(edits.sizes.half))


def _commit_ours(state: Versioned, edits: Edits, numbers: Iterable[int]) -> list[str]:
    ids: list[str] = []
    for number in numbers:
        key, value, message = edits.of_commit(number)
        state[key] = value
        state.sequence("messages").append(message)
        ids.append(state.commit(f"commit {number}").id)
        state.release(key)
    return ids


def _go_on_ours(folder: Path, edits: Edits) -> list[str]:
    """The second half, on ``TIP``, and branches to merge."""
    with Versioned(Disk(folder)) as state:
        state.switch(TIP, create=True)
        ids = _commit_ours(state, edits, range(edits.sizes.half, edits.sizes.commits))
        with state.fork(ASIDE, at=LINE) as aside:
            aside["item-000000"] = ASIDE
            aside.commit()
        for turn, side in _sides(edits.sizes):
            with state.fork(f"{side}-keys-{turn}") as fork:
                fork.update(edits.of_side(turn, side))
                fork.commit()
        # With the list in memory a round costs more, so that comes last, on one handle: the list is loaded once.
        messages = state["messages"]
        for turn, side in _sides(edits.sizes):
            state.switch(TIP)
            state.switch(f"{side}-both-{turn}", create=True)
            state.update(edits.of_side(turn, side))
            index, message = edits.messages_of_side(turn, side)
            messages[index] = message
            state.commit()
    return ids


def _abandon_ours(folder: Path, edits: Edits) -> None:
    """As many commits again, on short branches from ``LINE``."""
    with Versioned(Disk(folder)) as state:
        for name, back, numbers in edits.sizes.what_ifs():
            with state.fork(name, at=f"{LINE}~{back}") as fork:
                _commit_ours(fork, edits, numbers)


def _begin_kvgit(folder: Path, edits: Edits) -> list[str]:
    with open_kvgit(folder) as repo:
        worktree = repo.worktree(LINE, create=True)
        for key, value in state_of(edits.sizes.keys).items():
            worktree[key] = value
        worktree.commit()
        return _commit_kvgit(worktree, edits, range(edits.sizes.half))


def _commit_kvgit(worktree: Any, edits: Edits, numbers: Iterable[int]) -> list[str]:
    ids: list[str] = []
    for number in numbers:
        key, value, _ = edits.of_commit(number)
        worktree[key] = value
        worktree.commit()
        ids.append(str(worktree.head))
    return ids


def _go_on_kvgit(folder: Path, edits: Edits) -> list[str]:
    with open_kvgit(folder) as repo:
        ids = _commit_kvgit(_fork_of_kvgit(repo, TIP, repo.branches[LINE]), edits, range(edits.sizes.half, edits.sizes.commits))
        aside = _fork_of_kvgit(repo, ASIDE, repo.branches[LINE])
        aside["item-000000"] = ASIDE
        aside.commit()
        for turn, side in _sides(edits.sizes):
            fork = _fork_of_kvgit(repo, f"{side}-keys-{turn}", repo.branches[TIP])
            for key, value in edits.of_side(turn, side).items():
                fork[key] = value
            fork.commit()
    return ids


def _abandon_kvgit(folder: Path, edits: Edits) -> None:
    with open_kvgit(folder) as repo:
        line = [commit.hash for commit in repo.log(branch=LINE)]
        for name, back, numbers in edits.sizes.what_ifs():
            _commit_kvgit(_fork_of_kvgit(repo, name, line[back]), edits, numbers)


def _fork_of_kvgit(repo: Any, name: str, at: str) -> Any:
    repo.branches.create(name, at=at)
    return repo.worktree(name)


def _sides(sizes: Sizes) -> Iterator[tuple[int, str]]:
    return ((turn, side) for turn in range(sizes.asked) for side in ("ours", "theirs"))


def open_kvgit(folder: Path) -> Any:
    from kvgit import Repo
    from kvgit.kv.disk import Disk as KvgitDisk

    return Repo(KvgitDisk(str(folder)))


@dataclass(frozen=True)
class Making:
    """The parts of a history: up to ``LINE``, giving ids; from there on, the same; and, on a copy of the first, what will be garbage."""

    begin: Callable[[Path, Edits], list[str]]
    go_on: Callable[[Path, Edits], list[str]]
    abandon: Callable[[Path, Edits], None]


MAKING = {OURS: Making(_begin_ours, _go_on_ours, _abandon_ours), KVGIT: Making(_begin_kvgit, _go_on_kvgit, _abandon_kvgit)}
