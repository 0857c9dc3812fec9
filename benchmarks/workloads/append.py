"""``append-1000`` and ``append-10000``: two messages appended to a long list, and a commit.

Ours runs twice: with the plain list, loaded and changed in place, and through ``state.sequence(key)``, which never
loads it.
"""

from __future__ import annotations

from functools import partial

from benchmarks.measure import timed
from benchmarks.results import Metric, Result, Target, Unit
from benchmarks.sides import OURS, Session, Side
from benchmarks.workloads.base import Context, Rounds, Workload, measure_rounds, require_equal

STEP = 2  # messages a round: what was asked, and what was answered
SEQUENCE = "ours (sequence)"


def with_sequence(context: Context) -> dict[str, type[Side]]:
    """The sides of the run, and after ours the same through the lazy handle."""
    sides: dict[str, type[Side]] = {}
    for name, side in context.sides.items():
        sides[name] = side
        if name == OURS:
            from benchmarks.sides.ours import OursSequence

            sides[OursSequence.name] = OursSequence
    return sides


def measure(context: Context, sides: dict[str, type[Side]], length: int, turns: int, batch: int) -> Rounds:
    """Append in ``turns`` times ``batch`` rounds on every side, to a list that has ``length`` messages halfway through.

    The lazy handle does not read the list.
    """
    data, rounds = context.data, turns * batch + 1
    start = length - STEP * rounds // 2
    expected = data.messages(start + STEP * rounds)

    def once(_: str, session: Session, number: int) -> float:
        new = data.messages(STEP, start=start + STEP * (number + 1))

        def work() -> None:
            session.extend("messages", new)
            session.commit()

        return timed(work)

    return measure_rounds(
        sides,
        {name: context.fresh(name) for name in sides},
        lambda _, session: session.put("messages", data.messages(start)),
        once,
        lambda name, session: require_equal(session.get("messages"), expected, name),
        turns=turns,
        batch=batch,
    )


def run(
    context: Context,
    workload: Workload,
    *,
    length: int,
    turns: int,
    batch: int,
    targets: dict[str, list[tuple[str, Target]]],
) -> Result:
    """One length of list."""
    if context.quick:
        length, turns, batch = length // 10, 2, 2
    context.progress(f"{workload.name}: a list of {length} messages, {turns} turns of {batch} rounds")
    found = measure(context, with_sequence(context), length, turns, batch)
    return Result(
        workload.name,
        f"append {STEP} messages of 1 KB to a list of {length:,}, commit; {turns} turns of {batch} rounds",
        metrics=[
            Metric.of_samples("time a round", found.seconds, targets["time"]),
            Metric("bytes a round", Unit.BYTES, found.stored, targets=targets["bytes"]),
        ],
    )


WORKLOADS = (
    Workload(
        "append-1000",
        "append 2 messages to a list of 1,000, commit",
        partial(
            run,
            length=1000,
            turns=10,
            batch=8,
            targets={
                "time": [(OURS, Target(ratio=1 / 8)), (SEQUENCE, Target(ratio=1 / 8))],
                "bytes": [(OURS, Target(limit=4000)), (SEQUENCE, Target(limit=4000))],
            },
        ),
    ),
    Workload(
        "append-10000",
        "append 2 messages to a list of 10,000, commit",
        partial(
            run,
            length=10000,
            turns=6,
            batch=4,
            targets={
                "time": [(OURS, Target(ratio=1 / 9)), (SEQUENCE, Target(ratio=1 / 100))],
                "bytes": [(OURS, Target(limit=5000)), (SEQUENCE, Target(limit=5000))],
            },
        ),
    ),
)
