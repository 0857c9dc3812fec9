"""``open-read``: a store opened and 1,000 messages read from it, a new handle each time.

Imports are not counted, nor is closing.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from benchmarks.data import Message
from benchmarks.measure import alternate
from benchmarks.results import Metric, Result, Target
from benchmarks.sides import OURS, Session, Side
from benchmarks.workloads.base import Context, Workload, require_equal, sessions_of, timed_opening

LENGTH = 1000
ROUNDS = 30
# The list is written in a few commits, as an agent would have: a store of one commit is a case of its own for some
# sides.
COMMITS = 5


def run(context: Context, workload: Workload) -> Result:
    """All sides."""
    length, rounds = (100, 4) if context.quick else (LENGTH, ROUNDS)
    context.progress(f"{workload.name}: {length} messages, {rounds} rounds")
    folders = {name: context.fresh(name) for name in context.sides}
    with sessions_of(context.sides, folders) as sessions:
        for session in sessions.values():
            session.put("messages", [])
            for number in range(COMMITS):
                session.extend("messages", context.data.messages(length // COMMITS, start=number * (length // COMMITS)))
                session.commit()
    expected = context.data.messages(length)
    seconds = alternate(
        {name: partial(_read, side, folders[name], expected) for name, side in context.sides.items()}, rounds
    )
    return Result(
        workload.name,
        f"open a store, read {length:,} messages; {rounds} rounds",
        metrics=[
            Metric.of_samples("time", seconds, [(OURS, Target(ratio=1.5)), (OURS, Target(ratio=1.0, base="kvgit"))]),
        ],
    )


def _read(side: type[Side], folder: Path, expected: list[Message], _number: int) -> float:
    def read(session: Session) -> None:
        # Touches every message, so that a value that is read lazily is read in full.
        if sum(len(message["content"]) for message in session.get("messages")) == 0:
            raise RuntimeError("nothing was read")

    return timed_opening(
        side, folder, read, lambda session: require_equal(session.get("messages"), expected, side.name)
    )


WORKLOADS = (Workload("open-read", "open a store, read 1,000 messages", run),)
