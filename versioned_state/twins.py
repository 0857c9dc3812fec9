"""Awaitable twins of the calls of an object, on its ``aio``. Beneath all layers.

This module does not load asyncio: a class declares its twins where it is defined, and most programs await none of them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from functools import partial, update_wrapper
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, overload

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")
T = TypeVar("T")
V = TypeVar("V")

Named = Callable[[], Callable[Concatenate[Any, P], R]]
"""A function that returns a method, for type checkers only.

It is never called: a twin looks up the method of its own name.
"""


class Twin(Generic[P, V]):
    """On the ``aio`` of an object, whose attribute ``of`` is that object: the twin of the method of the same name.

    Args:
        wrap: makes the twin, of the ``aio`` and the bound method.
    """

    def __init__(self, wrap: Callable[[Any, Callable[P, Any]], Callable[P, V]]) -> None:
        self._wrap = wrap
        self._name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, aio: None, cls: type) -> Twin[P, V]: ...
    @overload
    def __get__(self, aio: object, cls: type) -> Callable[P, V]: ...
    def __get__(self, aio: Any, cls: type) -> Twin[P, V] | Callable[P, V]:
        if aio is None:
            return self
        method = getattr(aio.of, self._name)
        return update_wrapper(self._wrap(aio, method), method)


class Aio(Generic[S]):
    """The twins of the calls of an object, ``of``, that run off the event loop, any number at once."""

    def __init__(self, of: S) -> None:
        self.of = of

    def __repr__(self) -> str:
        return f"<aio of {self.of!r}>"

    async def run(self, function: Callable[[], T]) -> T:
        from versioned_state.off_loop import off_loop

        return await off_loop(function)


def awaitable(
    method: Named[P, R],  # noqa: ARG001 - for type checkers
    *,
    after: Callable[[Any], object] | None = None,
    ahead: Callable[[Any, Mapping[str, Any]], None] | None = None,
) -> Twin[P, Coroutine[Any, Any, R]]:
    """Return a twin that returns the result of its method when it is awaited.

    Args:
        method: see ``Named``.
        after: called with the result, on the background thread.
        ahead: for a handle: called with the object and the keyword arguments before the call, on the thread of the
            event loop.
    """

    def wrap(aio: Any, method: Callable[P, R]) -> Callable[P, Coroutine[Any, Any, R]]:
        async def call(*args: P.args, **kwargs: P.kwargs) -> R:
            def run() -> R:
                result = method(*args, **kwargs)
                if after is not None:
                    after(result)
                return result

            result: R = await (aio.run(run) if ahead is None else aio._run(run, ahead=partial(ahead, aio.of, kwargs)))
            return result

        return call

    return Twin(wrap)


def streamed(method: Named[P, Iterator[T]]) -> Twin[P, AsyncIterator[T]]:  # noqa: ARG001 - for type checkers
    """Return a twin that gives an asynchronous iterator instead of the iterator of its method."""

    def wrap(aio: Any, method: Callable[P, Iterator[T]]) -> Callable[P, AsyncIterator[T]]:
        def call(*args: P.args, **kwargs: P.kwargs) -> AsyncIterator[T]:
            from versioned_state.streams import Stream

            return Stream(lambda: aio.run(partial(method, *args, **kwargs)))

        return call

    return Twin(wrap)
