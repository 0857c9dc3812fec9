"""``history``: looking back in 10,000 commits of a state of 100,000 keys and a list of 10,000 messages; then gc.

``long_history`` makes them, ``looking_back`` asks: the same questions on both sides. gc has a copy of the first half,
and as many commits again that are garbage.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack, nullcontext
from pathlib import Path as Folder

from benchmarks.measure import alternate, folder_bytes, timed
from benchmarks.results import Metric, Result, Table, Target, Unit
from benchmarks.sides import OURS
from benchmarks.workloads.base import Context, Workload, in_child, require_equal
from benchmarks.workloads.long_history import FULL, KVGIT, LINE, MAKING, QUICK, TIP, Edits, History, Sizes, open_kvgit
from benchmarks.workloads.looking_back import (
    BASE_ASIDE,
    BASE_LINE,
    BLAME,
    DIFF_BOTH,
    DIFF_KEYS,
    MERGE_BOTH,
    MERGE_KEYS,
    AskedKvgit,
    AskedOurs,
    Questions,
    open_ours,
)
from benchmarks.workloads.memory import peak_of
from versioned_state import Disk, Repository

Seconds = dict[str, list[float]]
Folders = Mapping[str, Folder]

# Of the four that are the same work on both sides, with the same answer.
_FIFTH = [(OURS, Target(ratio=1 / 5, base=KVGIT))]
_TARGETS = {
    DIFF_KEYS: _FIFTH,
    DIFF_BOTH: _FIFTH,
    MERGE_KEYS: _FIFTH,
    MERGE_BOTH: _FIFTH,
    BASE_LINE: [(OURS, Target(limit=0.05))],
    BASE_ASIDE: [(OURS, Target(limit=0.05))],
}


# Garbage


def _collect(side: str, folder: Folder) -> None:
    """Delete the branches that are to be garbage, and collect, in a process of its own.

    Prints seconds, peak memory above that of the open store, commits that went and that are left.
    """
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
    """Seconds and peak memory by side, on a copy of the store each time, and the stores' sizes before and after."""
    seconds: Seconds = {side: [] for side in folders}
    peaks: dict[str, float] = {}
    bytes_: dict[str, list[int]] = {}
    for turn in range(sizes.gc_turns):
        for side in list(folders)[:: -1 if turn % 2 else 1]:
            context.progress(f"history: gc of {side}, turn {turn + 1}")
            copy = context.fresh(f"{side}-gc")
            shutil.copytree(folders[side], copy, dirs_exist_ok=True)
            before = folder_bytes(copy)
            found = in_child("benchmarks.workloads.history", side, copy)
            require_equal(found["left"], sizes.half + 1, f"{side}, after gc")
            seconds[side].append(found["seconds"])
            peaks[side] = max(peaks.get(side, 0), found["peak"])
            bytes_[side] = [before, folder_bytes(copy)]
            shutil.rmtree(copy)
    return seconds, peaks, bytes_


# All of it


def run(context: Context, workload: Workload) -> Result:
    """Ours, and kvgit if it can do the same."""
    sizes = QUICK if context.quick else FULL
    edits = Edits(sizes, context.data)
    folders: dict[str, Folder] = {side: context.fresh(side) for side in context.only(OURS, KVGIT)}
    littered: dict[str, Folder] = {}
    histories: dict[str, History] = {}
    made: dict[str, float] = {}
    for side, making in MAKING.items():
        if side in folders:
            context.progress(
                f"{workload.name}: {sizes.commits:,} commits of {side}, and {sizes.half:,} that will be garbage"
            )
            start = time.perf_counter()
            line = making.begin(folders[side], edits)
            littered[side] = context.fresh(f"{side}-garbage")
            shutil.copytree(folders[side], littered[side], dirs_exist_ok=True)
            histories[side] = making.go_on(folders[side], edits, line)
            making.abandon(littered[side], edits)
            made[side] = time.perf_counter() - start
    result = Result(
        workload.name,
        f"{sizes.commits:,} commits of a state of {sizes.keys:,} keys and a list of {sizes.messages:,} messages"
        " (kvgit: the list on a branch after them)",
    )
    result.metrics += _ask(context, folders, histories, edits)
    seconds, peaks, stored = _gc(context, littered, sizes)
    result.metrics += [
        Metric.of_samples(
            f"gc, {sizes.half:,} commits of {sizes.commits:,} are garbage",
            seconds,
            [(OURS, Target(ratio=1 / 2, base=KVGIT))],
        ),
        Metric("gc, peak memory above the open store", Unit.BYTES, peaks),
    ]
    if OURS in folders:
        result.tables.append(_count(folders[OURS], histories[OURS], edits))
    result.tables.append(
        Table(
            "files before and after gc (neither gives room back to the system by itself)",
            ["side", "before", "after"],
            [[side, (before, Unit.BYTES), (after, Unit.BYTES)] for side, (before, after) in stored.items()],
        )
    )
    result.notes += _notes(sizes, made)
    return result


