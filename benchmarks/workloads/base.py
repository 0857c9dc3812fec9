"""``Workload`` and its ``Context``, and the few steps that most workloads share."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks.data import Data
from benchmarks.measure import alternate, folder_bytes, timed
from benchmarks.results import Result
from benchmarks.sides import OURS, Session, Side

ROOT: Final = Path(__file__).resolve().parents[2]
"""The folder of the project."""


@dataclass(frozen=True)
class Context:
    """One run: its sides by name, its data, and the folders of stores and results."""

    folder: Path
    sides: Mapping[str, type[Side]]
    data: Data
    out: Path
    quick: bool = False
    full: bool = False
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def fresh(self, label: str) -> Path:
        """A new empty folder for a store."""
        # Sides may be called anything; a folder's name is kept to letters that need no care anywhere.
        name = "".join(letter if letter.isalnum() else "-" for letter in label)
        path = self.folder / f"{next(self._numbers)}-{name}"
        path.mkdir()
        return path

    def progress(self, text: str) -> None:
        """A line for a person who waits, apart from the results."""
        print(f"... {text}", file=sys.stderr, flush=True)

    def only(self, *names: str) -> dict[str, type[Side]]:
        """Those of the sides that take part."""
        return {name: self.sides[name] for name in names if name in self.sides}


@dataclass(frozen=True)
class Workload:
    """A name on the command line, and the function that it runs.

    ``run`` gets the workload itself, for its name and summary. With ``ours_alone`` it measures nothing without ours.
    """

    name: str
    summary: str
    run: Callable[[Context, Workload], Result]
    ours_alone: bool = False

    def measure(self, context: Context) -> Result:
        """Run it, if it has something to measure."""
        if self.ours_alone and OURS not in context.sides:
            return Result(self.name, self.summary, notes=["ours does not take part in this run"])
        return self.run(context, self)


@contextmanager
def opened(sides: Mapping[str, type[Side]], folders: Mapping[str, Path]) -> Iterator[dict[str, Side]]:
    """Every side's store, open; each is checked and closed at the end, and closed also when a workload fails."""
    with ExitStack() as stack:
        stores: dict[str, Side] = {}
        for name, side in sides.items():
            stores[name] = side(folders[name])
            stack.callback(stores[name].close)
        yield stores
        for store in stores.values():
            store.check()


@contextmanager
def sessions_of(sides: Mapping[str, type[Side]], folders: Mapping[str, Path]) -> Iterator[dict[str, Session]]:
    """The same line of history on every side, open likewise."""
    with opened(sides, folders) as stores:
        sessions = {name: store.session("main") for name, store in stores.items()}
        yield sessions
        for session in sessions.values():
            session.close()


@dataclass(frozen=True)
class Rounds:
    """The cost of rounds, by side: seconds a round in each turn, and stored bytes a round."""

    seconds: dict[str, list[float]]
    stored: dict[str, float]


def measure_rounds(
    sides: Mapping[str, type[Side]],
    folders: Mapping[str, Path],
    first: Callable[[str, Session], object],
    once: Callable[[str, Session, int], float],
    check: Callable[[str, Session], None],
    *,
    turns: int,
    batch: int,
) -> Rounds:
    """Time ``turns`` times ``batch`` rounds on values that every side has stored before.

    The values are committed and the store closed, so that what it holds before the rounds is known; then it is opened
    again, and one more round warms up. Bytes count that round too.

    Args:
        first: puts the values of a side.
        once: does a round on a side, and returns its seconds. Its number is -1 for the one that warms up.
        check: is called with a side that was opened anew after the rounds.
    """
    rounds = turns * batch + 1
    before: dict[str, int] = {}
    for name, side in sides.items():
        with sessions_of({name: side}, folders) as alone:
            first(name, alone[name])
            alone[name].commit()
        before[name] = stored_bytes(side, folders[name])
    with sessions_of(sides, folders) as sessions:
        steps = {name: partial(once, name, session) for name, session in sessions.items()}
        for step in steps.values():
            step(-1)
        seconds = alternate(steps, turns, batch=batch)
    stored = {name: (stored_bytes(side, folders[name]) - before[name]) / rounds for name, side in sides.items()}
    for name, side in sides.items():
        with sessions_of({name: side}, folders) as alone:
            check(name, alone[name])
    return Rounds(seconds, stored)


def timed_opening(
    side: type[Side], folder: Path, read: Callable[[Session], object], check: Callable[[Session], None] | None = None
) -> float:
    """Seconds to open a store and read from it. It is checked and closed afterwards."""
    handles: list[tuple[Side, Session]] = []

    def work() -> None:
        store = side(folder)
        session = store.session("main")
        handles.append((store, session))
        read(session)

    seconds = timed(work)
    for store, session in handles:
        if check is not None:
            check(session)
        session.close()
        store.close()
    return seconds


def in_child(module: str, *arguments: object, **environment: str) -> Any:
    """The value that a module of ours prints as JSON, in a process of its own.

    Raises:
        RuntimeError: the process failed.
    """
    command = [sys.executable, "-m", module, *map(str, arguments)]
    ended = subprocess.run(
        command, check=False, capture_output=True, text=True, cwd=ROOT, env={**os.environ, **environment}
    )
    if ended.returncode:
        raise RuntimeError(f"{module} failed:\n{ended.stderr[-4000:]}")
    return json.loads(ended.stdout)


def stored_bytes(side: type[Side], folder: Path) -> int:
    """The bytes that a store holds after a clean close.

    It is opened and closed once more before: the temporary file of ZODB's last transaction lies beside the data until
    the next opening.
    """
    side(folder).close()
    return folder_bytes(folder)


def require_equal(found: object, expected: object, what: str) -> None:
    """Stop the run if a side did not keep its values: a figure for wrong work is worth nothing.

    Raises:
        RuntimeError: the two differ.
    """
    if found != expected:
        raise RuntimeError(f"{what}: the store does not hold what was committed")
