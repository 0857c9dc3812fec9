"""Writes that wait for each other and are done together: each commit records the requests whose content it has, and no other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from threading import Event
from typing import Any

import httpx
import pytest

from tests.support.event_loop import in_event_loop
from tests.support.services.gate import until
from versioned_state import Memory, Repository
from versioned_state.errors import StateError, UnreachableStoreError
from versioned_state.server.app import Server
from versioned_state.server.exactly_once import META
from versioned_state.server.run import services_over
from versioned_state.server.tokens import Grant, Tokens
from versioned_state.services.store_service import StoreService
from versioned_state.storage import KVStore
from versioned_state.storage.base import Batch
from versioned_state.storage.wrapper import Wrapper

SESSION = {"session_id": "s"}
AGAIN = {"Idempotency-Age": "1"}


class Failing(Wrapper):
    """A store whose batches wait until they are let through, and which refuses one of them, counted from now."""

    fails_at = 0

    def __init__(self, store: KVStore) -> None:
        super().__init__(store)
        self.open = Event()
        self.open.set()
        self.reached = Event()

    def apply(self, *args: Any, **kwargs: Any) -> bool:
        self.reached.set()
        assert self.open.wait(20)
        self.fails_at -= 1
        if not self.fails_at:
            raise UnreachableStoreError("the store is away for a moment")
        return super().apply(*args, **kwargs)

    def apply_each(self, batches: Sequence[Batch]) -> list[bool | StateError]:
        return [self._one(batch) for batch in batches]

    def _one(self, batch: Batch) -> bool | StateError:
        try:
            return self.apply(batch.expected, batch.puts, batch.deletes, objects=batch.objects)
        except StateError as error:
            return error


def message(text: str, depth: int = 0) -> dict[str, Any]:
    deep: list[Any] = []
    for _ in range(depth):
        deep = [deep]
    return {"role": "user", "content": [{"type": "text", "text": text}], "metadata": {"deep": deep}}


@dataclass
class Client:
    """A client of one session of histories, or of memories."""

    http: httpx.AsyncClient
    gate: Failing
    kind: str
    service: StoreService

    async def send(self, text: str, depth: int = 0, **headers: str) -> int:
        path, body = ("history/messages", message(text, depth)) if self.kind == "history" else ("memory", [message(text, depth)])
        headers["Idempotency-Key"] = f"key of {text}"
        return (await self.http.post(f"/v1/{path}", params=SESSION, json=body, headers=headers)).status_code

    async def together(self, under_way: str, *sends: tuple[str, int, dict[str, str]]) -> list[int]:
        """The answers to some messages that wait for one that is under way."""
        self.gate.open.clear()
        self.gate.reached.clear()
        first = asyncio.ensure_future(self.send(under_way))
        await until(self.gate.reached.is_set)
        waiting = [asyncio.ensure_future(self.send(text, depth, **headers)) for text, depth, headers in sends]
        await until(lambda: self._waiting() == len(sends))
        self.gate.open.set()
        assert await first in (204, 503)
        return list(await asyncio.gather(*waiting))

    def _waiting(self) -> int:
        assert self.service._lanes is not None
        return sum(map(len, self.service._lanes._waiting.values()))

    async def texts(self) -> list[str]:
        if self.kind == "history":
            found = (await self.http.get("/v1/history/session", params=SESSION)).json()["messages"]
        else:
            found = (await self.http.post("/v1/memory/list", json={"filters": {"page_size": 100}})).json()
        return [each["content"][0]["text"] for each in found]


@asynccontextmanager
async def client_of(kind: str) -> AsyncIterator[tuple[Client, Repository]]:
    gate = Failing(Memory())
    services = services_over(gate)
    server = Server(services, Tokens({"t": Grant("u", frozenset({"read", "write"}))}))
    transport = httpx.ASGITransport(server.application())
    async with services, httpx.AsyncClient(transport=transport, base_url="http://x", headers={"Authorization": "Bearer t"}) as http:
        client = Client(http, gate, kind, services.history if kind == "history" else services.memory)
        (await http.post("/v1/history/sessions", params=SESSION)).raise_for_status()
        assert await client.send("before") == 204
        yield client, services.history.repository


def ids_and_messages(repository: Repository, kind: str) -> list[tuple[int, int]]:
    """For each commit with messages, how many requests it records, and how many messages it added."""
    (branch,) = [name for name in repository.branches if name.startswith("%messages" if kind == "history" else "%memory")]
    found, before = [], 0
    for commit in reversed(list(repository.log(branch))):
        snapshot = repository.snapshot(commit)
        spaces = [snapshot.namespace(name).namespace(each) for name in ("messages",) for each in snapshot.namespace(name).namespaces()]
        count = len(snapshot.get("messages", ())) if kind == "history" else sum(map(len, spaces))
        ids = commit.meta.get(META, [])
        if count != before:
            found.append((1 if isinstance(ids, str) else len(ids), count - before))
        before = count
    return found


@pytest.mark.parametrize("kind", ["history", "memory"])
@pytest.mark.parametrize("fails_at", range(1, 6))
@in_event_loop
async def test_a_commit_records_the_requests_that_it_holds_when_one_of_those_that_waited_is_refused(kind: str, fails_at: int) -> None:
    async with client_of(kind) as (client, repository):
        client.gate.fails_at = fails_at
        sent: list[tuple[str, int, dict[str, str]]] = [("A", 0, {}), ("too deep", 200, {}), ("C", 0, {})]
        answers = await client.together("first", *sent)
        assert answers[1] == 422
        assert set(answers) <= {204, 422, 503}
        for text in ("first", "A", "C"):
            assert await client.send(text, 0, **AGAIN) == 204
        assert await client.send("too deep", 200, **AGAIN) == 422
        assert sorted(await client.texts()) == ["A", "C", "before", "first"]
        assert all(ids == messages for ids, messages in ids_and_messages(repository, kind))


@pytest.mark.parametrize("kind", ["history", "memory"])
@in_event_loop
async def test_one_that_is_repeated_among_those_that_waited_is_done_once_and_so_are_the_others(kind: str) -> None:
    async with client_of(kind) as (client, repository):
        assert await client.send("A") == 204
        answers = await client.together("first", ("B", 0, {}), ("too deep", 200, {}), ("A", 0, AGAIN), ("C", 0, {}))
        assert answers == [204, 422, 204, 204]
        assert await client.texts() == ["before", "A", "first", "B", "C"]
        assert await client.together("second", ("D", 0, {}), ("E", 0, {})) == [204, 204]
        assert await client.texts() == ["before", "A", "first", "B", "C", "second", "D", "E"]
        found = ids_and_messages(repository, kind)
        assert all(ids == messages for ids, messages in found)
        assert (2, 2) in found
