"""The clients themselves: order, cancellation, stop, event loops, what they refuse before they send it."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.support.servers.proxy import Fault, Proxy
from tests.support.services.gate import until
from tests.support.services.served import ALICE
from tests.support.services.zygote import Forked, Zygote
from versioned_state.errors import (
    InvalidArgumentError,
    LimitExceededError,
    PickleRefusedError,
    ServiceNotStartedError,
    UnknownOutcomeError,
    UnreachableStoreError,
)
from versioned_state.services import RemoteSessionHistoryService, RemoteStateService
from versioned_state.services.remote import bodies
from versioned_state.services.schemas.session import Session


@pytest.fixture(scope="module")
def server(zygote: Zygote, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forked]:
    with zygote.serve(f"disk:{tmp_path_factory.mktemp('clients') / 'store'}", "--log-level", "error") as server:
        yield server


async def test_the_calls_on_a_session_go_in_their_order(server: Forked) -> None:
    async with RemoteStateService(server.url, ALICE) as service:
        rounds = await asyncio.gather(*(service.save_state("alice", {"n": n}, "order") for n in range(10)))
        assert rounds == list(range(1, 11))
        assert await service.export_state("alice", "order") == {"n": 9}


async def test_a_cancelled_call_is_dropped_or_ends_first(server: Forked) -> None:
    with Proxy(("127.0.0.1", server.port)) as between:
        async with RemoteStateService(f"http://127.0.0.1:{between.port}", ALICE) as service:
            await service.save_state("alice", {"n": 0}, "cancel")
            between.arm(Fault("hold reply"))
            begun = asyncio.ensure_future(service.save_state("alice", {"n": 1}, "cancel"))
            waiting = asyncio.ensure_future(service.save_state("alice", {"n": 2}, "cancel"))
            await until(lambda: bool(between.fired))
            waiting.cancel()
            begun.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert not begun.done()
            stopping = asyncio.ensure_future(service.stop())
            await asyncio.sleep(0.01)
            assert not stopping.done()
            between.disarm()
            with pytest.raises(asyncio.CancelledError):
                await begun
            await stopping
            with pytest.raises(ServiceNotStartedError, match="was stopped"):
                await service.list_rounds("alice", "cancel")
            await service.start()
            assert await service.list_rounds("alice", "cancel") == [1, 2]


def test_a_service_is_of_any_event_loop(server: Forked):
    service = RemoteStateService(server.url, ALICE)
    asyncio.run(service.start())
    assert asyncio.run(service.save_state("alice", {"n": 1}, "loops")) == 1
    assert asyncio.run(service.save_state("alice", {"n": 2}, "loops")) == 2
    assert asyncio.run(service.health())
    asyncio.run(service.stop())
    assert not asyncio.run(service.health())


async def test_ids_are_as_long_as_a_server_takes_them(server: Forked) -> None:
    async with RemoteStateService(server.url, ALICE) as service:
        long = "x" * 59_000
        await service.save_state("alice", {"n": 1}, long)
        assert await service.export_state("alice", long) == {"n": 1}
        for id in (long + "x" * 1_000, "é" * 11_000):
            with pytest.raises(LimitExceededError, match="length of the ids"):
                await service.export_state("alice", id)


async def test_what_cannot_be_sent_is_refused_here(server: Forked) -> None:
    async with (
        RemoteStateService(server.url, ALICE) as states,
        RemoteSessionHistoryService(server.url, ALICE) as history,
    ):
        with pytest.raises(PickleRefusedError, match=r"^tools\[0\] of type"):
            await states.save_state("alice", {"tools": [lambda: 1]}, "refused")
        session = Session(id="none", user_id="alice")
        wrong: list[Any] = [{"role": "nobody"}, 7, "text"]
        for message in wrong:
            with pytest.raises(InvalidArgumentError, match="not valid"):
                await history.append_message(session, message)
        with pytest.raises(KeyError):
            await history.append_message(session, {"role": "user"})
        assert session.messages == []
        assert await states.list_sessions("alice") == [] or "refused" not in await states.list_sessions("alice")


@pytest.mark.parametrize(
    ("url", "token", "options"),
    [
        ("127.0.0.1:8420", "t", {}),
        ("ftp://host", "t", {}),
        ("http://", "t", {}),
        ("http://host:99999", "t", {}),
        ("http://user:SECRET@host", "t", {}),
        ("http://host?token=SECRET", "t", {}),
        (Path("store"), "t", {}),
        ("http://host", "", {}),
        ("http://host", "a b", {}),
        ("http://host", "a\r\nX: y", {}),
        ("http://host", None, {}),
        ("http://host", "t", {"timeout": 0}),
        ("http://host", "t", {"attempts": 0}),
        ("http://host", "t", {"connections": True}),
        ("http://host", "t", {"classes": "imported"}),
    ],
)
def test_arguments_that_make_no_sense(url: Any, token: Any, options: dict[str, Any]):
    with pytest.raises(InvalidArgumentError, match="nothing was changed") as caught:
        RemoteStateService(url, token, **options)
    assert "SECRET@" not in str(caught.value)


async def test_an_answer_that_does_not_unpack_is_an_error_of_this_library() -> None:
    def answer(listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                with listener.accept()[0] as client:
                    client.recv(65536)
                    head = (
                        f"HTTP/1.1 200 OK\r\nContent-Type: {bodies.NATIVE}\r\n"
                        "Content-Encoding: gzip\r\nContent-Length: 3\r\n\r\n"
                    )
                    client.sendall(f"{head}abc".encode())

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=answer, args=(listener,), daemon=True).start()
        async with RemoteStateService(f"http://127.0.0.1:{listener.getsockname()[1]}", "t", attempts=2) as service:
            with pytest.raises(UnreachableStoreError, match="DecodingError"):
                await service.export_state("u")
            with pytest.raises(UnknownOutcomeError):
                await service.save_state("u", {})
