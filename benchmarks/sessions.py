"""``scripts/bench sessions``: calls on one of many sessions, at several numbers of sessions; requests and checkpoints beside other savers.

``--part appends`` measures small appends to a long list. Appending to a list of 1,000 dataclasses or models is measured by
``scripts/bench typed``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sqlite3
import statistics
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.data import load
from benchmarks.measure import environment, folder_bytes, timed
from benchmarks.servers import Servers
from versioned_state import Disk, KVStore, Repository, Versioned, branch_name
from versioned_state.errors import StateError

SIZES = {"disk": (10, 1_000, 100_000), "redis": (10, 1_000, 100_000), "postgres": (10, 1_000, 20_000)}
QUICK = (10, 200)
PER_USER = 10
CHECKPOINTS = 3_000
APPENDS = 1_000
LENGTHS = (100, 1_000, 10_000)
FILTERED = "u1"
"""The prefix of 11,110 of 100,000 sessions."""

TOGETHER = 100
"""Sessions that are made in one batch."""

ALONE = 50
"""Sessions that are made one by one, to see what that takes."""

MESSAGES = 1_000
LONG = 100_000
POPPED = 10_000

AIMS = {
    "request, 1,000 messages": "1/6 of the best other",
    "request, 100,000 messages": "as 1,000",
    "pop of 10,000, cold": "1 ms",
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
    parser.add_argument("--stores", type=lambda text: text.split(","), default=["disk", "redis", "postgres"], help="of disk,redis,postgres")
    parser.add_argument("--sizes", type=lambda text: [int(each) for each in text.split(",")], metavar="N,N", help="numbers of sessions")
    parser.add_argument("--quick", action="store_true", help="few sessions: to see that it works, not to quote")
    parser.add_argument("--part", choices=("calls", "bytes", "appends", "requests", "checkpoints"), help="one part only")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="vstate-bench-") as name, Servers() as servers:
        folder = Path(name)
        print(", ".join(f"{name} {value}" for name, value in environment(folder).items()))
        started = time.perf_counter()
        for kind in options.stores if options.part in (None, "calls") else ():
            sizes = options.sizes or (QUICK if options.quick else SIZES[kind])
            columns = [dict(_calls(_open(kind, folder / f"{kind}-{size}", servers), size)) for size in sizes]
            rows = [[call, *(column.get(call, "") for column in columns), AIMS.get(call, "")] for call in columns[-1]]
            print()
            report.print_table([kind, *(f"{size:,} sessions" for size in sizes), "aim"], rows)
        if options.part in (None, "bytes"):
            print()
            report.print_table(["what stays on a disk", "bytes"], list(_bytes(folder / "bytes", 100 if options.quick else 2_000)))
        if options.part in (None, "appends"):
            rounds = 100 if options.quick else APPENDS
            rows = [row for length in LENGTHS for row in (_append_ours(folder, length, rounds), _append_rows(folder, length, rounds))]
            print()
            report.print_table(["100 bytes appended to", "side", "values and keys", "file", "time", "aim"], rows)
        if options.part in (None, "requests"):
            print()
            rows = [row for saver in (_langgraph_requests, _openai_requests) if (row := saver(folder)) is not None]
            report.print_table(["beside", f"request, {MESSAGES:,} messages", f"pop of {POPPED:,}, cold"], rows)
        if options.part in (None, "checkpoints"):
            count = 200 if options.quick else CHECKPOINTS
            print()
            rows = [row for side in (_ours, _langgraph, _openai) if (row := side(folder, count)) is not None]
            report.print_table([f"{count:,} checkpoints with writes", "MB", "put", "writes", "latest"], rows)
        print(f"\n{time.perf_counter() - started:.0f} seconds in all")
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
        _fill(repository, range(size - ALONE))
        alone = range(max(size - ALONE, 0), size)
        yield "make one", _ms(timed(lambda: [_make(repository, number).commit(meta=_meta(number)) for number in alone]) / len(alone))
        if isinstance(store, Disk):
            yield "bytes of one", f"{(store.size() - before) / size:,.0f}"
        repository = Repository(store, clock=repository.database.clock)
        for name, count in (("long", MESSAGES), ("longer", LONG), ("popped", POPPED)):
            state = Versioned(repository, branch=name)
            state["messages"] = _messages(count)
            state.commit()
            state.close()
        middle = branch_name(f"u{size // PER_USER // 2}")
        calls: dict[str, Callable[[], object]] = {
            "request, 1,000 messages": partial(_request, repository, "long"),
            "request, 100,000 messages": partial(_request, repository, "longer"),
            "pop of 10,000, cold": partial(_pop, store),
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
        repeats = 5 if size >= min(QUICK[-1], 100) else 1
        once: dict[str, Callable[[int], object]] = {
            "delete one": lambda n: repository.branches.delete(_name(n), force=True),
            "delete one, checked": partial(_delete_checked, repository),
            "prune one": lambda n: repository.prune(keep_last=1, branches=_name(n)),
            "expire one": partial(_expire, repository),
        }
        for number, (name, act) in enumerate(once.items()):
            yield name, _ms(statistics.median(timed(partial(act, number + 1 + 10 * each)) for each in range(repeats)))
        if store.max_expected is None:
            # The gc of the night; then a day of some sessions.
            yield "gc", _ms(timed(repository.gc))
            for n in range(min(size // 2, 100)):
                _commit(repository, size - 2 * n)
            yield (
                "purge one",
                _ms(statistics.median(timed(partial(repository.purge, branches=_name(size // 3 + each))) for each in range(repeats))),
            )
            users = [branch_name(f"u{size // PER_USER // 4 + each}") for each in range(repeats)]
            yield (
                "purge one user's",
                f"{_ms(statistics.median(timed(partial(repository.purge, branches=f'{user}/*')) for user in users))} for {PER_USER}",
            )


def _name(number: int) -> str:
    return branch_name(f"u{number // PER_USER}", f"session-{number}")


def _fill(repository: Repository, numbers: range) -> None:
    """Make sessions, many in a batch: the set-up is not what is measured."""
    for start in range(0, len(numbers), TOGETHER):
        some = numbers[start : start + TOGETHER]
        for status in ("closed", "open"):
            chosen = [number for number in some if _status(number) == status]
            # A batch gives all of its commits one meta; the user is in the name.
            repository.commit_together([_make(repository, number) for number in chosen], meta={"user": "u", "status": status})


def _make(repository: Repository, number: int) -> Versioned:
    state = Versioned(repository, branch=_name(number))
    state["messages"] = [{"role": "user", "content": f"hello {number}"}]
    return state


def _status(number: int) -> str:
    return "open" if number % 100 else "closed"


def _meta(number: int) -> dict[str, str]:
    return {"user": f"u{number // PER_USER}", "status": _status(number)}


def _messages(count: int) -> list[dict[str, str]]:
    return [{"role": "user" if n % 2 else "assistant", "content": f"message {n} of a session, some words long"} for n in range(count)]


def _request(repository: Repository, name: str) -> None:
    """What a server without state does for a message: open, read the last ones, append two, commit."""
    state = Versioned(repository, branch=name)
    messages = state.sequence("messages")
    assert len(messages[-20:]) == 20
    messages.extend(_messages(2))
    state.commit()


def _pop(store: KVStore) -> None:
    state = Versioned(Repository(store), branch="popped")
    state.sequence("messages").pop()
    state.commit()


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


# Bytes, of small values and names of some 20 characters


def _bytes(folder: Path, count: int) -> Iterator[list[str]]:
    """What each of many like calls adds to a store."""
    with Disk(folder) as store:
        repository = Repository(store)
        state = Versioned(repository, branch=branch_name("alice@example.com", "1"))
        state["messages"] = []
        state.commit()
        messages = state.sequence("messages")

        def first(number: int) -> None:
            one = _make(repository, number)
            one.commit(meta=_meta(number))
            one.close()

        def commit(number: int, *, tag: bool = False) -> None:
            state["turn"] = number
            state.commit(meta={"turn": number}, tag=f"checkpoint/{number:08}" if tag else None)

        def append(number: int) -> None:
            messages.append({"role": "user", "content": f"{number} " + uuid.uuid4().hex * 2})  # 100 bytes
            state.commit()

        commits = list(range(count))
        calls: dict[str, Callable[[int], object]] = {
            "a session's first commit": first,
            "a commit": commit,
            "a commit with a tag": partial(commit, tag=True),
            "100 bytes appended to a sequence, committed": append,
        }
        for name, call in calls.items():
            before = store.size()
            for number in commits:
                call(number)
            yield [name, f"{(store.size() - before) / count:,.0f}"]
        heads = list(repository.log(state.branch, limit=count))
        before = store.size()
        for head in heads:
            repository.notes.update(head, {"score": 0.5})
        yield ["a note of one number", f"{(store.size() - before) / len(heads):,.0f}"]
        before = store.size()
        for number in commits:
            repository.branches.delete(_name(number), force=True)
        yield ["a session deleted, until gc", f"{(store.size() - before) / count:,.0f}"]


# Requests, as the others serve them


def _langgraph_requests(folder: Path) -> list[str] | None:
    try:
        import sqlite3

        from langgraph.checkpoint.base import empty_checkpoint
        from langgraph.checkpoint.base.id import uuid6
        from langgraph.checkpoint.sqlite import SqliteSaver
    except ImportError:
        return None
    with closing(sqlite3.connect(folder / "requests.sqlite", check_same_thread=False)) as connection:
        saver = SqliteSaver(connection)
        saver.setup()

        def put(thread: str, messages: list[dict[str, str]]) -> None:
            checkpoint = empty_checkpoint()
            checkpoint["id"] = str(uuid6(clock_seq=-1))
            checkpoint["channel_values"] = {"messages": messages}
            saver.put({"configurable": {"thread_id": thread, "checkpoint_ns": ""}}, checkpoint, {"source": "loop"}, {})

        def change(thread: str, edit: Callable[[list[dict[str, str]]], object]) -> None:
            found = saver.get_tuple({"configurable": {"thread_id": thread, "checkpoint_ns": ""}})
            assert found is not None
            messages = found.checkpoint["channel_values"]["messages"]
            edit(messages)
            put(thread, messages)

        put("long", _messages(MESSAGES))
        put("popped", _messages(POPPED))
        request = partial(change, "long", lambda messages: messages.extend(_messages(2)))
        pop = partial(change, "popped", lambda messages: messages.pop())
        return ["LangGraph SqliteSaver", *(_ms(statistics.median(timed(each) for _ in range(15))) for each in (request, pop))]


def _openai_requests(folder: Path) -> list[str] | None:
    try:
        from agents.memory import SQLiteSession
    except ImportError:
        return None
    path = folder / "requests-of-sessions.sqlite"

    async def run() -> list[str]:
        found = []
        for name, count, edit in (("long", MESSAGES, request), ("popped", POPPED, SQLiteSession.pop_item)):
            session = SQLiteSession(name, path)
            items: Any = _messages(count)
            await session.add_items(items)
            times = []
            for _ in range(15):
                start = time.perf_counter()
                await edit(session)
                times.append(time.perf_counter() - start)
            session.close()
            found.append(_ms(statistics.median(times)))
        return found

    async def request(session: Any) -> None:
        assert len(await session.get_items(limit=20)) == 20
        await session.add_items(_messages(2))

    return ["OpenAI Agents SQLiteSession", *asyncio.run(run())]


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


# One more element of 100 bytes, and a commit


def _elements(data: Sequence[Sequence[dict[str, Any]]]) -> Iterator[str]:
    """Texts of 100 characters, out of the conversations."""
    text = json.dumps(data)
    places = random.Random(1)
    while True:
        start = places.randrange(len(text) - 100)
        yield text[start : start + 100]


def _append_ours(folder: Path, length: int, rounds: int) -> list[str]:
    elements = _elements(load().conversations)
    path = folder / f"append-{length}"
    with Versioned(Disk(path)) as state:
        state["log"] = list(islice(elements, length))
        state.commit()
    seconds = []
    with Disk(path) as store:
        log = (state := Versioned(store)).sequence("log")
        log.append(next(elements))
        state.commit()
        before = store.size(), _stored(store)
        for _ in range(rounds):
            log.append(next(elements))
            seconds.append(timed(state.commit))
        file, stored = store.size() - before[0], _stored(store) - before[1]
    figures = (f"{stored / rounds:,.0f} B", f"{file / rounds:,.0f} B", _ms(statistics.median(seconds)))
    return [f"{length:,}", "ours", *figures, "1,024 B"]


def _stored(store: Disk) -> int:
    """The bytes of all values, and of the keys as the store keeps them."""
    return sum(len(value) + (24 if key.startswith("o/") else len(key)) for key, value in store.items())


def _append_rows(folder: Path, length: int, rounds: int) -> list[str]:
    """A table of rows in SQLite, which keeps no history."""
    elements = _elements(load().conversations)
    path = folder / f"rows-{length}.sqlite3"
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.executescript(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;"
            "CREATE TABLE log(id TEXT PRIMARY KEY, session TEXT, text TEXT); CREATE INDEX by_session ON log(session, id);"
        )

        def add() -> None:
            db.execute("INSERT INTO log VALUES(?, ?, ?)", (str(uuid.uuid4()), "session", next(elements)))

        db.execute("BEGIN")
        for _ in range(length):
            add()
        db.execute("COMMIT")
        before = _pages(db)
        seconds = [timed(add) for _ in range(rounds)]
        file = _pages(db) - before
    return ["", "SQLite, a row and its index", "", f"{file / rounds:,.0f} B", _ms(statistics.median(seconds)), ""]


def _pages(db: sqlite3.Connection) -> int:
    count, size = (db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size"))
    return int(count * size)
