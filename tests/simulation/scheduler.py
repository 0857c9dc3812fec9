"""One fiber runs at a time, and the scheduler says which: it may switch before and after every request to the store.

A fiber is a greenlet that stands for a thread: it gives way at a point (``point``), waits for another fiber or for the
clock (``block``), and ends. Nothing depends on real time or on threads, so a seed gives the same run again.
``environment`` replaces what the library keeps by thread.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import Context
from dataclasses import dataclass
from functools import partial
from typing import Any

import greenlet

START_US = 1_700_000_000_000_000
_MOST_STEPS = 40_000
_LONGEST_HOLD_S = 20.0


class KilledError(BaseException):
    """The process of the fiber was killed: none of its requests has an effect any more."""


class StuckError(Exception):
    """No fiber can go on, or they go on for ever."""


class Process:
    """A simulated process: what dies together. ``skew`` is how much its clock is ahead, in microseconds."""

    def __init__(self, name: str, skew: int = 0) -> None:
        self.name = name
        self.skew = skew
        self.is_interrupted = True  # whether Ctrl-C may come there
        self.is_dead = False


@dataclass(frozen=True)
class Hold:
    """The reply to a request is under way until others have ended.

    Attributes:
        fiber: whose request: an actor, or ``site0`` for what runs the services of process 0.
        operation: the number of its operation; 0 for a site.
        reply: the number of the reply within that operation.
        until: the fibers that end before it arrives, unless that takes too long.
    """

    fiber: str
    operation: int
    reply: int
    until: tuple[str, ...]


class Fiber:
    """A thread of a process."""

    def __init__(self, number: int, name: str, process: Process, function: Callable[[], None]) -> None:
        self.number, self.name, self.process, self.function = number, name, process, function
        self.greenlet: Any = None
        self.values: dict[int, dict[str, Any]] = {}  # what a thread would keep in a ``threading.local``
        self.is_ready = True
        self.until: int | None = None  # the time at which a waiting fiber goes on in any case
        self.priority = 0.0
        self.held_by: list[Fiber] = []  # while a reply to it is held

    @property
    def root(self) -> str:
        """The name without that of a thread."""
        return self.name.partition(".")[0]


class Scheduler:
    """Runs fibers until all have ended.

    Args:
        rng: decides who is next.
        switch: the probability of a switch at a point. None: the fiber of the highest priority runs, and priorities
            change at few steps (Burckhardt et al., *A Randomized Scheduler with Probabilistic Guarantees of Finding
            Bugs*, 2010).
        holds: replies that are held for long, so that whole operations of others fit in.
    """

    def __init__(self, rng: random.Random, switch: float | None, holds: Sequence[Hold] = ()) -> None:
        self.rng = rng
        self.switch = switch
        self.holds = list(holds)
        # of each actor: the number of its operation, and of the replies in it
        self._replies: dict[str, tuple[int, int]] = {}
        self.fibers: list[Fiber] = []
        self.current: Fiber | None = None
        self.now = START_US
        self.steps = 0
        self.error: BaseException | None = None
        # requests, each with the number of steps after which it arrives
        self.late: list[tuple[int, Callable[[], None]]] = []
        self.trace: list[tuple[int, str, str]] = []
        self._count = 0
        self.quiet = False
        self._changes = {rng.randrange(1, 600) for _ in range(rng.randrange(1, 8))}
        self._hub = greenlet.getcurrent()

    # Fibers

    def spawn(self, name: str, process: Process, function: Callable[[], None]) -> Fiber:
        """A new fiber, which runs when it is its turn."""
        self._count += 1
        fiber = Fiber(self._count, name, process, function)
        fiber.priority = self.rng.random()
        fiber.greenlet = greenlet.greenlet(partial(self._run, fiber), parent=self._hub)
        self.fibers.append(fiber)
        return fiber

    def run(self) -> None:
        """Run all fibers to their ends. Raises what a fiber raised that it should not have, and ``StuckError``."""
        self._hub = greenlet.getcurrent()
        for fiber in self.fibers:
            fiber.greenlet.parent = self._hub
        try:
            while self.fibers:
                self.current = self._choose(None)
                self.current.greenlet.switch()
        finally:
            self.current = None
        if self.error is not None:
            raise self.error

    def _run(self, fiber: Fiber) -> None:
        try:
            if not fiber.process.is_dead:
                Context().run(fiber.function)
        except KilledError:
            pass
        except BaseException as error:  # noqa: BLE001 - it is the result of the run
            if self.error is None and not fiber.process.is_dead:
                self.error = error
        self.fibers.remove(fiber)
        for other in self.fibers:
            if fiber in other.held_by:
                other.held_by.remove(fiber)
                if not other.held_by:
                    self.wake(other)

    def abandon(self) -> None:
        """End the fibers that are left after ``StuckError``."""
        for fiber in self.fibers:
            fiber.process.is_dead = True
        self.current = None

    # Turns

    def point(self, what: str) -> None:
        """Perhaps let another fiber run. Raises ``KilledError`` in a process that was killed."""
        me = self.current
        if me is None:
            return
        if me.process.is_dead:
            raise KilledError
        if self.quiet:
            return
        self.steps += 1
        self.now += 1000
        self.trace.append((self.steps, me.name, what))
        if self.steps > _MOST_STEPS:
            raise StuckError(f"more than {_MOST_STEPS} steps")
        if self.late:
            self._deliver()
        if self.switch is None:
            if self.steps in self._changes:
                me.priority = -self.steps
            self._give(self._choose(me))
        elif self.rng.random() < self.switch:
            self._give(self._choose(None))
        if me.process.is_dead:
            raise KilledError

    def begin(self, fiber: str, operation: int) -> None:
        """Note that an actor begins an operation."""
        self._replies[fiber] = operation, 0

    def replied(self) -> None:
        """Hold a reply, if the plan says so."""
        me = self.current
        if not self.holds or me is None or self.quiet:
            return
        operation, count = self._replies.get(me.root, (0, 0))
        self._replies[me.root] = operation, count + 1
        for hold in self.holds:
            if (hold.fiber, hold.operation, hold.reply) == (me.root, operation, count):
                me.held_by = [fiber for fiber in self.fibers if fiber.root in hold.until]
                if me.held_by:
                    self.note(f"    its reply is under way until {' and '.join(hold.until)} have ended")
                    self.block(_LONGEST_HOLD_S)
                    me.held_by = []

    @contextmanager
    def paused(self) -> Iterator[None]:
        """A block of the running fiber in which requests are no points."""
        me, self.current = self.current, None
        try:
            yield
        finally:
            self.current = me

    def note(self, what: str) -> None:
        """Write a line of the trace."""
        me = self.current
        if self.quiet:
            return
        self.trace.append((self.steps, "" if me is None else me.name, what))

    def block(self, timeout: float | None = None) -> None:
        """Wait until ``wake``, or for this many seconds of the clock."""
        me = self.current
        assert me is not None, "only a fiber waits"
        if me.process.is_dead:
            raise KilledError
        me.is_ready = False
        me.until = None if timeout is None else self.now + max(0, int(timeout * 1_000_000)) + 1
        if self.switch is None:
            me.priority -= 1e-3  # two fibers that poll take turns
        self._give(self._choose(None))
        if me.process.is_dead:
            raise KilledError

    def wake(self, fiber: Fiber) -> None:
        """Let a fiber go on that waits."""
        fiber.is_ready, fiber.until = True, None

    def kill(self, process: Process) -> None:
        """End a process: each of its fibers raises ``KilledError`` when it is its turn."""
        self.note(f"--- {process.name} is killed")
        process.is_dead = True
        for fiber in self.fibers:
            if fiber.process is process:
                self.wake(fiber)

    def _give(self, following: Fiber) -> None:
        me = self.current
        if following is me or me is None:
            return
        loop = asyncio._get_running_loop()  # each thread has one of its own
        asyncio._set_running_loop(None)
        self.current = following
        following.greenlet.switch()
        asyncio._set_running_loop(loop)

    def _choose(self, me: Fiber | None) -> Fiber:
        while True:
            ready = [fiber for fiber in self.fibers if fiber.is_ready]
            if ready:
                if self.switch is None:
                    return max(ready, key=lambda fiber: fiber.priority)
                return self.rng.choice(ready)
            times = [fiber.until for fiber in self.fibers if fiber.until is not None]
            if not times:
                raise StuckError("all fibers wait for each other: " + ", ".join(fiber.name for fiber in self.fibers))
            self.now = max(self.now, min(times))
            for fiber in self.fibers:
                if fiber.until is not None and fiber.until <= self.now:
                    self.wake(fiber)

    def _deliver(self, *, all_of_them: bool = False) -> None:
        due = [each for each in self.late if all_of_them or each[0] <= self.steps]
        for each in due:
            self.late.remove(each)
            each[1]()

    def arrive(self) -> None:
        """Let all late requests arrive."""
        self._deliver(all_of_them=True)


class FiberLock:
    """``threading.Lock`` for code of a fiber: who waits for it lets the others run."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:  # noqa: FBT001, FBT002 - as the standard library has it
        from tests.simulation import environment

        scheduler = environment.scheduler()
        if scheduler is None or scheduler.current is None:
            return self._lock.acquire(blocking, timeout)
        until = None if timeout < 0 else scheduler.now + int(timeout * 1_000_000)
        while not self._lock.acquire(blocking=False):
            if not blocking or (until is not None and scheduler.now >= until):
                return False
            scheduler.block(0.001)
        return True

    def release(self) -> None:
        self._lock.release()

    def locked(self) -> bool:
        return self._lock.locked()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()
