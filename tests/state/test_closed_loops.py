"""A loop stopped and closed while a task is in a handle's block gives the handle back, and the block is rolled back."""

from __future__ import annotations

import asyncio
import gc
import time
import warnings
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack
from typing import Any

import pytest

from versioned_state import Versioned, current_state, task

# of the coroutines that never end
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

OURS = "the event loop was closed within"


def made() -> Versioned:
    state = Versioned()
    state["d"], state["l"] = {"a": 1}, [1]
    state.commit("base")
    return state


async def transaction(state: Versioned) -> None:
    async with state.aio.transaction("done"):
        state["d"]["x"] = 1
        await asyncio.sleep(0)
        state["l"].append(2)


async def stack(state: Versioned) -> None:
    async with AsyncExitStack() as blocks:
        await blocks.enter_async_context(state.aio.transaction("done"))
        state["d"]["x"] = 1
        await asyncio.sleep(0)
        state["l"].append(2)


async def plain_block(state: Versioned) -> None:
    with state.transaction("done"):
        state["d"]["x"] = 1
        await asyncio.sleep(0)
        state["l"].append(2)


async def nested(state: Versioned) -> None:
    async with state.aio.transaction("done"):
        async with state.aio.transaction():
            state["d"]["x"] = 1
            await asyncio.sleep(0)
        state["l"].append(2)


@task
async def work() -> None:
    state = current_state()
    state["d"]["x"] = 1
    await asyncio.sleep(0)
    state["l"].append(2)


@task
async def steps() -> AsyncIterator[int]:
    state = current_state()
    state["d"]["x"] = 1
    yield 1
    await asyncio.sleep(0)
    state["l"].append(2)


async def of_a_task(state: Versioned) -> None:
    await work(state=state)


async def of_a_generator(state: Versioned) -> None:
    async for _ in steps(state=state):
        await asyncio.sleep(0)


def close_after(turns: int, coroutine: Coroutine[Any, Any, None]) -> bool:
    """Run an event loop for a number of turns, and close it. Return whether the coroutine had ended."""
    loop = asyncio.new_event_loop()
    running = loop.create_task(coroutine)
    for _ in range(turns):
        loop.call_soon(loop.stop)
        loop.run_forever()
        time.sleep(0.0005)  # for the threads in the background
    running._log_destroy_pending = False  # type: ignore[attr-defined]
    loop.close()
    return running.done()


@pytest.mark.parametrize("block", [transaction, stack, plain_block, nested, of_a_task, of_a_generator])
def test_a_handle_whose_event_loop_was_closed_within_a_block_goes_on(
    block: Callable[[Versioned], Coroutine[Any, Any, None]],
):
    gc.collect()
    gc.freeze()  # the collections below look at what this test makes, not at what all tests before it left
    warned = False
    for turns in range(200):
        state = made()
        values = state["d"], state["l"]
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            has_ended = close_after(turns, block(state))
            state["mine"] = turns  # at once, while the coroutine may still be there
            gc.collect()
            committed = state.commit("mine")
            ours = [str(each.message) for each in caught if OURS in str(each.message)]
        done = "x" in state["d"]
        assert state["l"] == ([1, 2] if done else [1])
        assert (state["d"], state["l"]) == values
        assert state["d"] is values[0]
        assert committed == state.head
        assert state["mine"] == turns
        assert not state.status()
        assert len(ours) <= (2 if block is nested else 1)  # each block warns for itself, if calls come in between
        assert not (ours and done)
        warned = warned or bool(ours)
        assert dict(Versioned(state.repository)) == dict(state)
        if has_ended:
            assert done
            assert warned
            return
    raise AssertionError("the block did not end")


def test_the_warning_names_the_branch_and_another_loop_may_go_on():
    state = made()
    close_after(1, plain_block(state))
    with pytest.warns(
        RuntimeWarning, match="within a transaction on branch 'main': its uncommitted changes were rolled back"
    ):
        asyncio.run(transaction(state))
    assert (state["d"], state["l"]) == ({"a": 1, "x": 1}, [1, 2])
    assert state.head.message == "done"
