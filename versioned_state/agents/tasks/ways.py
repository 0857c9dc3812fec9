"""Runs the steps of a round that access the store: directly, or off the event loop if the call is a coroutine. Layer: agents."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from versioned_state.state.branch import port
from versioned_state.state.versioned import Versioned

if TYPE_CHECKING:
    from asyncio import Task

T = TypeVar("T")


class Way(Protocol):
    """Runs a step on a handle."""

    async def __call__(
        self,
        state: Versioned,
        step: Callable[[], T],
        *,
        ahead: Callable[[], None] | None = None,
        undo: Callable[[T], object] | None = None,
    ) -> T:
        """Run a step, and return its result.

        Args:
            ahead: the part of the step that needs no store.
            undo: undoes the step if no caller gets the result.
        """
        ...


async def directly(
    state: Versioned,  # noqa: ARG001 - a Way
    step: Callable[[], T],
    *,
    ahead: Callable[[], None] | None = None,  # noqa: ARG001
    undo: Callable[[T], object] | None = None,  # noqa: ARG001
) -> T:
    """Run a step here and now."""
    return step()


def off_loop(task: Task[Any] | None) -> Way:
    """A way that runs steps off the event loop, for a task. A step that has begun ends before a cancellation propagates."""
    from versioned_state.state.aio.gate import run_on_handle  # loads asyncio

    async def run(
        state: Versioned,
        step: Callable[[], T],
        *,
        ahead: Callable[[], None] | None = None,
        undo: Callable[[T], object] | None = None,
    ) -> T:
        return await run_on_handle(port.lock(state), step, owner=task, ahead=ahead, undo=undo)

    return run


def at_once(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine whose steps are all run directly."""
    try:
        work.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    raise AssertionError("a step that was run directly waited")
