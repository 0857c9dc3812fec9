"""``Turn``: calls of one lane that are processed together, and functions in steps, which send commits.

Layer: services.
"""

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

from versioned_state.errors import (
    IdempotencyConflictError,
    LimitExceededError,
    PickleRefusedError,
    StateError,
    UnserializableValueError,
)
from versioned_state.repository.database import Publication
from versioned_state.repository.refs.ref import Ref

T = TypeVar("T")

_TOGETHER: Final = 64
"""The most items that are processed together. With more, the first ones would wait, for little gain."""


class Yielded(Enum):
    """A yield of a function in steps that is not sent."""

    ALONE = "alone"
    """From here on the function waits for the store, so it continues where no other call waits for it."""


ALONE: Final = Yielded.ALONE

Steps = Generator[Any, Any, T]
"""The generator of a function in steps.

It yields publications to send, receives an answer or an error, and returns the result.
"""


_LARGE: Final = 1 << 18
"""Bytes from which a publication is sent alone: others in its round trip would wait until it is packed and sent."""


def sent(publication: Publication) -> Steps[Ref | StateError | None]:
    """Return the answer of ``publish_each`` to a publication.

    Unless that is a ref, the next step may wait for the store.
    """
    if publication.staging.held_bytes >= _LARGE:
        yield ALONE
    answer: Ref | StateError | None = yield publication
    if not isinstance(answer, Ref):
        yield ALONE
    return answer


class ApartError(Exception):
    """One of several items failed, and nothing was done: each must be processed by itself."""


APART: Final = (ApartError, UnserializableValueError, PickleRefusedError, LimitExceededError, IdempotencyConflictError)
"""The errors of single items, which do not concern other callers.

A function of items that raises one has done nothing.
"""

_callers: Final[ContextVar[tuple[Context, ...]]] = ContextVar("versioned_state_callers", default=())


def callers() -> tuple[Context, ...]:
    """Return the contexts of the callers of a function, if there are several.

    Otherwise it runs in the context of its caller.
    """
    return _callers.get()


@dataclass(slots=True, eq=False)
class Call:
    """An accepted call. It never changes, but is not frozen, because that would take three times as long to create.

    Attributes:
        items: one item, if the function takes a list of items.
        in_steps: whether the function is a generator function.
    """

    function: Callable[..., Any]
    context: Context
    items: tuple[Any, ...] = ()
    in_steps: bool = False
    future: Future[Any] = field(default_factory=Future)

    def joins(self, other: Call) -> bool:
        """Return whether the two may be processed together."""
        return bool(self.items) and bool(other.items) and self.function == other.function


class Turn:
    """The next calls of a lane for a worker: one, or consecutive items. Used by one thread at a time.

    Items are processed by one call of their function. If one of them fails, each gets a call of its own, in its own
    context. So ``callers`` are always those whose items the function has::

        A, D, C ── together ──┬── a result for each
                              └── an error of one of them: nothing was done ── A ── D: its error ── C

    Attributes:
        waiting: the calls of the lane that have not begun.
        since: the time since which it has waited for a worker.
        asked: the yield of its function, until it is answered. None if the function has ended.
        is_alone: whether it may wait for the store.
    """

    __slots__ = ("_ended", "_groups", "_steps", "asked", "calls", "in_steps", "is_alone", "lane", "since", "waiting")

    def __init__(self, lane: str, waiting: deque[Call]) -> None:
        self.lane: Final = lane
        self.waiting: Final = waiting
        self.since: float = monotonic()
        self.calls: list[Call] = []
        self.in_steps: Final = waiting[0].in_steps
        self.is_alone: bool = False
        self.asked: Any = None
        self._groups: deque[list[Call]] | None = None  # those that have not ended, each for one call of the function
        self._steps: Steps[Any] | None = None  # of the first of them
        self._ended: list[tuple[list[Call], Sequence[Any] | BaseException]] = []

    @property
    def may_be_together(self) -> bool:
        """Whether a worker may run it together with turns of other lanes."""
        return self.in_steps and not self.is_alone

    def begin(self) -> None:
        """Take the first waiting call of the lane, and those that join it."""
        waiting = self.waiting
        first = waiting.popleft()
        self.calls.append(first)
        while waiting and len(self.calls) < _TOGETHER and first.joins(waiting[0]):
            self.calls.append(waiting.popleft())

    def run(self, answer: object = None) -> None:
        """Run the function, or continue its steps, until it ends or yields. Never raises."""
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
        """Pass the results to the callers."""
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
    """Call the function of some calls. Returns its results, or its steps."""
    first = group[0]
    together = tuple(call.context for call in group) if len(group) > 1 else ()
    if together or first.context.get(_callers):  # set by an earlier attempt, or by a function that made this call
        first.context.run(_callers.set, together)
    if not first.items:
        return first.context.run(first.function)
    return first.context.run(first.function, [item for call in group for item in call.items])


def _results(group: list[Call], found: Any) -> Sequence[Any] | BaseException:
    """Return a result for each call of a group."""
    results = found if group[0].items else (found,)
    return results if len(results) == len(group) else AssertionError("a result for each item")
