"""``keys-100000``: a state of 100,000 small values; its first commit, a change of one key, diffs, and opening it.

The change is measured twice: on the handle that made the state, which watches every value of it, and on a freshly
opened one, which watches only those it has read. Others have one cost for both.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.measure import alternate, timed
from benchmarks.results import Metric, Result, Target, Unit
from benchmarks.sides import OURS, Session, Side
from benchmarks.workloads.base import Context, Workload, require_equal, sessions_of, stored_bytes, timed_opening

KEYS, QUICK_KEYS = 100_000, 1000
TURNS, BATCH = 6, 5
WATCHED_TURNS, WATCHED_BATCH = 4, 3
ROUNDS, WATCHED_ROUNDS = TURNS * BATCH, WATCHED_TURNS * WATCHED_BATCH
COMPARISONS = 10
FAR_APART = 15  # rounds between the commits of the larger diff, each of which changed another key
# Those that can name the keys that differ between two commits.
CAN_DIFF = ("ours", "kvgit")

Seconds = dict[str, list[float]]
Folders = Mapping[str, Path]


def state_of(count: int) -> dict[str, Any]:
    """``count`` keys with a small dict each, the same in every call."""
    draw = random.Random(count)
    tags = [
        "new, not looked at yet",
        "open since this morning",
        "waiting for the customer",
        "booked and confirmed",
        "archived",
    ]
    return {
        f"item-{number:06}": {"id": number, "score": round(draw.random(), 6), "tag": draw.choice(tags)}
        for number in range(count)
    }


def run(context: Context, workload: Workload) -> Result:
    """All sides; the targets are held against kvgit, whose figures they were set by."""
    count = QUICK_KEYS if context.quick else KEYS
    keys = [f"item-{number:06}" for number in random.Random(5).sample(range(count), WATCHED_ROUNDS + ROUNDS + 2)]
    watched, few = keys[: WATCHED_ROUNDS + 1], keys[WATCHED_ROUNDS + 1 :]
    folders = {name: context.fresh(name) for name in context.sides}

    context.progress(f"{workload.name}: first commit of {count} keys, changes on the handles that made it")
    first, held = _first_and_held(context, folders, count, watched)
    before = {name: stored_bytes(side, folders[name]) for name, side in context.sides.items()}

    context.progress(f"{workload.name}: changes on freshly opened handles")
    commits: dict[str, list[str]] = {name: [] for name in context.sides}
    with sessions_of(context.sides, folders) as sessions:
        for name, session in sessions.items():
            _change(session, few, commits[name], 0)
        fresh = alternate(
            {name: partial(_change, session, few[1:], commits[name]) for name, session in sessions.items()},
            TURNS,
            batch=BATCH,
        )
    stored = {
        name: (stored_bytes(side, folders[name]) - before[name]) / (ROUNDS + 1) for name, side in context.sides.items()
    }
    _require_changes(context, folders, count, keys)

    context.progress(f"{workload.name}: opening, diffs")
    opening = alternate(
        {name: partial(_open, side, folders[name], keys) for name, side in context.sides.items()}, COMPARISONS
    )
    diffs = {
        apart: alternate(
            {
                name: partial(_diff, side, folders[name], commits[name], few, apart=apart)
                for name, side in context.only(*CAN_DIFF).items()
            },
            COMPARISONS,
        )
        for apart in (1, FAR_APART)
    }
    return Result(
        workload.name,
        f"a state of {count:,} keys with a small dict each",
        metrics=[
            Metric.of_samples(
                "first commit", first, [(OURS, Target(limit=1.0)), (OURS, Target(ratio=1 / 14.8, base="kvgit"))]
            ),
            Metric.of_samples("change 1 key, few watched", fresh, [(OURS, Target(ratio=1 / 3, base="kvgit"))]),
            Metric("bytes a change", Unit.BYTES, stored, targets=[(OURS, Target(limit=3600))]),
            Metric.of_samples("change 1 key, all watched", held, [(OURS, Target(ratio=25, base="kvgit"))]),
            Metric.of_samples("diff of neighbours", diffs[1], [(OURS, Target(limit=0.0007))]),
            Metric.of_samples(f"diff, {FAR_APART} rounds apart", diffs[FAR_APART]),
            Metric.of_samples("open, read 1 key", opening),
        ],
        notes=[
            (
                "LangGraph keeps the keys in one channel and ZODB in a BTree;"
                " neither can name the keys that differ between two commits"
            ),
            "a diff is taken on a store just opened (opening not counted), as by someone who asks what a round changed",
        ],
    )


def _first_and_held(context: Context, folders: Folders, count: int, keys: Sequence[str]) -> tuple[Seconds, Seconds]:
    """The first commit of the state, then changes on the handle that made it and still holds every value."""
    first: Seconds = {}
    with sessions_of(context.sides, folders) as sessions:
        for name, session in sessions.items():
            first[name] = [_first(session, state_of(count))]
            _change(session, keys, [], 0)
        held = alternate(
            {name: partial(_change, session, keys[1:], []) for name, session in sessions.items()},
            WATCHED_TURNS,
            batch=WATCHED_BATCH,
        )
    return first, held


def _first(session: Session, items: dict[str, Any]) -> float:
    def work() -> None:
        session.put_many(items)
        session.commit()

    return timed(work)


def _change(session: Session, keys: Sequence[str], commits: list[str], number: int) -> float:
    """Read the value of one of the keys, change it in place, commit; the commit's id is noted."""
    key = keys[number]

    def work() -> None:
        session.get(key)["score"] += 1
        session.mutated(key)
        commits.append(session.commit())

    return timed(work)


def _require_changes(context: Context, folders: Folders, count: int, keys: Sequence[str]) -> None:
    expected = state_of(count)
    with sessions_of(context.sides, folders) as sessions:
        for name, session in sessions.items():
            for key in keys:
                require_equal(session.get(key)["score"], expected[key]["score"] + 1, f"{name}, {key}")


def _diff(
    side: type[Side], folder: Path, commits: Sequence[str], keys: Sequence[str], number: int, *, apart: int
) -> float:
    """Compare commit ``number`` with the one ``apart`` rounds later. Each round has changed a key of its own."""
    store = side(folder)
    session = store.session("main")
    found: list[str] = []
    seconds = timed(lambda: found.extend(session.diff(commits[number], commits[number + apart])))
    session.close()
    store.close()
    expected = keys[number + 1 : number + apart + 1]
    if len(found) != apart or not all(any(key in path for path in found) for key in expected):
        raise RuntimeError(f"{side.name}: diff found {found}, not {expected}")
    return seconds


def _open(side: type[Side], folder: Path, keys: Sequence[str], number: int) -> float:
    return timed_opening(side, folder, lambda session: session.get(keys[number]))


WORKLOADS = (Workload("keys-100000", "100,000 keys: first commit, change of one, diff, opening", run),)
