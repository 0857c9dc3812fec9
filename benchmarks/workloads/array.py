"""``array``: one number of an 8 MB array of float64 changed in place, and a commit."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from benchmarks.measure import alternate, timed
from benchmarks.results import Metric, Result, Target, Unit
from benchmarks.sides import OURS, Session
from benchmarks.workloads.base import Context, Workload, opened, require_equal, stored_bytes

LENGTH = 1_000_000
TURNS, BATCH = 6, 2


def run(context: Context, workload: Workload) -> Result:
    """All sides; the targets are held against kvgit."""
    length, turns, batch = (100_000, 2, 1) if context.quick else (LENGTH, TURNS, BATCH)
    rounds = turns * batch + 1
    original = np.random.default_rng(3).random(length)
    # Spread over the array, so that no two rounds touch the same piece of it.
    places = [(number * 61 + 7) * length // (61 * (rounds + 1)) for number in range(rounds)]
    folders = {name: context.fresh(name) for name in context.sides}
    context.progress(f"{workload.name}: {original.nbytes / 1e6:g} MB, {turns} turns of {batch} rounds")
    before: dict[str, int] = {}
    for name, side in context.sides.items():
        with opened({name: side}, folders) as stores:
            session = stores[name].session("main")
            session.put("weights", original.copy())
            session.commit()
            session.close()
        before[name] = stored_bytes(side, folders[name])
    with opened(context.sides, folders) as stores:
        sessions = {name: store.session("main") for name, store in stores.items()}
        for session in sessions.values():
            # Some sides hand out arrays that cannot be written to; their users work on a copy, which the round that
            # warms up commits.
            if not session.get("weights").flags.writeable:
                session.put("weights", session.get("weights").copy())
            _round(session, places, 0)
        seconds = alternate(
            {name: partial(_round, session, places[1:]) for name, session in sessions.items()}, turns, batch=batch
        )
        for session in sessions.values():
            session.close()
    stored = {name: (stored_bytes(side, folders[name]) - before[name]) / rounds for name, side in context.sides.items()}
    expected = original.copy()
    expected[places] += 1.0
    for name, side in context.sides.items():
        with opened({name: side}, folders) as stores:
            session = stores[name].session("main")
            require_equal(session.get("weights").tobytes(), expected.tobytes(), name)
            session.close()
    return Result(
        workload.name,
        f"change one number of an array of {original.nbytes / 1e6:g} MB in place, commit; "
        f"{turns} turns of {batch} rounds",
        metrics=[
            Metric.of_samples("time a round", seconds, [(OURS, Target(ratio=1 / 5, base="kvgit"))]),
            Metric("bytes a round", Unit.BYTES, stored, targets=[(OURS, Target(limit=130_000))]),
        ],
    )


def _round(session: Session, places: Sequence[int], number: int) -> float:
    place = places[number]

    def work() -> None:
        session.get("weights")[place] += 1.0
        session.mutated("weights")
        session.commit()

    return timed(work)


WORKLOADS = (Workload("array", "change one number of an 8 MB array, commit", run),)
