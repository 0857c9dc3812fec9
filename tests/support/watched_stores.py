"""Stores whose calls can be watched and stopped, for tests of what else happens meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from threading import Event, get_ident

from versioned_state.storage import KVStore, Wrapper

PATIENCE_S = 20
"""After this long a test has failed: something that should have happened did not."""


class Watched(Wrapper):
    """A store that calls ``before`` with the name of each call."""

    def __init__(self, store: KVStore) -> None:
        super().__init__(store)
        self.before: Callable[[str], None] = lambda _call: None

    def get(self, key: str) -> bytes | None:
        self.before("get")
        return super().get(key)

    def get_many(self, keys: Iterable[str]) -> dict[str, bytes]:
        self.before("get_many")
        return super().get_many(keys)

    def keys(self, prefix: str = "") -> Iterator[str]:
        self.before("keys")
        return super().keys(prefix)

    def page(self, prefix: str = "", *, after: str | None = None, limit: int, reverse: bool = False) -> list[str]:
        self.before("keys")
        return super().page(prefix, after=after, limit=limit, reverse=reverse)

    def apply(
        self,
        expected: Mapping[str, bytes | None],
        puts: Mapping[str, bytes],
        deletes: Collection[str] = (),
        *,
        objects: Mapping[str, bytes] | None = None,
    ) -> bool:
        self.before("apply")
        return super().apply(expected, puts, deletes, objects=objects)


class Stopped(Watched):
    """A store that stops in one call, counted from ``stop``, until ``go``. Other calls pass."""

    def __init__(self, store: KVStore) -> None:
        super().__init__(store)
        self.before = self._count
        self._left = 0
        self.reached = Event()
        self.stopped_in = ""
        self._go = Event()

    def stop(self, at: int) -> None:
        """Stop in the ``at``-th call from now on."""
        self._left = at
        self.reached.clear()
        self._go.clear()

    def go(self) -> None:
        self._left = 0
        self._go.set()

    def _count(self, call: str) -> None:
        if self._left:
            self._left -= 1
            if not self._left:
                self.stopped_in = call
                self.reached.set()
                assert self._go.wait(PATIENCE_S), "nobody let the store go on"

    async def is_reached(self, task: asyncio.Task[object]) -> bool:
        """Return whether the call to stop in was reached before a task ended."""
        while not self.reached.is_set() and not task.done():  # noqa: ASYNC110 - it is set by another thread
            await asyncio.sleep(0.0002)
        return self.reached.is_set()


class Watching(Watched):
    """Each call waits until an event loop's tasks have gone on for some steps, and fails if the loop waits for it."""

    def __init__(self, store: KVStore, steps: int = 2) -> None:
        super().__init__(store)
        self._steps = steps
        self._thread: int | None = None
        self._ticks = 0
        self.calls: list[str] = []
        self.waited_for: list[str] = []

    async def watch(self) -> None:
        """Run until cancelled. The calls of the store check that this keeps running."""
        self._thread = get_ident()
        self.before = self._look
        try:
            while True:
                self._ticks += 1
                await asyncio.sleep(0)
        finally:
            self.before = lambda _call: None

    def _look(self, call: str) -> None:
        self.calls.append(call)
        wanted = self._ticks + self._steps
        tick = Event()
        waited = 0
        while self._ticks < wanted and get_ident() != self._thread and waited < 1000:
            tick.wait(0.001)
            waited += 1
        if self._ticks < wanted:
            self.waited_for.append(call)
