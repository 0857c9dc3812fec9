"""LangGraph: ``VersionedSaver`` on a ``Disk`` beside ``SqliteSaver`` of langgraph-checkpoint-sqlite, both as they come.

``SqliteSaver`` waits for the disk at each write, and ``Disk`` does so with ``durability="power"`` only: the cost of an fsync is
printed above the tables, and a put of theirs contains one.
"""

from __future__ import annotations

import random
import sqlite3
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks.frameworks.tables import OURS, THEIRS, Table, bytes_row, row, text
from benchmarks.measure import alternate, timed

Config = dict[str, Any]

_BATCH: Final = 10


@contextmanager
def _savers(folder: Path) -> Iterator[dict[str, Any]]:
    """Open the saver of each side, in a folder of its own."""
    from langgraph.checkpoint.sqlite import SqliteSaver

    from versioned_state.integrations.langgraph import VersionedSaver

    (folder / THEIRS).mkdir()
    with ExitStack() as stack:
        ours = stack.enter_context(VersionedSaver(folder / OURS))
        connection = stack.enter_context(closing(sqlite3.connect(folder / THEIRS / "saver.sqlite", check_same_thread=False)))
        theirs = SqliteSaver(connection)
        theirs.setup()
        yield {OURS: ours, THEIRS: theirs}


def _at(thread: str) -> Config:
    return {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}


class _Thread:
    """A thread that grows on one side."""

    def __init__(self, saver: Any, thread: str) -> None:
        self.saver = saver
        self.newest = _at(thread)
        self.at = self.newest

    def put(self, step: int, values: dict[str, Any]) -> float:
        """Put the next checkpoint, as LangGraph describes it, and return the seconds."""
        from langgraph.checkpoint.base import empty_checkpoint
        from langgraph.checkpoint.base.id import uuid6

        version = step + 1
        checkpoint = empty_checkpoint() | {"id": str(uuid6(clock_seq=step)), "channel_values": values}
        checkpoint["channel_versions"] = dict.fromkeys(values, version)
        checkpoint["versions_seen"] = {"__input__": {}, "agent": dict.fromkeys(values, step)}
        return timed(lambda: self._put(checkpoint, step, dict.fromkeys(values, version)))

    def _put(self, checkpoint: Any, step: int, versions: dict[str, int]) -> None:
        self.at = self.saver.put(self.at, checkpoint, {"source": "loop", "step": step, "parents": {}}, versions)


def _reads(threads: Mapping[str, _Thread], step: int, turns: int) -> list[list[str]]:
    """Rows for reading a thread; ``step`` is that of a checkpoint in its middle."""

    def each(call: Callable[[Any, Config], object], at: Mapping[str, Config]) -> dict[str, list[float]]:
        def reading(name: str, _: int) -> float:
            return timed(lambda: call(threads[name].saver, at[name]))

        return alternate({name: partial(reading, name) for name in threads}, turns, batch=3)

    newest = {name: thread.newest for name, thread in threads.items()}
    middle = {name: next(iter(thread.saver.list(thread.newest, filter={"step": step}))).config for name, thread in threads.items()}
    return [
        row("get_tuple, the newest", each(lambda saver, at: saver.get_tuple(at), newest), "3"),
        row("get_tuple, by its id", each(lambda saver, at: saver.get_tuple(at), middle)),
        row("list, the newest 10", each(lambda saver, at: list(saver.list(at, limit=10)), newest)),
        row("list, filter for one step", each(lambda saver, at: list(saver.list(at, filter={"step": step})), newest), "2"),
    ]


def _message(dice: random.Random, at: int, size: int) -> Any:
    from langchain_core.messages import AIMessage, HumanMessage

    return (AIMessage if at % 2 else HumanMessage)(text(dice, size), id=str(uuid.UUID(int=dice.getrandbits(128))))


