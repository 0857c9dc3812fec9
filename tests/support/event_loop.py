"""Attempts that fail at each step, time limits that end once an event has come, and the clock of an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from itertools import count
from typing import Any


def steps_of(attempt: Callable[[int], Coroutine[Any, Any, bool]], first: int = 1) -> int:
    """Make an attempt for each step, until one returns that it had no such step, whose number is returned."""
    return next(step for step in count(first) if not asyncio.run(attempt(step)))


@asynccontextmanager
async def times_out_after(event: asyncio.Event) -> AsyncIterator[None]:
    """A block under ``asyncio.timeout`` that times out once the event has come, however busy the machine is."""
    async with asyncio.timeout(None) as limit:

        async def end() -> None:
            await event.wait()
            limit.reschedule(0)

        ending = asyncio.ensure_future(end())
        try:
            yield
        finally:
            ending.cancel()


class LoopClock:
    """The clock of the running event loop, which a test moves on: what is due is due however busy the machine is."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self._ahead = 0.0
        real = loop.time
        loop.time = lambda: real() + self._ahead  # type: ignore[method-assign]

    def move_on(self, seconds: float) -> None:
        self._ahead += seconds
