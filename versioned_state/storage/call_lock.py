"""``CallLock``, a lock held by a call, so that an interrupted call does not keep it. Layer: storage.

An exception may arrive between any two steps of a call: Ctrl-C, a timeout by signal, a notebook's interrupt. ``with
lock:`` of the standard library keeps the lock for ever if that happens right before the lock is released. Here the next
caller sees that the call which holds the lock has ended, and takes the lock over.
"""

from __future__ import annotations

import gc
import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from operator import attrgetter, call
from threading import Lock, get_ident
from types import FrameType, TracebackType
from typing import Final, TypeVar, cast

T = TypeVar("T")

# The call that releases the lock wakes a waiting call. The waiting call also looks after this long, in case another
# thread was interrupted while it held the lock. A look walks over the stacks of all threads.
_LOOK_S = 0.2

Call = tuple[FrameType, int]
"""A call and its thread."""


_BACK: Final = attrgetter("f_back")


def _uncollected(function: Callable[[], T]) -> T:
    """Return the result of a function in C that reads frames of other threads, during which the collector is off.

    In CPython 3.11 the collector may run whenever the object of a frame is made, and a finalizer may then let another
    thread go on. Meanwhile ``_current_frames`` holds a lock of the interpreter: a thread that waits for it keeps the
    GIL, a deadlock (python/cpython#106883). And ``f_back`` reads the frame of a call that has ended by then: it returns
    whatever lies there now. All three calls are made in one step of the interpreter, so that neither another thread nor
    a signal comes in between.
    """
    if not gc.isenabled():
        return function()
    _, result, _ = map(call, (gc.disable, function, gc.enable))
    return cast("T", result)


def is_running(frame: FrameType) -> bool:
    """Return whether the call of a frame is still running, in any thread.

    A generator between two steps is not running.
    """
    top: FrameType | None
    at: FrameType | None
    try:
        for top in _uncollected(sys._current_frames).values():
            at = top
            while at is not None:
                if at is frame:
                    return True
                at = _uncollected(partial(_BACK, at))
        return False
    finally:
        top = at = None  # this call's own frame is among them: a cycle would keep all of its callers' values alive


class CallLock:
    """Held by a function from ``with lock:`` or ``acquire()`` to ``release()``, at the latest until the function ends.

    A call that is made within the one that holds the lock, on the same thread (by a signal handler or a finalizer),
    passes ``with lock:`` at once; ``acquire`` refuses it. A generator must not hold the lock from one step to the next.
    """

    __slots__ = ("_calls", "_gates")

    def __init__(self) -> None:
        # The calls that hold the lock or wait for it, in order: the first one holds it. Each change is one step of a
        # deque, so an interrupt cannot leave it half changed.
        self._calls: deque[Call] = deque()
        self._gates: dict[Call, Lock] = {}

    def __enter__(self) -> None:
        call = (sys._getframe(1), get_ident())
        self._calls.append(call)
        if self._calls[0] is not call:
            self._wait(call, None)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave(sys._getframe(1))

    def acquire(self, timeout: float | None = None) -> bool:
        """Take the lock for the calling function, or False if it was not free within ``timeout`` seconds."""
        call = (sys._getframe(1), get_ident())
        self._calls.append(call)
        return self._calls[0] is call or self._wait(call, timeout)

    def release(self) -> None:
        """Free the lock, if the calling function holds it."""
        self._leave(sys._getframe(1))

    def _leave(self, frame: FrameType) -> None:
        holder = self._calls[0] if self._calls else None
        if holder is None or holder[0] is not frame:
            return  # this call entered within another one that holds the lock
        self._calls.remove(holder)
        if self._calls:
            with suppress(IndexError, KeyError, RuntimeError):  # the next call has looked already, or has gone
                self._gates[self._calls[0]].release()

    def _wait(self, call: Call, timeout: float | None) -> bool:
        """Wait until ``call`` is the first. Returns whether it is."""
        deadline = None if timeout is None else time.monotonic() + timeout
        gate = self._gates[call] = Lock()
        gate.acquire()
        try:
            while (holder := self._calls[0]) is not call:
                if holder[1] == call[1]:
                    if _is_caller(holder[0]):
                        self._calls.remove(call)
                        return False
                    self._remove(holder)  # a call of this thread that is not under way has ended
                    continue
                left = _LOOK_S if deadline is None else min(_LOOK_S, deadline - time.monotonic())
                if left < 0:
                    self._calls.remove(call)
                    return False
                if not gate.acquire(timeout=left) and not is_running(holder[0]):
                    self._remove(holder)
        finally:
            self._gates.pop(call, None)
        return True

    def _remove(self, ended: Call) -> None:
        with suppress(ValueError):  # another caller was faster
            self._calls.remove(ended)


def _is_caller(holder: FrameType) -> bool:
    """Return whether ``holder`` is a caller of the current function, on this thread."""
    at: FrameType | None = sys._getframe(1)
    while at is not None:
        if at is holder:
            return True
        at = at.f_back
    return False
