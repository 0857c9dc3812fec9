"""Writes that wait for each other and are done together: each commit records just the requests whose content it has."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from threading import Event
from typing import Any

import httpx
import pytest

from tests.support.services.gate import until
from tests.support.services.sent import client_of, running
from versioned_state import Memory, Repository
from versioned_state.errors import StateError, UnreachableStoreError
from versioned_state.server import operations
from versioned_state.server.exactly_once import META
from versioned_state.server.limits import Limits
from versioned_state.server.operations import Services
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
        path, body = (
            ("history/messages", message(text, depth)) if self.kind == "history" else ("memory", [message(text, depth)])
        )
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
async def instance(store: KVStore) -> AsyncIterator[tuple[httpx.AsyncClient, Repository, Services]]:
    """A client of a server over a store."""
    async with running(Limits(), store) as (server, app), client_of(app) as http:
        yield http, server.services.history.repository, server.services


@asynccontextmanager
async def client_for(kind: str) -> AsyncIterator[tuple[Client, Repository]]:
    gate = Failing(Memory())
    async with instance(gate) as (http, repository, services):
        client = Client(http, gate, kind, services.history if kind == "history" else services.memory)
        (await http.post("/v1/history/sessions", params=SESSION)).raise_for_status()
        assert await client.send("before") == 204
        yield client, repository


def ids_and_messages(repository: Repository, kind: str) -> list[tuple[int, int]]:
    """For each commit with messages, how many requests it records, and how many messages it added."""
    (branch,) = [
        name for name in repository.branches if name.startswith("%messages" if kind == "history" else "%memory")
    ]
    found, before = [], 0
    for commit in reversed(list(repository.log(branch))):
        snapshot = repository.snapshot(commit)
        spaces = [
            snapshot.namespace(name).namespace(each)
            for name in ("messages",)
            for each in snapshot.namespace(name).namespaces()
        ]
        count = len(snapshot.get("messages", ())) if kind == "history" else sum(map(len, spaces))
        ids = commit.meta.get(META, [])
        if count != before:
            found.append((1 if isinstance(ids, str) else len(ids), count - before))
        before = count
    return found


@pytest.mark.parametrize("kind", ["history", "memory"])
@pytest.mark.parametrize("fails_at", range(1, 6))
async def test_a_commit_records_the_requests_that_it_holds_when_one_of_those_that_waited_is_refused(
    kind: str, fails_at: int
) -> None:
    async with client_for(kind) as (client, repository):
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
async def test_one_that_is_repeated_among_those_that_waited_is_done_once_and_so_are_the_others(kind: str) -> None:
    async with client_for(kind) as (client, repository):
        assert await client.send("A") == 204
        answers = await client.together("first", ("B", 0, {}), ("too deep", 200, {}), ("A", 0, AGAIN), ("C", 0, {}))
        assert answers == [204, 422, 204, 204]
        assert await client.texts() == ["before", "A", "first", "B", "C"]
        assert await client.together("second", ("D", 0, {}), ("E", 0, {})) == [204, 204]
        assert await client.texts() == ["before", "A", "first", "B", "C", "second", "D", "E"]
        found = ids_and_messages(repository, kind)
        assert all(ids == messages for ids, messages in found)
        assert (2, 2) in found


# The deletion of all sessions


async def create(http: httpx.AsyncClient, *sessions: str) -> None:
    for session in sessions:
        (await http.post("/v1/history/sessions", params={"session_id": session})).raise_for_status()


async def delete_all(http: httpx.AsyncClient, key: str = "k", **headers: str) -> int:
    return (await http.delete("/v1/history/sessions", headers={"Idempotency-Key": key, **headers})).status_code


async def sessions_of(http: httpx.AsyncClient) -> set[str]:
    return {each["id"] for each in (await http.get("/v1/history/sessions")).json()}


async def test_a_repeated_deletion_of_all_sessions_leaves_those_that_were_created_since() -> None:
    store = Memory()
    async with instance(store) as (one, repository, _), instance(store) as (other, *_):
        await create(one, "old", "older")
        assert await delete_all(one) == 204
        await create(one, "new", "old")
        for http in (other, one, other):
            for headers in (AGAIN, {"Idempotency-Age": "100"}, {}):
                assert await delete_all(http, **headers) == 204
                assert await sessions_of(other) == {"new", "old"}
        assert await delete_all(other, "another key") == 204
        assert await sessions_of(one) == set()
        await create(one, "newest")
        for key in ("k", "another key"):
            assert await delete_all(one, key, **AGAIN) == 204
        assert await sessions_of(one) == {"newest"}
        # without a key, each is a deletion of what is there
        (await one.delete("/v1/history/sessions")).raise_for_status()
        assert await sessions_of(one) == set()
        assert list(repository.branches) == []
        assert repository.fsck().ok


@pytest.mark.parametrize("beside", [False, True])
async def test_a_deletion_of_all_sessions_that_failed_midway_is_finished_by_the_repeated_one_and_takes_no_more(
    *, beside: bool
) -> None:
    for fails_at in range(1, 12):
        store = Failing(Memory())
        async with instance(store) as (one, repository, _), instance(store) as (other, *_):
            await create(one, "a", "b", "c")
            store.fails_at = fails_at
            first = await delete_all(one)
            failed, store.fails_at = store.fails_at <= 0, 0
            if not failed:
                assert (first, fails_at > 4) == (204, True)
                return
            assert first == 503
            left = await sessions_of(one)
            created = {"new", "a", "b", "c"} - left
            await create(other, *created)
            if beside:  # another one meanwhile deletes all that is there
                assert await delete_all(other, "beside") == 204
                await create(other, *created)
            assert await delete_all(other, **AGAIN) == 204
            # If not even the plan was there, nothing had been done: the repeated one is the first.
            kept = set() if fails_at == 1 else created
            assert await sessions_of(one) == kept, fails_at
            await create(one, "newest")
            assert await delete_all(one, **AGAIN) == 204
            assert await sessions_of(one) == kept | {"newest"}
            assert all(name.count("/") == 2 for name in repository.branches)
    raise AssertionError("it always failed")


async def test_a_repeated_save_of_a_pruned_commit_is_answered_by_its_instance_and_refused_by_another() -> None:
    store = Memory()

    async def save(http: httpx.AsyncClient, value: int, key: str, **headers: str) -> httpx.Response:
        headers["Idempotency-Key"] = key
        return await http.post("/v1/state", params=SESSION, json={"value": value}, headers=headers)

    async with instance(store) as (one, repository, _), instance(store) as (other, *_):
        first = await save(one, 1, "first")
        assert (await save(one, 2, "second")).status_code == 200
        repository.prune(keep_last=1)
        repository.gc(expire=timedelta(0))
        again = await save(one, 1, "first", **AGAIN)
        assert (again.status_code, again.json()) == (first.status_code, first.json())
        assert (await save(one, 3, "first", **AGAIN)).status_code == 422
        unknown = await save(other, 1, "first", **AGAIN)
        assert unknown.status_code == 422
        assert "have been pruned" in unknown.text
        assert (await save(other, 2, "second", **AGAIN)).status_code == 200
        rounds = (await one.get("/v1/state/rounds", params=SESSION)).json()
        assert len(rounds) == 1  # the second one, saved once; prune took the first


async def test_a_copy_is_made_once_where_a_session_of_that_name_was_deleted_long_ago(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with instance(Memory()) as (http, _, services):
        database = services.sessions.repository.database
        now = database.clock
        begun = (await http.get("/v1/session/turn", params=SESSION)).json()
        body = {"base": begun["base"], "values": {"n": 1}}
        (await http.post("/v1/session/turn", params=SESSION, json=body)).raise_for_status()
        fork = partial(http.post, "/v1/session/fork", params=SESSION | {"to": "copy"})
        monkeypatch.setattr(database, "clock", lambda: now() - 3_600_000_000)
        (await fork()).raise_for_status()
        (branch,) = [name for name in services.sessions.repository.branches if "copy" in name]
        (await http.delete("/v1/session", params={"session_id": "copy"})).raise_for_status()
        assert operations._beginning(services.sessions.repository, branch) is None
        monkeypatch.setattr(database, "clock", now)
        first = await fork(headers={"Idempotency-Key": "copy once"})
        again = await fork(headers={"Idempotency-Key": "copy once", **AGAIN})
        assert (first.status_code, first.json()) == (again.status_code, again.json()) == (200, {"session_id": "copy"})


async def test_a_turn_an_undo_and_a_copy_that_are_repeated_are_done_once() -> None:
    store = Memory()
    async with instance(store) as (http, repository, _), instance(store) as (other, _, _):

        async def asked(method: str, path: str, key: str = "", body: Any = None, **query: Any) -> list[Any]:
            """Send a request, with a key twice, the second time to another instance. Returns the answers."""
            sent = []
            keyed = {"Idempotency-Key": key}
            for each, headers in ((http, keyed), (other, keyed | AGAIN)) if key else ((http, {}),):
                answer = await each.request(
                    method, f"/v1/session/{path}", params={**SESSION, **query}, json=body, headers=headers
                )
                assert answer.status_code == 200, answer.text
                sent.append(answer.json())
            return sent

        made = []
        for number in range(4):
            (begun,) = await asked("GET", "turn")
            assert begun["state"] == ({"n": number - 1} if number else {})
            body = {
                "base": begun["base"],
                "values": {"n": number},
                "messages": [{"id": f"m{number}", **message(str(number))}],
            }
            first, again = await asked(
                "POST", "turn", f"turn {number}", body | {"memory": [message("fact")] if number % 2 else []}
            )
            assert first == again
            made.append(first["commit"]["id"])
        assert [each["id"] for each in (await asked("GET", "log"))[0]] == made[::-1]
        first, again = await asked("POST", "undo", "undo one")
        assert first["commit"]["id"] == again["commit"]["id"] == made[2]
        first, again = await asked("POST", "fork", "fork", to="copy")
        assert first == again == {"session_id": "copy"}
        first, again = await asked("POST", "fork", "fork anew")
        assert first == again
        first, again = await asked("POST", "undo", "undo two", turns=2)
        assert first["commit"]["id"] == again["commit"]["id"] == made[0]
        assert [each["id"] for each in (await asked("GET", "log"))[0]] == made[:1]
        refused = await http.post("/v1/session/turn", params=SESSION, json={"base": made[2], "values": {"n": 9}})
        assert refused.status_code == 409  # that turn was taken back
        refused = await http.post(
            "/v1/session/turn", params={"session_id": "stranger"}, json={"base": made[0], "values": {"n": 9}}
        )
        assert refused.status_code == 409  # it is not in this session
        refused = await http.post("/v1/session/turn", params=SESSION, json={"base": "main"})
        assert refused.status_code == 422
        first, again = await asked("POST", "undo", "undo three")
        assert first == {"commit": None}
        assert repository.branches.get("stranger") is None
