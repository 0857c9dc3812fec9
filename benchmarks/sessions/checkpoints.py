"""Checkpoints: a small state, its id and its step, and one pending write; beside other savers."""

from __future__ import annotations

import asyncio
import statistics
import time
import uuid
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.measure import folder_bytes, timed
from benchmarks.sessions.sample import ms
from versioned_state import Disk, Repository, Versioned


def rows(folder: Path, count: int) -> list[list[str]]:
    """A row for each saver that is installed."""
    return [row for side in (_ours, _langgraph, _openai) if (row := side(folder, count)) is not None]


def _row(name: str, size: int, put: list[float], writes: list[float], latest: list[float]) -> list[str]:
    return [name, f"{size / 1e6:.2f}", *(ms(statistics.median(each)) if each else "" for each in (put, writes, latest))]


def _ours(folder: Path, count: int) -> list[str]:
    path = folder / "ours"
    put, writes, latest = [], [], []
    with Disk(path) as store:
        repository = Repository(store)
        state = Versioned(repository, branch="thread")
        for step in range(count):
            id = str(uuid.uuid4())

            start = time.perf_counter()
            state["step"], state["values"] = step, {"count": step, "last": f"message {step}"}
            state.commit(f"step {step}", meta={"checkpoint": id, "step": step, "source": "loop"}, tag=f"thread/{id}")
            middle = time.perf_counter()
            repository.notes.update(state.head, {f"task-{step}": ["channel", f"value {step}"]})
            put.append(middle - start)
            writes.append(time.perf_counter() - middle)
            if step % 30 == 0:
                latest.append(timed(partial(_latest, Repository(store))))
    return _row("versioned-state", folder_bytes(path), put, writes, latest)


def _latest(repository: Repository) -> tuple[object, ...]:
    head = repository.branches["thread"]
    snapshot = repository.snapshot(head)
    return head.meta, dict(snapshot), repository.notes.get(head)


def _langgraph(folder: Path, count: int) -> list[str] | None:
    try:
        import sqlite3

        from langgraph.checkpoint.base import empty_checkpoint
        from langgraph.checkpoint.base.id import uuid6
        from langgraph.checkpoint.sqlite import SqliteSaver
    except ImportError:
        return None
    path = folder / "langgraph"
    path.mkdir()
    put, writes, latest = [], [], []
    with closing(sqlite3.connect(path / "saver.sqlite", check_same_thread=False)) as connection:
        saver = SqliteSaver(connection)
        saver.setup()
        config: Any = {"configurable": {"thread_id": "thread", "checkpoint_ns": ""}}
        for step in range(count):
            checkpoint = empty_checkpoint()
            checkpoint["id"] = str(uuid6(clock_seq=-1))
            checkpoint["channel_values"] = {"step": step, "values": {"count": step, "last": f"message {step}"}}
            start = time.perf_counter()
            config = saver.put(config, checkpoint, {"source": "loop", "step": step}, {})
            middle = time.perf_counter()
            saver.put_writes(config, [("channel", f"value {step}")], f"task-{step}")
            put.append(middle - start)
            writes.append(time.perf_counter() - middle)
            if step % 30 == 0:
                latest.append(
                    timed(partial(saver.get_tuple, {"configurable": {"thread_id": "thread", "checkpoint_ns": ""}}))
                )
    return _row("LangGraph SqliteSaver", folder_bytes(path), put, writes, latest)


def _openai(folder: Path, count: int) -> list[str] | None:
    try:
        from agents.memory import SQLiteSession
    except ImportError:
        return None
    path = folder / "openai"
    path.mkdir()
    put, latest = [], []
    session = SQLiteSession("thread", path / "sessions.sqlite")

    async def run() -> None:
        for step in range(count):
            start = time.perf_counter()
            await session.add_items([{"role": "user", "content": f"message {step}"}])
            put.append(time.perf_counter() - start)
            if step % 30 == 0:
                start = time.perf_counter()
                await session.get_items(limit=1)
                latest.append(time.perf_counter() - start)

    asyncio.run(run())
    session.close()
    return _row("OpenAI Agents SQLiteSession (an item each, no checkpoints)", folder_bytes(path), put, [], latest)
