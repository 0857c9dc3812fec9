"""A server that ends while a body is too slow: the time of that body may be over at the same moment."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.event_loop import LoopClock
from versioned_state.server.answers import RefusalError
from versioned_state.server.limits import Bodies, Limits


async def test_the_server_ends_at_the_moment_when_the_time_of_a_body_is_over() -> None:
    clock, bodies = LoopClock(), Bodies(Limits(body_timeout=60))
    ended: list[bool] = []

    async def never() -> dict[str, object]:
        await asyncio.Event().wait()
        raise AssertionError

    def end() -> None:
        bodies.end()
        ended.append(True)

    reading = asyncio.ensure_future(bodies.read(never, "u", 0, 100))
    await asyncio.sleep(0)  # the reading begins
    asyncio.get_running_loop().call_later(60.001, end)
    clock.move_on(70)  # both are due in one turn of the loop, before the reading goes on
    with pytest.raises(RefusalError) as refused:
        await reading
    assert refused.value.status == 503  # the server ends
    assert ended