def _notes(sizes: Sizes, made: Mapping[str, float]) -> list[str]:
    both = (
        f"{DIFF_BOTH}: both sides name the key and the index of the appended message;"
        " kvgit's diff says only that the list is another one"
        " (that is what it takes told by key alone), so both lists are read and compared"
    )
    lists = (
        f"kvgit stores the list anew in each commit that changes it: it has it in {sizes.asked + 1} commits"
        " that come after the others, and"
        f" {sizes.messages:,} to {sizes.messages + sizes.asked:,} messages; ours has it in all commits, and grows to"
        f" {sizes.messages + sizes.commits:,}"
    )
    merge = (
        f"a merge: {sizes.edits} keys on each side, which the other did not change;"
        " with the list, also a message on each side, in two"
        " places: kvgit's by a function that compares the lists"
    )
    still_open = (
        "open: of a repository that has answered before, about other commits;"
        " in the diff of keys one of the two is always the newest, and"
        " kvgit's neighbours with the list begin where the last ones ended;"
        " all else is asked of a repository just opened"
    )
    return [
        "making it all took " + ", ".join(f"{side} {Unit.SECONDS.show(took)}" for side, took in made.items()),
        (
            f"{DIFF_KEYS}: of the newest commit and one that set {sizes.edits} keys;"
            " both sides name the keys, and ours what changed in them"
        ),
        both,
        lists,
        merge,
        still_open,
        (
            f"blame: of the last {sizes.blamed} messages;"
            f" merge base: of two commits {sizes.half:,} rounds apart, and of a fork so far back"
        ),
        (
            f"gc: {sizes.half:,} commits are kept, and as many are on deleted branches of {sizes.what_if} each;"
            " kvgit without the list"
        ),
    ]


def _ask(context: Context, folders: Folders, histories: Mapping[str, History], edits: Edits) -> list[Metric]:
    """The time of each question, on ours and on kvgit."""
    asked: dict[str, Questions] = {}
    if OURS in folders:
        asked[OURS] = AskedOurs(lambda: open_ours(folders[OURS]), histories[OURS], edits).questions()
    if KVGIT in folders:
        asked[KVGIT] = AskedKvgit(lambda: open_kvgit(folders[KVGIT]), histories[KVGIT], edits).questions()
    # kvgit's first: it has a question among the diffs that ours needs not be asked.
    names = list(dict.fromkeys(name for questions in reversed(asked.values()) for name in questions))
    metrics = [_metric(context, name, name, asked, edits.sizes) for name in names]
    with ExitStack() as stack:
        still_open: dict[str, Questions] = {}
        if OURS in folders:
            repository = stack.enter_context(open_ours(folders[OURS]))
            still_open[OURS] = AskedOurs(lambda: nullcontext(repository), histories[OURS], edits).diffs()
        if KVGIT in folders:
            repo = stack.enter_context(open_kvgit(folders[KVGIT]))
            still_open[KVGIT] = AskedKvgit(lambda: nullcontext(repo), histories[KVGIT], edits).diffs()
        for name in (DIFF_KEYS, DIFF_BOTH):
            for questions in still_open.values():
                # So that it has answered before; about commits that no turn asks about.
                questions[name](edits.sizes.turns)
            metrics.append(_metric(context, f"{name}, open", name, still_open, edits.sizes))
    return metrics


def _metric(context: Context, title: str, name: str, asked: Mapping[str, Questions], sizes: Sizes) -> Metric:
    """One question, asked of the sides that have it in turns. What is asked of an open repository has no target."""
    context.progress(f"history: {title}")
    steps = {side: questions[name] for side, questions in asked.items() if name in questions}
    return Metric.of_samples(title, alternate(steps, sizes.turns), _TARGETS.get(title, []))


def _count(folder: Folder, history: History, edits: Edits) -> Table:
    """Ask ours again, over a store that counts: the branches of these turns are not merged yet."""
    counted = AskedOurs(lambda: open_ours(folder, counting=True), history, edits)
    for question in counted.questions().values():
        for number in range(edits.sizes.turns, edits.sizes.asked):
            question(number)
    return _reads_table(counted)


def _reads_table(asked: AskedOurs) -> Table:
    """The most objects that each question read, beside the objects in the tree of one commit."""
    from tests.support.worlds import reached
    from versioned_state.repository.history.reach import references_of_tree

    with asked.opened() as repository:
        objects = len(reached(repository.database.objects, references_of_tree(repository.commit(TIP).tree)))
    shared = {DIFF_KEYS, DIFF_BOTH, MERGE_KEYS, MERGE_BOTH, BLAME}
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
