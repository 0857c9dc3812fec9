"""LangGraph: ``VersionedSaver`` on a ``Disk`` beside ``SqliteSaver`` of langgraph-checkpoint-sqlite, both as they come.

``SqliteSaver`` waits for the disk at each write, and ``Disk`` does so with ``durability="power"`` only: the cost of an
fsync is printed above the tables, and a put of theirs contains one. In the tables "both synced" ours waits too.
"""

from __future__ import annotations

import random
import sqlite3
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks.frameworks.tables import OURS, THEIRS, Table, bytes_row, row, text
from benchmarks.measure import alternate
from versioned_state.storage import Disk
from versioned_state.storage.local.sqlite_file import Durability

Config = dict[str, Any]

_SYNCED: Final[Mapping[Durability, str]] = {"process": "", "power": ", both synced"}
"""The end of the title of a table."""

_BATCH: Final = 10
_MANY: Final = 50
"""Threads of one turn: garbage is collected after each, which takes longer than a few of them."""


@contextmanager
def _savers(folder: Path, durability: Durability = "process") -> Iterator[dict[str, Any]]:
    """Open the saver of each side, in a folder of its own, which may have one already."""
    from langgraph.checkpoint.sqlite import SqliteSaver

    from versioned_state.integrations.langgraph import VersionedSaver

    (folder / THEIRS).mkdir(exist_ok=True)
    with ExitStack() as stack:
        store = stack.enter_context(Disk(folder / OURS, durability=durability))
        ours = stack.enter_context(VersionedSaver(store))
        connection = stack.enter_context(
            closing(sqlite3.connect(folder / THEIRS / "saver.sqlite", check_same_thread=False))
        )
        theirs = SqliteSaver(connection)
        theirs.setup()
        yield {OURS: ours, THEIRS: theirs}


def _at(thread: str) -> Config:
    return {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}


class _Meter:
    """Times calls of both sides. ``cpu`` has the seconds of the processor, which waits for no disk."""

    def __init__(self) -> None:
        self.cpu = {OURS: 0.0, THEIRS: 0.0}

    def __call__(self, side: str, work: Callable[[], object]) -> float:
        """Do a call, and return its seconds by the clock."""
        before, start = time.process_time(), time.perf_counter()
        work()
        end = time.perf_counter()
        self.cpu[side] += time.process_time() - before
        return end - start


def _calls(name: str, call: Callable[[str, int], object], turns: int, *, batch: int, aim: str = "") -> list[str]:
    """The row of a call, which gets the side and the number of the round."""
    meter = _Meter()

    def step(side: str, at: int) -> float:
        return meter(side, lambda: call(side, at))

    return row(name, alternate({side: partial(step, side) for side in meter.cpu}, turns, batch=batch), aim, meter.cpu)


class _Thread:
    """A thread that grows on one side."""

    def __init__(self, side: str, saver: Any, thread: str) -> None:
        self.side = side
        self.saver = saver
        self.newest = _at(thread)
        self.at = self.newest

    def put(self, meter: _Meter, step: int, values: dict[str, Any]) -> float:
        """Put the next checkpoint, as LangGraph describes it, and return the seconds."""
        from langgraph.checkpoint.base import empty_checkpoint
        from langgraph.checkpoint.base.id import uuid6

        version = step + 1
        checkpoint = empty_checkpoint() | {"id": str(uuid6(clock_seq=step)), "channel_values": values}
        checkpoint["channel_versions"] = dict.fromkeys(values, version)
        checkpoint["versions_seen"] = {"__input__": {}, "agent": dict.fromkeys(values, step)}
        return meter(self.side, lambda: self._put(checkpoint, step, dict.fromkeys(values, version)))

    def _put(self, checkpoint: Any, step: int, versions: dict[str, int]) -> None:
        self.at = self.saver.put(self.at, checkpoint, {"source": "loop", "step": step, "parents": {}}, versions)


def _reads(threads: Mapping[str, _Thread], step: int, turns: int) -> list[list[str]]:
    """Rows for reading a thread; ``step`` is that of a checkpoint in its middle."""

    def measured(
        name: str, call: Callable[[Any, Config], object], at: Mapping[str, Config], aim: str = ""
    ) -> list[str]:
        return _calls(name, lambda side, _: call(threads[side].saver, at[side]), turns, batch=3, aim=aim)

    newest = {name: thread.newest for name, thread in threads.items()}
    middle = {
        name: next(iter(thread.saver.list(thread.newest, filter={"step": step}))).config
        for name, thread in threads.items()
    }
    return [
        measured("get_tuple, the newest", lambda saver, at: saver.get_tuple(at), newest, "3"),
        measured("get_tuple, by its id", lambda saver, at: saver.get_tuple(at), middle),
        measured("list, the newest 10", lambda saver, at: list(saver.list(at, limit=10)), newest),
        measured(
            "list, filter for one step", lambda saver, at: list(saver.list(at, filter={"step": step})), newest, "2"
        ),
    ]


