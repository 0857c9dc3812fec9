"""Clock, folder size and the alternation of sides: how everything here is measured, in one place."""

from __future__ import annotations

import gc
import os
import platform
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from versioned_state.values import accelerator

Step = Callable[[int], float]
"""One round of one side: takes the number of the round, returns the seconds of the part that counts."""


def timed(work: Callable[[], object]) -> float:
    """Seconds that ``work`` takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


async def timed_call(call: Callable[[], Awaitable[object]]) -> float:
    """Seconds that a coroutine takes within the event loop, whose start does not count."""
    start = time.perf_counter()
    await call()
    return time.perf_counter() - start


def alternate(steps: Mapping[str, Step], turns: int, *, batch: int = 1) -> dict[str, list[float]]:
    """Give every side ``turns`` turns of ``batch`` rounds, and return the mean seconds of a round for each turn.

    A machine drifts (other work, heat, a filling disk), so no side has all its rounds in one stretch, and another side
    begins each time. The n-th turns of two sides are moments apart and may be compared as a pair. The mean of a turn,
    and not each round by itself, because some sides put work off: SQLite writes its log back every 4 MB, which a median
    over single rounds would not show. Garbage of one side is collected before the next begins, which it would otherwise
    pay for; the collector itself stays on.
    """
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    names = list(steps)
    for turn in range(turns):
        shift = turn % len(names) if names else 0
        for name in names[shift:] + names[:shift]:
            gc.collect()
            total = sum(steps[name](turn * batch + number) for number in range(batch))
            seconds[name].append(total / batch)
    return seconds


def folder_bytes(folder: Path) -> int:
    """The bytes of all files below ``folder``; taken after a clean close, when no journal is left."""
    return sum(entry.stat().st_size for entry in folder.rglob("*") if entry.is_file())


def median(values: list[float]) -> float:
    """The middle one: a run that was interrupted by other work does not count."""
    return statistics.median(values)


def paired(mine: Sequence[float], theirs: Sequence[float]) -> tuple[str, str]:
    """The ratio of two sides, as the median over the pairs of their turns, and the range of most of these."""
    ratios = sorted(a / b for a, b in zip(mine, theirs, strict=True))
    tenth = len(ratios) // 10
    return f"{statistics.median(ratios):.2f}", f"{ratios[tenth]:.2f} to {ratios[-1 - tenth]:.2f}"


def ms(seconds: float) -> str:
    """A time of a call."""
    return f"{seconds * 1e3:.2f} ms"


@contextmanager
def workplace(**more: str) -> Iterator[Path]:
    """A folder for a run, whose ``environment`` is printed, with ``more`` facts."""
    with tempfile.TemporaryDirectory(prefix="vstate-bench-") as name:
        folder = Path(name)
        print(in_line(environment(folder) | more))
        yield folder


def in_line(facts: Mapping[str, str]) -> str:
    """Facts for a person."""
    return ", ".join(f"{name} {value}" for name, value in facts.items())


def environment(folder: Path) -> dict[str, str]:
    """The facts that the figures depend on besides the code.

    The cost of a sync is measured, because not all peers sync.
    """
    target = folder / "sync"
    with target.open("wb") as file:

        def write_and_sync() -> None:
            file.write(os.urandom(4096))
            file.flush()
            os.fsync(file.fileno())

        sync = median([timed(write_and_sync) for _ in range(15)])
    target.unlink()
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cpus": str(os.cpu_count()),
        "accelerator": accelerator.status,
        "sqlite": sqlite3.sqlite_version,
        "fsync of 4 KB": f"{sync * 1e3:.2f} ms",
    }
