"""A request's work is bounded, not only its bytes: no body holds the loop or a thread, and a signal ends the server."""

from __future__ import annotations

import asyncio
import gc
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from contextvars import copy_context
from pathlib import Path
from typing import Any

import pytest

from tests.support.event_loop import LoopClock
from tests.support.servers.proxy import Fault
from tests.support.servers.redis import RedisServer
from tests.support.services.sent import Sent, body, client_of, running
from tests.support.services.served import ALICE, READER, write_tokens
from tests.support.services.zygote import Zygote
from tests.support.waiting import eventually
from versioned_state.errors import InvalidArgumentError, LimitExceededError
from versioned_state.server.limits import MAX_BODY_OF_A_READ, Limits
from versioned_state.services.agent_state import state_service
from versioned_state.services.calls.deadline import LateError, set_deadline
from versioned_state.services.memory.text import matcher, words_of
from versioned_state.services.remote import bodies
from versioned_state.services.session_history import messages
from versioned_state.values.decode.decoder import Decoder


def cpu(function: Callable[[], object]) -> float:
    """The least CPU time of three calls."""
    times = []
    for _ in range(3):
        gc.collect()
        began = time.thread_time()
        function()
        times.append(time.thread_time() - began)
    return min(times)


def texts_in_tuples(depth: int) -> bytes:
    """A body in which each level is an extension, around a text that is not UTF-8."""
    value: Any = "ZZZZ"
    for _ in range(depth):
        value = (value,)
    return bodies.encode(value).replace(b"ZZZZ", b"\xff\xff\xff\xff")


# Bodies


@pytest.mark.parametrize("make", [texts_in_tuples, lambda depth: bodies.encode(((),) * depth)])
def test_the_steps_of_decoding_a_body_are_bounded_by_its_length(
    monkeypatch: pytest.MonkeyPatch, make: Callable[[int], bytes]
) -> None:
    steps = 0
    read = Decoder._read_extension

    def counted(self: Decoder, code: int, payload: bytes) -> Any:
        nonlocal steps
        steps += 1
        return read(self, code, payload)

    monkeypatch.setattr(Decoder, "_read_extension", counted)
    content = make(13)
    with suppress(InvalidArgumentError, LimitExceededError):
        bodies.decode(content)
    assert steps <= 1024 + len(content)


def test_a_body_that_takes_more_steps_than_it_may_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    content = bodies.encode([(number,) for number in range(100)])
    assert len(bodies.decode(content)) == 100
    monkeypatch.setattr(bodies, "_STEPS_AT_LEAST", 99 - len(content))
    with pytest.raises(LimitExceededError, match="the work of decoding a value"):
        bodies.decode(content)


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("application/json; charset=utf-16", 415),
        ('application/json; CharSet="UTF-16LE"', 415),
        ("application/json; charset=latin-1", 415),
        ("application/json; charset=UTF-8", 200),
        ('application/json;charset="utf-8"; x=y', 200),
        ("application/json; charset=us-ascii", 200),
    ],
)
async def test_json_in_another_charset_than_utf_8_is_refused(kind: str, status: int) -> None:
    async with running() as (_, app), client_of(app, **{"Content-Type": kind}) as client:
        content = b'{"a": "\xc4\x80"}' if "utf-8" in kind.lower() else b"{}"
        assert (await client.post("/v1/state", content=content)).status_code == status


