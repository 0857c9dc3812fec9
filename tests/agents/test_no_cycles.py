"""What a call leaves is freed at once: an object in a cycle waits for the collector, which stops the program."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import pytest

from versioned_state import Live, Memory, State, Versioned, checkpoint, emit, task
from versioned_state.agents.call import Call, current_call
from versioned_state.errors import NoTaskError


@dataclass
class Note:
    text: str


@task
def count(state: State) -> None:
    state["n"] = state.get("n", 0) + 1


@task
def nest(state: State) -> None:
    count()
    state["n"] = state.get("n", 0) + 1


@task
def tell(state: State) -> None:
    count()
    emit(Note("told"))
    checkpoint("so far")


@task
async def wait(state: State) -> None:
    count()


@task
def fail(state: State) -> None:
    count()
    raise ValueError("no")


@task
def step(state: State):
    for number in range(2):
        state["n"] = number
        yield number


def failing(state: Versioned) -> None:
    with suppress(ValueError):
        fail(state=state)


def changing(state: Versioned) -> None:
    state["n"] += 1
    state["list"].append(1)
    state.commit()


def in_a_transaction(state: Versioned) -> None:
    with state.transaction():
        state["n"] += 1


def beside(state: Versioned) -> None:
    with state.fork("other") as other:
        other["m"] = 1
        other.commit()
    changing(state)
    state.merge("other")
    state.repository.branches.delete("other")


CALLS: dict[str, Callable[[Versioned], object]] = {
    "a task": lambda state: count(state=state),
    "a nested task": lambda state: nest(state=state),
    "events and a checkpoint": lambda state: tell(state=state),
    "a task that fails": failing,
    "a generator": lambda state: list(step(state=state)),
    "a generator closed early": lambda state: next(step(state=state)),
    "a coroutine": lambda state: asyncio.run(wait(state=state)),
    "a stream": lambda state: list(count.stream(state=state)),
    "a task in memory": lambda _: count(state=Live()),
    "a task without a state": lambda _: count(),
    "a commit": changing,
    "a transaction": in_a_transaction,
    "a fork and a merge": beside,
    "a past state": lambda state: dict(state.checkout("HEAD~1")),
    "a diff": lambda state: list(state.diff("HEAD~2")),
    "a log": lambda state: list(state.log(limit=10)),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_leaves_no_cycle(name: str) -> None:
    state = Versioned(Memory())
    state.update({"n": 0, "list": [0]})
    state.commit()
    for _ in range(3):
        changing(state)
    run = CALLS[name]
    run(state)  # what is made once may stay
    gc.collect()
    gc.disable()
    try:
        run(state)
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        ours = Counter(
            type(each).__qualname__ for each in gc.garbage if type(each).__module__.startswith("versioned_state")
        )
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert not ours


def test_a_call_that_has_ended_keeps_no_event() -> None:
    calls: list[Call] = []

    @task
    def leak() -> None:
        call = current_call()
        assert call is not None
        calls.append(call)

    leak(state=Versioned(Memory()))
    (call,) = calls
    with pytest.raises(NoTaskError, match=r"^emit\(\) after the end of task 'leak'") as told:
        call.emit(Note("late"))
    assert told.value.hint.startswith("emit(event, state=state)")
    with pytest.raises(NoTaskError, match=r"^checkpoint\(\) after the end of task 'leak'"):
        call.checkpoint("late")
