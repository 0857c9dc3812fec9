"""Remote calls are cancelled, or their client goes away, at each step of the server: all of it is done, or nothing."""

from __future__ import annotations

import asyncio
import json
import socket
from contextlib import closing
from functools import partial
from typing import Any

import pytest

from tests.support.dice import dice
from tests.support.services.bridge import Bridge, bridged
from tests.support.services.cancelling import Cancelling, Step, Stepping, cancelled_at, chosen, twice
from tests.support.services.gate import until
from tests.support.services.served import ALICE
from tests.support.services.service_changes import CHANGES, Change, look, prepare
from tests.support.services.zygote import Zygote
from versioned_state import Memory
from versioned_state.errors import UnknownOutcomeError

REMOTE = [change for change in CHANGES if change.is_remote]
BODY = json.dumps({"n": 1, "text": "x" * 200}).encode()

EVERYDAY = ("append", "delete a session")

each_change = pytest.mark.parametrize(
    "change",
    [pytest.param(each, id=each.name, marks=() if each.name in EVERYDAY else pytest.mark.long) for each in REMOTE],
)


async def steps_of(change: Change) -> tuple[list[Any], list[Step]]:
    stepping = Stepping(Memory())
    async with bridged(change.of, stepping) as (service, _):
        return await twice(change, service, stepping)


async def idle(bridge: Bridge) -> None:
    await until(lambda: not bridge.server.under_way and not bridge.server.requests)


@each_change
async def test_a_cancelled_call_is_done_as_a_whole_or_not(change: Change, long_run: bool) -> None:  # noqa: FBT001 - a fixture
    expected, steps = await steps_of(change)
    for step in chosen(steps, None if long_run else 0):
        stepping = Stepping(Memory())
        async with bridged(change.of, stepping) as (service, bridge):
            await cancelled_at(step, change, service, stepping, expected, partial(idle, bridge))


@each_change
async def test_a_call_whose_client_goes_away_is_done_once_also_if_it_comes_again(
    change: Change,
    long_run: bool,  # noqa: FBT001 - a fixture
):
    async def gone_at(step: Step, expected: list[Any], attempts: int) -> None:
        _, once, again = expected
        stepping = Stepping(Memory())
        async with bridged(change.of, stepping, attempts=attempts) as (service, bridge):
            await prepare(service)
            result = await Cancelling(step, bridge.lose).run(change.call(service), stepping)
            await idle(bridge)
            if attempts > 1:
                assert not isinstance(result, BaseException), (step, result)
            else:
                assert (
                    isinstance(result, UnknownOutcomeError)
                    or not isinstance(result, BaseException)
                    or change.name.startswith("get")
                ), step
            found = await look(service)
            if attempts > 1 or not change.name.startswith("get"):  # that reads first
                assert found == once, step
                await asyncio.wait_for(change.call(service), 20)
                assert await look(service) == again, step

    expected, steps = await steps_of(change)
    for step in chosen([step for step in steps if step.kind == "store"], None if long_run else 1):
        for attempts in (1, 5):
            await gone_at(step, expected, attempts)


def test_a_client_that_goes_away_while_it_sends_changes_nothing(zygote: Zygote, tmp_path: Any, long_run: bool) -> None:  # noqa: FBT001 - a fixture
    head = f"POST /v1/state HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {ALICE}\r\nContent-Type: application/json\r\n"
    request = f"{head}Content-Length: {len(BODY)}\r\n\r\n".encode() + BODY
    cuts = (
        range(len(request))
        if long_run
        else sorted([0, len(request) - 1, *dice("cuts").sample(range(1, len(request) - 1), 10)])
    )
    with zygote.serve(f"disk:{tmp_path / 'store'}") as server, server.client() as client:
        for cut in cuts:
            with closing(socket.create_connection(("127.0.0.1", server.port))) as connection:
                connection.sendall(request[:cut])
        assert client.get("/v1/state/rounds").status_code == 404
        with closing(socket.create_connection(("127.0.0.1", server.port))) as connection:
            connection.sendall(request)  # and it does not wait for the answer
        asyncio.run(until(lambda: client.get("/v1/state/rounds").status_code == 200))
        assert client.post("/v1/state", json={}).json() == {"round_id": 2}
