"""``history``: looking back in 10,000 commits of a state of 100,000 keys and a list of 10,000 messages; then half of them is garbage.

``long_history`` makes them. kvgit has no list there; its diff and merge are by key, ours by path, so ours does more wherever the two are
compared.

What is timed stands on a store that was just opened, as for somebody who looks back and ends. Opening is not counted, nor, where it is
a merge that is timed, the first write.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path as Folder

from benchmarks.measure import alternate, folder_bytes, timed
from benchmarks.results import Metric, Result, Table, Target, Unit
from benchmarks.sides import OURS
from benchmarks.workloads.base import Context, Workload, require_equal
from benchmarks.workloads.long_history import ASIDE, FULL, KVGIT, LINE, MAKING, QUICK, TIP, Edits, Sizes, open_kvgit
from benchmarks.workloads.memory import peak_of
from versioned_state import Disk, KVStore, Repository, Versioned
from versioned_state.storage import Counting
from versioned_state.values.path import Key, Path

DIFF, BLAME, LOG = "diff of neighbours", "blame of the last messages", "log of 20"
MERGE_KEYS, MERGE_BOTH = "merge of keys", "merge of keys and list"
BASE_LINE, BASE_ASIDE = "merge base half way back", "merge base of a fork there"

_BRANCHES = {MERGE_KEYS: "keys", MERGE_BOTH: "both"}
"""What the branches of a merge are called after their side, and before the number of the turn."""


Seconds = dict[str, list[float]]
Folders = Mapping[str, Folder]


# What is asked. Each opens the store anew, and gives seconds; ours also notes what it read.


@dataclass(frozen=True)
class Reads:
    """What one kind of question read of the store, for each time that it was asked: objects, and calls of the store."""

    objects: list[int]
    calls: list[int]


class Asked:
    """The questions to ours. ``reads`` says what they read of the store, where that is counted."""

    def __init__(self, folder: Folder, ids: Sequence[str], edits: Edits, *, counting: bool = False) -> None:
        self.folder = folder
        self.ids = ids
        self.edits = edits
        self.counting = counting
        self.reads: dict[str, Reads] = {}

    @contextmanager
    def opened(self) -> Iterator[Repository]:
        """The repository, just opened."""
        store: KVStore = Disk(self.folder)
        with Repository(Counting(store) if self.counting else store, pickle="refuse") as repository:
            yield repository

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

    def questions(self, sizes: Sizes) -> dict[str, Callable[[int], float]]:
        """All of them by name; each takes the number of the time that it is asked."""
        return {
            DIFF: self.diff,
            MERGE_KEYS: partial(self.merge, MERGE_KEYS),
            MERGE_BOTH: partial(self.merge, MERGE_BOTH),
            BLAME: self.blame,
            BASE_LINE: partial(self.merge_base, BASE_LINE, (TIP, f"{TIP}~{sizes.half}")),
            BASE_ASIDE: partial(self.merge_base, BASE_ASIDE, (TIP, ASIDE)),
            LOG: self.log,
        }

    def diff(self, number: int) -> float:
        at = _apart(number, self.edits.sizes)
        found: list[Path] = []
        with self.opened() as repository:
            ids = self.ids[at - 1], self.ids[at]
            seconds = self.timed(DIFF, repository, lambda: found.extend(change.path for change in repository.diff(*ids)))
        keys = {path.steps[0] for path in found}
        require_equal(keys, {Key(self.edits.of_commit(at)[0]), Key("messages")}, "ours, diff")
        return seconds

    def merge(self, name: str, number: int) -> float:
        what = _BRANCHES[name]
        with self.opened() as repository:
            state = Versioned(repository, branch=f"ours-{what}-{number}")
            # The first write after opening makes SQLite's log, and may wait for the disk; so below, for kvgit.
            repository.branches.create(f"first-write-{what}-{number}", LINE)
            seconds = self.timed(name, repository, lambda: state.merge(f"theirs-{what}-{number}"))
            for side in ("ours", "theirs"):
                for key, value in self.edits.of_side(number, side).items():
                    require_equal(state[key], value, "ours, merge")
                if what == "both":
                    index, message = self.edits.messages_of_side(number, side)
                    require_equal(state.sequence("messages")[index], message, "ours, merge")
        return seconds

    def blame(self, number: int) -> float:
        """The last messages, each appended by a commit of its own."""
        sizes = self.edits.sizes
        found: list[str] = []
        with self.opened() as repository:
            seconds = self.timed(
                BLAME, repository, lambda: found.extend(part.commit.id for part in repository.blame("messages", TIP, start=-sizes.blamed))
            )
        require_equal(found, list(self.ids[-sizes.blamed :]), "ours, blame")
        return seconds

    def merge_base(self, name: str, revisions: tuple[str, str], number: int) -> float:
        found: list[str] = []
        with self.opened() as repository:
            seconds = self.timed(name, repository, lambda: found.append(repository.merge_base(*revisions).id))
        require_equal(found, [self.ids[self.edits.sizes.half - 1]], "ours, merge base")
        return seconds

    def log(self, number: int) -> float:
        found: list[str] = []
        with self.opened() as repository:
            seconds = self.timed(LOG, repository, lambda: found.extend(commit.id for commit in repository.log(TIP, limit=20)))
        require_equal(found, list(self.ids[:-21:-1]), "ours, log")
        return seconds


def _apart(number: int, sizes: Sizes) -> int:
    """The number of a commit to look at: all over the history, and never the first."""
    return sizes.commits - 1 - number * (sizes.commits // (sizes.asked + 1))


def _kvgit_diff(folder: Folder, ids: Sequence[str], edits: Edits, number: int) -> float:
    at = _apart(number, edits.sizes)
    found: list[str] = []

    def work() -> None:
        difference = repo.diff(ids[at - 1], ids[at])
        found.extend([*difference.added, *difference.removed, *difference.modified])

    with open_kvgit(folder) as repo:
        seconds = timed(work)
    require_equal(found, [edits.of_commit(at)[0]], "kvgit, diff")
    return seconds


def _kvgit_merge(folder: Folder, edits: Edits, number: int) -> float:
    with open_kvgit(folder) as repo:
        worktree = repo.worktree(f"ours-keys-{number}")
        repo.branches.create(f"first-write-{number}", at=repo.branches[LINE])
        seconds = timed(lambda: worktree.merge(branch=f"theirs-keys-{number}"))
        for side in ("ours", "theirs"):
            for key, value in edits.of_side(number, side).items():
                require_equal(worktree[key], value, "kvgit, merge")
    return seconds


def _kvgit_merge_base(folder: Folder, a: str, b: str, expected: str, _number: int) -> float:
    found: list[object] = []
    with open_kvgit(folder) as repo:
        seconds = timed(lambda: found.append(repo.merge_base(repo.branches.get(a, a), repo.branches.get(b, b))))
    require_equal(found, [expected], "kvgit, merge base")
    return seconds


def _kvgit_log(folder: Folder, ids: Sequence[str], _number: int) -> float:
    found: list[str] = []
    with open_kvgit(folder) as repo:
        seconds = timed(lambda: found.extend(commit.hash for commit in repo.log(branch=TIP, limit=20)))
    require_equal(found, list(ids[:-21:-1]), "kvgit, log")
    return seconds


def _kvgit_questions(folder: Folder, ids: Sequence[str], edits: Edits) -> dict[str, Callable[[int], float]]:
    base = ids[edits.sizes.half - 1]
    return {
        DIFF: partial(_kvgit_diff, folder, ids, edits),
        MERGE_KEYS: partial(_kvgit_merge, folder, edits),
        BASE_LINE: partial(_kvgit_merge_base, folder, TIP, base, base),
        BASE_ASIDE: partial(_kvgit_merge_base, folder, TIP, ASIDE, base),
        LOG: partial(_kvgit_log, folder, ids),
    }


# Garbage


def _collect_in_child(side: str, folder: Folder) -> dict[str, float]:
    """Delete the branches that are to be garbage, and collect, in a process of its own; what that took."""
    command = [sys.executable, "-m", "benchmarks.workloads.history", side, str(folder)]
    ended = subprocess.run(command, check=False, capture_output=True, text=True)
    if ended.returncode:
        raise RuntimeError(f"gc of {side} failed:\n{ended.stderr[-4000:]}")
    found: dict[str, float] = json.loads(ended.stdout)
    return found


def _collect(side: str, folder: Folder) -> None:
    """In the child: print seconds, peak memory above that of the open store, commits that went and that are left."""
    found: dict[str, float] = {}
    if side == OURS:
        from datetime import timedelta

        with Repository(Disk(folder), pickle="refuse") as repository:
            for name in [name for name in repository.branches if name != LINE]:
                repository.branches.delete(name, force=True)

            def work() -> None:
                report = repository.gc(expire=timedelta(0))
                found["kept"], found["freed"] = report.kept, report.freed

            found["peak"] = peak_of(lambda: found.update(seconds=timed(work)))
            found["left"] = sum(1 for _ in repository.log(LINE))
    else:
        with open_kvgit(folder) as repo:
            for name in [name for name in repo.branches if name != LINE]:
                repo.branches.delete(name)
            found["peak"] = peak_of(lambda: found.update(seconds=timed(lambda: found.update(freed=repo.gc(min_age=0)))))
            # Less the root, which ours leaves out of its log.
            found["left"] = sum(1 for _ in repo.log(branch=LINE)) - 1
    print(json.dumps(found))


def _gc(context: Context, folders: Folders, sizes: Sizes) -> tuple[Seconds, dict[str, float], dict[str, list[int]]]:
    """Seconds and peak memory by side, on a copy of the store each time, and the size of the stores before and after."""
    seconds: Seconds = {side: [] for side in folders}
    peaks: dict[str, float] = {}
    bytes_: dict[str, list[int]] = {}
    for turn in range(sizes.gc_turns):
        for side in list(folders)[:: -1 if turn % 2 else 1]:
            context.progress(f"history: gc of {side}, turn {turn + 1}")
            copy = context.fresh(f"{side}-gc")
            shutil.copytree(folders[side], copy, dirs_exist_ok=True)
            before = folder_bytes(copy)
            found = _collect_in_child(side, copy)
            require_equal(found["left"], sizes.half + 1, f"{side}, after gc")
            seconds[side].append(found["seconds"])
            peaks[side] = max(peaks.get(side, 0), found["peak"])
            bytes_[side] = [before, folder_bytes(copy)]
            shutil.rmtree(copy)
    return seconds, peaks, bytes_


# All of it


def run(context: Context, workload: Workload) -> Result:
    """Ours, and kvgit where it can do the same."""
    sizes = QUICK if context.quick else FULL
    edits = Edits(sizes, context.data)
    folders: dict[str, Folder] = {side: context.fresh(side) for side in context.only(OURS, KVGIT)}
    littered: dict[str, Folder] = {}
    ids: dict[str, list[str]] = {}
    made: dict[str, float] = {}
    for side, making in MAKING.items():
        if side in folders:
            context.progress(f"{workload.name}: {sizes.commits:,} commits of {side}, and {sizes.half:,} that will be garbage")
            start = time.perf_counter()
            ids[side] = making.begin(folders[side], edits)
            littered[side] = context.fresh(f"{side}-garbage")
            shutil.copytree(folders[side], littered[side], dirs_exist_ok=True)
            ids[side] += making.go_on(folders[side], edits)
            making.abandon(littered[side], edits)
            made[side] = time.perf_counter() - start
    result = Result(
        workload.name,
        f"{sizes.commits:,} commits of a state of {sizes.keys:,} keys and a list of {sizes.messages:,} messages (kvgit: without the list)",
    )
    metrics, reads = _questions(context, folders, ids, edits)
    result.metrics += metrics
    seconds, peaks, stored = _gc(context, littered, sizes)
    result.metrics += [
        Metric.of_samples(
            f"gc, {sizes.half:,} commits of {sizes.commits:,} are garbage", seconds, [(OURS, Target(ratio=1 / 2, base=KVGIT))]
        ),
        Metric("gc, peak memory above the open store", Unit.BYTES, peaks),
    ]
    if reads is not None:
        result.tables.append(reads)
    result.tables.append(
        Table(
            "files before and after gc (neither gives room back to the system by itself)",
            ["side", "before", "after"],
            [[side, (before, Unit.BYTES), (after, Unit.BYTES)] for side, (before, after) in stored.items()],
        )
    )
    result.notes += [
        "making it all took " + ", ".join(f"{side} {Unit.SECONDS.show(took)}" for side, took in made.items()),
        f"a merge: {sizes.edits} keys on each side, which the other did not change; with the list, also a message on each side",
        f"blame: of the last {sizes.blamed} messages; merge base: of two commits {sizes.half:,} rounds apart, and of a fork so far back",
        f"gc: {sizes.half:,} commits are kept, and as many are on deleted branches of {sizes.what_if} each",
    ]
    return result


def _questions(context: Context, folders: Folders, ids: Mapping[str, list[str]], edits: Edits) -> tuple[list[Metric], Table | None]:
    """What each question took, on ours and on kvgit; and what it read of our store."""
    sizes = edits.sizes
    asked: dict[str, dict[str, Callable[[int], float]]] = {}
    counted = None
    if OURS in folders:
        asked[OURS] = Asked(folders[OURS], ids[OURS], edits).questions(sizes)
        counted = Asked(folders[OURS], ids[OURS], edits, counting=True)
    if KVGIT in folders:
        asked[KVGIT] = _kvgit_questions(folders[KVGIT], ids[KVGIT], edits)
    names = list(dict.fromkeys(name for questions in asked.values() for name in questions))
    metrics: list[Metric] = []
    for name in names:
        context.progress(f"history: {name}")
        steps = {side: questions[name] for side, questions in asked.items() if name in questions}
        metrics.append(Metric.of_samples(name, alternate(steps, sizes.turns), _TARGETS.get(name, [])))
    if counted is None:
        return metrics, None
    for name in names:
        for number in range(sizes.turns, sizes.asked):
            counted.questions(sizes)[name](number)
    return metrics, _reads_table(counted)


_TARGETS = {
    DIFF: [(OURS, Target(ratio=1 / 5, base=KVGIT))],
    MERGE_KEYS: [(OURS, Target(ratio=1 / 5, base=KVGIT))],
    BASE_LINE: [(OURS, Target(limit=0.05))],
    BASE_ASIDE: [(OURS, Target(limit=0.05))],
}


def _reads_table(asked: Asked) -> Table:
    """What each question read at the most, beside the objects that the tree of one commit has."""
    from versioned_state.repository.reach import AddressSet, references_of_tree, walk

    with asked.opened() as repository, AddressSet() as seen:
        head = repository.commit(TIP)
        objects = sum(1 for _ in walk(repository.objects, references_of_tree(head.tree), seen))
    shared = {DIFF, MERGE_KEYS, MERGE_BOTH, BLAME}
    rows: list[list[str | tuple[float, Unit]]] = [
        [
            name,
            (max(reads.objects), Unit.COUNT),
            f"{max(reads.objects) / objects:.2%}" if name in shared else "-",
            (max(reads.calls), Unit.COUNT),
            ("yes" if max(reads.objects) < objects * 0.02 else "NO") if name in shared else "-",
        ]
        for name, reads in asked.reads.items()
    ]
    title = f"read of the store at the most; the tree of the newest commit has {objects:,} objects"
    return Table(title, ["ours", "objects", "of the tree", "calls of the store", "below 2%"], rows)


WORKLOADS = (Workload("history", "10,000 commits of 100,000 keys: diff, merge, blame, merge base, log, gc", run),)

if __name__ == "__main__":
    _collect(sys.argv[1], Folder(sys.argv[2]))
