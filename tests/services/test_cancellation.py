"""A call that changes something is cancelled at each step: all of it is done, or nothing, and the next call works."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.servers.redis import RedisServer
from tests.support.services.cancelling import Step, Stepping, cancelled_at, chosen, twice
from tests.support.services.service_changes import CHANGES, Change, look
from versioned_state import Memory
from versioned_state.storage import KVStore

SAMPLE = 1
"""Steps of each call in the everyday run, besides the first and the last of each kind."""


async def nothing() -> None:
    """Nothing goes on behind a call in this process."""


async def cancel_everywhere(change: Change, made: Callable[[], KVStore], count: int | None) -> None:
    store = made()
    async with change.of.over(stepping := Stepping(store)) as service:
        expected, steps = await twice(change, service, stepping)
    store.close()
    assert expected[0] != expected[1]
    outcomes = {}
    for step in chosen(steps, count):
        store = made()
        async with change.of.over(stepping := Stepping(store)) as service:
            outcomes[step] = await cancelled_at(step, change, service, stepping, expected, nothing)
            left = await look(service)
        async with change.of.over(store) as other:
            assert await look(other) == left, step  # another process sees it too
        store.close()
    assert not outcomes[Step("begin")]  # dropped
    last = max(step for step in outcomes if step.kind == "store")
    assert outcomes[last]  # it had begun, so it ended


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.name)
async def test_in_memory(change: Change, long_run: bool) -> None:  # noqa: FBT001 - a fixture
    await cancel_everywhere(change, Memory, None if long_run else SAMPLE)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(change, id=change.name, marks=() if change.name in ("save", "append", "add") else pytest.mark.long)
        for change in CHANGES
    ],
)
async def test_on_redis(change: Change, redis_server: RedisServer, long_run: bool) -> None:  # noqa: FBT001 - a fixture
    await cancel_everywhere(change, redis_server.fresh_store, None if long_run else 0)
