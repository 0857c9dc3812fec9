"""Server processes: their start and end, several over one store, lost replies, slow clients, stores that hang."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import threading
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.servers.ports import quiet_port
from tests.support.servers.proxy import Fault, Proxy
from tests.support.servers.redis import RedisServer
from tests.support.services.balancer import Balancer
from tests.support.services.served import ALICE, ALL, TOKENS, Served, write_tokens
from tests.support.services.zygote import Forked, Zygote
from tests.support.waiting import eventually
from versioned_state import Repository
from versioned_state.errors import AccessDeniedError, ServiceNotStartedError, UnknownOutcomeError, UnreachableStoreError
from versioned_state.services import RemoteSessionHistoryService, RemoteStateService
from versioned_state.services.schemas.agent_schemas import Message
from versioned_state.services.schemas.session import Session
from versioned_state.storage import Disk

AS_JSON = "Content-Type: application/json\r\n"
HELLO = {"role": "user", "content": [{"type": "text", "text": "hello"}]}


def said(text: str) -> dict[str, Any]:
    return {"id": text, "role": "user", "content": [{"type": "text", "text": text}]}


def ids_of(session: Session) -> list[str]:
    return [message.id if isinstance(message, Message) else message["id"] for message in session.messages]


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"disk:{tmp_path / 'store'}"


# One process


def test_a_process_serves_and_ends_by_a_signal(store: str, tmp_path: Path):
    with Served(store, write_tokens(tmp_path)) as server:
        with server.client() as client:
            assert client.post("/v1/state", json={"a": 1}).json() == {"round_id": 1}
        server.terminate()
        assert server.wait() == 0
        assert server.records()[-1]["event"] == "stopping"
    with Disk(tmp_path / "store") as kept:
        assert len(Repository(kept).branches) == 1


def test_sigterm_ends_what_was_accepted_and_takes_nothing_else(
    zygote: Zygote, tmp_path: Path, redis_server: RedisServer
):
    with redis_server.behind_proxy() as (between, url), zygote.serve(url) as server, server.client() as client:
        client.post("/v1/state", json={"a": 1}).raise_for_status()
        between.arm(Fault("hold reply"))
        answers: list[httpx.Response] = []
        waiting = threading.Thread(target=lambda: answers.append(client.post("/v1/state", json={"a": 2})))
        waiting.start()
        assert eventually(lambda: between.fired)
        server.send(signal.SIGTERM)
        assert eventually(lambda: any(record.get("event") == "stopping" for record in server.records()))
        with server.client() as other, pytest.raises(httpx.TransportError):
            other.get("/health")
        assert server.runs()
        between.disarm()
        waiting.join()
        assert answers[0].json() == {"round_id": 2}
        assert eventually(lambda: not server.runs())


def test_a_second_signal_quits(zygote: Zygote, redis_server: RedisServer):
    with redis_server.behind_proxy() as (between, url), zygote.serve(url) as server, server.client() as client:
        client.post("/v1/state", json={"a": 1}).raise_for_status()
        between.arm(Fault("hold reply"))

        def post() -> None:
            with suppress(httpx.TransportError):
                client.post("/v1/state", json={"a": 2})

        waiting = threading.Thread(target=post)
        waiting.start()
        assert eventually(lambda: between.fired)
        server.send(signal.SIGTERM)
        assert eventually(lambda: any(record.get("event") == "stopping" for record in server.records()))
        server.end(signal.SIGTERM)
        waiting.join()
        between.disarm()


def test_sighup_reads_the_tokens_again_and_keeps_them_if_the_file_is_wrong(zygote: Zygote, store: str, tmp_path: Path):
    tokens = write_tokens(tmp_path)
    with zygote.serve(store, tokens=tokens) as server, server.client("new-token") as client:
        assert client.get("/v1/state/sessions").status_code == 401
        tokens.write_text(json.dumps({**TOKENS, "new-token": {"user": "carol", "scopes": ["read"]}}))
        server.send(signal.SIGHUP)
        assert eventually(lambda: client.get("/v1/state/sessions").status_code == 200)
        tokens.write_text('{"new-token": {"user": "carol"}}')
        server.send(signal.SIGHUP)
        assert eventually(
            lambda: any(record.get("event") == "reload" and record["level"] == "error" for record in server.records())
        )
        assert client.get("/v1/state/sessions").status_code == 200
        assert "new-token" not in "".join(server.log)
        message = next(each["message"] for each in server.records() if each["level"] == "error")
        assert message.startswith("the tokens stay as they were: ")
        assert "line 1" in message
        assert "nothing was started" not in message


def test_connections_beyond_the_limit_are_closed_and_later_ones_are_not(zygote: Zygote, store: str):
    with zygote.serve(store, "--max-connections", "3") as server, ExitStack() as stack:
        first, *_ = connections = [stack.enter_context(connect(server)) for _ in range(6)]
        for connection in connections[:3]:
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            assert connection.recv(100).startswith(b"HTTP/1.1 200 ")
        for connection in connections[3:]:
            with suppress(ConnectionError):
                assert connection.recv(100) == b""
        first.close()

        def is_served() -> bool:
            with suppress(ConnectionError), connect(server) as connection:
                connection.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
                return connection.recv(100).startswith(b"HTTP/1.1 200 ")
            return False

        assert eventually(is_served)


@pytest.mark.parametrize("sent", [b"", b"G", b"GET /health HTTP/1.1\r\n", b"GET /health HTTP/1.1\r\nHost: x\r\nX: "])
def test_a_client_that_is_slow_with_its_head_is_cut_off(zygote: Zygote, store: str, sent: bytes):
    with zygote.serve(store, "--head-timeout", "0.3", "--idle-timeout", "20") as server, connect(server) as connection:
        stopped = threading.Event()

        def drip() -> None:
            with suppress(OSError):
                connection.sendall(sent)
                while sent.endswith(b"X: ") and not stopped.wait(0.05):
                    connection.sendall(b"y")  # a byte now and then does not keep it open

        dripping = threading.Thread(target=drip)
        dripping.start()
        with suppress(ConnectionError):
            assert connection.recv(100) == b""
        stopped.set()
        dripping.join()


def test_a_client_that_is_slow_with_its_body_is_told_so(zygote: Zygote, store: str):
    with zygote.serve(store, "--timeout", "0.3") as server, connect(server) as connection:
        head = (
            f"POST /v1/state HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {ALICE}\r\n"
            f"Content-Length: 100\r\n{AS_JSON}\r\n"
        )
        connection.sendall(head.encode() + b"{")
        assert connection.recv(65536).startswith(b"HTTP/1.1 408 ")


def connect(server: Forked) -> closing[socket.socket]:
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=10)
    return closing(connection)


def test_more_requests_than_the_server_takes_are_refused_and_come_again(zygote: Zygote, redis_server: RedisServer):
    with (
        redis_server.behind_proxy() as (between, url),
        zygote.serve(url, "--max-requests", "1") as server,
        server.client() as client,
    ):
        client.post("/v1/state", json={"a": 0}).raise_for_status()
        between.arm(Fault("hold reply"))
        held = threading.Thread(target=client.post, args=("/v1/state",), kwargs={"json": {"a": 1}})
        held.start()
        assert eventually(lambda: between.fired)  # it is in the server, and stays there
        assert eventually(lambda: client.post("/v1/state", json={"a": 3}).status_code == 503)
        assert client.get("/health").status_code in (200, 503)
        between.disarm()
        held.join()
        assert eventually(lambda: client.get("/v1/state/rounds").status_code == 200)


def test_a_store_that_hangs_is_answered_for_and_a_repeated_write_is_done_once(
    zygote: Zygote, redis_server: RedisServer
):
    with (
        redis_server.behind_proxy() as (between, url),
        zygote.serve(url, "--timeout", "1.5") as server,
        server.client() as client,
    ):
        client.post("/v1/state", json={"a": 0}).raise_for_status()
        between.arm(Fault("hold reply"))
        key = {"Idempotency-Key": "k1"}
        answer = client.post("/v1/state", json={"a": 1}, headers=key)
        assert (answer.status_code, answer.json()["error"]["type"]) == (504, "UnknownOutcomeError")
        assert client.post("/v1/state", json={"a": 1}, headers={**key, "Idempotency-Age": "1"}).status_code == 504
        assert client.post("/v1/state", json={"a": 2}, headers=key).status_code == 422  # while the first goes on
        between.disarm()
        answer = client.post("/v1/state", json={"a": 1}, headers={**key, "Idempotency-Age": "1"})
        assert answer.json() == {"round_id": 2}
        assert client.get("/v1/state/rounds").json() == [1, 2]


# Clients


async def test_a_service_without_a_server(store: str) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # and nobody listens there
        service = RemoteStateService(f"http://127.0.0.1:{silent.getsockname()[1]}", ALICE, attempts=2)
        assert not await service.health()
        with pytest.raises(ServiceNotStartedError):
            await service.export_state("alice")
        async with service:
            assert not await service.health()
            for call in (service.export_state("alice"), service.save_state("alice", {})):
                with pytest.raises(UnreachableStoreError, match="cannot be reached") as caught:
                    await call
                assert not isinstance(caught.value, UnknownOutcomeError)


async def test_what_a_token_does_not_allow(zygote: Zygote, store: str) -> None:
    with zygote.serve(store) as server:
        async with (
            RemoteStateService(server.url, "nobody") as nobody,
            RemoteStateService(server.url, "token-that-reads") as reader,
        ):
            for call in (nobody.export_state("alice"), nobody.save_state("alice", {}), reader.save_state("alice", {})):
                with pytest.raises(AccessDeniedError):
                    await call
            assert await reader.export_state("alice") is None
            assert await reader.list_sessions("bob") == []
            with pytest.raises(KeyError):
                await reader.save_state("bob", {})
        async with RemoteSessionHistoryService(server.url, "token-that-reads") as history:
            assert await history.get_session("alice", "s") is None


async def test_the_service_survives_a_restart_of_its_server(zygote: Zygote, store: str) -> None:
    port = str(quiet_port())  # nobody else is given it while no server is there
    with zygote.serve(store, "--port", port) as server:
        async with RemoteStateService(server.url, ALL, attempts=20) as service:
            assert await service.save_state("alice", {"n": 1}) == 1
            server.end()
            calls = [asyncio.ensure_future(service.save_state("alice", {"n": n})) for n in (2, 3)]
            await asyncio.sleep(0.05)
            with zygote.serve(store, "--port", port):
                assert [await call for call in calls] == [2, 3]
                assert await service.export_state("alice") == {"n": 3}
                assert await service.health()


@pytest.mark.parametrize("kind", ["cut reply", "cut request"])
async def test_a_lost_reply_does_not_repeat_a_write(zygote: Zygote, store: str, kind: Any) -> None:
    with zygote.serve(store) as server, Proxy(("127.0.0.1", server.port)) as between:
        url = f"http://127.0.0.1:{between.port}"
        async with RemoteSessionHistoryService(url, ALICE) as history, RemoteStateService(url, ALICE) as states:
            session = await history.create_session("alice", "s")
            for number in range(6):
                between.arm(Fault(kind))
                await history.append_message(session, said(f"message {number}"))
                between.arm(Fault(kind))
                assert await states.save_state("alice", {"n": number}) == number + 1
            between.disarm()
            assert between.fired == 12
            found = await history.get_session("alice", "s")
            assert found is not None
            assert ids_of(found) == [f"message {number}" for number in range(6)]
            assert len(session.messages) == 6
            assert await states.list_rounds("alice") == [1, 2, 3, 4, 5, 6]
            between.arm(Fault(kind))
            await states.delete_state("alice", None, 3)
            between.arm(Fault(kind))
            await history.delete_session("alice", "s")
            assert await states.list_rounds("alice") == [1, 2, 4, 5, 6]
            assert await history.get_session("alice", "s") is None


# Several instances


def shared_by(request: pytest.FixtureRequest, kind: str) -> str:
    """The URL of a new store that several servers can share."""
    url: str = request.getfixturevalue(f"{kind}_server").fresh_url()
    return url


def both(zygote: Zygote, url: str, stack: ExitStack, count: int = 2) -> tuple[list[Forked], Balancer]:
    servers = [stack.enter_context(zygote.serve(url, "--log-level", "error")) for _ in range(count)]
    return servers, stack.enter_context(Balancer([server.port for server in servers]))


@pytest.mark.parametrize("kind", ["redis", "postgres"])
async def test_instances_behind_a_balancer_are_one_service(
    zygote: Zygote, request: pytest.FixtureRequest, kind: str
) -> None:
    with ExitStack() as stack:
        _, balancer = both(zygote, shared_by(request, kind), stack, 3)
        clients = [RemoteSessionHistoryService(balancer.url, ALICE, connections=4) for _ in range(4)]
        for client in clients:
            await client.start()
        session = await clients[0].create_session("alice", "s")
        sent = [said(f"{number} of {at}") for at, _ in enumerate(clients) for number in range(15)]
        await asyncio.gather(
            *(
                client.append_message(Session(id="s", user_id="alice"), said(f"{number} of {at}"))
                for number in range(15)
                for at, client in enumerate(clients)
            )
        )
        found = await clients[0].get_session("alice", "s")
        assert found is not None
        ids = ids_of(found)
        assert sorted(ids) == sorted(message["id"] for message in sent)
        for at, _ in enumerate(clients):
            assert [id for id in ids if id.endswith(f"of {at}")] == [f"{number} of {at}" for number in range(15)]
        assert session.messages == []
        for client in clients:
            await client.stop()


async def test_kill_9_of_an_instance_loses_nothing_and_repeats_nothing(
    zygote: Zygote, request: pytest.FixtureRequest
) -> None:
    with ExitStack() as stack:
        servers, balancer = both(zygote, shared_by(request, "redis"), stack)
        async with RemoteSessionHistoryService(balancer.url, ALICE, attempts=10) as service:
            sessions = [await service.create_session("alice", f"s{at}") for at in range(4)]
            calls = [asyncio.ensure_future(service.append_message(sessions[n % 4], said(str(n)))) for n in range(80)]

            async def replace(id: str) -> None:
                """Delete a session, and create it again: a deletion that is repeated leaves the new one."""
                for turn in range(2):
                    session = await service.create_session("alice", id)
                    await service.append_message(session, said(f"{turn}"))
                    if turn < 1:
                        await service.delete_session("alice", id)

            replaced = [asyncio.ensure_future(replace(f"d{at}")) for at in range(4)]
            for call in calls[:20]:
                await call
            servers[0].send(signal.SIGKILL)
            await asyncio.gather(*calls, *replaced)
            for at in range(4):
                found = await service.get_session("alice", f"d{at}")
                assert found is not None
                assert ids_of(found) == ["1"]
            for at in range(4):
                found = await service.get_session("alice", f"s{at}")
                assert found is not None
                assert ids_of(found) == [str(n) for n in range(at, 80, 4)]


@pytest.mark.parametrize("kind", ["redis", "postgres"])
async def test_a_repeat_at_another_instance_finds_the_first_attempt(
    zygote: Zygote, request: pytest.FixtureRequest, kind: str
) -> None:
    with ExitStack() as stack:
        (one, other), _ = both(zygote, shared_by(request, kind), stack)
        with one.client() as first, other.client() as second:
            key = {"Idempotency-Key": "same"}
            assert first.post("/v1/state", json={"n": 1}, headers=key).json() == {"round_id": 1}
            assert first.post("/v1/state", json={"n": 2}).json() == {"round_id": 2}
            for client in (second, first):
                assert client.post("/v1/state", json={"n": 1}, headers={**key, "Idempotency-Age": "5"}).json() == {
                    "round_id": 1
                }
                # a first attempt that was late
                assert client.post("/v1/state", json={"n": 1}, headers=key).json() == {"round_id": 1}
                # not a repeat of the first
                assert client.post("/v1/state", json={"n": 3}, headers=key).status_code == 422
            assert second.get("/v1/state/rounds").json() == [1, 2]
            ids = {"session_id": "s"}
            assert first.post("/v1/history/sessions", params=ids, headers={"Idempotency-Key": "c"}).json()["id"] == "s"
            assert second.post("/v1/history/sessions", params=ids, headers={"Idempotency-Key": "c"}).json()["id"] == "s"
            for client in (first, second, first):
                answer = client.post("/v1/history/messages", params=ids, json=HELLO, headers={"Idempotency-Key": "a"})
                assert answer.status_code == 204
            assert len(first.get("/v1/history/session", params=ids).json()["messages"]) == 1
