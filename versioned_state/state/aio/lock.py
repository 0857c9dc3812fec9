"""``AsyncLock``: the lock of a branch as an ``async with`` block. Layer: state."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Self
from weakref import ref

from versioned_state.off_loop import Named, Twin, off_loop, to_the_end
from versioned_state.state.aio.gate import run_on_handle
from versioned_state.state.aio.twin import HandleAio, P
from versioned_state.state.branch.lock import leave

if TYPE_CHECKING:
    from types import TracebackType

    from versioned_state.state.aio.caller import HandleLock
    from versioned_state.state.branch.lock import Holding, Lock


class AsyncLock:
    """The lock of a branch. It belongs to the task that enters it; other tasks can use the handle while that task waits.

    A task that is cancelled while it enters does not have the lock; a task that is cancelled while it leaves has released it.
    """

    def __init__(self, handle: HandleLock, lock: Lock) -> None:
        self._handle = handle
        self._lock = lock
        self._held: list[Holding | None] = []

    @property
    def token(self) -> int:
        """See ``Lock.token``."""
        return self._lock.token

    async def renew(self) -> None:
        """See ``Lock.renew``."""
        await off_loop(self._lock.renew)

    async def __aenter__(self) -> Self:
        lock, block = self._lock, ref(self)
        try:
            holding = None
            if await run_on_handle(self._handle, lambda: lock.begin(block)):
                while (pause := await off_loop(lock.look)) is not None:  # noqa: ASYNC110 - another process may have it
                    await asyncio.sleep(pause)
                holding = await run_on_handle(self._handle, lock.attach)
            self._held.append(holding)
            lock.done()
        except GeneratorExit:  # the coroutine is closed, and cannot wait
            lock.give_up()
            raise
        except BaseException:
            await self._end(lock.give_up)
            raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        holding = self._held.pop()
        if kind is GeneratorExit:
            leave(self._lock.state, holding)
            return
        await self._end(lambda: leave(self._lock.state, holding))

    def _end(self, step: Callable[[], None]) -> Awaitable[None]:
        return to_the_end(run_on_handle(self._handle, step, owner=asyncio.current_task()))


def lock(method: Named[P, Lock]) -> Twin[P, AsyncLock]:  # noqa: ARG001 - for type checkers
    """The twin of the method that gives a lock."""

    def wrap(aio: HandleAio[Any], method: Callable[P, Lock]) -> Callable[P, AsyncLock]:
        def call(*args: P.args, **kwargs: P.kwargs) -> AsyncLock:
            return AsyncLock(aio.handle_lock, method(*args, **kwargs))

        return call

    return Twin(wrap)
