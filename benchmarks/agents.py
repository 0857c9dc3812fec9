"""``scripts/bench agents``: what a call of a task costs beside the bare commit, and its events; modules; workspaces.

The n-th turns of all three are moments apart and compared as a pair, as in ``commits``. A turn is 40 rounds on a branch
of its own.
"""

from __future__ import annotations

import cProfile
import gc
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from benchmarks import arguments, report
from benchmarks.commit_worker import Requests
from benchmarks.measure import ms, paired, timed, workplace
from benchmarks.workspace import FILES, print_workspaces
from versioned_state import Disk, KVStore, Repository, Versioned, emit, events, task

PARTS = ("calls", "modules", "workspace")
ROUNDS = 40
COUNTED_TURNS = 12
SIZES = (100, 100_000)


@dataclass
class Note:
    """An event of the caller's own."""

    text: str


@task
def count(state: Versioned) -> None:
    """Change one key."""
    state["counter"] += 1


@task
def note(state: Versioned) -> None:
    """The same, with an event of its own."""
    state["counter"] += 1
    emit(Note(text="counted"))


@task
def fill(number: int) -> None:
    """Emit many events."""
    for each in range(number):
        emit(Note(text=f"event {each}"))


def bare(state: Versioned) -> None:
    """The commit of the same change."""
    state["counter"] += 1
    state.commit()


ROUND: dict[str, Callable[[Versioned], None]] = {
    "bare commit": bare,
    "task": lambda state: count(state=state),
    "task with an event": lambda state: note(state=state),
}
AIMS = {"bare commit": "", "task": "1.8", "task with an event": "2.2"}


def main(given: Sequence[str]) -> int:
    """Measure, print the tables, and return the exit code."""
    options = arguments.parser(
        "agents",
        "What a call of a task costs beside the bare commit.",
        quick="few turns and a small log",
        parts=PARTS,
        turns=100,
    ).parse_args(given)
    turns, sizes = (5, (10, 1000)) if options.quick else (options.turns, SIZES)
    with workplace() as folder:
        if options.part in (None, "workspace"):
            print()
            print_workspaces(folder, 5 if options.quick else 30, 500 if options.quick else FILES)
        if options.part in (None, "modules"):
            from benchmarks.modules import print_modules

            print()
            print_modules(folder, 5 if options.quick else 40)
        if options.part in ("modules", "workspace"):
            return 0
        with Disk(folder / "store") as store:
            rows = list(_rounds(store, turns))
    print()
    report.print_table(["a round", "time", "to bare", "aim", "10 to 90 % of pairs", "calls", "requests", "bytes"], rows)
    print()
    report.print_table(
        ["an event into a log of", "requests", "objects read", "objects written", "bytes", "newest 10 read"],
        list(_logs(sizes)),
    )
    print()
    seconds = statistics.median(_import_seconds() for _ in range(5 if options.quick else 15))
    print(f"import versioned_state, in a process of its own: {seconds * 1e3:.0f} ms")
    return 0


def _branch(store: KVStore, name: str) -> Versioned:
    state = Versioned(Repository(store), branch=name)
    state.update({"counter": 0, "task": "count", "prefs": {"theme": "dark"}, "plan": ["first", "second"]})
    state.commit()
    return state


def _rounds(store: KVStore, turns: int) -> Iterator[list[str]]:
    seconds: dict[str, list[float]] = {name: [] for name in ROUND}
    for turn in range(turns):
        for name in list(ROUND) if turn % 2 else list(reversed(ROUND)):
            state = _branch(store, f"{name}-{turn}".replace(" ", "-"))
            gc.collect()
            seconds[name].append(statistics.median(timed(partial(ROUND[name], state)) for _ in range(ROUNDS)))
    for name, run in ROUND.items():
        ratio, spread = paired(seconds[name], seconds["bare commit"])
        calls, requests, sent = _counted(name, run)
        yield [
            name,
            f"{statistics.median(seconds[name]) * 1e6:.0f} µs",
            ratio,
            AIMS[name],
            spread,
            f"{calls:.0f}",
            f"{requests:.2f}",
            f"{sent:.0f}",
        ]


def _counted(name: str, run: Callable[[Versioned], None]) -> tuple[float, float, float]:
    """The function calls of a round, its requests to the store, and the bytes that it sends."""
    calls: list[int] = []
    store = Requests()
    rounds = 0
    requests = sent = 0
    for turn in range(COUNTED_TURNS):
        state = _branch(store, f"{name}-{turn}".replace(" ", "-"))
        before = store.requests, store.bytes
        for _ in range(ROUNDS):
            profile = cProfile.Profile()
            profile.runcall(run, state)
            calls.append(sum(entry.callcount for entry in profile.getstats()))
        requests, sent, rounds = requests + store.requests - before[0], sent + store.bytes - before[1], rounds + ROUNDS
    return statistics.median(calls), requests / rounds, sent / rounds


def _logs(sizes: Sequence[int]) -> Iterator[list[str]]:
    for size in sizes:
        store = Requests()
        with Versioned(store) as state:
            fill(size, state=state)
        with Versioned(store) as state:  # which has read nothing yet
            before = store.requests, store.bytes, store.objects_read, store.objects_written
            fill(1, state=state)
            after = store.requests, store.bytes, store.objects_read, store.objects_written
            requests, sent, read, written = (now - then for now, then in zip(after, before, strict=True))
            start = time.perf_counter()
            newest = list(events(state, limit=10, reverse=True))
            seconds = time.perf_counter() - start
            assert len(newest) == 10
        yield [f"{size:,}", *map(str, (requests, read, written, sent)), ms(seconds)]


def _import_seconds() -> float:
    code = "import time; start = time.perf_counter(); import versioned_state; print(time.perf_counter() - start)"
    return float(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout)
