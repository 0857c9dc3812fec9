"""``backends``: a commit, a cold read, a point read and the bytes of a round on every store of this library, in turns.

Ours alone: what counts is the ratio to ``Disk``. Opening the store is part of both reads, as it is for a process that
begins.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.data import Data
from benchmarks.measure import alternate, folder_bytes, timed
from benchmarks.results import Metric, Result, Table, Unit
from benchmarks.servers import Servers
from benchmarks.workloads.base import Context, Workload, require_equal
from benchmarks.workloads.keys import state_of
from versioned_state import Cache, Disk, KVStore, Memory, Repository, Versioned
from versioned_state.storage import DiskCache, Encrypted, Postgres, Redis

STEP = 2  # messages a round: what was asked, and what was answered
BASE = "Disk"


@dataclass(frozen=True)
class Backend:
    """One place for a store.

    Attributes:
        open: opens the store there.
        size: returns the bytes that are stored, by the backend's own account.
        stays_open: whether this process has one store there, as a server has, instead of opening it each time.
    """

    open: Callable[[], KVStore]
    size: Callable[[], int]
    stays_open: bool = False

    def done(self, store: KVStore) -> None:
        """Close the store, if a new process would open it again."""
        if not self.stays_open:
            store.close()


def _in_memory() -> Backend:
    store = Memory()
    return Backend(lambda: store, lambda: sum(len(key) + len(value) for key, value in store.items()), stays_open=True)


def _in_folder(folder: Path, open_at: Callable[[Path], KVStore]) -> Backend:
    """Files, measured by their size after a clean close."""
    return Backend(lambda: open_at(folder / "store"), lambda: folder_bytes(folder))


def _in_redis(servers: Servers) -> Backend:
    """A prefix of the server, measured by the memory of its keys (``MEMORY USAGE``)."""
    url, prefix = servers.redis.url, servers.redis.fresh_prefix()

    def size() -> int:
        import redis

        with redis.Redis.from_url(url) as client:
            found = (client.memory_usage(key, samples=0) for key in client.scan_iter(match=f"*{prefix}*"))
            return sum(size for size in found if isinstance(size, int))

    return Backend(partial(Redis, url, prefix=prefix), size)


def _in_postgres(servers: Servers) -> Backend:
    """A schema of the server, measured by the size of its tables and indexes."""
    server = servers.postgres
    schema = server.fresh_schema()

    def size() -> int:
        query = "SELECT sum(pg_total_relation_size(relid)) FROM pg_stat_user_tables WHERE schemaname = %s"
        with server.connection() as connection:
            row = connection.execute(query, (schema,)).fetchone()
            assert row is not None
            return int(row[0])

    return Backend(partial(Postgres, server.url, schema=schema), size)


def _in_s3(servers: Servers, prefix: str) -> Backend:
    """A prefix of the bucket, measured by the sizes of its S3 objects."""

    def size() -> int:
        from obstore.store import S3Store

        from tests.support.servers.s3_server import BUCKET

        options = {**servers.s3.options(), "client_options": {"allow_http": True}}
        return sum(found["size"] for page in S3Store(BUCKET, **options).list(prefix) for found in page)

    return Backend(partial(servers.s3.open, prefix), size)


def _backends(context: Context, servers: Servers, stack: ExitStack) -> dict[str, Backend]:
    key = secrets.token_bytes(32)

    def cached(below: Backend) -> Backend:
        """A process's ``Cache``: a state is opened anew over it, as a server does for each request."""
        cache = stack.enter_context(Cache(below.open()))
        return Backend(lambda: cache, below.size, stays_open=True)

    return {
        BASE: _in_folder(context.fresh("disk"), Disk),
        "Disk, power": _in_folder(context.fresh("power"), partial(Disk, durability="power")),
        "DiskCache": _in_folder(context.fresh("diskcache"), DiskCache),
        "Encrypted(Disk)": _in_folder(context.fresh("encrypted"), lambda path: Encrypted(Disk(path), key)),
        "Memory": _in_memory(),
        "Redis": _in_redis(servers),
        "Postgres": _in_postgres(servers),
        "S3": _in_s3(servers, "plain"),
        "Cache(Redis)": cached(_in_redis(servers)),
        "Cache(Postgres)": cached(_in_postgres(servers)),
        "Cache(S3)": cached(_in_s3(servers, "cached")),
    }


@dataclass(frozen=True)
class Sizes:
    """How large the work is."""

    length: int
    keys: int
    turns: int
    batch: int

    @property
    def rounds(self) -> int:
        """Commits in all: those that are timed, and one that warms up."""
        return self.turns * self.batch + 1

    @property
    def start(self) -> int:
        """The length of the list before the rounds, so that it has ``length`` messages half way through."""
        return self.length - STEP * self.rounds // 2


FULL = Sizes(length=1000, keys=10_000, turns=12, batch=5)
QUICK = Sizes(length=100, keys=100, turns=2, batch=2)


