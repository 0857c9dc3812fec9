"""Remote services whose requests reach a server in the same event loop, and whose replies can be lost at any moment."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress
from typing import Any

import httpx

from tests.support.services.sent import scope_of
from versioned_state.server.app import Server
from versioned_state.server.run import services_over
from versioned_state.server.tokens import Grant, Tokens
from versioned_state.services import RemoteMemoryService, RemoteSessionHistoryService, RemoteStateService
from versioned_state.services.agent_state import StateService
from versioned_state.services.session_history import SessionHistoryService
from versioned_state.storage import KVStore

TOKENS = Tokens({"t": Grant("*", frozenset({"read", "write"}))})


class Bridge(httpx.BaseTransport):
    """Hands requests to an application of the running event loop."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self._app: Any = server.application()
        self._loop = asyncio.get_running_loop()
        self._waiting: set[Future[httpx.Response]] = set()

    def lose(self) -> None:
        """Lose the replies to the requests that are under way. The server does not notice."""
        for each in list(self._waiting):
            with suppress(Exception):  # its reply has come
                each.set_exception(httpx.ReadError("lost"))

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        answer: Future[httpx.Response] = Future()
        self._waiting.add(answer)
        asyncio.run_coroutine_threadsafe(self._ask(request, answer), self._loop)
        try:
            return answer.result(20)
        finally:
            self._waiting.discard(answer)

    async def _ask(self, request: httpx.Request, answer: Future[httpx.Response]) -> None:
        scope = scope_of(request.method, request.url.path, request.url.query, request.headers.raw)
        pieces = [{"type": "http.request", "body": request.read(), "more_body": False}]
        sent: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            return pieces.pop() if pieces else {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        await self._app(scope, receive, send)
        content = b"".join(message.get("body", b"") for message in sent[1:])
        with suppress(Exception):  # it was lost
            answer.set_result(httpx.Response(sent[0]["status"], headers=sent[0]["headers"], content=content))


@asynccontextmanager
async def bridged(of: Any, store: KVStore, **options: Any) -> AsyncIterator[tuple[Any, Bridge]]:
    """The remote service of a kind, whose server is over a store."""
    services = services_over(store)
    kind = {StateService: RemoteStateService, SessionHistoryService: RemoteSessionHistoryService}.get(
        of, RemoteMemoryService
    )
    async with services:
        bridge = Bridge(Server(services, TOKENS))
        async with kind("http://server", "t", **options) as service:
            service._client._transport = bridge
            yield service, bridge
