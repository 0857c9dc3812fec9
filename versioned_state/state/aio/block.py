"""``AsyncBlock``: an ``async with`` block that notices if an interrupt keeps its end from running. Layer: state.

As with ``Block``, only the statement refers to the callable that ends the block; the frames in a traceback do not.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any
from weakref import ReferenceType, ref

End = Callable[[type[BaseException] | None, BaseException | None], Coroutine[Any, Any, None]]
"""Ends a block, given the type of its error and the error, or None for both."""


class _Held:
    """Kept alive by the callable that ends a block."""


class _Exit:
    """``__aexit__`` of a block. For an instance it gives a callable that only the ``async with`` statement holds."""

    def __get__(self, block: AsyncBlock | None, cls: type[AsyncBlock]) -> Callable[..., Coroutine[Any, Any, None]]:
        if block is None:
            return cls.end
        held = [_Held()]
        block.reference = ref(held[0])
        return partial(_end, block.ends, held)


async def _end(
    ends: list[End], held: list[_Held], kind: type[BaseException] | None = None, error: BaseException | None = None, *_: object
) -> None:
    try:
        await ends.pop()(kind, error)
    finally:
        held.clear()  # a traceback may keep this frame


class AsyncBlock:
    """An ``async with`` block.

    Attributes:
        ends: the function that ends the block that was entered last.
        reference: dead as soon as the block can no longer end; None if that is not known.
    """

    __aexit__ = _Exit()

    def __init__(self) -> None:
        self.ends: list[End] = []
        self.reference: ReferenceType[Any] | None = None

    async def end(self, kind: type[BaseException] | None = None, error: BaseException | None = None, *_: object) -> None:
        """``__aexit__`` for callers that look it up on the class, such as ``contextlib.AsyncExitStack``."""
        await _end(self.ends, [], kind, error)
