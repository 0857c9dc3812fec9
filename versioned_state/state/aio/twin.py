"""The twins of a handle's methods: an awaitable, or an asynchronous iterator. Layer: state."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from functools import partial
from typing import Any, Generic, ParamSpec, TypeVar

from versioned_state.off_loop import Named, Twin
from versioned_state.state.aio.caller import HandleLock
from versioned_state.state.aio.gate import run_on_handle
from versioned_state.state.aio.stream import Stream

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")
T = TypeVar("T")


class HandleAio(Generic[S]):
    """Calls on a handle, one at a time, off the event loop.

    A cancelled call that has begun runs to its end, and then raises ``CancelledError``.

    Attributes:
        of: the object whose methods are called.
        handle_lock: the lock of the handle's calls.
    """

    def __init__(self, of: S, lock: HandleLock) -> None:
        self.of = of
        self.handle_lock = lock

    def __repr__(self) -> str:
        return f"<aio of {self.of!r}>"

    async def run(self, function: Callable[[], T]) -> T:
        """Run a function that calls the state, such as the ``merge.commit`` of a conflict, as one call on the handle.

        It runs on a background thread while tasks may change live values, so it should not change live values itself.

        Raises:
            EventLoopError: asyncio runs no event loop here.
        """
        return await run_on_handle(self.handle_lock, function)


def awaitable(
    method: Named[P, R],  # noqa: ARG001 - for type checkers
    *,
    ahead: Callable[[Any, Mapping[str, Any]], None] | None = None,
    after: Callable[[Any], object] | None = None,
) -> Twin[P, Coroutine[Any, Any, R]]:
    """A twin that returns the result of its method when it is awaited.

    Args:
        method: see ``Named``.
        ahead: called with the object and the keyword arguments before the call, on the thread of the event loop.
        after: called with the result, on the background thread.
    """

    def wrap(aio: HandleAio[Any], method: Callable[P, R]) -> Callable[P, Coroutine[Any, Any, R]]:
        async def call(*args: P.args, **kwargs: P.kwargs) -> R:
            def run() -> R:
                result = method(*args, **kwargs)
                if after is not None:
                    after(result)
                return result

            return await run_on_handle(aio.handle_lock, run, ahead=None if ahead is None else partial(ahead, aio.of, kwargs))

        return call

    return Twin(wrap)


def stream(method: Named[P, Iterator[T]]) -> Twin[P, AsyncIterator[T]]:  # noqa: ARG001 - for type checkers
    """A twin that returns an asynchronous iterator instead of the iterator of its method, which must read only the store."""

    def wrap(aio: HandleAio[Any], method: Callable[P, Iterator[T]]) -> Callable[P, AsyncIterator[T]]:
        def call(*args: P.args, **kwargs: P.kwargs) -> AsyncIterator[T]:
            return Stream(lambda: run_on_handle(aio.handle_lock, partial(method, *args, **kwargs)))

        return call

    return Twin(wrap)