def run(context: Context, workload: Workload) -> Result:
    """All backends in turns, one kind of work after the other."""
    result = Result(workload.name, "the stores of this library at the same work, in turns; /Disk is the ratio to Disk")
    sizes = QUICK if context.quick else FULL
    with Servers() as servers, ExitStack() as stack:
        backends = _backends(context, servers, stack)
        context.progress(
            f"{workload.name}: a list of {sizes.start:,} messages and {sizes.keys:,} keys on {len(backends)} backends"
        )
        for backend in backends.values():
            _fill(backend, context.data, sizes)
        before = {name: backend.size() for name, backend in backends.items()}
        context.progress(f"{workload.name}: {sizes.rounds} commits on each")
        commits = _commits(backends, context.data, sizes)
        stored = {name: (backend.size() - before[name]) / sizes.rounds for name, backend in backends.items()}
        context.progress(f"{workload.name}: reads")
        expected = context.data.messages(sizes.start + STEP * sizes.rounds)
        reads = alternate(
            {name: partial(_read, name, backend, expected) for name, backend in backends.items()}, sizes.turns
        )
        items = state_of(sizes.keys)
        points = alternate(
            {name: partial(_point, name, backend, items) for name, backend in backends.items()}, sizes.turns
        )
    metrics = [
        ("commit of 2 messages", commits),
        (f"cold read of {sizes.length:,}", reads),
        (f"1 key of {sizes.keys:,}", points),
    ]
    result.tables.append(_table(metrics, stored))
    result.notes += [
        (
            f"commit: {STEP} messages of 1 KB onto {sizes.length:,}, on a state that holds them; "
            f"{sizes.turns} turns of {sizes.batch}"
        ),
        "reads open the store first; those through a Cache open only the state, over a cache that read it before",
        (
            "bytes a round: what the files grow by (SQLite: whole pages), "
            "Redis' memory, PostgreSQL's tables, the sizes of the S3 objects"
        ),
        Servers.SETTINGS
        + "; the S3 server is the tests' own, in Python, in memory and without a network: a real one adds its latency",
    ]
    return result


def _fill(backend: Backend, data: Data, sizes: Sizes) -> None:
    """A branch with the list, and one with the keys; both in a few commits."""
    store = backend.open()
    repository = Repository(store, pickle="refuse")
    state = Versioned(repository)
    state["messages"] = data.messages(sizes.start)
    state.commit()
    keys = Versioned(repository, branch="keys")
    keys.update(state_of(sizes.keys))
    keys.commit()
    backend.done(store)


def _commits(backends: Mapping[str, Backend], data: Data, sizes: Sizes) -> dict[str, list[float]]:
    stores = {name: backend.open() for name, backend in backends.items()}
    try:
        states = {name: Versioned(Repository(store, pickle="refuse")) for name, store in stores.items()}
        for state in states.values():
            _append(state, data, sizes.start, 0)
        return alternate(
            {name: partial(_append, state, data, sizes.start + STEP) for name, state in states.items()},
            sizes.turns,
            batch=sizes.batch,
        )
    finally:
        for name, store in stores.items():
            backends[name].done(store)


def _append(state: Versioned, data: Data, start: int, number: int) -> float:
    messages = state["messages"]
    new = data.messages(STEP, start=start + STEP * number)

    def work() -> None:
        messages.extend(new)
        state.commit()

    return timed(work)


def _read(name: str, backend: Backend, expected: list[Any], _number: int) -> float:
    return _reading(backend, lambda repository: Versioned(repository)["messages"], expected, name)


def _point(name: str, backend: Backend, items: dict[str, Any], number: int) -> float:
    # Far apart, so that a cache has what lies above them and not the leaf; the same on all.
    key = list(items)[(number * 7919 + 13) % len(items)]
    return _reading(backend, lambda repository: repository.snapshot("keys")[key], items[key], name)


def _reading(backend: Backend, read: Callable[[Repository], Any], expected: Any, name: str) -> float:
    opened: list[KVStore] = []
    found: list[Any] = []

    def work() -> None:
        opened.append(backend.open())
        found.append(read(Repository(opened[0], pickle="refuse")))

    seconds = timed(work)
    backend.done(opened[0])
    require_equal(found[0], expected, name)
    return seconds


def _table(metrics: list[tuple[str, dict[str, list[float]]]], stored: Mapping[str, float]) -> Table:
    """A row for each backend; beside each figure its ratio to that of ``Disk``, of paired turns."""
    rows: list[list[str | tuple[float, Unit]]] = []
    found = [Metric.of_samples(name, samples) for name, samples in metrics]
    for backend in stored:
        row: list[str | tuple[float, Unit]] = [backend]
        for metric in found:
            row += [(metric.values[backend], Unit.SECONDS), (metric.ratio(backend, BASE), Unit.RATIO)]
        rows.append([*row, (stored[backend], Unit.BYTES), (stored[backend] / stored[BASE], Unit.RATIO)])
    columns = ["store", *(column for name, _ in metrics for column in (name, "/Disk")), "bytes a round", "/Disk"]
    return Table("each as it is opened by default", columns, rows)


WORKLOADS = (
    Workload(
        "backends", "every store of this library: commit, cold read, point read, bytes a round", run, ours_alone=True
    ),
)
