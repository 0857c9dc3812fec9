"""Deletions that are repeated: what was created after the first attempt stays.

And how long a client repeats what is refused.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import copy_context
from typing import Any

import httpx
import pytest

from tests.support.servers.redis import RedisServer
from tests.support.services.zygote import Forked, Zygote
from tests.support.watched_stores import Watched
from versioned_state import Memory, Repository, Versioned
from versioned_state.errors import StoreBusyError, UnknownRevisionError, UnreachableStoreError
from versioned_state.server.exactly_once import REQUEST, OnceDatabase, Request
from versioned_state.services import RemoteStateService
from versioned_state.services.remote.retries import Retries, retry_after

HELLO = {"role": "user", "content": [{"type": "text", "text": "hello"}]}
IDS = {"session_id": "s"}


def save(client: httpx.Client, number: int | None = None) -> None:
    client.post(
        "/v1/state", params=IDS | ({} if number is None else {"round_id": number}), json={"a": 1}
    ).raise_for_status()


def save_two(client: httpx.Client) -> None:
    save(client, 1)
    save(client, 2)


def create(client: httpx.Client) -> None:
    client.post("/v1/history/sessions", params=IDS).raise_for_status()


def remember(client: httpx.Client) -> None:
    client.post("/v1/memory", params=IDS, json=[HELLO]).raise_for_status()


Make = Callable[[httpx.Client], None]

DELETIONS: dict[str, tuple[Make, str, dict[str, Any], str, str]] = {
    "a state": (save, "/v1/state", IDS, "GET", "/v1/state?session_id=s"),
    "a round": (save_two, "/v1/state", IDS | {"round_id": 1}, "GET", "/v1/state?session_id=s&round_id=1"),
    "a session": (create, "/v1/history/session", IDS, "GET", "/v1/history/session?session_id=s"),
    "all sessions": (create, "/v1/history/sessions", {}, "GET", "/v1/history/session?session_id=s"),
    "a memory": (remember, "/v1/memory", {}, "POST", "/v1/memory/list"),
    "the memory of a session": (remember, "/v1/memory", IDS, "POST", "/v1/memory/list"),
}


@pytest.fixture(scope="module")
def pair(zygote: Zygote, redis_server: RedisServer) -> Iterator[tuple[Forked, Forked]]:
    """Two servers over one store."""
    url = redis_server.fresh_url()
    with zygote.serve(url) as one, zygote.serve(url) as other:
        yield one, other


@pytest.mark.parametrize("name", DELETIONS)
def test_a_repeated_deletion_leaves_what_was_created_after_it(pair: tuple[Forked, Forked], name: str):
    make, path, params, method, look = DELETIONS[name]
    one, other = pair

    def is_there(client: httpx.Client) -> bool:
        if method == "POST":
            return bool(client.post(look, json={}).json())
        return client.get(look).status_code == 200

    with one.client() as first, other.client() as second:
        make(first)
        key = {"Idempotency-Key": name.replace(" ", "-")}
        assert first.delete(path, params=params, headers=key).status_code == 204
        assert not is_there(second)
        # it is not there: the same answer to the same request, and that of an absent one to another
        for client in (first, second):
            assert client.delete(path, params=params, headers=key | {"Idempotency-Age": "1"}).status_code == 204
            if name != "all sessions":
                assert client.delete(path, params=params, headers={"Idempotency-Key": "other"}).status_code == 404
        make(second)
        assert is_there(first)
        for client in (first, second):
            for headers in (key, key | {"Idempotency-Age": "100"}):
                assert client.delete(path, params=params, headers=headers).status_code == 204
                assert is_there(client)
        assert second.delete(path, params=params, headers={"Idempotency-Key": "next"}).status_code == 204
        assert not is_there(first)
        make(first)
        assert first.delete(path, params=params).status_code == 204  # without a key each one is a deletion
        assert not is_there(second)


def test_the_age_of_a_write_is_bounded(pair: tuple[Forked, Forked]):
    with pair[0].client() as client:
        for age, status in (
            ("0", 200),
            ("3600", 200),
            ("3601", 400),
            ("999999", 400),
            ("-1", 400),
            ("1.5", 400),
            ("²", 400),
        ):
            answer = client.post(
                "/v1/state", json={}, headers={b"Idempotency-Key": b"k", b"Idempotency-Age": age.encode()}
            )
            assert answer.status_code == status, age


@contextmanager
def under(request: Request) -> Iterator[None]:
    token = REQUEST.set(request)
    try:
        yield
    finally:
        REQUEST.reset(token)


def test_two_attempts_at_once_delete_once():
    memory = Memory()
    slow = Watched(memory)
    one, other = (
        Repository.over(OnceDatabase(slow, pickle="refuse")),
        Repository.over(OnceDatabase(memory, pickle="refuse")),
    )

    def create() -> None:
        with Versioned(other, branch="b") as state:
            state["n"] = 1
            state.commit()

    def other_attempt() -> None:
        REQUEST.set(Request("same", "", 1.0))
        other.branches.delete("b", force=True)
        REQUEST.set(None)
        create()

    create()
    passes = slow.before

    def meddle(call: str) -> None:
        if call == "apply":
            slow.before = passes
            copy_context().run(other_attempt)

    slow.before = meddle
    with under(Request("same", "")), pytest.raises(UnknownRevisionError, match="created again"):
        one.branches.delete("b", force=True)
    assert "b" in other.branches
    with under(Request("another", "")):
        one.branches.delete("b", force=True)
    assert "b" not in other.branches


def test_the_plan_of_a_deletion_that_is_never_repeated_expires():
    later = 0
    database = OnceDatabase(Memory(), clock=lambda: time.time_ns() // 1000 + later)
    repository, found = Repository.over(database), ["%messages/u/s", "%messages/u/t"]
    with under(Request("cut-off", "")):
        assert database.planned("%messages/u", lambda: found) == found
    later = 3600 * 1_000_000  # the longest age of a repeated request
    assert repository.expire() == []
    with under(Request("cut-off", "", 3600.0)):
        assert database.planned("%messages/u", list) == found
    later = 25 * 3600 * 1_000_000
    assert repository.expire() == ["%messages/u"]


def test_a_deletion_whose_plan_somebody_else_has_dropped_is_not_taken_for_done():
    database = OnceDatabase(Memory())
    repository, found = Repository.over(database), ["%messages/u/s", "%messages/u/t"]
    with Versioned(repository) as state:
        state["n"] = 1
        state.commit()
    for name in found:
        repository.branches.create(name)
    with under(Request("cut-off", "")):
        assert database.planned("%messages/u", lambda: found) == found
        repository.branches.delete("%messages/u/s", force=True)
    repository.branches.delete("%messages/u", force=True)
    with under(Request("cut-off", "", 1.0)):
        assert database.planned("%messages/u", list) == ["%messages/u/t"]
        repository.branches.delete("%messages/u/t", force=True)
        database.end_plan("%messages/u")
    repository.branches.create("%messages/u/t")
    with under(Request("cut-off", "", 2.0)):
        assert database.planned("%messages/u", list) == []


# Refusals, and when a client comes again


@contextmanager
def answering(*answers: tuple[int, dict[str, str], Any]) -> Iterator[tuple[str, list[float]]]:
    """A server that gives some answers, and repeats the last one. Yields its URL and the times of its requests."""
    asked: list[float] = []
    listener = socket.create_server(("127.0.0.1", 0))

    def run() -> None:
        with suppress(OSError):
            while True:
                client = listener.accept()[0]
                with client:
                    client.recv(65536)
                    asked.append(time.monotonic())
                    status, headers, body = answers[min(len(asked), len(answers)) - 1]
                    content = b"" if body is None else json.dumps(body).encode()
                    kind = {} if body is None else {"Content-Type": "application/json"}
                    lines = {"Connection": "close", "Content-Length": str(len(content)), **kind, **headers}
                    client.sendall(f"HTTP/1.1 {status} X\r\n".encode())
                    client.sendall(
                        "".join(f"{name}: {value}\r\n" for name, value in lines.items()).encode() + b"\r\n" + content
                    )

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", asked
    finally:
        # the thread that waits there ends, before the number is that of another socket
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


def error(kind: str) -> dict[str, Any]:
    return {"error": {"type": kind, "what": "no", "remains": "nothing was changed", "hint": "", "facts": {}}}


BUSY = error("StoreBusyError")
ABSENT: tuple[int, dict[str, str], Any] = (404, {}, error("SessionNotFoundError"))


@pytest.mark.parametrize(("status", "body"), [(429, None), (503, BUSY)])
async def test_what_is_refused_for_lack_of_room_comes_again_when_the_server_says(status: int, body: Any) -> None:
    refused = (status, {"Retry-After": "1"}, body)
    with answering(refused, ABSENT) as (url, asked):
        async with RemoteStateService(url, "t", attempts=1, timeout=20) as service:
            assert await service.export_state("u") is None
        assert asked[1] - asked[0] >= 1


async def test_it_comes_again_more_often_than_lost_replies_do_and_within_the_time_limit() -> None:
    busy: tuple[int, dict[str, str], Any] = (503, {}, BUSY)
    with answering(*[busy] * 4, ABSENT) as (url, asked):
        async with RemoteStateService(url, "t", attempts=2, timeout=30) as service:
            assert await service.export_state("u") is None
        assert len(asked) == 5
    with answering(busy) as (url, asked):
        async with RemoteStateService(url, "t", attempts=50, timeout=2) as service:
            with pytest.raises(StoreBusyError):
                await service.save_state("u", {})
        assert len(asked) < 10


async def test_a_server_that_asks_for_more_time_than_there_is_is_not_waited_for() -> None:
    with answering((503, {"Retry-After": "3600"}, BUSY)) as (url, asked):
        async with RemoteStateService(url, "t", timeout=10) as service:
            with pytest.raises(StoreBusyError):
                await service.save_state("u", {})
        assert len(asked) == 1


async def test_a_store_that_fails_is_asked_as_often_as_attempts_say() -> None:
    with answering((503, {}, error("UnreachableStoreError"))) as (url, asked):
        async with RemoteStateService(url, "t", attempts=2) as service:
            with pytest.raises(UnreachableStoreError):
                await service.save_state("u", {})
        assert len(asked) == 2


def test_the_times_of_retries():
    assert [
        retry_after(text)
        for text in (None, "", "3", " 7 ", "x", "-1", "1.5", "Wed, 21 Oct 2015 07:28:00 GMT", "9" * 20)
    ] == [
        *(0.0, 0.0, 3.0, 7.0),
        *(0.0,) * 5,
    ]
    assert not Retries(1, 10).again()
    assert not Retries(5, 10_000).again(after=3_601)  # later, no server takes the write for a repeated one
    began = time.monotonic()
    retries = Retries(2, 10)
    assert retries.again(crowded=True)
    assert retries.again()
    assert not retries.again()
    assert retries.made == 3
    assert 1 <= retries.age <= time.monotonic() - began + 1
