"""Interrupts at chosen lines of the library, for tests of what they leave behind."""

from __future__ import annotations

import asyncio
import dis
import gc
import itertools
import linecache
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from types import FrameType
from typing import Any

from versioned_state.errors import StateError

LIBRARY = "versioned_state/"

AGAIN = () if sys.version_info < (3, 12) else ("FOR_ITER", "JUMP_BACKWARD")
"""The steps at which a tracer is told that a loop begins again."""


class Interrupt(KeyboardInterrupt):
    """Ctrl-C."""


class Timeout(Exception):  # noqa: N818 - the name says what it stands for
    """What a handler of SIGALRM raises."""


class Trace:
    """Counts the lines of the library that run, and raises at one of them."""

    def __init__(self, at: int = 0, error: type[BaseException] = Interrupt) -> None:
        self.at = at
        self.error = error
        self.lines: list[tuple[str, int]] = []
        self.count = 0
        self.hit = ""

    def __call__(self, frame: FrameType, event: str, _arg: object) -> Any:
        if LIBRARY not in frame.f_code.co_filename or event != "call":
            return None
        return self._line

    def _line(self, frame: FrameType, event: str, _arg: object) -> Any:
        if event == "line":
            self.count += 1
            if not self.at:
                self.lines.append((frame.f_code.co_filename, frame.f_lineno))
            elif self.count >= self.at and not in_finalizer(frame) and not in_statement(frame):
                name = frame.f_code.co_filename.rpartition(LIBRARY)[2]
                self.hit = f"{name}:{frame.f_lineno} {frame.f_code.co_name}"
                sys.settrace(None)
                raise self.error_in(frame.f_code.co_filename)
        return self._line

    def error_in(self, file: str) -> type[BaseException]:
        """Return what to raise at a line of a file."""
        return self.error

    def run(self, call: Callable[[], object]) -> None:
        before = sys.gettrace()
        gc.disable()  # an interrupt in a finalizer that the collector runs would say nothing of the call
        sys.settrace(self)
        try:
            call()
        finally:
            sys.settrace(before)
            gc.enable()


def interrupts(step: int) -> Iterator[Trace]:
    """Iterate over traces: of one run undisturbed, of runs that stop at every ``step``-th line, and of one that ends.

    The first run imports what is imported at first.
    """
    for at in itertools.count(0, step):
        trace = Trace(at)
        yield trace
        if at and not trace.hit:
            return


def run_in_loop(work: Callable[[], Awaitable[object]], trace: Trace) -> None:
    """Run a call in a loop of its own under a trace, and then cancel what is left of it."""
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda _loop, _context: None)  # a callback of the library was interrupted

    async def main() -> None:
        await work()

    with suppress(Interrupt, Timeout, StateError):
        trace.run(lambda: loop.run_until_complete(main()))
    while left := asyncio.all_tasks(loop):
        for each in left:
            each.cancel()
        with suppress(Interrupt):  # of a task that waits for the interrupted one
            loop.run_until_complete(asyncio.wait(left))
    loop.close()


def in_finalizer(frame: FrameType | None) -> bool:
    """Return whether a line runs because something was collected. What is raised there goes nowhere."""
    while frame is not None and frame.f_code.co_name != "__del__":
        frame = frame.f_back
    return frame is not None


def in_statement(frame: FrameType) -> bool:
    """Return whether a signal handler must not run at a line.

    That is the end of a ``with``, whose lock would stay, or the word ``try``.

    Neither must a tracer raise where a loop within one line begins again: from Python 3.12 on, a comprehension is such
    a loop within its function, and the exception then passes over every ``except``, ``finally`` and ``with`` of that
    function. One of a signal does not.
    """
    step = dis.opname[frame.f_code.co_code[frame.f_lasti]]
    if step in AGAIN:
        return True
    line = linecache.getline(frame.f_code.co_filename, frame.f_lineno).lstrip()
    return step == "NOP" or (
        line.startswith(("with ", "async with ")) and step in ("LOAD_CONST", "SWAP", "PUSH_EXC_INFO")
    )
