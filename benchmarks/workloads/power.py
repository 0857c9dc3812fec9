"""``power``: writers to one ``Disk`` with ``durability="power"``, on a disk that takes 1 ms and more for a sync.

Ours alone: commits that share syncs, as they do, against commits that SQLite syncs one after the other. A library
beneath the process makes each sync wait, so that the figures of a fast disk say something too.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from benchmarks.measure import alternate
from benchmarks.results import Metric, Result, Target
from benchmarks.sides import OURS
from benchmarks.workloads.base import ROOT, Context, Workload, in_child

DELAY_US = 1000
SHARED, EACH = f"{OURS} (shared)", f"{OURS} (each)"
_SYNCS = {SHARED: "shared", EACH: "each"}

WAYS: Mapping[str, tuple[str, int]] = {
    "4 threads": ("threads", 4),
    "4 processes": ("processes", 4),
    "one writer": ("threads", 1),
}
"""How the writers run, and how many there are."""

ROUNDS, TURNS = 200, 7
QUICK_ROUNDS, QUICK_TURNS = 20, 2


def run(context: Context, workload: Workload) -> Result:
    """Both ways to sync in turns, for each way to write; half the time for four writers."""
    result = Result(
        workload.name,
        f'writers to one Disk with durability="power", syncs of {DELAY_US / 1000:g} ms more than the disk takes',
    )
    rounds, turns = (QUICK_ROUNDS, QUICK_TURNS) if context.quick else (ROUNDS, TURNS)
    for name, (way, writers) in WAYS.items():
        context.progress(f"{workload.name}: {name}, {turns} turns of {rounds} commits")
        seconds = alternate(
            {side: partial(_turn, context, syncs, way, writers, rounds) for side, syncs in _SYNCS.items()}, turns
        )
        targets = [(SHARED, Target(ratio=0.5 if writers > 1 else 1.05, base=EACH))]
        result.metrics.append(Metric.of_samples(f"time a commit, {name}", seconds, targets))
    result.notes.append(
        "a commit: one message more on a branch of the writer's own; all of them are checked at the end"
    )
    return result


def _turn(context: Context, syncs: str, way: str, writers: int, rounds: int, _number: int) -> float:
    """Seconds a commit."""
    from tests.support.power.recording import library

    folder = context.fresh(f"power-{syncs}")
    each = rounds // writers
    seconds: float = in_child(
        *("benchmarks.power_worker", folder, syncs, way, writers, each),
        LD_PRELOAD=str(library()),
        RECORDER_FOLDER=str(folder),
        RECORDER_DELAY=str(DELAY_US),
        PYTHONPATH=str(ROOT),
    )
    return seconds / (each * writers)


WORKLOADS = (
    Workload("power", "4 writers that wait for a disk with slow syncs, shared and one by one", run, ours_alone=True),
)
