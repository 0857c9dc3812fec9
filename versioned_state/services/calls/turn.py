"""``Turn``: calls of one lane that are done together, and functions in steps, which send commits. Layer: services."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from contextvars import Context, ContextVar
from copy import copy
from dataclasses import dataclass, field
from enum import Enum
from time import monotonic
from typing import Any, Final, TypeVar

from versioned_state.errors import LimitExceededError, PickleRefusedError, StateError, UnserializableValueError
from versioned_state.repository.database import Publication
from versioned_state.repository.refs.ref import Ref

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


_LARGE: Final = 1 << 18
"""Bytes from which a publication is sent alone: the others of a round trip would wait until it has been packed and sent."""


def sent(publication: Publication) -> Steps[Ref | StateError | None]:
    """Return the answer of ``publish_each`` to a publication. Unless that is a ref, the next step may wait for the store."""
    if publication.staging.held_bytes >= _LARGE:
        yield ALONE
    answer: Ref | StateError | None = yield publication
    if not isinstance(answer, Ref):
        yield ALONE
    return answer


class ApartError(Exception):
    """One of several items cannot be done, and none was: each is to be done by itself."""


APART: Final = (ApartError, UnserializableValueError, PickleRefusedError, LimitExceededError)
"""The errors of some items, which do not affect those of other callers. A function of items that raises one has done none of them."""

_callers: Final[ContextVar[tuple[Context, ...]]] = ContextVar("versioned_state_callers", default=())


def callers() -> tuple[Context, ...]:
    """The contexts of the callers of what is being done, if they are several; with none, it is the one that a function runs in."""
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

    Items are done by one call of their function. If one of them cannot be, each is done by a call of its own, in its own context. So
    ``callers`` are always those whose items the function has::

        A, D, C ── together ──┬── a result for each
                              └── an error of one of them: nothing was done ── A ── D: its error ── C

    Attributes:
        waiting: the calls of the lane that have not begun.
        since: the time from which it waits for a worker.
        asked: what its function has yielded, until it is answered; None if it has ended.
        is_alone: whether it may wait for the store.
    """

    __slots__ = ("_ended", "_groups", "_steps", "asked", "calls", "in_steps", "is_alone", "lane", "since", "waiting")

    def __init__(self, lane: str, waiting: deque[Call]) -> None:
        self.lane = lane
        self.waiting = waiting
        self.since = monotonic()
        self.calls: list[Call] = []
        self.in_steps = waiting[0].in_steps
        self.is_alone = False
        self.asked: Any = None
        self._groups: deque[list[Call]] | None = None  # those that have not ended, each for one call of the function
        self._steps: Steps[Any] | None = None  # of the first of them
        self._ended: list[tuple[list[Call], Sequence[Any] | BaseException]] = []

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
        if self._groups is None:
            begun = [call for call in self.calls if call.future.set_running_or_notify_cancel()]
            self._groups = deque([begun] if begun else ())  # none if all were cancelled before they began
        while self._groups:
            group = self._groups[0]
            ended: Sequence[Any] | BaseException
            try:
                found = _begun(group) if self._steps is None else self._steps
                if group[0].in_steps:
                    self._steps = found
                    self.asked = group[0].context.run(found.send, answer)
                    return
                ended = _results(group, found)
            except StopIteration as end:
                ended = _results(group, end.value)
            except APART as error:
                ended = error
                if len(group) > 1:
                    self._groups.extend([call] for call in group)
                    group = []
            except BaseException as error:  # noqa: BLE001 - it is raised where the result is asked for
                ended = error
            self._groups.popleft()
            self._steps = answer = None
            if group:
                self._ended.append((group, ended))

    def deliver(self) -> None:
        """Give the results to the callers."""
        for group, ended in self._ended:
            if isinstance(ended, BaseException):
                for index, call in enumerate(group):
                    # Each caller raises it, and adds to its traceback.
                    call.future.set_exception(copy(ended) if index and isinstance(ended, StateError) else ended)
                continue
            for call, result in zip(group, ended, strict=True):
                if call.items and isinstance(result, BaseException):
                    call.future.set_exception(result)
                else:
                    call.future.set_result(result)


def _begun(group: list[Call]) -> Any:
    """What the function of some calls gives at once: its results, or its steps."""
    first = group[0]
    together = tuple(call.context for call in group) if len(group) > 1 else ()
    if together or first.context.get(_callers):  # those of an earlier attempt, or of a function that made this call
        first.context.run(_callers.set, together)
    if not first.items:
        return first.context.run(first.function)
    return first.context.run(first.function, [item for call in group for item in call.items])


def _results(group: list[Call], found: Any) -> Sequence[Any] | BaseException:
    """A result for each call of a group."""
    results = found if group[0].items else (found,)
    return results if len(results) == len(group) else AssertionError("a result for each item")
