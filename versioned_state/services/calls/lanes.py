"""``Lanes``: calls that run off the event loop, those of one session one after another. Layer: services.

::

    alice/trip   ▣ ▣ ▣ ──┐                  a lane: its calls run in the order in which they came
    bob/main     ▣     ──┼─▶ a worker       takes the lanes in turn
    eve/main     ▣     ──┘   another one    begins if calls wait although the process has time to spare

What calls in steps send, a worker sends for many lanes in one round trip.
"""

from __future__ import annotations

import os
from asyncio import AbstractEventLoop, get_running_loop, wait, wrap_future
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from threading import Condition, Lock
from time import monotonic, process_time
from typing import Any, Final, TypeVar
from weakref import WeakSet

from versioned_state.errors import StoreBusyError
from versioned_state.off_loop import waking_together
from versioned_state.services.calls.turn import ALONE, Call, Steps, Turn

T = TypeVar("T")
Item = TypeVar("Item")

Send = Callable[[list[Any]], Sequence[Any]]
"""Sends the yields of functions in steps in one round trip. Returns the answer or an error for each."""

_QUESTIONS: Final = "%questions"
"""The lane of ``Lanes.answers``. No session has it: a mark that begins no id is before it."""

_AT_ONCE: Final = 16
"""The most lanes whose steps are sent in one round trip.

With more, a round trip is hardly cheaper, and the first lanes wait.
"""

_PATIENCE_S: Final = 0.001
"""Seconds that calls wait before another worker may begin.

Python's threads take turns, so each further one slows all calls down.
"""

_BUSY: Final = 0.8
"""The share of a processor from which the process is busy: another worker would only wait for its turn."""

_AT_LAST_S: Final = 0.02
"""Seconds of waiting after which another worker begins in any case: perhaps the store of the busy ones hangs."""


class LanesClosedError(Exception):
    """A call came after ``close``."""


