"""``scripts/bench sessions``: calls on one of many sessions, at several numbers of sessions; and small checkpoints beside other savers."""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.measure import environment, folder_bytes, timed
from benchmarks.servers import Servers
from versioned_state import Disk, KVStore, Repository, Versioned, branch_name
from versioned_state.errors import StateError

SIZES = {"disk": (10, 1_000, 100_000), "redis": (10, 1_000, 100_000), "postgres": (10, 1_000, 20_000)}
QUICK = (10, 200)
PER_USER = 10
CHECKPOINTS = 3_000
FILTERED = "u1"
"""The prefix of 11,110 of 100,000 sessions."""

AIMS = {
    "one user's sessions": "1 ms",
    "heads by meta": "100 ms for 10,000",
    "delete one": "10 ms",
    "delete one, checked": "10 ms",
    "prune one": "10 ms",
    "expire one": "10 ms",
    "purge one": "10 ms",
    "purge one user's": "10 ms each",
}


class Clock:
    """Sessions are made a minute apart, as they are in life."""

    def __init__(self) -> None:
        self.now = 1_700_000_000_000_000

    def __call__(self) -> int:
        self.now += 60_000_000
        return self.now


def main(arguments: Sequence[str]) -> int:
    """Measure, print the tables, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks sessions", description="Calls on one of many sessions.")
    parser.add_argument("--stores", type=lambda text: text.split(","), default=["disk", "redis"], help="of disk,redis,postgres")
    parser.add_argument("--sizes", type=lambda text: [int(each) for each in text.split(",")], metavar="N,N", help="numbers of sessions")
    parser.add_argument("--quick", action="store_true", help="few sessions: to see that it works, not to quote")
    parser.add_argument("--part", choices=("calls", "checkpoints"), help="one part only")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="vstate-bench-") as name, Servers() as servers:
        folder = Path(name)
        print(", ".join(f"{name} {value}" for name, value in environment(folder).items()))
        for kind in options.stores if options.part != "checkpoints" else ():
            sizes = options.sizes or (QUICK if options.quick else SIZES[kind])
            columns = [dict(_calls(_open(kind, folder / f"{kind}-{size}", servers), size)) for size in sizes]
            rows = [[call, *(column.get(call, "") for column in columns), AIMS.get(call, "")] for call in columns[-1]]
            print()
            report.print_table([kind, *(f"{size:,} sessions" for size in sizes), "aim"], rows)
        if options.part != "calls":
            count = 200 if options.quick else CHECKPOINTS
            print()
            rows = [row for side in (_ours, _langgraph, _openai) if (row := side(folder, count)) is not None]
            report.print_table([f"{count:,} checkpoints with writes", "MB", "put", "writes", "latest"], rows)
    return 0


def _open(kind: str, folder: Path, servers: Servers) -> KVStore:
    if kind == "redis":
        from versioned_state.storage import Redis

        return Redis(servers.redis.url, prefix=folder.name)
    if kind == "postgres":
        from versioned_state.storage import Postgres

        return Postgres(servers.postgres.url, schema=folder.name.replace("-", "_"))
    return Disk(folder)


def _calls(store: KVStore, size: int) -> Iterator[tuple[str, str]]:
    """The time of each call in a store with that number of sessions."""
    with store:
        repository = Repository(store, clock=Clock())
        before = store.size() if isinstance(store, Disk) else 0
        seconds = timed(partial(_fill, repository, size))
        yield "make one", _ms(seconds / size)
        if isinstance(store, Disk):
            yield "bytes of one", f"{(store.size() - before) / size:,.0f}"
        repository = Repository(store, clock=repository.database.clock)
        middle = branch_name(f"u{size // PER_USER // 2}")
        calls: dict[str, Callable[[], object]] = {
            "one user's sessions": lambda: list(repository.branches.iter_info(prefix=middle + "/")),
            "page of 20": lambda: list(repository.branches.iter_info(after=middle, limit=20)),
            "newest 20": lambda: list(repository.branches.iter_info(by="changed", limit=20)),
            "one user's newest": lambda: list(repository.branches.iter_info(by="changed", prefix=middle + "/", limit=3)),
            "default branch": repository.default_branch,
            "open and commit": partial(_commit, repository, size),
            "commit with a tag": partial(_commit, repository, size, tag=True),
            "note": lambda: repository.notes.update(repository.branches[_name(0)], {"score": 1}),
            "nothing to expire": repository.expire,
        }
        for name, call in calls.items():
            yield name, _ms(statistics.median(timed(call) for _ in range(15)))
        every = sum(1 for _ in repository.branches.iter_info(prefix=FILTERED))
        closed = partial(repository.branches.iter_info, prefix=FILTERED, where={"status": "closed"})
        yield "heads by meta", f"{_ms(min(timed(lambda: list(closed())) for _ in range(3)))} for {every:,}"
        once: dict[str, Callable[[int], object]] = {
            "delete one": lambda n: repository.branches.delete(_name(n), force=True),
            "delete one, checked": partial(_delete_checked, repository),
            "prune one": lambda n: repository.prune(keep_last=1, branches=_name(n)),
            "expire one": partial(_expire, repository),
        }
        for number, (name, act) in enumerate(once.items()):
            yield name, _ms(timed(partial(act, number + 1)))
        if store.max_expected is None:
            # The gc of the night; then a day of some sessions.
            yield "gc", _ms(timed(repository.gc))
            for n in range(min(size // 2, 100)):
                _commit(repository, size - 2 * n)
            yield "purge one", _ms(timed(lambda: repository.purge(branches=_name(size // 3))))
            user = branch_name(f"u{size // PER_USER // 4}")
            yield "purge one user's", f"{_ms(timed(lambda: repository.purge(branches=f'{user}/*')))} for {PER_USER}"


def _name(number: int) -> str:
    return branch_name(f"u{number // PER_USER}", f"session-{number}")


def _fill(repository: Repository, size: int) -> None:
    for number in range(size):
        state = Versioned(repository, branch=_name(number))
        state["messages"] = [{"role": "user", "content": f"hello {number}"}]
        state.commit(meta={"user": f"u{number // PER_USER}", "status": "open" if number % 100 else "closed"})


def _commit(repository: Repository, size: int, *, tag: bool = False) -> None:
    state = Versioned(repository, branch=_name(size // 2))
    state["turn"] = str(uuid.uuid4())
    state.commit(tag=f"checkpoint/{state['turn']}" if tag else None)


def _delete_checked(repository: Repository, number: int) -> None:
    with suppress(StateError):  # it has commits of its own
        repository.branches.delete(_name(number))


def _expire(repository: Repository, number: int) -> None:
    state = Versioned(repository, branch=_name(number), ttl_seconds=1)
    state["last"] = True
    state.commit()
    assert _name(number) in repository.expire()


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.2f} ms"


# Checkpoints: a small state, its id and its step, and one pending write


def _row(name: str, size: int, put: list[float], writes: list[float], latest: list[float]) -> list[str]:
    return [name, f"{size / 1e6:.2f}", *(_ms(statistics.median(each)) if each else "" for each in (put, writes, latest))]


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
                latest.append(timed(partial(saver.get_tuple, {"configurable": {"thread_id": "thread", "checkpoint_ns": ""}})))
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