async def test_what_takes_long_is_done_off_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Decoding by its bytes, checking messages and making documents of them by their number."""
    on_loop: list[str] = []

    def watch(owner: Any, name: str) -> None:
        function = getattr(owner, name)

        def watched(*args: Any, **options: Any) -> Any:
            if threading.current_thread() is threading.main_thread():
                on_loop.append(name)
            return function(*args, **options)

        monkeypatch.setattr(owner, name, watched)

    watch(bodies, "decode")
    watch(bodies, "decode_json")
    watch(messages, "_message")
    watch(messages, "data_of")
    watch(Decoder, "decode")
    watch(state_service, "encoded")
    watch(state_service, "_copied")
    async with running(Limits()) as (_, app), client_of(app) as client:
        await client.post("/v1/history/sessions?session_id=s")
        said = [{"role": "user", "content": [{"type": "text", "text": "hello"}]}] * 400

        async def does(method: str, path: str, *, value: Any = None, kind: str = bodies.JSON) -> None:
            on_loop.clear()
            encode = bodies.encode if kind == bodies.NATIVE else bodies.encode_json
            content = None if value is None else encode(value)
            answer = await client.request(method, path, content=content, headers={"Content-Type": kind, "Accept": kind})
            assert answer.status_code in (200, 204), answer.text

        for kind in (bodies.JSON, bodies.NATIVE):
            await does("POST", "/v1/state", value={"a": [{}] * 6_000}, kind=kind)
            assert not on_loop
            await does("POST", "/v1/history/messages?session_id=s", value=said, kind=kind)
            assert not on_loop
            await does("GET", "/v1/history/session?session_id=s", kind=kind)
            assert not on_loop
            await does("POST", "/v1/memory", value=said, kind=kind)
            assert not on_loop
            await does("POST", "/v1/memory/list", value={"filters": {"page_size": 1000}}, kind=kind)
            assert set(on_loop) <= {"decode", "decode_json"}  # of the filters
            await does("POST", "/v1/memory/search", value={"messages": said[:1]}, kind=kind)
            assert "data_of" not in on_loop or on_loop.count("data_of") <= 2  # of the query
        await does("POST", "/v1/state", value={"a": 1})
        assert "decode_json" in on_loop  # what is small is done at once


def test_a_message_of_many_wrong_parts_is_refused_at_the_first() -> None:
    def refuse(message: dict[str, Any]) -> None:
        with pytest.raises(InvalidArgumentError, match=r"content\.0"):
            messages.as_messages(message)

    # A hundred times the parts; all of them would take a hundred times as long.
    short, long = ({"role": "user", "content": [0] * count} for count in (10_000, 1_000_000))
    assert cpu(lambda: refuse(long)) < 20 * cpu(lambda: refuse(short))


def test_the_words_of_a_text_with_rows_of_marks_cost_its_length() -> None:
    def row(count: int) -> str:
        return "a" + "\u0301\u0327" * count + " b"

    assert words_of(row(5))["b"] == words_of(row(10_000))["b"] == 1
    # 64 times the length; a cost that grows with its square would be 4,096 times as high.
    assert cpu(lambda: words_of(row(128_000))) < 512 * cpu(lambda: words_of(row(2_000)))


def test_a_search_for_many_keywords_in_a_long_text_looks_at_its_deadline() -> None:
    matches = matcher(frozenset(f"{'x' * length}{number}" for length in range(1, 40) for number in range(200)))

    def late(text: str) -> None:
        set_deadline(-1)
        matches(text)

    with pytest.raises(LateError):
        copy_context().run(late, "y" * 100_000)
    copy_context().run(late, "y" * 100)


# Room


async def test_one_user_gets_no_more_room_than_is_left_to_the_others() -> None:
    async with running(Limits(max_body=1_000, max_bodies=4_000, body_timeout=20)) as (server, app):
        held = []
        for user, size, status in [
            ("alice", 1_000, None),
            ("alice", 1_000, None),
            ("alice", 1_000, 503),  # she would have 3,000 of 4,000
            ("alice", 1, 503),
            ("bob", 600, None),
            ("bob", 101, None),  # he has 701, and 1,299 are left
            ("bob", 400, 503),
            ("carol", 1_000, None),
            ("carol", 100, 503),
        ]:
            sent = Sent(server, app, size, user=user)
            if status is None:
                await sent.is_read()
                held.append(sent)
            else:
                code, headers = await sent.answer()
                assert (code, headers[b"retry-after"], sent.reads) == (503, b"1", 0), (user, size)
        for sent in held:
            assert sent.length is not None
            sent.put(body(sent.length))
            assert (await sent.answer())[0] == 200
        assert (server.bodies.room.free, server.bodies.room.of_users) == (4_000, {})


async def test_a_token_for_every_user_shares_the_room_by_the_user_that_it_names() -> None:
    async with running(Limits(max_body=1_000, max_bodies=2_000, body_timeout=20)) as (server, app):
        held = [Sent(server, app, 1_000, user="all", query=b"user_id=a")]
        await held[0].is_read()
        assert (await Sent(server, app, 1_000, user="all", query=b"user_id=a").answer())[0] == 503
        held.append(Sent(server, app, 1_000, user="all", query=b"user_id=b"))
        await held[1].is_read()
        for sent in held:
            sent.put(body(1_000))
            assert (await sent.answer())[0] == 200


async def test_a_token_that_only_reads_gets_no_room_for_what_it_cannot_do() -> None:
    async with running(Limits()) as (server, app):
        await asyncio.sleep(0)
        for path, length, status in [
            ("/v1/state", 1_000_000, 403),
            ("/v1/memory", 10, 403),
            ("/v1/memory/search", MAX_BODY_OF_A_READ + 1, 413),
            ("/v1/memory/list", MAX_BODY_OF_A_READ + 1, 413),
        ]:
            sent = Sent(server, app, length, path, "reader")
            assert (await sent.answer())[0] == status
            assert sent.reads == 0
        search = Sent(server, app, None, "/v1/memory/search", "reader")
        for _ in range(5):
            search.put(b" " * (MAX_BODY_OF_A_READ // 4), more=True)
        assert (await search.answer())[0] == 413
        assert server.bodies.room.free == server.bodies.room.size


async def test_a_body_for_an_operation_that_takes_none_is_not_read() -> None:
    async with running() as (server, app):
        sent = Sent(server, app, 500, "/v1/state/rounds", method="GET")
        assert (await sent.answer())[0] == 404  # no such session, which comes first
        save = Sent(server, app, 30)
        save.put(body(30))
        assert (await save.answer())[0] == 200
        sent = Sent(server, app, 500, "/v1/state/rounds", method="GET")
        assert (await sent.answer())[0] == 400
        assert sent.reads == 0
        unknown = Sent(server, app, None, "/v1/state/rounds", method="GET")
        unknown.put(b"x")
        assert (await unknown.answer())[0] == 400


async def test_a_server_that_ends_gives_bodies_on_their_way_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("versioned_state.server.limits._LAST_BODIES_S", 600)
    clock = LoopClock()
    async with running(Limits(body_timeout=3600)) as (server, app):
        stuck, arriving = Sent(server, app, 100), Sent(server, app, 100)
        for each in (stuck, arriving):
            await each.is_read()
        server.end()
        later = Sent(server, app, 100)
        await later.is_read()
        arriving.put(body(100))
        assert (await arriving.answer())[0] == 200
        clock.move_on(601)
        for each in (stuck, later):
            status, headers = await each.answer()
            assert (status, headers[b"connection"], headers[b"retry-after"]) == (503, b"close", b"1")
        assert server.bodies.room.free == server.bodies.room.size


# Processes


def connect(
    port: int, token: str, length: int, body: bytes, path: str = "/v1/state", kind: str = bodies.JSON
) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), 20)
    head = (
        f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
        f"Content-Type: {kind}\r\nContent-Length: {length}\r\n\r\n"
    )
    connection.sendall(head.encode() + body)
    return connection


def test_hostile_bodies_hold_up_nobody_and_bodies_half_sent_do_not_keep_a_server_alive(
    zygote: Zygote, tmp_path: Path
) -> None:
    with (
        zygote.serve(f"disk:{tmp_path / 'store'}", "--timeout", "3600", "--grace", "3600") as server,
        server.client() as client,
        ExitStack() as stack,
    ):
        bomb = texts_in_tuples(40)
        hostile = stack.enter_context(connect(server.port, READER, len(bomb), bomb, "/v1/memory/search", bodies.NATIVE))
        assert hostile.recv(1 << 16).startswith(b"HTTP/1.1 4")
        assert client.get("/health").status_code == 200
        halves = [stack.enter_context(connect(server.port, ALICE, 100, b'{"a"')) for _ in range(80)]
        assert client.post("/v1/state", json={"a": 1}).json() == {"round_id": 1}
        server.send(signal.SIGTERM)
        for each in halves:
            assert each.recv(1 << 16).startswith(b"HTTP/1.1 503 ")
        server.end(signal.SIGCONT)


def test_a_signal_ends_a_server_whose_store_hangs(zygote: Zygote, redis_server: RedisServer) -> None:
    with (
        redis_server.behind_proxy() as (between, url),
        zygote.serve(url, "--timeout", "3600", "--grace", "0.3") as server,
        server.client() as client,
    ):
        client.post("/v1/state", json={"a": 0}).raise_for_status()
        between.arm(Fault("hold reply"))
        with connect(server.port, ALICE, 8, b'{"a": 1}'):
            assert eventually(lambda: between.fired)
            server.end(signal.SIGTERM)


BUSY = """
import sys, threading, time
from versioned_state.server import run
from versioned_state.services.remote import bodies
from versioned_state.storage import Memory

def never_ends(body):
    print("busy", flush=True)
    while True:
        pass

bodies.decode_json = never_ends
run.serve(Memory(), run.Options(sys.argv[1], port=0, grace=0.3), ready=lambda url: print(url, flush=True))
"""


@pytest.mark.parametrize("size", [10, 100_000])
def test_a_signal_ends_a_server_whose_threads_are_busy_or_its_event_loop(tmp_path: Path, size: int) -> None:
    """Also after the event loop has ended, when Python waits for its threads."""
    command = [sys.executable, "-c", BUSY, str(write_tokens(tmp_path))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        assert server.stdout is not None
        try:
            port = int(server.stdout.readline().rpartition(":")[2])
            with connect(port, ALICE, size, body(size) if size > 10 else b'{"a": 0}  '):
                assert server.stdout.readline() == "busy\n"
                server.send_signal(signal.SIGTERM)
                assert server.wait(30) == 1
        finally:
            server.kill()
