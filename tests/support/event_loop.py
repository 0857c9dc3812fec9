"""Time limits that end once an event has come."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


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
