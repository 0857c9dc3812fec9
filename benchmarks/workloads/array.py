"""``array``: one number of an 8 MB array of float64 changed in place, and a commit."""

from __future__ import annotations

import numpy as np

from benchmarks.measure import timed
from benchmarks.results import Metric, Result, Target, Unit
from benchmarks.sides import OURS, Session
from benchmarks.workloads.base import Context, Workload, measure_rounds, require_equal

LENGTH = 1_000_000
TURNS, BATCH = 6, 2


def run(context: Context, workload: Workload) -> Result:
    """All sides; the targets are held against kvgit."""
    length, turns, batch = (100_000, 2, 1) if context.quick else (LENGTH, TURNS, BATCH)
    rounds = turns * batch + 1
    original = np.random.default_rng(3).random(length)
    # Spread over the array, so that no two rounds touch the same piece of it.
    places = [(number * 61 + 7) * length // (61 * (rounds + 1)) for number in range(rounds)]
    expected = original.copy()
    expected[places] += 1.0

    def once(_: str, session: Session, number: int) -> float:
        place = places[number + 1]
        # Some sides hand out arrays that cannot be written to; their users work on a copy, which the round that warms
        # up commits.
        if not session.get("weights").flags.writeable:
            session.put("weights", session.get("weights").copy())

        def work() -> None:
            session.get("weights")[place] += 1.0
            session.mutated("weights")
            session.commit()

        return timed(work)

    context.progress(f"{workload.name}: {original.nbytes / 1e6:g} MB, {turns} turns of {batch} rounds")
    found = measure_rounds(
        context.sides,
        {name: context.fresh(name) for name in context.sides},
        lambda _, session: session.put("weights", original.copy()),
        once,
        lambda name, session: require_equal(session.get("weights").tobytes(), expected.tobytes(), name),
        turns=turns,
        batch=batch,
    )
    return Result(
        workload.name,
        f"change one number of an array of {original.nbytes / 1e6:g} MB in place, commit; "
        f"{turns} turns of {batch} rounds",
        metrics=[
            Metric.of_samples("time a round", found.seconds, [(OURS, Target(ratio=1 / 5, base="kvgit"))]),
            Metric("bytes a round", Unit.BYTES, found.stored, targets=[(OURS, Target(limit=130_000))]),
        ],
    )


WORKLOADS = (Workload("array", "change one number of an 8 MB array, commit", run),)
