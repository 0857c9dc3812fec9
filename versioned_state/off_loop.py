"""Calls that run off the event loop, on threads of the library. Beneath all layers.

Not on asyncio's default executor: a program may fill that with calls that wait for these.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from contextvars import copy_context
from typing import Any, Final, TypeVar

from versioned_state.errors import EventLoopError

T = TypeVar("T")

_LOOK_S: Final = 1.0
"""How often a coroutine looks for the end of its call, of which it is told."""

_THREADS: Final = 32
"""Most of the time such a thread waits for a store."""


class Threads:
    """Threads that run functions off the event loop. Those of the process are ``off_loop``, which documents a call.

    Args:
        most: calls that are under way at once; more of them wait for their turn.
    """

    executor: ThreadPoolExecutor

    def __init__(self, most: int, name: str) -> None:
        self._most, self._name = most, name
        self.renew()

    def renew(self) -> None:
        """Leave the threads to their parent: a fork has none of them."""
        self.executor = ThreadPoolExecutor(self._most, thread_name_prefix=self._name)

    async def __call__(self, function: Callable[[], T], *, undo: Callable[[T], Awaitable[object]] | None = None) -> T:
        running_loop()
        return await result_of(self.executor.submit(copy_context().run, function), undo=undo)


_threads: Final = Threads(_THREADS, "versioned-state")
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_threads.renew)


def running_loop() -> asyncio.AbstractEventLoop:
    """Return the event loop of this thread. Raises ``EventLoopError`` if asyncio runs none here."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise EventLoopError(
            "no event loop of asyncio runs here",
            remains="nothing was changed",
            hint="under trio, run the synchronous call in a thread: await trio.to_thread.run_sync(state.commit)",
        ) from None


async def off_loop(function: Callable[[], T], *, undo: Callable[[T], Awaitable[object]] | None = None) -> T:
    """Run a function on a background thread, in the context of the caller, and return its result.

    A cancelled call that has begun ends first, and raises ``CancelledError`` then; one that has not begun is dropped.
    The event loop never waits. Cost: two changes of threads.

    Args:
        undo: called with the result, and awaited, if the call was cancelled and so has no reader of its result.
    """
    return await _threads(function, undo=undo)


async def result_of(future: Future[T], *, undo: Callable[[T], Awaitable[object]] | None = None) -> T:
    """Return the result of a call on a thread of any executor.

    A cancellation has the same effect as in ``off_loop``.
    """
    try:
        cancelled = await _end_of(future)
    finally:
        future.cancel()  # another exception than a cancellation came: a call that has not begun never does
    if cancelled is None:
        return future.result()
    if future.cancelled():
        raise cancelled
    failure = future.exception()
    if failure is None and undo is not None:
        with suppress(asyncio.CancelledError):
            await to_the_end(undo(future.result()))
    raise cancelled from failure


async def to_the_end(work: Awaitable[T]) -> T:
    """Run a coroutine in a task of its own. A cancellation does not reach it, and is raised once it has ended."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            with nullcontext() if cancelled is None else _shield():
                await asyncio.wait((task,))
        except asyncio.CancelledError as error:
            cancelled = cancelled or error
    if cancelled is None:
        return task.result()
    raise cancelled from (None if task.cancelled() else task.exception())


async def _end_of(future: Future[Any]) -> asyncio.CancelledError | None:
    """Wait for the end of a call, and return the first cancellation, if there was any.

    A cancellation drops a call that has not begun.
    """
    cancelled = await wait_for_end(future)
    if cancelled is not None and not future.cancel():
        with _shield():
            while not future.done():
                await wait_for_end(future)
    return cancelled


async def wait_for_end(future: Future[Any]) -> asyncio.CancelledError | None:
    """Wait for the end of any thread's call, or for a cancellation, which is returned and does not reach the call."""
    loop = asyncio.get_running_loop()
    waiter = loop.create_future()

    def wake(_: Future[Any]) -> None:
        if _this_thread.held is None:
            _wake(loop, [waiter])
        else:
            _this_thread.held.setdefault(loop, []).append(waiter)

    future.add_done_callback(wake)
    while True:
        look = loop.call_later(_LOOK_S, _set, waiter)  # a signal handler that raised may have kept it from being woken
        try:
            await waiter
        except asyncio.CancelledError as error:
            return error
        finally:
            look.cancel()
        if future.done():
            return None
        waiter = loop.create_future()


class _Thread(threading.local):
    held: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] | None = None


_this_thread: Final = _Thread()


@contextmanager
def waking_together() -> Iterator[None]:
    """Let this thread end calls in a block, and wake each event loop once, at the end of the block."""
    held = _this_thread.held = {}
    try:
        yield
    finally:
        _this_thread.held = None
        for loop, waiters in held.items():
            _wake(loop, waiters)


def _wake(loop: asyncio.AbstractEventLoop, waiters: list[asyncio.Future[None]]) -> None:
    with suppress(RuntimeError):  # the loop was closed: nobody waits any more
        loop.call_soon_threadsafe(_set_all, waiters)


def _set_all(waiters: list[asyncio.Future[None]]) -> None:
    for waiter in waiters:
        _set(waiter)


def _set(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def _shield() -> AbstractContextManager[object]:
    """Keep anyio, if it is loaded, from cancelling a waiting task again and again. asyncio cancels a task once."""
    anyio = sys.modules.get("anyio")
    return nullcontext() if anyio is None else anyio.CancelScope(shield=True)
