"""Requests of a server in this process, whose bodies arrive piece by piece."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.support.services.gate import until
from versioned_state import Memory
from versioned_state.server.app import Server
from versioned_state.server.limits import Limits
from versioned_state.server.run import services_over
from versioned_state.server.tokens import Grant, Tokens
from versioned_state.storage import KVStore

ROOM = 2_000
LIMITS = Limits(max_body=1_000, max_bodies=ROOM, body_timeout=20)


def scope_of(method: str, path: str, query: bytes = b"", headers: Iterable[tuple[bytes, bytes]] = ()) -> dict[str, Any]:
    """Return a request as ASGI has it."""
    return {
        "type": "http",
        "http_version": "1.1",
        "asgi": {"version": "3.0"},
        "method": method,
        "scheme": "http",
        "root_path": "",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query,
        "headers": [(name.lower(), value) for name, value in headers],
    }


@dataclass
class Sent:
    """A request whose body arrives piece by piece, and its answer."""

    server: Server
    app: Any
    length: int | None = None
    path: str = "/v1/state"
    user: str = "alice"
    query: bytes = b""
    method: str = "POST"
    pieces: asyncio.Queue[dict[str, Any]] = field(default_factory=asyncio.Queue)
    messages: list[dict[str, Any]] = field(default_factory=list)
    reads: int = 0

    def __post_init__(self) -> None:
        headers = [(b"authorization", b"Bearer " + self.user.encode()), (b"content-type", b"application/json")]
        headers += [] if self.length is None else [(b"content-length", b"%d" % self.length)]
        scope = scope_of(self.method, self.path, self.query, headers)
        self.task = asyncio.ensure_future(self.app(scope, self._receive, self._send))

    async def _receive(self) -> dict[str, Any]:
        self.reads += 1
        return await self.pieces.get()

    async def _send(self, message: dict[str, Any]) -> None:
        self.messages.append(message)

    def put(self, body: bytes, *, more: bool = False) -> None:
        self.pieces.put_nowait({"type": "http.request", "body": body, "more_body": more})

    async def answer(self) -> tuple[int, dict[bytes, bytes]]:
        await asyncio.wait_for(self.task, 20)
        return self.messages[0]["status"], dict(self.messages[0]["headers"])

    async def is_read(self, times: int = 1) -> None:
        await until(lambda: self.reads >= times)


@asynccontextmanager
async def running(limits: Limits = LIMITS, store: KVStore | None = None) -> AsyncIterator[tuple[Server, Any]]:
    services = services_over(store or Memory())
    grants = {user: Grant(user, frozenset({"read", "write"})) for user in ("alice", "bob", "carol")}
    grants |= {"reader": Grant("alice", frozenset({"read"})), "all": Grant("*", frozenset({"read", "write"}))}
    server = Server(services, Tokens(grants), limits)
    async with services:
        yield server, server.application()


def client_of(app: Any, token: str = "alice", **headers: str) -> httpx.AsyncClient:
    """Return a client of a server in this process."""
    sent = {"Authorization": f"Bearer {token}", **headers}
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://x", headers=sent, timeout=20)


def body(size: int) -> bytes:
    return json.dumps({"a": "x" * (size - 9)}).encode()
