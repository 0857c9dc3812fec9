"""The awaitable twins of a handle's calls. Layer: state.

A twin takes the arguments of its call, and runs the call on a background thread; see ``gate``. ``VersionedAio``,
``KeySpaceAio`` and ``SequenceAio`` list the twins, each beside the class whose calls they run. This module does not
load asyncio.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Any, ParamSpec, TypeVar

from versioned_state.state.aio.caller import HandleLock
from versioned_state.twins import Aio, Named, Twin

P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")
V = TypeVar("V")


class HandleAio(Aio[S]):
    """Calls on a handle, one at a time, off the event loop.

    A cancelled call that has begun runs to its end, and then raises ``CancelledError``.

    Attributes:
        of: the object whose methods are called.
        handle_lock: the lock of the handle's calls.
    """

    def __init__(self, of: S, lock: HandleLock) -> None:
        super().__init__(of)
        self.handle_lock = lock

    async def run(self, function: Callable[[], T]) -> T:
        """Run a function that calls the state, such as the ``merge.commit`` of a conflict, as one call on the handle.

        It runs on a background thread while tasks may change live values, so it should not change live values itself.

        Raises:
            EventLoopError: asyncio runs no event loop here.
        """
        return await self._run(function)

    async def _run(self, function: Callable[[], T], *, ahead: Callable[[], None] | None = None) -> T:
        from versioned_state.state.aio.gate import run_on_handle

        return await run_on_handle(self.handle_lock, function, ahead=ahead)


def converted(
    method: Named[P, T],  # noqa: ARG001 - for type checkers
    convert: Callable[[HandleLock, Callable[[], T]], V],
) -> Twin[P, V]:
    """Return a twin whose result ``convert`` makes, given the lock of the handle and the call of the method."""

    def wrap(aio: HandleAio[Any], method: Callable[P, T]) -> Callable[P, V]:
        def call(*args: P.args, **kwargs: P.kwargs) -> V:
            return convert(aio.handle_lock, partial(method, *args, **kwargs))

        return call

    return Twin(wrap)


def stream(method: Named[P, Iterator[T]]) -> Twin[P, AsyncIterator[T]]:
    """Return a twin that gives an asynchronous iterator for that of its method, which must read only the store."""

    def convert(lock: HandleLock, call: Callable[[], Iterator[T]]) -> AsyncIterator[T]:
        from versioned_state.state.aio.gate import run_on_handle
        from versioned_state.streams import Stream

        return Stream(lambda: run_on_handle(lock, call))

    return converted(method, convert)
