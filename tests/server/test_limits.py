"""Room for the bodies of all requests: taken before a body is read, and given back whatever becomes of the request."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import httpx
import pytest

from tests.support.services.gate import Gate, until
from tests.support.services.sent import ROOM, Sent, body, client_of, running
from tests.support.services.zygote import Zygote
from versioned_state import Memory
from versioned_state.errors import InvalidArgumentError
from versioned_state.server.limits import Limits
from versioned_state.storage.testing.writers import run_together


async def test_a_body_without_room_is_refused_before_it_is_read_and_fits_later() -> None:
    async with running() as (server, app):
        first, second = Sent(server, app, 1_000), Sent(server, app, 900, user="bob")
        for each in (first, second):
            await each.is_read()
        third = Sent(server, app, 101, user="carol")
        status, headers = await third.answer()
        assert (status, headers[b"retry-after"], third.reads) == (503, b"1", 0)
        small = Sent(server, app, 100, user="carol")
        small.put(body(100))
        assert (await small.answer())[0] == 200
        first.put(body(1_000))
        assert (await first.answer())[0] == 200
        again = Sent(server, app, 101)
        again.put(body(101))
        assert (await again.answer())[0] == 200
        second.put(body(900))
        assert (await second.answer())[0] == 200
        assert server.bodies.room.free == ROOM


async def test_a_body_of_unknown_length_takes_room_as_it_arrives() -> None:
    async with running() as (server, app):
        chunked, other = Sent(server, app), Sent(server, app, 1_000, user="bob")
        await other.is_read()
        chunked.put(b'{"a": "' + b"x" * 893, more=True)
        await chunked.is_read(2)
        assert server.bodies.room.free == 100
        third = Sent(server, app)
        third.put(body(101))
        assert (await third.answer())[0] == 503
        chunked.put(b'"}')
        assert (await chunked.answer())[0] == 200
        assert server.bodies.room.free == 1_000
        other.put(b"", more=True)
        other.pieces.put_nowait({"type": "http.disconnect"})
        await other.task
        assert server.bodies.room.free == ROOM


@pytest.mark.parametrize(
    ("length", "path", "pieces", "status"),
    [
        (5, "/v1/state", [b"{}{}{"], 400),
        (2, "/v1/nowhere", [b"{}"], 404),
        (2, "/v1/history/messages", [b"{}"], 422),
        (None, "/v1/state", [b"x" * 600, b"y" * 600], 413),
        (1_001, "/v1/state", [], 413),
        (500, "/v1/state", None, None),
    ],
)
async def test_whatever_becomes_of_a_request_its_room_is_given_back(
    length: int, path: str, pieces: Any, status: int | None
) -> None:
    async with running() as (server, app):
        sent = Sent(server, app, length, path)
        for piece in pieces or ():
            sent.put(piece, more=piece != pieces[-1])
        if pieces is None:
            await sent.is_read()
            sent.task.cancel()  # the server stops
            with pytest.raises(asyncio.CancelledError):
                await sent.task
        else:
            assert (await sent.answer())[0] == status
        assert server.bodies.room.free == ROOM


async def test_slow_clients_do_not_hold_the_room_for_ever() -> None:
    async with running(Limits(max_body=1_000, max_bodies=1_000, body_timeout=0.05)) as (server, app):
        slow = Sent(server, app, 1_000)
        slow.put(b"{", more=True)
        assert (await slow.answer())[0] == 408
        assert server.bodies.room.free == 1_000


async def test_a_body_keeps_its_room_as_long_as_its_call_goes_on() -> None:
    gate = Gate(Memory())
    async with running(Limits(max_body=1_000, max_bodies=1_000, call_timeout=0.05), gate) as (server, app):
        gate.open.clear()
        late = Sent(server, app, 600)
        late.put(body(600))
        assert (await late.answer())[0] == 504
        refused = Sent(server, app, 600)
        assert (await refused.answer())[0] == 503
        gate.open.set()
        await until(lambda: server.bodies.room.free == 1_000)


async def test_a_body_of_many_small_parts_counts_with_their_memory() -> None:
    async with running(Limits(max_body=100_000, max_bodies=300_000)) as (server, app):
        for count, expected in ((2_000, 200), (30_000, 413)):
            sent = Sent(server, app)
            sent.put(b'{"a": [' + b"[]," * count + b'"", "' + b"x" * (99_000 - 3 * count) + b'"]}')
            assert (await sent.answer())[0] == expected
            assert server.bodies.room.free == 300_000


async def test_as_many_requests_as_there_may_be_are_refused_before_their_bodies_are_read() -> None:
    gate = Gate(Memory())
    async with running(Limits(max_requests=1), gate) as (server, app):
        gate.open.clear()
        first = Sent(server, app, 100)
        first.put(body(100))
        await until(lambda: server.requests == 1)
        second = Sent(server, app, 100)
        assert (await second.answer())[0] == 503
        assert second.reads == 0
        gate.open.set()
        assert (await first.answer())[0] == 200


async def test_the_requests_that_a_server_remembers_are_bounded_and_those_that_went_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("versioned_state.server.exactly_once._REQUESTS", 20)
    async with running() as (server, app), client_of(app) as client:

        async def save(session: int, key: str, **more: str) -> Any:
            answer = await client.post(
                f"/v1/state?session_id=s{session}", json={"n": key}, headers={"Idempotency-Key": key, **more}
            )
            return answer.json()["round_id"]

        for number in range(60):
            assert await save(number % 6, f"k{number}") == number // 6 + 1
        database: Any = server.services.state.repository.database
        assert 0 < database._count <= 20
        assert database._count == sum(len(each.done) for each in database._recent.values())
        for number in (0, 31, 59):
            assert await save(number % 6, f"k{number}", **{"Idempotency-Age": "1"}) == number // 6 + 1
            assert await save(number % 6, f"k{number}") == number // 6 + 1
        assert await save(0, "new") == 11


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_bodies": -1},
        {"max_bodies": 1},
        {"max_bodies": 1.0},
        {"max_answers": 1},
        {"max_answers": "1"},
        {"handle_bytes": -1},
        {"handle_bytes": "1"},
    ],
)
def test_limits_that_make_no_sense(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError, match="nothing was changed"):
        Limits(**wrong)


@pytest.mark.long
def test_many_large_bodies_at_once_take_the_memory_that_they_may(zygote: Zygote, tmp_path: Any) -> None:
    size, clients = 4_000_000, 40
    options = ("--max-body", f"{size + 1000}", "--max-bodies", f"{2 * size + 2000}", "--log-level", "error")
    with zygote.serve(f"disk:{tmp_path / 'store'}", *options) as server:
        before = server.peak()
        kept: list[int] = []

        def post(number: int) -> None:
            with server.client() as client:
                for _ in range(200):
                    try:
                        answer = client.post(
                            "/v1/state",
                            params={"session_id": f"s{number}"},
                            json={"a": f"{number}" * (size // 3)},
                            timeout=60,
                        )
                    except httpx.TransportError:
                        continue  # it was refused before it was sent as a whole
                    if answer.status_code == 200:
                        kept.append(number)
                        return

        run_together(partial(post, number) for number in range(clients))
        assert sorted(kept) == list(range(clients))
        # all of them at once would be 160 MB before anything is made of them
        assert server.peak() - before < 150_000_000
