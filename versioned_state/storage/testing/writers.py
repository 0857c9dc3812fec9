"""Writers that meet at one store: threads that start together, forked processes, and a counter. Layer: storage.

The contract uses them, and so may a backend's own tests. They need no pytest.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import warnings
from collections.abc import Callable, Iterable
from multiprocessing.context import ForkProcess
from threading import Barrier, Thread
from typing import TypeVar

from versioned_state.storage.base import KVStore

T = TypeVar("T")

_PATIENCE_S = 120
"""After this long a thread or process hangs; no call of a test takes a tenth of it, even on a loaded machine."""


def run_together(works: Iterable[Callable[[], T]]) -> list[T]:
    """Run each in a thread of its own, all from the same moment on, and return their results.

    Raises the first failure. Meanwhile threads switch fifty times as often as usual, so that a short test shows a race.
    """
    works = list(works)
    start = Barrier(len(works))
    results: dict[int, T] = {}
    failures: list[BaseException] = []

    def run(number: int, work: Callable[[], T]) -> None:
        try:
            start.wait(_PATIENCE_S)
            results[number] = work()
        except BaseException as error:  # noqa: BLE001 - raised again below, in the test's own thread
            failures.append(error)

    threads = [Thread(target=run, args=each, daemon=True) for each in enumerate(works)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(interval / 50)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(_PATIENCE_S)
            assert not thread.is_alive(), "a thread hangs"
    finally:
        sys.setswitchinterval(interval)
    if failures:
        raise failures[0]
    return [results[number] for number in range(len(works))]


def start_forked(works: Iterable[Callable[[], object]]) -> list[ForkProcess]:
    """Start each in a forked process of its own."""
    fork = multiprocessing.get_context("fork")
    processes = [fork.Process(target=work, daemon=True) for work in works]
    with warnings.catch_warnings():
        # Python warns of a fork beside threads; the tests show that it is safe for a store.
        warnings.simplefilter("ignore", DeprecationWarning)
        for process in processes:
            process.start()
    return processes


def join_forked(processes: Iterable[ForkProcess]) -> None:
    """Wait for forked processes. Each must have ended by itself, without an exception."""
    for process in processes:
        process.join(_PATIENCE_S)
        if process.is_alive():
            process.kill()
        assert process.exitcode is not None, "a forked process hangs"
        assert process.exitcode == 0, "a forked process failed; its traceback is among the output"


def count_up(store: KVStore, times: int) -> None:
    """Increment the key ``counter``, each time with a new object.

    After a lost race, try again without the object: the store kept it.
    """
    for _ in range(times):
        objects = {f"o/{os.urandom(24).hex()}": b"v" * 300}
        while True:
            value = store.get("counter")
            if store.apply({"counter": value}, {"counter": b"%d" % (int(value or b"0") + 1)}, objects=objects):
                break
            objects = {}
