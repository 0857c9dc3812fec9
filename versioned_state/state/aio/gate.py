"""How background calls and the event loop of their caller wait for each other. Layer: state.

::

    event loop        background call
        │   await         │
        ├────────────────>│ asks the store; the tasks of the loop go on
        │     visit       │
        │<────────────────┤ holds the loop: live values stand still
        │      end        │
        │<────────────────┤

A synchronous call on the same handle waits on the thread of the loop for the end of the background call. It lets visits pass meanwhile, so
neither waits for the other for ever.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from threading import Condition, Lock, get_ident, local
from typing import TYPE_CHECKING, Any, Final, TypeVar

from versioned_state.errors import EventLoopError
from versioned_state.off_loop import off_loop, running_loop
from versioned_state.state.aio.caller import Caller, HandleLock, working_for

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable

T = TypeVar("T")
R = TypeVar("R")

_LOOK_S: Final = 0.1
_LOOKS: Final = 50
"""How often a background call looks whether the loop that it waits for still runs, and how many looks at one that does not it gives it."""


class _Visit:
    """One hold of an event loop by a background thread."""

    __slots__ = ("granted", "over")

    def __init__(self) -> None:
        self.granted, self.over = Lock(), Lock()
        self.granted.acquire()
        self.over.acquire()


class _Turn(asyncio.Lock):
    """Whose turn it is among the calls of one loop on one handle, and how many there are."""

    calls = 0


class Gate:
    """The event loop of one thread, while calls of its tasks are under way."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.thread = get_ident()
        self.calls = 0
        self.turns: dict[HandleLock, _Turn] = {}
        self.changed = Condition()
        self._visits: deque[_Visit] = deque()

    @contextmanager
    def held(self) -> Iterator[None]:
        """A block of a background thread during which the loop stands still. Raises ``EventLoopError`` if the loop runs no more."""
        visit = _Visit()
        self._visits.append(visit)
        with self.changed:
            self.changed.notify_all()
        with suppress(RuntimeError):  # it was closed
            self.loop.call_soon_threadsafe(self.let_in)
        looks = 0
        while not visit.granted.acquire(timeout=_LOOK_S):
            looks = 0 if self.loop.is_running() else looks + 1
            if looks > _LOOKS or self.loop.is_closed():
                with suppress(ValueError):  # it is let in right now
                    self._visits.remove(visit)
                    raise EventLoopError("the event loop stopped while the call was under way")
        try:
            yield
        finally:
            visit.over.release()

    def let_in(self) -> None:
        """Stand still for each background thread that waits for it. Runs on the thread of the loop."""
        while self._visits:
            visit = self._visits[0]
            visit.granted.release()
            self._visits.popleft()
            _wait_out(visit.over)

    def wait_for(self, lease: Lease) -> None:
        """Wait on the thread of the loop until a call has ended, and let background threads in meanwhile."""
        while not lease.has_ended:
            self.let_in()
            with self.changed:
                if self._is_quiet(lease):
                    self.changed.wait()

    def _is_quiet(self, lease: Lease) -> bool:
        return not lease.has_ended and not self._visits


def _wait_out(lock: Lock) -> None:
    """Acquire a lock, whatever exceptions come meanwhile; the last of them is raised afterwards."""
    interrupt: BaseException | None = None
    while True:
        try:
            lock.acquire()
            break
        except BaseException as error:  # noqa: BLE001 - Ctrl-C: the visitor still compares values
            interrupt = error
    if interrupt is not None:
        raise interrupt


class Lease:
    """One call of ``state.aio`` on a handle, from before it begins until it has ended."""

    def __init__(self, gate: Gate, lock: HandleLock) -> None:
        self.has_ended = False
        self._gate = gate
        self._lock = lock
        lock.leases[gate.thread] = self

    def wait(self) -> None:
        self._gate.wait_for(self)

    def end(self) -> None:
        if self._lock.leases.get(self._gate.thread) is self:
            del self._lock.leases[self._gate.thread]
        with self._gate.changed:
            self.has_ended = True
            self._gate.changed.notify_all()


class LoopCaller(Caller):
    """A task whose event loop runs on another thread than this one."""

    def __init__(self, gate: Gate, owner: tuple[int, object], *, is_cold: bool) -> None:
        super().__init__(owner)
        self.is_cold = is_cold
        self._gate = gate
        self._depth = 0

    @property
    def is_held(self) -> bool:
        return self._depth > 0

    @contextmanager
    def hold(self) -> Iterator[None]:
        if self._depth:
            yield
            return
        with self._gate.held():
            self._depth += 1
            try:
                yield
            finally:
                self._depth -= 1


class _Thread(local):
    gate: Gate | None = None


_this_thread: Final = _Thread()


@asynccontextmanager
async def _turn(lock: HandleLock) -> AsyncIterator[Gate]:
    """A block in which no other call of this event loop is under way on the handle. First come, first served."""
    loop = running_loop()
    gate = _this_thread.gate
    if gate is None or gate.loop is not loop:
        gate = _this_thread.gate = Gate(loop)
    turn = gate.turns.setdefault(lock, _Turn())
    gate.calls += 1
    turn.calls += 1
    try:
        async with turn:
            yield gate
    finally:
        gate.calls -= 1
        turn.calls -= 1
        if not turn.calls:
            del gate.turns[lock]
        if not gate.calls and _this_thread.gate is gate:
            _this_thread.gate = None


async def run_on_handle(
    lock: HandleLock,
    function: Callable[[], T],
    *,
    owner: asyncio.Task[Any] | None = None,
    ahead: Callable[[], None] | None = None,
    undo: Callable[[T], object] | None = None,
) -> T:
    """Run a call on a handle off the event loop, for a task. See ``off_loop`` for cancellation.

    Args:
        owner: the task; by default the current one.
        ahead: done first, on the thread of the loop, once it is the call's turn.
        undo: called with the result if the call was cancelled and nobody gets the result.
    """
    async with _turn(lock) as gate:
        who = gate.thread, owner or asyncio.current_task()
        first = Caller(who)
        if ahead is not None:
            with working_for(first):
                ahead()

        async def leased(step: Callable[[], R], undo: Callable[[R], Awaitable[object]] | None = None) -> R:
            lease = Lease(gate, lock)
            has_begun = False

            def work() -> R:
                nonlocal has_begun
                has_begun = True
                try:
                    with working_for(LoopCaller(gate, who, is_cold=first.is_cold)):
                        return step()
                finally:
                    lease.end()  # here: the thread of the loop may wait for it

            try:
                return await off_loop(work, undo=undo)
            finally:
                if not has_begun:
                    lease.end()

        return await leased(function, None if undo is None else lambda result: leased(partial(undo, result)))
