"""A signal handler that raises on a loop's thread, at any line of a call of ``aio``, leaves nothing waiting for ever.

Each case runs a coroutine under a trace that raises at the k-th line that the thread of the loop runs, for one k after
the other. Then the tasks are cancelled, as ``asyncio.run`` does it, and the handle is used by synchronous calls on the
same thread, from another thread, and in a new loop.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from tests.support.dice import dice
from tests.support.interrupts import Interrupt, Timeout, Trace, run_in_loop
from tests.support.watched_stores import PATIENCE_S
from versioned_state import Repository, Versioned, checkpoint, current_state, task

pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore:coroutine:RuntimeWarning"),  # what an interrupt left
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

_LINES = 25
"""Lines to interrupt at in the everyday run, of each case."""


def made() -> Versioned:
    repository = Repository()
    state = Versioned(repository)
    state.update(list=[{"n": n} for n in range(40)], words=["one"], n=0)
    state.commit("base")
    other = Versioned(repository)
    other["theirs"] = 1
    other["list"].append({"n": "theirs"})
    other.commit("theirs")
    state["words"].append("two")
    state["n"] = 1
    return state


async def commits(state: Versioned) -> None:
    await state.aio.commit()


async def transaction(state: Versioned) -> None:
    async with state.aio.transaction():
        state["words"].append("once")


async def side_by_side(state: Versioned) -> None:
    await asyncio.gather(state.aio.commit(), state.aio.status(), state.aio.refresh())


async def beside_a_synchronous_call(state: Versioned) -> None:
    running = asyncio.ensure_future(state.aio.commit())
    await asyncio.sleep(0)
    state.status()
    await running


@task
async def work(*, fails: bool = False) -> None:
    current_state()["words"].append("once")
    checkpoint()
    await asyncio.sleep(0)
    if fails:
        raise ValueError


async def calls_a_task(state: Versioned) -> None:
    await work(state=state)


async def calls_a_task_that_fails(state: Versioned) -> None:
    with suppress(ValueError):
        await work(fails=True, state=state)


CASES = [commits, transaction, side_by_side, beside_a_synchronous_call, calls_a_task, calls_a_task_that_fails]


def go_on(state: Versioned, words: list[str]) -> None:
    state.status()
    words.append("here")
    state.commit()
    thread = threading.Thread(target=state.commit, args=("there",), daemon=True)
    words.append("there")
    thread.start()
    thread.join(PATIENCE_S)
    assert not thread.is_alive(), "the lock of the handle is held by nobody"

    async def more() -> None:
        words.append("more")
        await asyncio.wait_for(state.aio.commit(), PATIENCE_S)

    asyncio.run(more())
    assert state["words"] is words
    assert words in ([*first, "here", "there", "more"] for first in (["one", "two"], ["one", "two", "once"]))
    assert dict(Versioned(state.repository)) == state.copy()
    assert (state["n"], state["theirs"], state["list"][-1]) == (1, 1, {"n": "theirs"})
    assert not state.status()


@pytest.mark.parametrize("error", [Interrupt, Timeout], ids=lambda error: error.__name__)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_nobody_waits_for_ever(case: Any, error: type[BaseException], long_run: bool, capfd: Any):  # noqa: FBT001 - a fixture
    run_in_loop(partial(case, made()), Trace())  # what is imported at first is imported
    trace = Trace()
    run_in_loop(partial(case, made()), trace)
    numbers = [k for k, (file, _) in enumerate(trace.lines, 1) if long_run or "/values/" not in file]
    draw = dice(case.__name__, error.__name__)
    for k in numbers if long_run else draw.sample(numbers, min(_LINES, len(numbers))):
        state = made()
        interrupt = Trace(k, error)
        run_in_loop(partial(case, state), interrupt)
        if interrupt.hit.endswith(" _end"):
            continue  # the end of the block had not begun, and the traceback of the task may keep the block
        try:
            go_on(state, state["words"])
        except BaseException as failure:
            failure.add_note(f"after an interrupt at {interrupt.hit}, line {k}")
            raise
    capfd.readouterr()
