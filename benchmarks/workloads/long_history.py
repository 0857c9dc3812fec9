"""A long history of a large state, made the same way on ours and on kvgit: what the workload ``history`` looks back in.

kvgit has the same keys, commits and branches. Its list is on a branch of its own, which begins at the newest of these
commits: under one key, as kvgit has a list, it is stored again with each commit that changes it, 10 MB each time, so
that 10,000 of them would be 100 GB.
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
LINE, TIP, ASIDE, LIST = "main", "long", "aside", "list"
"""Branches: the first half of the commits, all of them, another one on the first half, and kvgit's with the list."""
KEYS, BOTH = "keys", "both"
"""What branches that are to be merged change: only keys, or a message as well."""


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
    """The number of commits of each branch that is deleted before gc.

    With one branch of 5,000 commits, kvgit's gc walks what they share once for each of them. It had taken 5 minutes and
    2.6 GB when it was stopped.
    """
    counted: int = 3
    """Times that each question is asked again over a ``Counting``, which costs time itself."""

    @property
    def half(self) -> int:
        return self.commits // 2

    @property
    def asked(self) -> int:
        """Times that each question is asked in all; each merge has branches of its own."""
        return self.turns + self.counted

    def apart(self, number: int) -> int:
        """The number of a commit to look at: all over the history, and never the first."""
        return self.commits - 1 - number * (self.commits // (self.asked + 1))

    def what_ifs(self) -> Iterator[tuple[str, int, range]]:
        """Yield the branches that become garbage: name, how far back each begins, and the numbers of its commits.

        Together they have as many commits as are kept.
        """
        for count, first in enumerate(range(self.half, self.commits, self.what_if)):
            yield (
                f"what-if-{count}",
                count * self.what_if // 2 % self.half,
                range(first, min(first + self.what_if, self.commits)),
            )


FULL = Sizes(keys=100_000, messages=10_000, commits=10_000)
QUICK = Sizes(keys=1000, messages=200, commits=200, turns=2, blamed=10, what_if=10)


@dataclass(frozen=True)
class Edits:
    """The edits of the state: by the number of the commit, and on each side of a merge."""

    sizes: Sizes
    data: Data

    def of_commit(self, number: int) -> tuple[str, dict[str, Any], Any]:
        """A key, its new value, and a message to append."""
        key = f"item-{random.Random(number).randrange(self.sizes.keys):06}"
        return (
            key,
            {"id": number, "score": -1, "tag": "changed in a commit"},
            self.data.messages(1, start=self.sizes.messages + number)[0],
        )

    def of_side(self, turn: int, side: str) -> dict[str, Any]:
        """The keys that one side of a merge sets: they differ from the other side's, and from those of other turns."""
        keys = random.Random(1).sample(range(self.sizes.keys), 2 * self.sizes.edits * self.sizes.asked)
        first = (2 * turn + (side == "theirs")) * self.sizes.edits
        return {
            f"item-{key:06}": {"id": key, "score": -2, "tag": side} for key in keys[first : first + self.sizes.edits]
        }

    def of_sides(self, turn: int) -> dict[str, Any]:
        """The keys that both sides of a merge set."""
        return self.of_side(turn, "ours") | self.of_side(turn, "theirs")

    def message_of_side(self, turn: int, side: str) -> tuple[int, Any]:
        """A place in the list, and what is put there."""
        count = self.sizes.messages
        return (count * (turn + 1) // (self.sizes.asked + 2) + (side == "theirs") * count // 50), {
            "role": "user",
            "content": side * 100,
        }

    def merged_messages(self, turn: int, before: list[Any]) -> list[Any]:
        """The list after a merge of both sides."""
        merged = list(before)
        for side in ("ours", "theirs"):
            index, message = self.message_of_side(turn, side)
            merged[index] = message
        return merged


@dataclass(frozen=True)
class Neighbours:
    """A commit and its child, what keys the child set, and the index of the message that it appended, if it did."""

    old: str
    new: str
    keys: frozenset[str]
    message: int | None = None


@dataclass(frozen=True)
class History:
    """The commits of one side, by what is asked of them.

    Attributes:
        line: ids of the commits of ``TIP``, oldest first, less the one that set all of the keys.
        keys: the newest commit and, for each time of asking, a child that set some keys.
        both: commits that differ in a key and an appended message, likewise.
        both_from: where branches begin that are merged with the list.
    """

    line: list[str]
    keys: list[Neighbours]
    both: list[Neighbours]
    both_from: str


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


def _go_on_ours(folder: Path, edits: Edits, line: list[str]) -> History:
    """The second half, on ``TIP``, and branches to merge."""
    keys: list[Neighbours] = []
    with Versioned(Disk(folder)) as state:
        state.switch(TIP, create=True)
        line = line + _commit_ours(state, edits, range(edits.sizes.half, edits.sizes.commits))
        with state.fork(ASIDE, at=LINE) as aside:
            aside["item-000000"] = ASIDE
            aside.commit()
        for turn, side in _sides(edits.sizes):
            with state.fork(f"{side}-{KEYS}-{turn}") as fork:
                values = edits.of_side(turn, side)
                fork.update(values)
                child = fork.commit().id
            if side == "ours":
                keys.append(Neighbours(line[-1], child, frozenset(values)))
        # With the list in memory a round costs more, so that comes last, on one handle: the list is loaded once.
        messages = state["messages"]
        for turn, side in _sides(edits.sizes):
            state.switch(TIP)
            state.switch(f"{side}-{BOTH}-{turn}", create=True)
            state.update(edits.of_side(turn, side))
            index, message = edits.message_of_side(turn, side)
            messages[index] = message
            state.commit()
    both = [
        Neighbours(
            line[number - 1], line[number], frozenset({edits.of_commit(number)[0]}), edits.sizes.messages + number
        )
        for number in map(edits.sizes.apart, range(edits.sizes.asked))
    ]
    return History(line, keys, both, both_from=line[-1])


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


def _go_on_kvgit(folder: Path, edits: Edits, line: list[str]) -> History:
    keys: list[Neighbours] = []
    with open_kvgit(folder) as repo:
        worktree = _fork_of_kvgit(repo, TIP, repo.branches[LINE])
        line = line + _commit_kvgit(worktree, edits, range(edits.sizes.half, edits.sizes.commits))
        aside = _fork_of_kvgit(repo, ASIDE, repo.branches[LINE])
        aside["item-000000"] = ASIDE
        aside.commit()
        for turn, side in _sides(edits.sizes):
            fork = _fork_of_kvgit(repo, f"{side}-{KEYS}-{turn}", line[-1])
            values = edits.of_side(turn, side)
            fork.update(values)
            fork.commit()
            if side == "ours":
                keys.append(Neighbours(line[-1], str(fork.head), frozenset(values)))
        both = _list_of_kvgit(repo, edits, line[-1])
        return History(line, keys, both, both_from=both[-1].new)


def _list_of_kvgit(repo: Any, edits: Edits, at: str) -> list[Neighbours]:
    """The list on a branch of its own, as many commits that append as are asked for, and branches to merge.

    The application keeps the live list, as a careful user would: reading it anew for each commit would decode all of
    it.
    """
    sizes = edits.sizes
    worktree = _fork_of_kvgit(repo, LIST, at)
    messages = edits.data.messages(sizes.messages)
    worktree["messages"] = messages
    worktree.commit()
    both: list[Neighbours] = []
    for number in range(sizes.commits, sizes.commits + sizes.asked):
        old = str(worktree.head)
        key, value, _ = edits.of_commit(number)
        worktree[key] = value
        index = len(messages)
        messages += edits.data.messages(1, start=index)
        worktree["messages"] = messages
        worktree.commit()
        both.append(Neighbours(old, str(worktree.head), frozenset({key}), index))
    for turn, side in _sides(sizes):
        fork = _fork_of_kvgit(repo, f"{side}-{BOTH}-{turn}", both[-1].new)
        fork.update(edits.of_side(turn, side))
        index, message = edits.message_of_side(turn, side)
        before, messages[index] = messages[index], message
        fork["messages"] = messages
        fork.commit()
        messages[index] = before
    return both


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
    """The functions that make the parts of a history.

    ``begin`` makes it up to ``LINE`` and returns the ids, ``go_on`` continues from these, and ``abandon`` makes what
    will be garbage, on a copy of the first part.
    """

    begin: Callable[[Path, Edits], list[str]]
    go_on: Callable[[Path, Edits, list[str]], History]
    abandon: Callable[[Path, Edits], None]


MAKING = {
    OURS: Making(_begin_ours, _go_on_ours, _abandon_ours),
    KVGIT: Making(_begin_kvgit, _go_on_kvgit, _abandon_kvgit),
}
