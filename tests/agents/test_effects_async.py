"""Awaited effects: the loop goes on, and after a cancellation an effect is known to be not begun, in doubt or done."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable
from typing import Any

import anyio
import pytest

from tests.support.concurrent_stores import ActsBeforeCall
from tests.support.event_loop import times_out_after
from tests.support.stores import swap_store
from versioned_state import Happened, Memory, Versioned, effect, effects
from versioned_state.errors import EffectInDoubtError, InvalidArgumentError
from versioned_state.off_loop import off_loop


class Till:
    """The other side of an effect: it counts what was paid."""

    def __init__(self) -> None:
        self.paid: list[str] = []
        self.begun = asyncio.Event()

    async def pay(self, city: str) -> int:
        self.paid.append(city)
        await asyncio.sleep(0)
        return len(self.paid)

    async def never(self, city: str) -> int:
        self.paid.append(city)
        self.begun.set()
        await asyncio.Event().wait()
        return 0

    async def __call__(self, city: str) -> int:
        return await self.pay(city)


async def test_a_coroutine_function_gives_an_awaitable():
    state, till = Versioned(), Till()

    assert await effect("pay", till.pay, "Rome", state=state) == 1
    assert await effect("pay", till.pay, "Rome", state=state) == 1
    assert await effect("called", till, "Oslo", state=state) == 2
    assert await effect("called", till, "Oslo", state=state) == 2
    later = effect("later", till.pay, "Bonn", state=state)
    assert isinstance(later, Awaitable)
    assert len(effects(state)) == 2, "nothing is begun before it is awaited"
    assert await later == 3
    assert till.paid == ["Rome", "Oslo", "Bonn"]


async def test_check_may_be_a_coroutine_function_or_not():
    state, till = Versioned(), Till()

    async def fail() -> None:
        raise ConnectionError

    async def check(key: str, *_: Any) -> Happened:
        await asyncio.sleep(0)
        return Happened(key)

    for key in ("a", "b"):
        with pytest.raises(ConnectionError):
            await effect(key, fail, state=state)
        with pytest.raises(EffectInDoubtError):
            await effect(key, till.pay, "Rome", state=state, arguments="any")
    assert await effect("a", till.pay, "Rome", state=state, check=check, arguments="any") == "a"  # type: ignore[comparison-overlap]
    assert await effect("b", till.pay, "Rome", state=state, check=lambda *_: False, arguments="any") == 1
    with pytest.raises(InvalidArgumentError, match="check"):
        effect("c", int, state=state, check=check)


def test_a_function_that_gives_a_coroutine_is_not_called_by_mistake():
    state, till = Versioned(), Till()
    with pytest.raises(InvalidArgumentError, match="coroutine"):
        _ = effect("pay", lambda: till.pay("Rome"), state=state)
    assert effects(state) == []
    assert till.paid == []


def test_tasks_that_race_for_a_key_act_once():
    state, till = Versioned(), Till()

    async def agent() -> list[Any]:
        return await asyncio.gather(
            *(effect("pay", till.pay, "Rome", state=state) for _ in range(10)), return_exceptions=True
        )

    results = asyncio.run(agent())
    assert till.paid == ["Rome"]
    assert {type(each) for each in results} <= {int, EffectInDoubtError}
    assert 1 in results


async def test_the_loop_goes_on_while_the_store_is_asked():
    """The store does not answer before the loop has run on."""
    ticked, till = threading.Event(), Till()
    store = ActsBeforeCall(Memory(), lambda: ticked.wait(20))
    state = Versioned(store)

    for at in (1, 2, 3):
        ticked.clear()
        store.arm(at)
        running = asyncio.ensure_future(effect(f"pay{at}", till.pay, "Rome", state=state))
        for _ in range(3):
            await asyncio.sleep(0)
        ticked.set()
        assert await running == at
        assert store.fired


@pytest.mark.parametrize("cancels", [1, 3])
def test_cancelled_at_every_call_of_the_store(cancels: int):
    """The call of the store ends, then the cancellation goes on: not begun before the function, done after it."""
    seen = []
    for at in range(1, 20):
        till, store = Till(), Memory()
        state = Versioned(store)
        is_cancelled, fired = asyncio.run(cancelled_at(at, state, till, cancels))
        if not fired:
            break
        seen.append(is_cancelled)
        swap_store(state.repository, store)
        assert len(effects(state)) == len(till.paid), "without a payment it is as if never tried"
        assert asyncio.run(once_more(state, till)) == 1
        assert till.paid == ["Rome"]
    assert seen == [True] * 3  # it is looked up, begun and recorded


async def once_more(state: Versioned, till: Till) -> int:
    return await effect("pay", till.pay, "Rome", state=state)


async def cancelled_at(at: int, state: Versioned, till: Till, cancels: int) -> tuple[bool, bool]:
    """Cancel an effect while call number ``at`` of the store is under way.

    Return whether the cancellation was raised, and whether there was such a call.
    """
    loop, reached, release = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

    def act() -> None:
        loop.call_soon_threadsafe(reached.set)
        assert release.wait(20)

    gate = ActsBeforeCall(state.repository.store, act, at=at)
    swap_store(state.repository, gate)
    running = asyncio.ensure_future(once_more(state, till))
    waiting = asyncio.ensure_future(reached.wait())
    await asyncio.wait([running, waiting], return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    for _ in range(cancels):
        running.cancel()
        await asyncio.sleep(0)
    release.set()
    try:
        await running
    except asyncio.CancelledError:
        return True, gate.fired
    return False, gate.fired


async def test_cancelled_while_the_function_runs_it_is_in_doubt():
    state, till = Versioned(), Till()

    with pytest.raises(TimeoutError):
        async with times_out_after(till.begun):
            await effect("pay", till.never, "Rome", state=state)
    for _ in range(2):
        with pytest.raises(EffectInDoubtError):
            await effect("pay", till.pay, "Rome", state=state)
    assert await effect("pay", till.pay, "Rome", state=state, check=lambda *_: Happened(7)) == 7
    till.begun.clear()
    with pytest.raises(TimeoutError):
        async with times_out_after(till.begun):
            await effect("other", till.never, "Oslo", state=state, not_done_on=asyncio.CancelledError)
    assert await effect("other", till.pay, "Oslo", state=state) == 3
    assert till.paid == ["Rome", "Oslo", "Oslo"]


def test_a_coroutine_that_is_closed_leaves_it_in_doubt():
    """A loop that ends closes its coroutines, which cannot await anything then."""
    state, till = Versioned(), Till()
    loop = asyncio.new_event_loop()
    work: Any = effect("pay", till.never, "Rome", state=state)
    task = loop.create_task(work)

    loop.run_until_complete(till.begun.wait())
    work.close()
    task.cancel()
    loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()
    (found,) = effects(state)
    assert found.status == "in doubt"
    with pytest.raises(EffectInDoubtError, match="outcome was not recorded"):
        effect("pay", int, state=state, arguments="any")


def test_under_anyio_which_cancels_again_and_again():
    state, till = Versioned(), Till()

    async def agent() -> None:
        async def cancel_once_it_has_begun(scope: anyio.CancelScope) -> None:
            await till.begun.wait()
            scope.cancel()

        async with anyio.create_task_group() as group:
            with anyio.CancelScope() as scope:
                group.start_soon(cancel_once_it_has_begun, scope)
                await effect("pay", till.never, "Rome", state=state)
        assert scope.cancelled_caught
        with pytest.raises(EffectInDoubtError, match="outcome was not recorded"):
            await effect("pay", till.pay, "Rome", state=state)
        with anyio.CancelScope() as scope:
            scope.cancel()
            await effect("other", till.pay, "Oslo", state=state)
        assert await effect("other", till.pay, "Oslo", state=state) == len(till.paid)

    anyio.run(agent)
    assert till.paid == ["Rome", "Oslo"]


async def test_a_result_is_recorded_though_no_thread_is_free():
    """A cancelled call that waits for a thread of the library would be dropped, but a result must not be."""
    state, till = Versioned(), Till()
    release = threading.Event()
    others: list[asyncio.Future[bool]] = []

    async def pay() -> int:
        till.paid.append("Rome")
        others.extend(asyncio.ensure_future(off_loop(lambda: release.wait(20))) for _ in range(64))
        await asyncio.sleep(0)
        till.begun.set()
        return 1

    running = asyncio.ensure_future(effect("pay", pay, state=state))
    await till.begun.wait()
    for _ in range(3):
        await asyncio.sleep(0.001)
        running.cancel()
    release.set()
    with pytest.raises(asyncio.CancelledError):
        await running
    await asyncio.gather(*others)
    assert await effect("pay", pay, state=state) == 1
    assert till.paid == ["Rome"]
