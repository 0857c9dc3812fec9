"""The questions of the workload ``history``, asked of ours and of kvgit: the same ones, with answers that are checked.

Each is timed on a store that was just opened, as for somebody who looks back and ends. Opening is not counted, nor,
where it is a merge that is timed, the first write. Who passes a repository that is open already asks that instead.

kvgit compares and merges by key. What it has not for a list is here as a careful user would write it, once:
``changed_part``, for which both lists are read, and ``merge_elements``. Their time is part of the answer's; most of it
goes into reading and writing whole lists.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path as Folder
from typing import Any

from benchmarks.measure import timed
from benchmarks.workloads.base import require_equal
from benchmarks.workloads.long_history import ASIDE, BOTH, KEYS, LINE, TIP, Edits, History, Neighbours
from versioned_state import Disk, KVStore, Repository, Versioned
from versioned_state.storage import Counting
from versioned_state.values.paths.path import Index, Key, StatePath

DIFF_KEYS, DIFF_BOTH = "diff of keys", "diff of a key and a message"
DIFF_KEY_LEVEL = f"{DIFF_BOTH}, told by key alone"
MERGE_KEYS, MERGE_BOTH = "merge of keys", "merge of keys and list"
BLAME, LOG = "blame of the last messages", "log of 20"
BASE_LINE, BASE_ASIDE = "merge base half way back", "merge base of a fork there"

_BRANCHES = {MERGE_KEYS: KEYS, MERGE_BOTH: BOTH}
"""What the branches of a merge are called after their side, and before the number of the turn."""

Questions = dict[str, Callable[[int], float]]
"""Each takes the number of the time that it is asked, and gives seconds."""


# Ours


def open_ours(folder: Folder, *, counting: bool = False) -> Repository:
    """The repository; over a ``Counting``, if reads are to be counted."""
    store: KVStore = Disk(folder)
    return Repository(Counting(store) if counting else store, pickle="refuse")


@dataclass(frozen=True)
class Reads:
    """The reads of one kind of question, for each time that it was asked: objects, and calls of the store."""

    objects: list[int]
    calls: list[int]


class AskedOurs:
    """The questions to ours. ``reads`` has their reads of the store, if those are counted."""

    def __init__(
        self, opened: Callable[[], AbstractContextManager[Repository]], history: History, edits: Edits
    ) -> None:
        self.opened = opened
        self.history = history
        self.edits = edits
        self.reads: dict[str, Reads] = {}

    def questions(self) -> Questions:
        """All of them by name."""
        half = self.edits.sizes.half
        return {
            **self.diffs(),
            MERGE_KEYS: partial(self.merge, MERGE_KEYS),
            MERGE_BOTH: partial(self.merge, MERGE_BOTH),
            BLAME: self.blame,
            BASE_LINE: partial(self.merge_base, BASE_LINE, (TIP, f"{TIP}~{half}")),
            BASE_ASIDE: partial(self.merge_base, BASE_ASIDE, (TIP, ASIDE)),
            LOG: self.log,
        }

    def diffs(self) -> Questions:
        """Those that a repository that stays open is asked as well."""
        return {
            DIFF_KEYS: partial(self.diff, DIFF_KEYS, self.history.keys),
            DIFF_BOTH: partial(self.diff, DIFF_BOTH, self.history.both),
        }

    def timed(self, name: str, repository: Repository, work: Callable[[], object]) -> float:
        """Seconds of some work; its reads are noted."""
        counting = repository.store
        if not isinstance(counting, Counting):
            return timed(work)
        counting.reset()
        seconds = timed(work)
        counts = counting.counts
        reads = self.reads.setdefault(name, Reads([], []))
        reads.objects.append(counts.objects_read)
        reads.calls.append(counts.round_trips)
        return seconds

    def diff(self, name: str, pairs: Sequence[Neighbours], number: int) -> float:
        pair = pairs[number]
        found: list[tuple[StatePath, str]] = []
        with self.opened() as repository:
            seconds = self.timed(
                name,
                repository,
                lambda: found.extend((change.path, change.kind) for change in repository.diff(pair.old, pair.new)),
            )
        messages = Key("messages")
        keys = {path.steps[0] for path, _ in found}
        elements = [(path.steps[1:], kind) for path, kind in found if path.steps[0] == messages]
        require_equal(keys - {messages}, {Key(key) for key in pair.keys}, f"ours, {name}")
        require_equal(elements, [] if pair.message is None else [((Index(pair.message),), "added")], f"ours, {name}")
        return seconds

    def merge(self, name: str, number: int) -> float:
        what = _BRANCHES[name]
        with self.opened() as repository:
            state = Versioned(repository, branch=f"ours-{what}-{number}")
            # The first write after opening makes SQLite's log, and may wait for the disk; so below, for kvgit.
            repository.branches.create(f"first-write-{what}-{number}", LINE)
            seconds = self.timed(name, repository, lambda: state.merge(f"theirs-{what}-{number}"))
            for key, value in self.edits.of_sides(number).items():
                require_equal(state[key], value, f"ours, {name}")
            if name == MERGE_BOTH:
                before = repository.snapshot(self.history.both_from)["messages"]
                require_equal(state["messages"], self.edits.merged_messages(number, before), f"ours, {name}")
        return seconds

    def blame(self, number: int) -> float:
        """The last messages, each appended by a commit of its own."""
        count = self.edits.sizes.blamed
        found: list[str] = []
        with self.opened() as repository:
            seconds = self.timed(
                BLAME,
                repository,
                lambda: found.extend(part.commit.id for part in repository.blame("messages", TIP, start=-count)),
            )
        require_equal(found, self.history.line[-count:], "ours, blame")
        return seconds

    def merge_base(self, name: str, revisions: tuple[str, str], number: int) -> float:
        found: list[str] = []
        with self.opened() as repository:
            seconds = self.timed(name, repository, lambda: found.append(repository.merge_base(*revisions).id))
        require_equal(found, [self.history.line[self.edits.sizes.half - 1]], "ours, merge base")
        return seconds

    def log(self, number: int) -> float:
        found: list[str] = []
        with self.opened() as repository:
            seconds = self.timed(
                LOG, repository, lambda: found.extend(commit.id for commit in repository.log(TIP, limit=20))
            )
        require_equal(found, self.history.line[:-21:-1], "ours, log")
        return seconds


# kvgit


def changed_part(old: list[Any], new: list[Any]) -> tuple[range, range]:
    """The indexes of the elements that went, in ``old``, and that came, in ``new``: all but equal ones at both ends.

    Each element is compared once at the most, by a loop that stops at the first that differs.
    """
    shorter = min(len(old), len(new))
    start = _first_difference(old, new, shorter)
    end = _first_difference(reversed(old), islice(reversed(new), shorter - start), shorter - start)
    return range(start, len(old) - end), range(start, len(new) - end)


def _first_difference(a: Iterable[Any], b: Iterable[Any], length: int) -> int:
    """How many elements are equal before the first that differs; ``length`` if none does."""
    return next((count for count, differs in enumerate(map(operator.ne, a, b)) if differs), length)


def merge_elements(base: list[Any], ours: list[Any], theirs: list[Any]) -> list[Any]:
    """Each side's changed elements, of lists of one length.

    Only theirs are compared with all of the base; ours matter where theirs differ. kvgit takes an error for a conflict.

    Raises:
        ValueError: the lengths differ, or both sides changed an element, and not to the same.
    """
    if not len(base) == len(ours) == len(theirs):
        raise ValueError("the lists differ in length")
    merged = list(ours)
    for index, changed in enumerate(map(operator.ne, base, theirs)):
        if changed:
            if ours[index] not in (base[index], theirs[index]):
                raise ValueError(f"both sides changed element {index}")
            merged[index] = theirs[index]
    return merged


class AskedKvgit:
    """The questions to kvgit."""

    def __init__(self, opened: Callable[[], AbstractContextManager[Any]], history: History, edits: Edits) -> None:
        self.opened = opened
        self.history = history
        self.edits = edits

    def questions(self) -> Questions:
        """All of them by name."""
        half = self.history.line[self.edits.sizes.half - 1]
        return {
            **self.diffs(),
            DIFF_KEY_LEVEL: self.diff_key_level,
            MERGE_KEYS: partial(self.merge, MERGE_KEYS, {}),
            MERGE_BOTH: partial(self.merge, MERGE_BOTH, {"messages": merge_elements}),
            BASE_LINE: partial(self.merge_base, TIP, half),
            BASE_ASIDE: partial(self.merge_base, TIP, ASIDE),
            LOG: self.log,
        }

    def diffs(self) -> Questions:
        """Those that a repository that stays open is asked as well."""
        return {DIFF_KEYS: self.diff_keys, DIFF_BOTH: self.diff_both}

    def diff_keys(self, number: int) -> float:
        pair = self.history.keys[number]
        return self._key_level(pair, pair.keys, DIFF_KEYS)

    def diff_key_level(self, number: int) -> float:
        """Less than is asked: that the list is another one, and not where."""
        pair = self.history.both[number]
        return self._key_level(pair, pair.keys | {"messages"}, DIFF_KEY_LEVEL)

    def _key_level(self, pair: Neighbours, expected: frozenset[str], name: str) -> float:
        found: list[str] = []

        def work() -> None:
            difference = repo.diff(pair.old, pair.new)
            found.extend([*difference.added, *difference.removed, *difference.modified])

        with self.opened() as repo:
            seconds = timed(work)
        require_equal(sorted(found), sorted(expected), f"kvgit, {name}")
        return seconds

    def diff_both(self, number: int) -> float:
        pair = self.history.both[number]
        keys: list[str] = []
        elements: list[tuple[range, range]] = []

        def work() -> None:
            difference = repo.diff(pair.old, pair.new)
            keys.extend([*difference.added, *difference.removed, *difference.modified])
            if "messages" in difference.modified:
                old, new = (repo.snapshot(commit=commit)["messages"] for commit in (pair.old, pair.new))
                elements.append(changed_part(old, new))

        with self.opened() as repo:
            seconds = timed(work)
        assert pair.message is not None
        require_equal(sorted(keys), sorted(pair.keys | {"messages"}), f"kvgit, {DIFF_BOTH}")
        # ``range``s without an element are all equal.
        require_equal(elements, [(range(0), range(pair.message, pair.message + 1))], f"kvgit, {DIFF_BOTH}")
        return seconds

    def merge(self, name: str, functions: Mapping[str, Callable[..., Any]], number: int) -> float:
        what = _BRANCHES[name]
        with self.opened() as repo:
            worktree = repo.worktree(f"ours-{what}-{number}")
            repo.branches.create(f"first-write-{what}-{number}", at=repo.branches[LINE])
            seconds = timed(lambda: worktree.merge(branch=f"theirs-{what}-{number}", merge_fns=dict(functions)))
            for key, value in self.edits.of_sides(number).items():
                require_equal(worktree[key], value, f"kvgit, {name}")
            if name == MERGE_BOTH:
                before = repo.snapshot(commit=self.history.both_from)["messages"]
                require_equal(worktree["messages"], self.edits.merged_messages(number, before), f"kvgit, {name}")
        return seconds

    def merge_base(self, a: str, b: str, number: int) -> float:
        found: list[object] = []
        with self.opened() as repo:
            seconds = timed(lambda: found.append(repo.merge_base(repo.branches.get(a, a), repo.branches.get(b, b))))
        require_equal(found, [self.history.line[self.edits.sizes.half - 1]], "kvgit, merge base")
        return seconds

    def log(self, number: int) -> float:
        found: list[str] = []
        with self.opened() as repo:
            seconds = timed(lambda: found.extend(commit.hash for commit in repo.log(branch=TIP, limit=20)))
        require_equal(found, self.history.line[:-21:-1], "kvgit, log")
        return seconds
