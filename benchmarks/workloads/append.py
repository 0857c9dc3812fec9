"""``append-1000`` and ``append-10000``: two messages appended to a long list, and a commit.

Ours runs twice: with the plain list, loaded and changed in place, and through ``state.sequence(key)``, which never
loads it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from benchmarks.data import Data
from benchmarks.measure import alternate, timed
from benchmarks.results import Metric, Result, Target, Unit
from benchmarks.sides import OURS, Session, Side
from benchmarks.workloads.base import Context, Workload, opened, require_equal, stored_bytes

STEP = 2  # messages a round: what was asked, and what was answered
SEQUENCE = "ours (sequence)"


@dataclass(frozen=True)
class Appends:
    """The cost of a run of appends, by side: seconds a round in each turn, and stored bytes a round."""

    seconds: dict[str, list[float]]
    stored: dict[str, float]


def with_sequence(context: Context) -> dict[str, type[Side]]:
    """The sides of the run, and after ours the same through the lazy handle."""
    sides: dict[str, type[Side]] = {}
    for name, side in context.sides.items():
        sides[name] = side
        if name == OURS:
            from benchmarks.sides.ours import OursSequence

            sides[OursSequence.name] = OursSequence
    return sides


def measure(context: Context, sides: dict[str, type[Side]], length: int, turns: int, batch: int) -> Appends:
    """Append in ``turns`` times ``batch`` rounds on every side, to a list that has ``length`` messages halfway through.

    The list is committed and the store closed, so that what it holds before the rounds is known; then it is opened
    again, the list is read (but by the lazy handle), and one more round warms up. Bytes count that round too.
    """
    rounds = turns * batch + 1
    start = length - STEP * rounds // 2
    folders = {name: context.fresh(name) for name in sides}
    before: dict[str, int] = {}
    for name, side in sides.items():
        with opened({name: side}, folders) as stores:
            session = stores[name].session("main")
            session.put("messages", context.data.messages(start))
            session.commit()
            session.close()
        before[name] = stored_bytes(side, folders[name])
    with opened(sides, folders) as stores:
        sessions = {name: store.session("main") for name, store in stores.items()}
        for name, session in sessions.items():
            if name != SEQUENCE:
                require_equal(len(session.get("messages")), start, name)
            _round(context.data, session, start, 0)
        seconds = alternate(
            {name: partial(_round, context.data, session, start + STEP) for name, session in sessions.items()},
            turns,
            batch=batch,
        )
        for session in sessions.values():
            session.close()
    stored = {name: (stored_bytes(side, folders[name]) - before[name]) / rounds for name, side in sides.items()}
    expected = context.data.messages(start + STEP * rounds)
    for name, side in sides.items():
        with opened({name: side}, folders) as stores:
            session = stores[name].session("main")
            require_equal(session.get("messages"), expected, name)
            session.close()
    return Appends(seconds, stored)


def _round(data: Data, session: Session, start: int, number: int) -> float:
    new = data.messages(STEP, start=start + STEP * number)

    def work() -> None:
        session.extend("messages", new)
        session.commit()

    return timed(work)


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
