"""A clock of a repository, for sessions that expire."""

from __future__ import annotations


class Clock:
    """Microseconds, which pass at each look, and when a test waits."""

    def __init__(self) -> None:
        self.now = 1_800_000_000_000_000

    def __call__(self) -> int:
        self.now += 1
        return self.now

    def wait(self, seconds: float) -> None:
        self.now += round(seconds * 1_000_000)