class Lanes:
    """Threads, and the calls that wait for them. Safe for many threads and event loops.

    Args:
        threads: the largest number of workers. Most of the time they wait for the store.
        send: sends the yields of functions in steps. None if there are no such functions.
        together: whether ``send`` takes one round trip for many lanes, so that none waits for the round trip of another
            one.
    """

    def __init__(self, threads: int, send: Send | None = None, *, together: bool = False) -> None:
        self._threads = threads
        self._send = send
        self._at_once = _AT_ONCE if together else 1
        self._closed = False
        self.renew()
        _all.add(self)

    def renew(self) -> None:
        """Begin again in a forked process, which has neither the threads of its parent nor their calls."""
        self._executor = ThreadPoolExecutor(self._threads, thread_name_prefix="versioned-state-service")
        self._waiting: dict[str, deque[Call]] = {}  # a lane is here while it has a call that has not ended
        self._ready: deque[Turn] = deque()
        self._lock = Lock()
        self._ended = Condition(self._lock)
        self._workers: set[_Worker] = set()
        self._sending = 0
        self._shift = 0  # workers of earlier shifts end with the turn that they are at
        self._allowed = 1  # how many workers begin as soon as calls come
        self._seen = monotonic(), process_time()
        # The loops that check the waiting calls, each of them independently: another one may have ended, or hang.
        self._lookers: WeakSet[AbstractEventLoop] = WeakSet()

    def submit(self, lane: str, function: Callable[[], T]) -> Future[T]:
        """Run a function on a thread, in the context of the caller, after the calls that the lane has already.

        Raises ``LanesClosedError`` after ``close``, and ``StoreBusyError`` if the system cannot start a thread.
        """
        return self._submit(lane, Call(function, copy_context()))

    def submit_item(
        self, lane: str, item: Item, function: Callable[[list[Item]], Sequence[T | BaseException]]
    ) -> Future[T]:
        """Submit a function of an item. Consecutive items of one lane and one function may be processed by one call.

        Args:
            function: returns a result for each item, or the error to raise for it. If it raises one of ``APART``, it
                has done nothing, and is called again for each item by itself. Any other error is that of all items. The
                context is that of the first caller.
        """
        return self._submit(lane, Call(function, copy_context(), (item,)))

    def submit_steps(self, lane: str, function: Callable[[], Steps[T]]) -> Future[T]:
        """Submit a generator function. Its yields are sent together with those of other lanes.

        Args:
            function: receives the answer to each yield, or an error. Before it waits for the store itself, it yields
                ``ALONE``.
        """
        return self._submit(lane, Call(function, copy_context(), in_steps=True))

    async def answers(self, question: Callable[[], bool], seconds: float) -> bool:
        """Return whether a question is answered with True in this time. Never raises.

        All questions are one lane: if a store hangs, one call waits for it, and not one for each question.
        """
        try:
            answer = wrap_future(self.submit(_QUESTIONS, question))
        except LanesClosedError:
            return False
        done, _ = await wait((answer,), timeout=seconds)
        if not done:
            answer.cancel()
            return False
        return answer.exception() is None and answer.result()

    def submit_item_steps(
        self, lane: str, item: Item, function: Callable[[list[Item]], Steps[Sequence[T | BaseException]]]
    ) -> Future[T]:
        """Submit a generator function of an item, as ``submit_item`` and ``submit_steps``."""
        return self._submit(lane, Call(function, copy_context(), (item,), in_steps=True))

    def _submit(self, lane: str, call: Call) -> Future[Any]:
        """Accept a call.

        The last step, one assignment, accepts it, so an interrupt before that leaves nothing to wait for.
        """
        loop = _loop()
        with self._lock:
            if self._closed:
                raise LanesClosedError
            begun = False
            calls = self._waiting.get(lane)
            if calls is None:
                calls = deque((call,))
                self._ready.append(Turn(lane, calls))
                begun = self._begin_worker(self._threads if loop is None else self._allowed)
                if not begun and not self._workers:
                    self._ready.pop()
                    raise StoreBusyError("the system starts no thread for the call", hint="try again")
            if not begun and loop is not None and loop not in self._lookers:
                self._look_later(loop, _PATIENCE_S)
            if lane in self._waiting:
                calls.append(call)
            else:
                self._waiting[lane] = calls
        return call.future

    def close(self) -> None:
        """Accept no more calls, wait for the accepted ones, and end the threads. Idempotent."""
        with self._lock:
            self._closed = True
            self._ended.wait_for(lambda: not self._waiting)
        self._executor.shutdown()

    # The workers

    @property
    def _working(self) -> int:
        """The workers of this shift."""
        return sum(worker.shift == self._shift for worker in self._workers)

    def _begin_worker(self, allowed: int) -> bool:
        """Begin a worker, unless the allowed number are at work. Returns whether it began. The lock must be held."""
        if len(self._workers) >= self._threads or self._working >= allowed:
            return False
        worker = _Worker(self._shift)
        try:
            self._executor.submit(self._work, worker)
        except RuntimeError:
            # the system cannot start another thread, or Python is exiting. A thread of the executor may run it later
            return False
        self._workers.add(worker)
        return True

    def _look_later(self, loop: AbstractEventLoop, delay: float) -> None:
        loop.call_later(delay, self._look, loop)
        self._lookers.add(loop)

    def _look(self, loop: AbstractEventLoop) -> None:
        """Begin another worker if it would end waiting calls sooner. Look again while calls wait."""
        with self._lock:
            self._lookers.discard(loop)  # first: if this is interrupted, the next call of the loop has it look again
            if not any(self._waiting.values()):
                return
            self._look_later(loop, _PATIENCE_S if self._ready else _AT_LAST_S)
            if not self._ready:
                return
            first, (then, spent) = self._ready[0], self._seen
            now, time = self._seen = monotonic(), process_time()
            waited, busy = now - first.since, (time - spent) / max(now - then, _PATIENCE_S)
            working = self._working
            if waited >= _AT_LAST_S:
                self._shift += 1
            elif busy >= _BUSY:
                self._allowed = max(1, self._allowed - 1)
            elif waited >= _PATIENCE_S and (not first.in_steps or self._sending >= working):
                self._allowed = working + 1
            self._begin_worker(self._allowed)

    def _work(self, worker: _Worker) -> None:
        while turns := self._next(worker):
            self._run(turns)

    def _next(self, worker: _Worker) -> list[Turn]:
        """Return the next turns of a worker: one, or several in steps. With none, the worker ends."""
        with self._lock:
            if worker not in self._workers or worker.shift != self._shift:
                self._workers.discard(worker)
                if not self._ready or self._working or len(self._workers) >= self._threads:
                    return []
                worker.shift = self._shift
                self._workers.add(worker)
            turns: list[Turn] = []
            while self._ready and len(turns) < self._at_once and (not turns or self._ready[0].may_be_together):
                turn = self._ready.popleft()
                if self._waiting.get(turn.lane) is not turn.waiting:
                    continue  # an interrupt came before its call was accepted
                if not turn.calls:
                    turn.begin()
                turns.append(turn)
                if not turn.may_be_together:
                    break
            if not turns:
                self._workers.discard(worker)
            return turns

    def _run(self, turns: list[Turn]) -> None:
        """Run turns to their ends, except those that continue alone."""
        answers: Sequence[Any] = [None] * len(turns)
        while turns:
            for turn, answer in zip(turns, answers, strict=True):
                turn.run(answer)
                while turn.asked is ALONE and (turn.is_alone or len(turns) == 1):
                    turn.is_alone = True
                    turn.run()
            ended = [turn for turn in turns if turn.asked is None]
            alone = [turn for turn in turns if turn.asked is ALONE]
            turns = [turn for turn in turns if turn.asked is not None and turn.asked is not ALONE]
            if ended or alone:
                self._end(ended, alone)
            if turns:
                answers = self._answers(turns)

    def _answers(self, turns: list[Turn]) -> Sequence[Any]:
        assert self._send is not None
        with self._lock:
            self._sending += 1
        try:
            answers = self._send([turn.asked for turn in turns])
            assert len(answers) == len(turns), "an answer for each"
        except BaseException as error:  # noqa: BLE001 - it is the answer to each of them
            return [error] * len(turns)
        finally:
            with self._lock:
                self._sending -= 1
        return answers

    def _end(self, ended: list[Turn], alone: list[Turn]) -> None:
        with waking_together():
            for turn in ended:
                turn.deliver()
            with self._lock:
                for turn in ended:
                    if turn.waiting:
                        self._ready.append(Turn(turn.lane, turn.waiting))
                    else:
                        del self._waiting[turn.lane]
                for turn in alone:
                    turn.is_alone, turn.since = True, monotonic()
                    self._ready.append(turn)
                    self._begin_worker(self._threads)
                if not self._waiting:
                    self._ended.notify_all()


@dataclass(slots=True, eq=False)
class _Worker:
    """The work of one thread of the executor."""

    shift: int


_all: Final[WeakSet[Lanes]] = WeakSet()


def _loop() -> AbstractEventLoop | None:
    try:
        return get_running_loop()
    except RuntimeError:
        return None


def _renew() -> None:
    for lanes in list(_all):
        lanes.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
