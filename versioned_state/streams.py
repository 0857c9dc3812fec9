"""``Stream``: an asynchronous iterator over commits, matches and the like. Beneath all layers."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from itertools import islice
from typing import Final, Generic, Self, TypeVar

from versioned_state.off_loop import off_loop

T = TypeVar("T")

_MOST: Final = 64
"""The largest batch.

The first one has one element, and each has twice as many as the one before, so at most half is read without need.
"""


class Stream(Generic[T]):
    """Elements that a background thread reads in batches, ahead of the consumer.

    A cancelled step loses no element: a later step continues. An error is raised after the elements before it, and ends
    the stream.

    Args:
        begin: returns the iterator to read from.
        run: reads a batch off the event loop.
    """

    def __init__(
        self,
        begin: Callable[[], Awaitable[Iterator[T]]],
        run: Callable[[Callable[[], None]], Awaitable[None]] = off_loop,
    ) -> None:
        self._begin = begin
        self._run = run
        self._source: Iterator[T] | None = None
        self._elements: deque[T] = deque()
        self._batch = 1
        self._failure: Exception | None = None
        self._is_over = False
        self._turn = asyncio.Lock()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        async with self._turn:
            if not self._elements and not self._is_over:
                if self._source is None:
                    self._source = await self._begin()
                await self._run(self._read)
            if self._elements:
                return self._elements.popleft()
            failure, self._failure = self._failure, None
            raise StopAsyncIteration if failure is None else failure

    def _read(self) -> None:
        assert self._source is not None
        before = len(self._elements)
        try:
            self._elements.extend(islice(self._source, self._batch))
        except Exception as error:  # noqa: BLE001 - raised where the reader gets to it
            self._failure = error
        self._is_over = self._failure is not None or len(self._elements) - before < self._batch
        self._batch = min(2 * self._batch, _MOST)
