"""``Lanes``: calls that run off the event loop, those of one session one after another. Layer: services.

::

    alice/trip   ▣ ▣ ▣ ──▶ a thread        a lane: its calls run in the order in which they came
    bob/main     ▣     ──▶ another thread  no lane waits for another one, while there are threads
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import Context, ContextVar, copy_context
from dataclasses import dataclass, field
from threading import Condition
from typing import Any, Final, TypeVar
from weakref import WeakSet

T = TypeVar("T")
Item = TypeVar("Item")

_IN_A_ROW: Final = 16
"""Calls of one lane that a thread runs before the other lanes have their turn."""

_TOGETHER: Final = 64
"""Items that are done together. More of them would make the first ones wait, for little."""


_callers: Final[ContextVar[tuple[Context, ...]]] = ContextVar("versioned_state_callers", default=())


def callers() -> tuple[Context, ...]:
    """The contexts of the callers whose items are being done together, for the function that does them; else none."""
    return _callers.get()


class LanesClosedError(Exception):
    """A call came after ``close``."""


@dataclass(frozen=True, slots=True)
class _Call:
    function: Callable[..., Any]
    context: Context
    items: tuple[Any, ...] = ()  # one, if the function takes a list of items
    future: Future[Any] = field(default_factory=Future)

    def joins(self, other: _Call) -> bool:
        """Whether the two may be done together."""
        return bool(self.items) and bool(other.items) and self.function == other.function


def _run(calls: list[_Call]) -> None:
    """Run a call, or calls that join each other."""
    begun = [call for call in calls if call.future.set_running_or_notify_cancel()]  # the others were cancelled before they began
    if not begun:
        return
    first = begun[0]
    results: Sequence[Any]
    try:
        if first.items:
            first.context.run(_callers.set, tuple(call.context for call in begun))
            results = first.context.run(first.function, [item for call in begun for item in call.items])
            assert len(results) == len(begun), "a result for each item"
        else:
            results = [first.context.run(first.function)]
    except BaseException as error:  # noqa: BLE001 - it is raised where the result is asked for
        for call in begun:
            call.future.set_exception(error)
        return
    for call, result in zip(begun, results, strict=True):
        if call.items and isinstance(result, BaseException):
            call.future.set_exception(result)
        else:
            call.future.set_result(result)


class Lanes:
    """Threads, and the calls that wait for them. Safe for many threads and event loops.

    Args:
        threads: calls that are under way at once; more of them wait. Most of the time such a thread waits for the store.
    """

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._closed = False
        self.renew()
        _all.add(self)

    def renew(self) -> None:
        """Begin again in a forked process, which has neither the threads of its parent nor their calls."""
        self._executor = ThreadPoolExecutor(self._threads, thread_name_prefix="versioned-state-service")
        self._waiting: dict[str, deque[_Call]] = {}  # a lane is here as long as a thread works on it
        self._open = 0
        self._changed = Condition()

    def submit(self, lane: str, function: Callable[[], T]) -> Future[T]:
        """Run a function on a thread, in the context of the caller, after the calls that the lane has already.

        Raises ``LanesClosedError`` after ``close``.
        """
        return self._submit(lane, _Call(function, copy_context()))

    def submit_item(self, lane: str, item: Item, function: Callable[[list[Item]], Sequence[T | BaseException]]) -> Future[T]:
        """``submit`` for a function of items: items in a row of one lane, for one function, may be done by one call of it.

        Args:
            function: gives a result for each item, or the error to raise there. If it raises, that is the error of all. The context is
                that of the first item's caller.
        """
        return self._submit(lane, _Call(function, copy_context(), (item,)))

    def _submit(self, lane: str, call: _Call) -> Future[Any]:
        with self._changed:
            if self._closed:
                raise LanesClosedError
            self._open += 1
            calls = self._waiting.get(lane)
            if calls is None:
                self._waiting[lane] = deque((call,))
                self._executor.submit(self._work, lane)
            else:
                calls.append(call)
        return call.future

    def close(self) -> None:
        """Accept no more calls, wait for the accepted ones, and end the threads. Idempotent."""
        with self._changed:
            self._closed = True
            self._changed.wait_for(lambda: not self._open)
        self._executor.shutdown()

    def _work(self, lane: str) -> None:
        for _ in range(_IN_A_ROW):
            with self._changed:
                calls = self._waiting[lane]
                if not calls:
                    del self._waiting[lane]
                    return
                some = [calls.popleft()]
                while calls and len(some) < _TOGETHER and some[0].joins(calls[0]):
                    some.append(calls.popleft())
            try:
                _run(some)
            finally:
                with self._changed:
                    self._open -= len(some)
                    if not self._open:
                        self._changed.notify_all()
        self._executor.submit(self._work, lane)


_all: Final[WeakSet[Lanes]] = WeakSet()


def _renew() -> None:
    for lanes in list(_all):
        lanes.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
