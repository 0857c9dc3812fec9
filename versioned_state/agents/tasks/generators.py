"""Calls of tasks that run step by step: coroutines, generators and async generators. Layer: agents.

The body of a generator belongs to the call only while it computes its next value: in between, the caller has its own
context.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from typing import Any, Literal

from versioned_state.agents.call import Call, running
from versioned_state.agents.tasks.round import AsyncRound, Round

Body = Callable[[Call], Any]
"""Runs the body of a task for a call, or returns the coroutine or generator that does."""

Kind = Literal["function", "coroutine", "generator", "async generator"]


def kind_of(function: Callable[..., Any]) -> Kind:
    """Return the kind of a function by its result: a value, a coroutine or a generator."""
    if inspect.iscoroutinefunction(function):
        return "coroutine"
    if inspect.isasyncgenfunction(function):
        return "async generator"
    return "generator" if inspect.isgeneratorfunction(function) else "function"


def run(kind: Kind, begin: Callable[[], Round], body: Body) -> Any:
    """Return the coroutine or generator that runs a body in a round, which ``begin`` makes at its first step."""
    if kind == "coroutine":
        return _run_coroutine(begin, body)
    return _run_generator(begin, body) if kind == "generator" else _run_async_generator(begin, body)


async def _run_coroutine(begin: Callable[[], Round], body: Body) -> Any:
    this = begin()
    async with AsyncRound(this) as call:
        if not this.is_repeat:
            this.result = await body(call)
    return this.result


def _run_generator(begin: Callable[[], Round], body: Body) -> Generator[Any, Any, Any]:
    this = begin()
    with this as call:
        this.leave_context()
        if not this.is_repeat:
            this.result = yield from _steps(call, body)
    return this.result


def _steps(call: Call, body: Body) -> Generator[Any, Any, Any]:
    """Do ``yield from`` the body (PEP 380), each step of which runs as part of the call."""
    with running(call):
        generator = body(call)
    step, given = generator.send, None
    while True:
        try:
            with running(call):
                value = step(given)
        except StopIteration as end:
            return end.value
        try:
            call.is_paused = True
            step, given = generator.send, (yield value)
        except GeneratorExit:
            call.is_paused = False
            with running(call):
                generator.close()
            raise
        except BaseException as error:  # noqa: BLE001 - the body handles it
            step, given = generator.throw, error
        call.is_paused = False


async def _run_async_generator(begin: Callable[[], Round], body: Body) -> AsyncGenerator[Any, Any]:
    this = begin()
    async with AsyncRound(this) as call:
        this.leave_context()
        if this.is_repeat:
            return
        with running(call):
            generator = body(call)
        step, given = generator.asend, None
        while True:
            try:
                with running(call):
                    value = await step(given)
            except StopAsyncIteration:
                break
            try:
                call.is_paused = True
                step, given = generator.asend, (yield value)
            except GeneratorExit:
                call.is_paused = False
                with running(call):
                    await generator.aclose()
                raise
            except BaseException as error:  # noqa: BLE001 - as above
                step, given = generator.athrow, error
            call.is_paused = False


def awaited(value: Any) -> Coroutine[Any, Any, Any]:
    """Return a coroutine that returns a value, which is awaited first if it is awaitable."""

    async def give() -> Any:
        return await value if inspect.isawaitable(value) else value

    return give()


def to_end(kind: Kind, given: Any) -> Any:
    """Run a generator to its end and drop its values, or return any other result as it is."""
    if kind == "generator":
        for _ in given:
            pass
        return None
    return _async_to_end(given) if kind == "async generator" else given


async def _async_to_end(generator: AsyncGenerator[Any, Any]) -> None:
    async for _ in generator:
        pass
