"""A call that changes something is cancelled at each step: all of it is done, or nothing, and the next call works."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.servers.redis import RedisServer
from tests.support.services.cancelling import Cancelling, Step, Stepping, chosen
from tests.support.services.service_changes import CHANGES, Change, look, prepare
from versioned_state import Memory
from versioned_state.storage import KVStore

SAMPLE = 1
"""Steps of each call in the everyday run, besides the first and the last of each kind."""


async def twice(change: Change, store: KVStore) -> tuple[list[Any], list[Step]]:
    """Return the content before a change, after it, and after its repetition, and the steps of the change."""
    stepping, cancelling = Stepping(store), Cancelling()
    async with change.of.over(stepping) as service:
        await prepare(service)
        found = [await look(service)]
        for each in (cancelling, Cancelling()):
            result = await each.run(change.call(service), stepping)
            assert not isinstance(result, BaseException), result
            found.append(await look(service))
    return found, cancelling.seen


async def cancelled_at(step: Step, change: Change, store: KVStore, expected: list[Any]) -> bool:
    """Cancel the change at a step, and check what there is then. Returns whether the change was done."""
    stepping, cancelling = Stepping(store), Cancelling(step)
    before, once, again = expected
    async with change.of.over(stepping) as service:
        await prepare(service)
        result = await cancelling.run(change.call(service), stepping)
        found = await look(service)
        if isinstance(result, BaseException):
            assert isinstance(result, asyncio.CancelledError), (step, result)
            assert found in (before, once), step
        else:
            assert found == once, step
        await asyncio.wait_for(change.call(service), 20)
        assert await look(service) == (again if found == once else once), step
    async with change.of.over(store) as other:  # what another process sees
        assert await look(other) == (again if found == once else once), step
    return bool(found == once)


def cancel_everywhere(change: Change, made: Callable[[], KVStore], count: int | None) -> None:
    async def run() -> None:
        store = made()
        expected, steps = await twice(change, store)
        store.close()
        assert expected[0] != expected[1]
        outcomes = {}
        for step in chosen(steps, count):
            store = made()
            outcomes[step] = await cancelled_at(step, change, store, expected)
            store.close()
        assert not outcomes[Step("begin")]  # dropped
        last = max(step for step in outcomes if step.kind == "store")
        assert outcomes[last]  # it had begun, so it ended

    asyncio.run(run())


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.name)
def test_in_memory(change: Change, long_run: bool) -> None:  # noqa: FBT001 - a fixture
    cancel_everywhere(change, Memory, None if long_run else SAMPLE)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(change, id=change.name, marks=() if change.name in ("save", "append", "add") else pytest.mark.long)
        for change in CHANGES
    ],
)
def test_on_redis(change: Change, redis_server: RedisServer, long_run: bool) -> None:  # noqa: FBT001 - a fixture
    cancel_everywhere(change, redis_server.fresh_store, None if long_run else 0)
