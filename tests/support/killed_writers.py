"""A program that adds numbered messages and is killed at work: all it acknowledged is there, nothing half done."""

from __future__ import annotations

import signal
from collections.abc import Callable

from tests.support import processes


def assert_kept(program: str, path: object, numbers: Callable[[], list[int]], *, rounds: int) -> None:
    """Start the program on a path again and again, and kill it after some numbers.

    Args:
        program: adds the numbers from its second argument on, one by one, and prints each once it was added.
        numbers: reads all numbers that are there.
    """
    there: list[int] = []
    for each in range(rounds):
        writer = processes.start(program, path, len(there))
        assert writer.stdout is not None
        assert writer.stderr is not None
        wanted = len(there) + 2 + 7 * each % 23
        acknowledged = there[-1] if there else -1
        for line in writer.stdout:
            acknowledged = int(line)
            if acknowledged >= wanted:
                break
        writer.send_signal(signal.SIGKILL)
        _, errors = writer.communicate()
        assert not errors, errors
        there = numbers()
        assert there == list(range(len(there)))
        assert len(there) > acknowledged
