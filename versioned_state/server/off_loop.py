"""Threads for the bodies of requests and answers: what takes more than a moment, and never waits for a store. Layer: server.

Not the threads of the services: if the store hangs, those wait for it.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Final, TypeVar

from versioned_state.off_loop import result_of

T = TypeVar("T")

_THREADS: Final = 4
"""More would not end sooner: one of them runs at a time. A few, so that a short body does not wait for the end of a long one."""


class OffLoop:
    """Runs functions off the event loop, some at a time. The work of each is bounded by the bytes of a body or an answer."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(_THREADS, thread_name_prefix="versioned-state-bodies")

    async def __call__(self, function: Callable[[], T]) -> T:
        """The result of a function. A cancelled call that has begun ends first."""
        return await result_of(self._executor.submit(copy_context().run, function))
