"""How background calls and the event loop of their caller wait for each other. Layer: state.

::

    event loop        background call
        │   await         │
        ├────────────────>│ uses the store; the tasks of the loop go on
        │     visit       │
        │<────────────────┤ holds the loop: live values stand still
        │      end        │
        │<────────────────┤

A synchronous call on the same handle waits on the thread of the loop for the end of the background call. Meanwhile it
admits visits, so the two never deadlock.

A signal handler may raise between any two lines on the thread of the loop. So each step there can be repeated, and a
background thread that waits for the loop repeats its request: no thread waits for ever for a step that was lost.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from functools import partial
from threading import Lock, get_ident, local
from typing import TYPE_CHECKING, Any, Final, TypeVar

from versioned_state.errors import EventLoopError
from versioned_state.off_loop import off_loop, running_loop
from versioned_state.state.aio.caller import Caller, HandleLock, working_for

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable

T = TypeVar("T")
R = TypeVar("R")

_CHECK_S: Final = 0.1
_CHECKS: Final = 50
"""The seconds between two checks of a background call, and the failed checks until it gives up.

A check tells whether the loop that the call waits for runs.
"""


class _Visit:
    """One hold of an event loop by a background thread. Each lock is released when its event has happened."""

    __slots__ = ("granted", "is_over", "over")

    def __init__(self) -> None:
        self.granted, self.over = Lock(), Lock()
        self.granted.acquire()
        self.over.acquire()
        self.is_over = False

    def end(self) -> None:
        self.is_over = True  # first, because a waiting thread may be interrupted when it has the lock
        self.over.release()

    def wait(self) -> None:
        while not self.is_over:
            self.over.acquire()


class _Turn(asyncio.Lock):
    """The order of the calls of one loop on one handle."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: set[object] = set()


