"""``Turn``: calls of one lane that are done together, and functions in steps. Layer: services."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from contextvars import Context, ContextVar
from dataclasses import dataclass, field
from enum import Enum
from time import monotonic
from typing import Any, Final, TypeVar

T = TypeVar("T")

_TOGETHER: Final = 64
"""Items that are done together. More of them would make the first ones wait, for little."""


class Yielded(Enum):
    """What a function in steps yields, beside what it sends."""

    ALONE = "alone"
    """From here on it waits for the store: it goes on where no other call waits for it."""


ALONE: Final = Yielded.ALONE

Steps = Generator[Any, Any, T]
"""What a function in steps makes: it yields what to send, gets the answer or an error instead, and returns the result."""

_callers: Final[ContextVar[tuple[Context, ...]]] = ContextVar("versioned_state_callers", default=())


def callers() -> tuple[Context, ...]:
    """The contexts of the callers whose items are being done together, for the function that does them; else none."""
    return _callers.get()


@dataclass(slots=True, eq=False)
class Call:
    """A call that was accepted. Never changed; not frozen, since making a frozen instance takes three times as long.

    Attributes:
        items: one, if the function takes a list of items.
        in_steps: whether the function is a generator function.
    """

    function: Callable[..., Any]
    context: Context
    items: tuple[Any, ...] = ()
    in_steps: bool = False
    future: Future[Any] = field(default_factory=Future)

    def joins(self, other: Call) -> bool:
        """Whether the two may be done together."""
        return bool(self.items) and bool(other.items) and self.function == other.function


class Turn:
    """The calls of a lane that a worker does next: one, or items in a row. Only one thread at a time has it.

    Attributes:
        waiting: the calls of the lane that have not begun.
        since: the time from which it waits for a worker.
        asked: what its function has yielded, until it is answered; None if it has ended.
        is_alone: whether it may wait for the store.
    """

    __slots__ = ("_begun", "_error", "_results", "_steps", "asked", "calls", "in_steps", "is_alone", "lane", "since", "waiting")

    def __init__(self, lane: str, waiting: deque[Call]) -> None:
        self.lane = lane
        self.waiting = waiting
        self.since = monotonic()
        self.calls: list[Call] = []
        self.in_steps = waiting[0].in_steps
        self.is_alone = False
        self.asked: Any = None
        self._begun: list[Call] = []
        self._steps: Steps[Any] | None = None
        self._results: Sequence[Any] = ()
        self._error: BaseException | None = None

    @property
    def may_be_together(self) -> bool:
        """Whether a worker may do it together with turns of other lanes."""
        return self.in_steps and not self.is_alone

    def begin(self) -> None:
        """Take the first call that waits in the lane, and those that join it."""
        waiting = self.waiting
        first = waiting.popleft()
        self.calls.append(first)
        while waiting and len(self.calls) < _TOGETHER and first.joins(waiting[0]):
            self.calls.append(waiting.popleft())

    def run(self, answer: object = None) -> None:
        """Run the function, or go on with its steps, until it ends or asks. Never raises."""
        self.asked = None
        try:
            if self._steps is not None:
                self.asked = self._begun[0].context.run(self._steps.send, answer)
                return
            self._begun = begun = [call for call in self.calls if call.future.set_running_or_notify_cancel()]
            if not begun:
                return  # all were cancelled before they began
            first = begun[0]
            arguments = []
            if first.items:
                first.context.run(_callers.set, tuple(call.context for call in begun))
                arguments.append([item for call in begun for item in call.items])
            found = first.context.run(first.function, *arguments)
            if first.in_steps:
                self._steps = found
                self.asked = first.context.run(next, found)
            else:
                self._take(found)
        except StopIteration as end:
            self._take(end.value)
        except BaseException as error:  # noqa: BLE001 - it is raised where the result is asked for
            self._error = error

    def _take(self, found: Any) -> None:
        self._results = found if self._begun[0].items else (found,)

    def deliver(self) -> None:
        """Give the results to the callers."""
        begun = self._begun
        if begun and self._error is None and len(self._results) != len(begun):
            self._error = AssertionError("a result for each item")
        if self._error is not None:
            for call in begun:
                call.future.set_exception(self._error)
            return
        for call, result in zip(begun, self._results, strict=True):
            if call.items and isinstance(result, BaseException):
                call.future.set_exception(result)
            else:
                call.future.set_result(result)
