"""The room for the answers of all requests: counted as they are read, kept until clients have them, and given back."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import ExitStack, asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.services.gate import until
from tests.support.services.memory_contract import said
from tests.support.services.sent import Sent, client_of, running
from tests.support.services.served import ALICE
from tests.support.services.zygote import Forked, Zygote
from tests.support.waiting import eventually
from versioned_state import Memory
from versioned_state.server.app import Server
from versioned_state.server.limits import Limits, Share
from versioned_state.server.operations import Services
from versioned_state.services.schemas.session import Session
from versioned_state.storage import KVStore
from versioned_state.storage.wrapper import Wrapper

ROOM = 300_000
LIMITS = Limits(max_body=100_000, max_answers=ROOM)


@dataclass
class Running:
    """A server in this process, its services, and a client of `alice`."""

    server: Server
    app: Any
    client: httpx.AsyncClient

    @property
    def services(self) -> Services:
        return self.server.services

    def forget(self) -> None:
        """Let go of what the server has in memory of the store."""
        self.services.state.repository.database.nodes.clear()


@asynccontextmanager
async def serving(limits: Limits = LIMITS, store: KVStore | None = None) -> AsyncIterator[Running]:
    async with running(limits, store) as (server, app), client_of(app) as client:
        yield Running(server, app, client)


class SlowReader(Sent):
    """A client that asks for a state, and reads on only when it is told so."""

    def __init__(self, running: Running, user: str = "alice") -> None:
        self.reads_on = asyncio.Event()
        super().__init__(running.server, running.app, user=user, method="GET")
        self.put(b"")

    async def _send(self, message: dict[str, Any]) -> None:
        await super()._send(message)
        if message["type"] == "http.response.body":
            await self.reads_on.wait()

    @property
    def read(self) -> list[bytes]:
        """The pieces of the answer so far."""
        return [message["body"] for message in self.messages[1:]]


async def test_an_answer_has_its_room_until_its_client_has_read_it() -> None:
    async with serving() as running:
        server, state = running.server, {"a": os.urandom(45_000).hex()}
        for user in ("alice", "bob"):
            await running.services.state.save_state(user, state)
        readers: list[SlowReader] = []
        for user in ("alice", "bob"):
            readers.append(SlowReader(running, user))
            await until(lambda: bool(readers[-1].read))
        # the rest is not given to the connection yet
        assert [len(reader.read[0]) for reader in readers] == [65_536] * 2
        refused = await running.client.get("/v1/state")
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        assert refused.json()["error"]["type"] == "StoreBusyError"
        assert (await running.client.get("/v1/state/rounds")).json() == [1]
        for reader in readers:
            reader.reads_on.set()
            assert (await reader.answer())[0] == 200
            assert json.loads(b"".join(reader.read)) == state
        assert server.answers.free == ROOM
        assert (await running.client.get("/v1/state")).json() == state
        assert server.answers.free == ROOM


async def test_a_write_whose_answer_has_no_room_is_refused_before_it_is_done() -> None:
    async with serving() as running:
        client, services, others = running.client, running.services, Share(running.server.answers, "bob")
        others.take(ROOM)
        assert (await client.post("/v1/state", json={"a": 1})).status_code == 503
        for path in ("session", "sessions"):
            assert (await client.post(f"/v1/history/{path}?session_id=s")).status_code == 503
        assert await services.state.list_rounds("alice") == []
        assert await services.history.list_sessions("alice") == []
        others.keep(ROOM - 2_000)
        assert (await client.post("/v1/state", json={"a": 1})).json() == {"round_id": 1}
        assert (await client.post("/v1/history/sessions?session_id=s")).json()["id"] == "s"
        others.take(ROOM)
        assert (
            await client.post("/v1/history/messages?session_id=s", json={"role": "user", "content": []})
        ).status_code == 204
        others.free()
        assert running.server.answers.free == ROOM


@pytest.mark.parametrize("way", ["cancelled", "not found", "not acceptable"])
async def test_whatever_becomes_of_an_answer_its_room_is_given_back(way: str) -> None:
    async with serving() as running:
        await running.services.state.save_state("alice", {"a": "x" * 90_000, "b": (1,)})
        if way == "cancelled":
            reader = SlowReader(running)
            await until(lambda: bool(reader.read))
            assert running.server.answers.free < ROOM
            reader.task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reader.task
        elif way == "not found":
            assert (await running.client.get("/v1/state?round_id=2")).status_code == 404
        else:
            assert (await running.client.get("/v1/state", headers={"Accept": "application/json"})).status_code == 406
        assert running.server.answers.free == ROOM


async def test_a_session_that_is_larger_than_the_room_is_read_in_parts() -> None:
    """Messages that are equal are stored once, and take their room each."""
    async with serving() as running:
        history, message = (
            running.services.history,
            {"role": "user", "id": "m", "content": [{"type": "text", "text": "x" * 500}]},
        )
        await history.create_session("alice", "s")
        for _ in range(4):
            await history.append_message(Session(id="s", user_id="alice"), [message] * 250)
        for method, path in (
            ("GET", "/v1/history/session"),
            ("POST", "/v1/history/session"),
            ("POST", "/v1/history/sessions"),
        ):
            refused = await running.client.request(method, f"{path}?session_id=s")
            assert (refused.status_code, refused.json()["error"]["type"]) == (422, "LimitExceededError")
            assert "last" in refused.json()["error"]["hint"]
            assert running.server.answers.free == ROOM
            found = await running.client.request(method, f"{path}?session_id=s&last=100")
            assert len(found.json()["messages"]) == 100
            assert (await running.client.request(method, f"{path}?session_id=s&last=900")).status_code == 422
        assert running.server.answers.free == ROOM


async def test_a_memory_that_is_larger_than_the_room_is_read_in_parts() -> None:
    async with serving() as running:
        for _ in range(4):
            await running.services.memory.add_memory("alice", [said(f"apple {'x' * 500} {n}") for n in range(120)])
        query = {"messages": [said("apple").model_dump(exclude_none=True)]}
        for path, large, small in (
            ("list", {"filters": {"page_size": 480}}, {"filters": {"page_size": 50}}),
            ("search", query, {**query, "filters": {"top_k": 50}}),
            ("search", {**query, "filters": {"rank": "bm25"}}, {**query, "filters": {"rank": "bm25", "top_k": 50}}),
        ):
            assert (await running.client.post(f"/v1/memory/{path}", json=large)).status_code == 422
            assert len((await running.client.post(f"/v1/memory/{path}", json=small)).json()) == 50
        # What a search only looks at takes no room.
        nothing = {"messages": [said("++").model_dump(exclude_none=True)]}
        assert (await running.client.post("/v1/memory/search", json=nothing)).json() == []
        assert running.server.answers.free == ROOM


class Slow(Wrapper):
    """A store whose reads are counted once it is told so, and take a while."""

    objects: int | None = None
    pause = 0.0

    def get_many(self, keys: Iterable[str]) -> dict[str, bytes]:
        wanted = list(keys)
        self._wait(len(wanted))
        return super().get_many(wanted)

    def get(self, key: str) -> bytes | None:
        self._wait(1)
        return super().get(key)

    def _wait(self, count: int) -> None:
        if self.objects is not None:
            self.objects += count
            time.sleep(self.pause)


async def test_the_read_of_a_large_state_ends_behind_its_504() -> None:
    slow = Slow(Memory())
    async with serving(Limits(call_timeout=1), slow) as running:
        many = {f"k{n}": os.urandom(3_000).hex() for n in range(20)}  # each is read on its own
        await running.services.state.save_state("alice", many, "keys")
        await running.services.state.save_state(
            "alice", {"list": [os.urandom(300).hex() for _ in range(12_000)]}, "list"
        )
        for session in ("keys", "list"):
            running.forget()
            slow.objects, slow.pause = 0, 0.0
            assert await running.services.state.export_state("alice", session) is not None
            needed, slow.objects, slow.pause = slow.objects, 0, 0.5
            running.forget()
            assert (await running.client.get(f"/v1/state?session_id={session}")).status_code == 504
            await until(lambda: not running.server.under_way)
            assert 0 < slow.objects < needed * 0.7
            assert running.server.answers.free == running.server.answers.size
            slow.objects = None


# Real connections


def ask(server: Forked, target: str, count: int = 1) -> socket.socket:
    """A connection on which requests were sent, and nothing is read yet."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect(("127.0.0.1", server.port))
    connection.settimeout(20)
    connection.sendall(f"GET {target} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {ALICE}\r\n\r\n".encode() * count)
    return connection