class Gate:
    """The event loop of one thread, while calls of its tasks are under way."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.thread: Final = get_ident()
        self.turns: dict[HandleLock, _Turn] = {}
        self._visits: deque[_Visit] = deque()
        self._news = Lock()  # held until there is an event for ``wait_for``

    @contextmanager
    def held(self) -> Iterator[None]:
        """Open a block of a background thread during which the loop is stopped.

        Raises ``EventLoopError`` if the loop no longer runs.
        """
        visit = _Visit()
        self._visits.append(visit)
        self.wake()
        self._request()
        failed = 0
        while not visit.granted.acquire(timeout=_CHECK_S):
            self._request()
            failed = 0 if self.loop.is_running() else failed + 1
            if failed > _CHECKS or self.loop.is_closed():
                visit.end()  # the loop may have admitted it at this moment
                self._remove(visit)
                raise EventLoopError("the event loop stopped while the call was under way")
        try:
            yield
        finally:
            visit.end()

    def _remove(self, visit: _Visit) -> None:
        with suppress(ValueError):  # the other thread has removed it
            self._visits.remove(visit)

    def _request(self) -> None:
        with suppress(RuntimeError):  # the loop was closed
            self.loop.call_soon_threadsafe(self.admit)

    def wake(self) -> None:
        """Wake the thread of the loop if it waits."""
        _release(self._news)

    def admit(self) -> None:
        """Stop for each background thread that waits, even if exceptions come meanwhile.

        Runs on the thread of the loop.
        """
        interrupt: BaseException | None = None
        while self._visits:
            try:
                visit = self._visits[0]
                _release(visit.granted)
                visit.wait()
                self._remove(visit)
            except IndexError:  # the background thread has withdrawn it
                continue
            except BaseException as error:  # noqa: BLE001 - Ctrl-C: the visitor still compares values
                interrupt = error
        if interrupt is not None:
            raise interrupt

    def wait_for(self, lease: Lease) -> None:
        """Wait on the thread of the loop until a call has ended, and admit background threads meanwhile."""
        while not lease.has_ended:
            self.admit()
            if self._is_quiet(lease):
                self._news.acquire()

    def _is_quiet(self, lease: Lease) -> bool:
        return not lease.has_ended and not self._visits


def _release(lock: Lock) -> None:
    """Release a lock, unless it is free."""
    with suppress(RuntimeError):
        lock.release()


class Lease:
    """One call of ``state.aio`` on one handle or several, from its registration until its end."""

    def __init__(self, gate: Gate, locks: Sequence[HandleLock]) -> None:
        self.has_ended: bool = False
        self._gate = gate
        self._locks = locks
        self._chance = [None]  # the first thread that pops the element decides whether the call begins

    def register(self) -> None:
        """Make synchronous calls on the thread of the loop wait for this call."""
        for lock in self._locks:
            lock.leases[self._gate.thread] = self

    def begin(self) -> bool:
        """Begin the call on its background thread. Returns False if it was dropped."""
        try:
            self._chance.pop()
        except IndexError:
            return False
        return True

    def drop(self) -> None:
        """Keep a call from beginning. A call that has begun continues."""
        if self.begin():
            self.end()

    def wait(self) -> None:
        self._gate.wait_for(self)

    def end(self) -> None:
        for lock in self._locks:
            if lock.leases.get(self._gate.thread) is self:
                del lock.leases[self._gate.thread]
        self.has_ended = True
        self._gate.wake()


class LoopCaller(Caller):
    """A task whose event loop runs on another thread."""

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
    """Open a block in which no other call of this event loop is under way on the handle.

    Calls run in the order of their arrival.
    """
    loop = running_loop()
    gate = _this_thread.gate
    if gate is None or gate.loop is not loop:
        gate = _this_thread.gate = Gate(loop)
    turn = gate.turns.setdefault(lock, _Turn())
    call = object()
    try:
        turn.calls.add(call)
        async with turn:
            yield gate
    finally:
        turn.calls.discard(call)
        if not turn.calls and gate.turns.get(lock) is turn:
            del gate.turns[lock]
        if not gate.turns and _this_thread.gate is gate:
            _this_thread.gate = None


def _turns(locks: Sequence[HandleLock]) -> AbstractAsyncContextManager[Gate]:
    """Open the block of ``_turn`` for several handles, in the order given."""
    first, *others = locks
    return _turn_and(first, others) if others else _turn(first)


@asynccontextmanager
async def _turn_and(first: HandleLock, others: Sequence[HandleLock]) -> AsyncIterator[Gate]:
    async with _turn(first) as gate, _turns(others):
        yield gate


async def run_on_handle(
    lock: HandleLock,
    function: Callable[[], T],
    *,
    owner: asyncio.Task[Any] | None = None,
    ahead: Callable[[], None] | None = None,
    undo: Callable[[T], object] | None = None,
) -> T:
    """Run a call on a handle off the event loop, for a task. See ``run_on_handles``."""
    return await run_on_handles((lock,), function, owner=owner, ahead=ahead, undo=undo)


async def run_on_handles(
    locks: Sequence[HandleLock],
    function: Callable[[], T],
    *,
    owner: asyncio.Task[Any] | None = None,
    ahead: Callable[[], None] | None = None,
    undo: Callable[[T], object] | None = None,
) -> T:
    """Run a call on handles off the event loop, for a task. See ``off_loop`` for cancellation.

    Args:
        locks: the locks of the handles, each once, in the same order for all callers, so that two such calls do not
            wait for each other.
        owner: the task; by default the current one.
        ahead: a step to run first, on the thread of the loop, when it is the call's turn.
        undo: called with the result if the call was cancelled and no caller gets the result.
    """
    async with _turns(locks) as gate:
        who = gate.thread, owner or asyncio.current_task()
        first = Caller(who)
        if ahead is not None:
            with working_for(first):
                ahead()

        async def leased(step: Callable[[], R], undo: Callable[[R], Awaitable[object]] | None = None) -> R:
            lease = Lease(gate, locks)

            def work() -> R:
                if not lease.begin():
                    raise asyncio.CancelledError
                try:
                    with working_for(LoopCaller(gate, who, is_cold=first.is_cold)):
                        return step()
                finally:
                    lease.end()  # on this thread, because the thread of the loop may wait for the end

            try:
                lease.register()
                return await off_loop(work, undo=undo)
            finally:
                lease.drop()

        return await leased(function, None if undo is None else lambda result: leased(partial(undo, result)))
