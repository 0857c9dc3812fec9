"""Tests that are coroutine functions, and time limits that end once an event has come."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import wraps
from typing import Any, ParamSpec

P = ParamSpec("P")


def in_event_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Return the test as one that runs in an event loop of its own."""

    @wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


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
