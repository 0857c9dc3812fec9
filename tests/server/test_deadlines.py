"""A search ends once nobody waits for it: whichever index it asks, and behind the 504 of a server."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextvars import copy_context
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.servers.postgres import PostgresServer
from tests.support.services.gate import Gate, until
from tests.support.services.memory_contract import said, texts_of
from tests.support.services.sent import client_of, running
from tests.support.watched_stores import Watched
from versioned_state import Disk, Memory, Repository
from versioned_state.server.limits import Limits
from versioned_state.services.calls.deadline import LateError, set_deadline, time_left
from versioned_state.services.memory import MemoryService
from versioned_state.services.memory.indexes.choice import index_of
from versioned_state.services.memory.indexes.postgres_text import _HEAD, PostgresText, _User
from versioned_state.services.memory.indexes.terms import head_of
from versioned_state.services.memory.memories import Memories
from versioned_state.storage import KVStore, Postgres

QUERIES: list[tuple[str, dict[str, Any] | None]] = [
    ("apple", None),
    ("apple", {"top_k": 3}),
    ("apple", {"rank": "bm25"}),
    ("++", None),
]


@pytest.fixture(params=["memory", "disk", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[KVStore]:
    if request.param == "memory":
        yield Memory()
    elif request.param == "disk":
        with Disk(tmp_path / "store") as disk:
            yield disk
    else:
        server: PostgresServer = request.getfixturevalue("postgres_server")
        with Postgres(server.url, schema=server.fresh_schema()) as postgres:
            yield postgres


async def filled(service: MemoryService, count: int = 40) -> None:
    await service.add_memory("u", [said(f"apple {n} c++") for n in range(count)])


async def test_a_search_that_is_too_late_reads_no_more_and_the_next_one_finds_all(store: KVStore) -> None:
    async with MemoryService.over(store) as service:
        await filled(service)

        async def late(query: str, filters: dict[str, Any] | None) -> None:
            set_deadline(-1)
            await service.search_memory("u", [said(query)], filters)

        for indexed in (False, True):
            for query, filters in QUERIES:
                with pytest.raises(LateError):
                    await asyncio.create_task(late(query, filters))
                if indexed:
                    found = texts_of(await service.search_memory("u", [said(query)], filters))
                    assert len(found) == (filters or {}).get("top_k", 40)


def memories_of(store: KVStore) -> Memories:
    repository = Repository(store)
    (name,) = repository.branches
    return Memories(repository, name, repository.branches[name])


@pytest.mark.parametrize("store", ["disk", "postgres"], indirect=True)
async def test_a_database_that_takes_too_long_is_interrupted_and_keeps_the_index(store: KVStore) -> None:
    async with MemoryService.over(store) as service:
        await filled(service)
    memories, index = memories_of(store), index_of(store)
    user = () if isinstance(store, Disk) else (_User(memories.branch),)
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
    question = endless if isinstance(store, Disk) else "SELECT pg_catalog.pg_sleep(60)"

    def ask() -> None:
        set_deadline(0.2)
        index._at(memories, *user, lambda connection: connection.execute(question).fetchall())  # type: ignore[attr-defined]

    for _ in range(2):
        began = time.monotonic()
        with pytest.raises(LateError):
            copy_context().run(ask)
        assert time.monotonic() - began < 10
    if isinstance(store, Disk):
        assert store.derived is not None
        (file,) = store.derived.iterdir()
        with sqlite3.connect(file) as connection:
            assert connection.execute("SELECT head FROM state").fetchone()[0]
        connection.close()
    else:
        assert isinstance(index, PostgresText)
        assert index._store.connections.read(lambda link: index._run(link, _HEAD, *(each.key for each in user))) == [
            (head_of(memories),)
        ]
    assert time_left() is None
    assert len(index.holding(memories, [["apple"]]) or ()) == 40


async def in_time(ask: Callable[[], Awaitable[httpx.Response]]) -> Any:
    """What a call answers once it is done within the time limit, which a busy machine may not do at once."""
    async with asyncio.timeout(20):
        while (answer := await ask()).status_code == 504:
            pass
    return answer.raise_for_status().json()


async def test_a_search_ends_behind_its_504() -> None:
    slow, reads = Watched(Memory()), 0

    def wait(call: str) -> None:
        nonlocal reads
        if call.startswith("get"):
            reads += 1
            time.sleep(0.05)

    query = {"messages": [said("++").model_dump(exclude_none=True)]}
    async with running(Limits(call_timeout=0.1), slow) as (server, app), client_of(app) as client:
        memory, fast = server.services.memory, slow.before
        for session in range(8):
            await memory.add_memory("alice", [said("x" * 3_000 + f"{n}") for n in range(30)], f"s{session}")

        def forget() -> None:
            nonlocal reads
            memory.repository.database.nodes.clear()
            slow.before, reads = wait, 0

        forget()
        assert await memory.search_memory("alice", [said("++")]) == []
        needed = reads
        assert needed > 6  # three times as long as there is time
        forget()
        assert (await client.post("/v1/memory/search", json=query)).status_code == 504
        await until(lambda: not server.under_way)
        assert reads < needed
        slow.before = fast
        assert await in_time(lambda: client.post("/v1/memory/search", json=query)) == []


class ShutGate(Gate):
    """Its reads wait as well."""

    def get_many(self, keys: Iterable[str]) -> dict[str, bytes]:
        assert self.open.wait(20)
        return super().get_many(keys)


async def test_reads_that_wait_for_their_turn_are_dropped_behind_their_504() -> None:
    gate = ShutGate(Memory())
    async with running(Limits(call_timeout=0.1), gate) as (server, app), client_of(app) as client:
        await server.services.state.save_state("alice", {"a": 1})
        gate.open.clear()
        answers = await asyncio.gather(*(client.get("/v1/state/rounds") for _ in range(5)))
        assert {answer.status_code for answer in answers} == {504}
        await until(lambda: len(server.under_way) <= 1)
        gate.open.set()
        await until(lambda: not server.under_way)
        assert await in_time(lambda: client.get("/v1/state/rounds")) == [1]
