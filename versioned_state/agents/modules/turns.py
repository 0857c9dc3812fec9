"""``Turns``: calls on one thing, run one at a time in the order in which they were made. Layer: agents."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Hashable
from concurrent.futures import Future
from contextlib import asynccontextmanager
from threading import Lock

from versioned_state.off_loop import wait_for_end


class Turns:
    """The calls under way and waiting, of any thread or event loop. A forked process has no calls of its parent."""

    def __init__(self) -> None:
        self._begin()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._begin)

    def _begin(self) -> None:
        self._lock = Lock()
        self._last: dict[Hashable, Future[None]] = {}

    @asynccontextmanager
    async def turn(self, thing: Hashable) -> AsyncIterator[None]:
        """Run a block after the blocks of all earlier calls on the same thing.

        A call has its place from its first step on.
        """
        mine: Future[None] = Future()
        with self._lock:
            before = self._last.get(thing)
            self._last[thing] = mine
        if before is not None:
            try:
                cancelled = await wait_for_end(before)
                if cancelled is not None:
                    raise cancelled
            except BaseException:
                # The call leaves its place, but the next one still waits for the previous one.
                before.add_done_callback(lambda _: self._end(thing, mine))
                raise
        try:
            yield
        finally:
            self._end(thing, mine)

    def _end(self, thing: Hashable, mine: Future[None]) -> None:
        with self._lock:
            if self._last.get(thing) is mine:
                del self._last[thing]
        mine.set_result(None)
