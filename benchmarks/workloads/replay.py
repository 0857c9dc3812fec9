"""``replay``: 200 real conversations, each a line of history of its own in one store, a commit per message.

``replay-power`` is the same for ours with every commit synced, against the peer that syncs each commit too.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from functools import partial

from benchmarks.data import Message
from benchmarks.measure import alternate, timed
from benchmarks.results import Metric, Result, Target, Unit
from benchmarks.sides import OURS, Side
from benchmarks.workloads.base import Context, Workload, opened, require_equal, stored_bytes

QUICK_CONVERSATIONS = 8


def run(context: Context, workload: Workload) -> Result:
    """All sides; faster than the fastest, at most 2 KB a round."""
    targets = {"time": [(OURS, Target(ratio=1.0))], "bytes": [(OURS, Target(limit=2000))]}
    return _replay(context, workload, dict(context.sides), targets)


def run_power(context: Context, workload: Workload) -> Result:
    """Ours at ``durability="power"`` and LangGraph's saver; no slower than the saver."""
    sides: dict[str, type[Side]] = context.only("langgraph")
    label = OURS
    if OURS in context.sides:
        from benchmarks.sides.ours import OursPower

        label = OursPower.name
        sides = {label: OursPower, **sides}
    targets = {"time": [(label, Target(ratio=1.0, base="langgraph"))], "bytes": []}
    result = _replay(context, workload, sides, targets)
    result.notes.append(
        "LangGraph's saver keeps sqlite3's default, synchronous=FULL, which syncs the log at each commit, "
        "as ours does here"
    )
    return result


def _replay(
    context: Context,
    workload: Workload,
    sides: Mapping[str, type[Side]],
    targets: Mapping[str, list[tuple[str, Target]]],
) -> Result:
    conversations = context.data.conversations[: QUICK_CONVERSATIONS if context.quick else None]
    rounds = sum(len(conversation) for conversation in conversations)
    folders = {name: context.fresh(name) for name in sides}
    context.progress(f"{workload.name}: {len(conversations)} conversations, {rounds} rounds, {len(sides)} sides")
    with opened(sides, folders) as stores:
        seconds = alternate(
            {name: partial(_conversation, store, conversations) for name, store in stores.items()},
            len(conversations),
        )
    stored = {name: stored_bytes(side, folders[name]) for name, side in sides.items()}
    with opened(sides, folders) as stores:
        for name, store in stores.items():
            for number in range(0, len(conversations), 7):
                session = store.session(_branch(number))
                require_equal(session.get("messages"), conversations[number], f"{name}, conversation {number}")
                session.close()
    a_round = {
        name: [total / len(conversation) for total, conversation in zip(found, conversations, strict=True)]
        for name, found in seconds.items()
    }
    return Result(
        workload.name,
        f"{len(conversations)} conversations from {context.data.source}, {rounds} rounds, a commit per message",
        metrics=[
            # A pair is one conversation, replayed by the sides one after the other.
            Metric.of_samples("time a round, median conversation", a_round, targets["time"]),
            Metric(
                "time a round, mean of all",
                Unit.SECONDS,
                {name: sum(found) / rounds for name, found in seconds.items()},
            ),
            Metric(
                "bytes a round",
                Unit.BYTES,
                {name: total / rounds for name, total in stored.items()},
                targets=targets["bytes"],
            ),
        ],
    )


def _conversation(store: Side, conversations: Sequence[list[Message]], number: int) -> float:
    # Copied for each side, so that no side works on values that another has touched.
    messages = copy.deepcopy(conversations[number])

    def work() -> None:
        session = store.session(_branch(number))
        session.put("messages", [messages[0]])
        session.commit()
        for message in messages[1:]:
            session.extend("messages", [message])
            session.commit()
        session.close()

    return timed(work)


def _branch(number: int) -> str:
    return f"conversation-{number}"


WORKLOADS = (
    Workload("replay", "200 real conversations, a commit per message", run),
    Workload("replay-power", "the same, every commit synced, against LangGraph's saver", run_power),
)