def _message(dice: random.Random, at: int, size: int) -> Any:
    from langchain_core.messages import AIMessage, HumanMessage

    return (AIMessage if at % 2 else HumanMessage)(text(dice, size), id=str(uuid.UUID(int=dice.getrandbits(128))))


def _conversation(count: int, size: int, folder: Path, *, quick: bool) -> Table:
    count = count // 10 if quick else count
    dice = random.Random(1)
    messages = [_message(dice, at, size) for at in range(count)]
    with _savers(folder) as savers:
        threads = {name: _Thread(name, saver, "thread") for name, saver in savers.items()}
        # A list of its own for each checkpoint, of the messages that were there before: as add_messages makes them.
        meter = _Meter()
        puts = {
            name: lambda at, thread=thread: thread.put(meter, at, {"messages": messages[: at + 1]})
            for name, thread in threads.items()
        }
        rows = [
            row("put", alternate(puts, count // _BATCH, batch=_BATCH), "1", meter.cpu),
            *_reads(threads, count // 2, 3 if quick else 9),
        ]
    rows.append(bytes_row(folder, "0.1"))
    with _savers(folder) as savers:
        rows.append(_delete(savers))
    return f"a conversation of {count} messages of {size} B", rows


def _delete(savers: Mapping[str, Any]) -> list[str]:
    return _calls("delete_thread", lambda side, _: savers[side].delete_thread("thread"), 1, batch=1, aim="1")


def _small(folder: Path, *, quick: bool, durability: Durability = "process") -> Table:
    count = 300 if quick else 3_000
    writes: dict[str, list[float]] = {OURS: [], THEIRS: []}
    meter, writing = _Meter(), _Meter()
    with _savers(folder, durability) as savers:
        threads = {name: _Thread(name, saver, "thread") for name, saver in savers.items()}

        def step(name: str, at: int) -> float:
            thread = threads[name]
            seconds = thread.put(meter, at, {"step": at, "values": {"count": at, "last": f"message {at}"}})
            task = str(uuid.UUID(int=at))
            writes[name].append(
                writing(name, lambda: thread.saver.put_writes(thread.at, [("values", f"value {at}")], task))
            )
            return seconds

        puts = alternate({name: partial(step, name) for name in threads}, count // _BATCH, batch=_BATCH)
        rows = [
            row("put", puts, "1", meter.cpu),
            row("put_writes", writes, "1", writing.cpu),
            *_reads(threads, count // 2, 3 if quick else 15),
        ]
    rows.append(bytes_row(folder, "1.1"))
    meter = _Meter()
    cold: dict[str, list[float]] = {OURS: [], THEIRS: []}
    for _ in range(3 if quick else 15):
        with _savers(folder, durability) as savers:
            for name, saver in savers.items():
                cold[name].append(meter(name, partial(_found, saver, count // 2)))
    rows.append(row("list, filter, by a process that has seen nothing", cold, "2", meter.cpu))
    with _savers(folder, durability) as savers:
        rows.append(_delete(savers))
    return f"{count:,} small checkpoints, each with a write{_SYNCED[durability]}", rows


def _found(saver: Any, step: int) -> list[Any]:
    return list(saver.list(_at("thread"), filter={"step": step}))


def _threads(folder: Path, *, quick: bool, count: int = 10_000, durability: Durability = "process") -> Table:
    count = 200 if quick else count
    dice = random.Random(1)
    names = [str(uuid.UUID(int=dice.getrandbits(128))) for _ in range(count)]
    meter = _Meter()
    with _savers(folder, durability) as savers:

        def step(side: str, saver: Any, at: int) -> float:
            # One invocation of a graph makes these three.
            words = random.Random(at)
            messages = [_message(words, number, 200) for number in range(2)]
            thread = _Thread(side, saver, names[at])
            made: list[dict[str, Any]] = [
                {"__start__": {"messages": messages[:1]}},
                {"messages": messages[:1]},
                {"messages": messages},
            ]
            return sum(thread.put(meter, number, values) for number, values in enumerate(made))

        puts = alternate(
            {name: partial(step, name, saver) for name, saver in savers.items()}, count // _MANY, batch=_MANY
        )
        some = dice.sample(names, 60)
        rows = [
            row("three puts", puts, "1", meter.cpu),
            _calls(
                "get_tuple, the newest",
                lambda side, at: savers[side].get_tuple(_at(some[at])),
                20,
                batch=3,
                aim="3",
            ),
        ]
    rows.append(bytes_row(folder, "1.1"))
    with _savers(folder, durability) as savers:
        rows.append(
            _calls("delete_thread", lambda side, at: savers[side].delete_thread(some[at]), 20, batch=3, aim="1")
        )
    return f"{count:,} threads of one invocation{_SYNCED[durability]}", rows


PARTS: Final = {
    "conversation-200": partial(_conversation, 200, 400),
    "conversation-400": partial(_conversation, 400, 1_000),
    "small": _small,
    "threads": _threads,
    "small-synced": partial(_small, durability="power"),
    "threads-synced": partial(_threads, count=1_000, durability="power"),
}
