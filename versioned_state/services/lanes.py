"""``Lanes``: calls that run off the event loop, those of one session one after another. Layer: services.

::

    alice/trip   ▣ ▣ ▣ ──▶ a thread        a lane: its calls run in the order in which they came
    bob/main     ▣     ──▶ another thread  no lane waits for another one, while there are threads
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from threading import Condition
from typing import Any, Final, TypeVar

T = TypeVar("T")

_IN_A_ROW: Final = 16
"""Calls of one lane that a thread runs before the other lanes have their turn."""


class LanesClosedError(Exception):
    """A call came after ``close``."""


@dataclass(frozen=True, slots=True)
class _Call:
    function: Callable[[], Any]
    context: Context
    future: Future[Any] = field(default_factory=Future)

    def run(self) -> None:
        if not self.future.set_running_or_notify_cancel():
            return  # it was cancelled before it began
        try:
            result = self.context.run(self.function)
        except BaseException as error:  # noqa: BLE001 - it is raised where the result is asked for
            self.future.set_exception(error)
        else:
            self.future.set_result(result)


class Lanes:
    """Threads, and the calls that wait for them. Safe for many threads and event loops.

    Args:
        threads: calls that are under way at once; more of them wait. Most of the time such a thread waits for the store.
    """

    def __init__(self, threads: int) -> None:
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="versioned-state-service")
        self._waiting: dict[str, deque[_Call]] = {}  # a lane is here as long as a thread works on it
        self._open = 0
        self._changed = Condition()
        self._closed = False

    def submit(self, lane: str, function: Callable[[], T]) -> Future[T]:
        """Run a function on a thread, in the context of the caller, after the calls that the lane has already.

        Raises ``LanesClosedError`` after ``close``.
        """
        call = _Call(function, copy_context())
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
                call = calls.popleft()
            try:
                call.run()
            finally:
                with self._changed:
                    self._open -= 1
                    if not self._open:
                        self._changed.notify_all()
        self._executor.submit(self._work, lane)
