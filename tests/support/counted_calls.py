"""Counts the calls that Python makes, in Python and in C: a measure of work that no other process disturbs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest


def calls_of(act: Callable[[], object], *, most: int = sys.maxsize) -> int:
    """Return how many calls an act makes in this thread, where each step of a generator is one.

    Beyond ``most`` the test fails, by an exception that no ``except Exception`` catches.
    """
    count = 0

    def note(_frame: Any, event: str, _argument: Any) -> None:
        nonlocal count
        if event in ("call", "c_call"):
            count += 1
            if count > most:
                pytest.fail(f"more than {most:,} calls")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        act()
    finally:
        sys.setprofile(before)
    return count
