"""A store that makes its callers wait, and waiting for what another thread does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from threading import Event
from typing import Any

from versioned_state.storage import KVStore
from versioned_state.storage.wrapper import Wrapper


class Gate(Wrapper):
    """A store whose batches wait until they are let through."""

    def __init__(self, store: KVStore) -> None:
        super().__init__(store)
        self.open = Event()
        self.open.set()
        self.reached = Event()

    def apply(self, *args: Any, **kwargs: Any) -> bool:
        self.reached.set()
        assert self.open.wait(20)
        return super().apply(*args, **kwargs)

    def get(self, key: str) -> bytes | None:
        assert self.open.wait(20)
        return super().get(key)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - set by another thread
            await asyncio.sleep(0.001)