def test_clients_that_read_nothing_or_a_little_now_and_then_are_cut_off(zygote: Zygote, tmp_path: Path):
    store = f"disk:{tmp_path / 'store'}"
    with zygote.serve(store) as server, server.client() as client:
        client.post("/v1/state", json={"a": "x" * 12_000_000}).raise_for_status()
    with zygote.serve(store, "--timeout", "2") as server:
        with server.client() as client:
            client.get("/v1/state/rounds")  # opens the store's files
            before = server.open_files() - 1
        assert eventually(lambda: server.open_files() <= before)
        deadline = time.monotonic() + 20
        with closing(ask(server, "/v1/state")) as silent, closing(ask(server, "/v1/state")) as connection:
            assert len(silent.recv(1)) == 1
            read = len(connection.recv(30_000))
            while server.open_files() > before:
                read += len(connection.recv(30_000))
                time.sleep(0.005)
                assert 0 < read < 8_000_000
                assert time.monotonic() < deadline


@pytest.mark.long
def test_many_large_answers_to_slow_readers_take_the_memory_that_they_may(zygote: Zygote, tmp_path: Path):
    room, readers = 64 << 20, 60
    messages = [{"role": "user", "content": [{"type": "text", "text": f"{n} " + "x" * 200}]} for n in range(40_000)]
    with ExitStack() as stack:
        server = stack.enter_context(
            zygote.serve(f"disk:{tmp_path / 'store'}", "--max-answers", f"{room}", "--log-level", "error")
        )
        client = stack.enter_context(server.client())
        client.post("/v1/state", json={"messages": messages}, timeout=60).raise_for_status()
        before = server.peak()
        connections = [stack.enter_context(closing(ask(server, "/v1/state", count=3))) for _ in range(readers)]
        heads = [connection.recv(12) for connection in connections]
        assert {b"HTTP/1.1 200", b"HTTP/1.1 503"} <= set(heads)
        assert server.peak() - before < 6 * room  # all of them at once would be 750 MB as text alone
