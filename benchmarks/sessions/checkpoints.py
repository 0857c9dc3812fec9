"""Checkpoints: a small state, its id and its step, and one pending write; beside other savers."""

from __future__ import annotations

import asyncio
import statistics
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks.measure import Step, folder_bytes, ms, timed, timed_call
from versioned_state import Disk, Repository, Versioned

Calls = dict[str, Step]
"""The calls on a saver, by column: ``put`` of a step, ``writes`` of it, and a read of the ``latest``."""

_COLUMNS: Final = ("put", "writes", "latest")
_EVERY: Final = 30
"""Steps from one read of the latest to the next."""


def rows(folder: Path, count: int) -> Iterator[list[str]]:
    """A row for each saver that is installed."""
    for name, side in _SIDES.items():
        path = folder / name.split()[0]
        path.mkdir(parents=True)
        seconds: dict[str, list[float]] = {column: [] for column in _COLUMNS}
        with suppress(ImportError), side(path) as calls:
            for step in range(count):
                for column, call in calls.items():
                    if column != "latest" or step % _EVERY == 0:
                        seconds[column].append(call(step))
        if any(seconds.values()):
            times = [ms(statistics.median(found)) if found else "" for found in seconds.values()]
            yield [name, f"{folder_bytes(path) / 1e6:.2f}", *times]


@contextmanager
def _ours(path: Path) -> Iterator[Calls]:
    with Disk(path) as store:
        repository = Repository(store)
        state = Versioned(repository, branch="thread")

        def put(step: int) -> float:
            id = str(uuid.uuid4())

            def work() -> None:
                state["step"], state["values"] = step, {"count": step, "last": f"message {step}"}
                meta = {"checkpoint": id, "step": step, "source": "loop"}
                state.commit(f"step {step}", meta=meta, tag=f"thread/{id}")

            return timed(work)

        def write(step: int) -> float:
            return timed(lambda: repository.notes.update(state.head, {f"task-{step}": ["channel", f"value {step}"]}))

        yield {"put": put, "writes": write, "latest": lambda _: timed(partial(_latest, Repository(store)))}


def _latest(repository: Repository) -> tuple[object, ...]:
    head = repository.branches["thread"]
    snapshot = repository.snapshot(head)
    return head.meta, dict(snapshot), repository.notes.get(head)


@contextmanager
def _langgraph(path: Path) -> Iterator[Calls]:
    import sqlite3

    from langgraph.checkpoint.base import empty_checkpoint
    from langgraph.checkpoint.base.id import uuid6
    from langgraph.checkpoint.sqlite import SqliteSaver

    newest: Any = {"configurable": {"thread_id": "thread", "checkpoint_ns": ""}}
    with closing(sqlite3.connect(path / "saver.sqlite", check_same_thread=False)) as connection:
        saver = SqliteSaver(connection)
        saver.setup()
        config = newest

        def put(step: int) -> float:
            checkpoint = empty_checkpoint()
            checkpoint["id"] = str(uuid6(clock_seq=-1))
            checkpoint["channel_values"] = {"step": step, "values": {"count": step, "last": f"message {step}"}}

            def work() -> None:
                nonlocal config
                config = saver.put(config, checkpoint, {"source": "loop", "step": step}, {})

            return timed(work)

        def write(step: int) -> float:
            return timed(lambda: saver.put_writes(config, [("channel", f"value {step}")], f"task-{step}"))

        yield {"put": put, "writes": write, "latest": lambda _: timed(partial(saver.get_tuple, newest))}


@contextmanager
def _openai(path: Path) -> Iterator[Calls]:
    from agents.memory import SQLiteSession

    with closing(SQLiteSession("thread", path / "sessions.sqlite")) as session, asyncio.Runner() as runner:

        def put(step: int) -> float:
            items: Any = [{"role": "user", "content": f"message {step}"}]
            return runner.run(timed_call(partial(session.add_items, items)))

        yield {"put": put, "latest": lambda _: runner.run(timed_call(partial(session.get_items, limit=1)))}


_SIDES: Final[dict[str, Callable[[Path], AbstractContextManager[Calls]]]] = {
    "versioned-state": _ours,
    "LangGraph SqliteSaver": _langgraph,
    "OpenAI Agents SQLiteSession (an item each, no checkpoints)": _openai,
}