def _conversation(count: int, size: int, folder: Path, *, quick: bool) -> Table:
    count = count // 10 if quick else count
    dice = random.Random(1)
    messages = [_message(dice, at, size) for at in range(count)]
    with _savers(folder) as savers:
        threads = {name: _Thread(saver, "thread") for name, saver in savers.items()}
        # A list of its own for each checkpoint, of the messages that were there before: as add_messages makes them.
        puts = {name: lambda at, thread=thread: thread.put(at, {"messages": messages[: at + 1]}) for name, thread in threads.items()}
        rows = [row("put", alternate(puts, count // _BATCH, batch=_BATCH), "1"), *_reads(threads, count // 2, 3 if quick else 9)]
    rows.append(bytes_row(folder, "0.1"))
    with _savers_again(folder) as savers:
        deleted = {name: [timed(partial(saver.delete_thread, "thread"))] for name, saver in savers.items()}
    return f"a conversation of {count} messages of {size} B", [*rows, row("delete_thread", deleted, "1")]


@contextmanager
def _savers_again(folder: Path) -> Iterator[dict[str, Any]]:
    """Open the savers of ``_savers`` once more."""
    from langgraph.checkpoint.sqlite import SqliteSaver

    from versioned_state.integrations.langgraph import VersionedSaver

    with (
        VersionedSaver(folder / OURS) as ours,
        closing(sqlite3.connect(folder / THEIRS / "saver.sqlite", check_same_thread=False)) as connection,
    ):
        yield {OURS: ours, THEIRS: SqliteSaver(connection)}


def _small(folder: Path, *, quick: bool) -> Table:
    count = 300 if quick else 3_000
    writes: dict[str, list[float]] = {OURS: [], THEIRS: []}
    with _savers(folder) as savers:
        threads = {name: _Thread(saver, "thread") for name, saver in savers.items()}

        def step(name: str, at: int) -> float:
            thread = threads[name]
            seconds = thread.put(at, {"step": at, "values": {"count": at, "last": f"message {at}"}})
            task = str(uuid.UUID(int=at))
            writes[name].append(timed(lambda: thread.saver.put_writes(thread.at, [("values", f"value {at}")], task)))
            return seconds

        puts = alternate({name: partial(step, name) for name in threads}, count // _BATCH, batch=_BATCH)
        rows = [row("put", puts, "1"), row("put_writes", writes, "1"), *_reads(threads, count // 2, 3 if quick else 15)]
    rows.append(bytes_row(folder, "1.1"))
    with _savers_again(folder) as savers:
        cold = {name: [timed(partial(_found, saver, count // 2))] for name, saver in savers.items()}
        rows.append(row("list, filter, by a process that has seen nothing", cold))
        deleted = {name: [timed(partial(saver.delete_thread, "thread"))] for name, saver in savers.items()}
    return f"{count:,} small checkpoints, each with a write", [*rows, row("delete_thread", deleted, "1")]


def _found(saver: Any, step: int) -> list[Any]:
    return list(saver.list(_at("thread"), filter={"step": step}))


def _threads(folder: Path, *, quick: bool) -> Table:
    count = 200 if quick else 10_000
    dice = random.Random(1)
    names = [str(uuid.UUID(int=dice.getrandbits(128))) for _ in range(count)]
    with _savers(folder) as savers:

        def step(saver: Any, at: int) -> float:
            # One invocation of a graph makes these three.
            words = random.Random(at)
            messages = [_message(words, number, 200) for number in range(2)]
            thread = _Thread(saver, names[at])
            made: list[dict[str, Any]] = [{"__start__": {"messages": messages[:1]}}, {"messages": messages[:1]}, {"messages": messages}]
            return sum(thread.put(number, values) for number, values in enumerate(made))

        puts = alternate({name: partial(step, saver) for name, saver in savers.items()}, count // _BATCH, batch=_BATCH)
        some = dice.sample(names, 60)

        def read(saver: Any, at: int) -> float:
            return timed(lambda: saver.get_tuple(_at(some[at])))

        reads = {name: partial(read, saver) for name, saver in savers.items()}
        rows = [row("three puts", puts, "1"), row("get_tuple, the newest", alternate(reads, 20, batch=3), "3")]
    rows.append(bytes_row(folder, "1.1"))
    with _savers_again(folder) as savers:

        def delete(saver: Any, at: int) -> float:
            return timed(lambda: saver.delete_thread(some[at]))

        deletes = {name: partial(delete, saver) for name, saver in savers.items()}
        rows.append(row("delete_thread", alternate(deletes, 20, batch=3), "1"))
    return f"{count:,} threads of one invocation", rows


PARTS: Final = {
    "conversation-200": partial(_conversation, 200, 400),
    "conversation-400": partial(_conversation, 400, 1_000),
    "small": _small,
    "threads": _threads,
}
