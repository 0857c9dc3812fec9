"""`CallLock`, a lock that knows the call that holds it, so that an interrupted call does not keep it. Layer: storage.

An exception may arrive between any two steps of a call: Ctrl-C, a timeout by signal, a notebook's interrupt. `with lock:` of
the standard library keeps the lock for ever if that happens right before the lock is released. Here the next caller sees that
the call which holds the lock has ended, and takes the lock over.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from contextlib import suppress
from threading import Lock
from types import FrameType, TracebackType

# A caller that waits is woken by the one that releases the lock. It looks by itself after this long, in case that call was
# interrupted.
_LOOK_S = 0.02


def is_running(frame: FrameType) -> bool:
    """Whether the call of that frame has not ended, in any thread. A generator between two steps does not run."""
    for top in sys._current_frames().values():
        at: FrameType | None = top
        while at is not None:
            if at is frame:
                return True
            at = at.f_back
    return False


class CallLock:
    """Held by a function from `with lock:` or `acquire()` to `release()`, at the latest until the function ends.

    A call that is made within the one that holds the lock, on the same thread (by a signal handler or a finalizer), passes
    `with lock:` at once; `acquire` refuses it. A generator must not hold the lock from one step to the next.
    """

    __slots__ = ("_holder", "_takeover", "_waiting")

    def __init__(self) -> None:
        # At most one entry. dict.setdefault is one step: it takes the lock and says who holds it.
        self._holder: dict[None, FrameType] = {}
        self._takeover = Lock()
        self._waiting: deque[Lock] = deque()

    def __enter__(self) -> None:
        frame = sys._getframe(1)
        if self._holder.setdefault(None, frame) is not frame:
            self._wait(frame, None)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._holder.get(None) is sys._getframe(1):
            self._free()

    def acquire(self, timeout: float | None = None) -> bool:
        """Take the lock for the calling function; False if it was not free within `timeout` seconds."""
        frame = sys._getframe(1)
        return self._holder.setdefault(None, frame) is frame or self._wait(frame, timeout)

    def release(self) -> None:
        """Free the lock, which the calling function holds."""
        if self._holder.get(None) is sys._getframe(1):
            self._free()

    def _free(self) -> None:
        self._holder.clear()
        if self._waiting:
            with suppress(IndexError, RuntimeError):  # nobody waits any more
                self._waiting.popleft().release()

    def _wait(self, frame: FrameType, timeout: float | None) -> bool:
        """Wait for the lock; whether `frame` holds it now."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while self._holder.setdefault(None, frame) is not frame:
            holder = self._holder.get(None)
            if holder is not None and _calls(holder):
                return False
            left = _LOOK_S if deadline is None else min(_LOOK_S, deadline - time.monotonic())
            if left < 0:
                return False
            gate = Lock()
            gate.acquire()
            self._waiting.append(gate)
            # Nobody opens the gate if the lock was released before the gate was there.
            woken = not self._holder or gate.acquire(timeout=left)
            if not woken:
                with suppress(ValueError, IndexError, RuntimeError):
                    self._waiting.remove(gate)
                if holder is not None and not is_running(holder):
                    self._take_over(holder)
        return True

    def _take_over(self, ended: FrameType) -> None:
        """Free the lock of a call that has ended. A verdict on an ended call stays true, so only its own entry is removed."""
        if self._takeover.acquire(timeout=_LOOK_S):
            try:
                if self._holder.get(None) is ended:
                    self._holder.clear()
            finally:
                self._takeover.release()


def _calls(holder: FrameType) -> bool:
    """Whether `holder` is a caller of the current function, on this thread."""
    at: FrameType | None = sys._getframe(1)
    while at is not None:
        if at is holder:
            return True
        at = at.f_back
    return False
