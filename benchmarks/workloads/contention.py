"""``contention``: 8 processes commit to one branch, 250 times each, on stores that processes share.

Each writer sets a small value under a key of its own, as the parallel workers of one agent do, so that nothing
conflicts and every commit must be there at the end. What is timed runs from the moment when all writers have opened the
store to the end of the last one.
"""

from __future__ import annotations

import multiprocessing
import random
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from multiprocessing.synchronize import Barrier
from typing import Any

from benchmarks.results import Metric, Result, Table, Target, Unit
from benchmarks.servers import Servers
from benchmarks.sides import OURS
from benchmarks.workloads.base import Context, Workload, require_equal
from versioned_state import Disk, KVStore, Repository, Versioned
from versioned_state.errors import BranchMovedError

WRITERS, ROUNDS, TURNS = 8, 250, 2
QUICK_WRITERS, QUICK_ROUNDS, QUICK_TURNS = 3, 10, 1
PAUSE = 0.004
"""The most seconds that a writer waits after a commit, in the second part.

Without this pause, one writer is nearly done before others get in.
"""

_together: Barrier
"""In a writer's process: where it waits for the others."""


@dataclass(frozen=True)
class Written:
    """The record of one writer: its begin and end by the clock of the machine, and the number of its retries."""

    began: float
    ended: float
    retries: int


Write = Callable[[str, int, float], Written]
"""Given the writer's name, its rounds, and the longest pause between two.

It runs in a process of its own, so it can be pickled.
"""


@dataclass(frozen=True)
class Contender:
    """A side on a kind of store, in one way of use.

    ``open`` makes an empty store; ``check`` gives the writers of its commits, in order.
    """

    side: str
    kind: str
    way: str
    open: Callable[[], tuple[Write, Callable[[], list[tuple[str, int]]]]]


@dataclass(frozen=True)
class Run:
    """The cost of one run of all writers: seconds, lost attempts, and the branch's passes from writer to writer."""

    seconds: float
    retries: int
    passed: int


# Ours


def _write_ours(open_store: Callable[[], KVStore], name: str, rounds: int, pause: float) -> Written:
    retries = 0
    with Versioned(open_store()) as state:
        _together.wait(120)
        began = time.monotonic()
        for n in range(rounds):
            state[name] = _value(name, n)
            while True:
                try:
                    state.commit(meta={"writer": name, "n": n})
                    break
                except BranchMovedError:  # a thousand merges in a row were overtaken; what was staged is still there
                    retries += 1
            _rest(pause)
        return Written(began, time.monotonic(), retries)


def _line_of_ours(open_store: Callable[[], KVStore]) -> list[tuple[str, int]]:
    with Repository(open_store()) as repository:
        line = list(repository.log("main", first_parent=True))[::-1]
        for name in {commit.meta["writer"] for commit in line}:
            newest = max(commit.meta["n"] for commit in line if commit.meta["writer"] == name)
            require_equal(repository.snapshot("main")[name], _value(name, newest), f"ours, {name}")
        return [(commit.meta["writer"], commit.meta["n"]) for commit in line]


def _ours(kind: str, fresh: Callable[[], Callable[[], KVStore]]) -> Contender:
    def open_new() -> tuple[Write, Callable[[], list[tuple[str, int]]]]:
        open_store = fresh()
        Versioned(open_store()).close()
        return partial(_write_ours, open_store), partial(_line_of_ours, open_store)

    return Contender(OURS, kind, "commit", open_new)


# kvgit


def _open_kvgit_disk(folder: str) -> Any:
    from kvgit import Repo
    from kvgit.kv.disk import Disk as KvgitDisk

    return Repo(KvgitDisk(folder))


def _open_kvgit_postgres(url: str, table: str) -> Any:
    from kvgit import Repo
    from kvgit.kv.postgres import Postgres

    return Repo(Postgres(url, table=table, max_size=2))


def _write_kvgit(open_repo: Callable[[], Any], refreshed: bool, name: str, rounds: int, pause: float) -> Written:  # noqa: FBT001 - a partial's
    """Write with kvgit, whose commit merges once. If the branch moves meanwhile, its error says to refresh and retry.

    Its ``refresh`` drops what is staged, so that it is staged again. ``refreshed`` says whether that is also done
    before each round, which saves the merge where nobody comes in between; or never: what is staged stays after the
    error, and the commit is called again.
    """
    from kvgit import ConcurrencyError

    retries = 0
    with open_repo() as repo:
        worktree = repo.worktree("main", create=True)
        _together.wait(120)
        began = time.monotonic()
        for n in range(rounds):
            attempt = 0
            while True:
                if refreshed:
                    worktree.refresh()
                worktree[name] = _value(name, n)
                try:
                    worktree.commit(info={"writer": name, "n": n})
                    break
                except ConcurrencyError:
                    attempt += 1
                    # As ours waits between two tries.
                    time.sleep(random.uniform(0, min(0.05, 0.0005 * 2**attempt)))
            retries += attempt
            _rest(pause)
        return Written(began, time.monotonic(), retries)


def _line_of_kvgit(open_repo: Callable[[], Any]) -> list[tuple[str, int]]:
    with open_repo() as repo:
        # A merge names the branch's head as its first parent and carries what the commit says; the root says nothing.
        line = [commit.info for commit in repo.log(branch="main", first_parent=True) if commit.info][::-1]
        snapshot = repo.snapshot(branch="main")
        for name in {info["writer"] for info in line}:
            newest = max(info["n"] for info in line if info["writer"] == name)
            require_equal(snapshot[name], _value(name, newest), f"kvgit, {name}")
        return [(info["writer"], info["n"]) for info in line]


def _kvgit(kind: str, fresh: Callable[[], Callable[[], Any]]) -> list[Contender]:
    def open_new(*, refreshed: bool) -> tuple[Write, Callable[[], list[tuple[str, int]]]]:
        open_repo = fresh()
        with open_repo() as repo:
            repo.worktree("main", create=True)
        return partial(_write_kvgit, open_repo, refreshed), partial(_line_of_kvgit, open_repo)

    return [
        Contender("kvgit", kind, "refresh, then commit", partial(open_new, refreshed=True)),
        Contender("kvgit", kind, "commit, again if it fails", partial(open_new, refreshed=False)),
    ]


# All of them


def run(context: Context, workload: Workload) -> Result:
    """Every contender in turns; kvgit's figure is that of the way that is faster there."""
    writers, rounds, turns = (QUICK_WRITERS, QUICK_ROUNDS, QUICK_TURNS) if context.quick else (WRITERS, ROUNDS, TURNS)
    with Servers() as servers:
        contenders = _contenders(context, servers)
        found: dict[float, dict[Contender, list[Run]]] = {
            pause: {each: [] for each in contenders} for pause in (0.0, PAUSE)
        }
        context.progress(
            f"{workload.name}: {writers} processes, {rounds} commits each, {turns} turns without pauses and with them"
        )
        for turn in range(turns):
            for pause, runs in found.items():
                shift = turn % len(contenders) if contenders else 0
                for contender in contenders[shift:] + contenders[:shift]:
                    done = _run(contender, writers, rounds, pause)
                    runs[contender].append(done)
                    context.progress(
                        f"turn {turn + 1}: {contender.side} on {contender.kind}, {contender.way}: {done.seconds:.2f} s"
                    )
    return Result(
        workload.name,
        f"{writers} processes commit to one branch, {rounds} times each, a key of its own each; {turns} turns",
        metrics=[
            *_metrics(found[0.0], "all commits"),
            *_metrics(found[PAUSE], f"the same, pauses of 0 to {PAUSE * 1e3:g} ms"),
        ],
        tables=[
            _table(found[0.0], writers * rounds, "without pauses"),
            _table(found[PAUSE], writers * rounds, "with pauses"),
        ],
        notes=[
            (
                "on every side all commits are there, each writer's in its order, "
                "and the last value of each (checked after each run)"
            ),
            "kvgit's figure is that of its faster way; ours merges and tries again by itself",
            Servers.SETTINGS,
        ],
    )


def _contenders(context: Context, servers: Servers) -> list[Contender]:
    found: list[Contender] = []
    if OURS in context.sides:
        from versioned_state.storage import Postgres, Redis

        found += [
            _ours("Disk", lambda: partial(Disk, context.fresh("ours") / "store", timeout=300)),
            _ours(
                "PostgreSQL",
                lambda: partial(
                    Postgres, servers.postgres.url, schema=servers.postgres.fresh_schema(), max_connections=2
                ),
            ),
            _ours("Redis", lambda: partial(Redis, servers.redis.url, prefix=servers.redis.fresh_prefix())),
        ]
    if "kvgit" in context.sides:
        found += [
            *_kvgit("Disk", lambda: partial(_open_kvgit_disk, str(context.fresh("kvgit")))),
            *_kvgit(
                "PostgreSQL",
                lambda: partial(_open_kvgit_postgres, servers.postgres.url, servers.postgres.fresh_schema()),
            ),
        ]
    return found


def _run(contender: Contender, writers: int, rounds: int, pause: float) -> Run:
    """Let the writers write, and check the result. Raises ``RuntimeError`` if a commit is lost or out of order."""
    write, read_line = contender.open()
    names = [f"writer-{number}" for number in range(writers)]
    # Processes that are started, not forked: as separate programs are, without this one's connections.
    processes = multiprocessing.get_context("spawn")
    barrier = processes.Barrier(writers)
    with ProcessPoolExecutor(writers, mp_context=processes, initializer=_begin, initargs=(barrier,)) as pool:
        written = [future.result() for future in [pool.submit(write, name, rounds, pause) for name in names]]
    line = read_line()
    what = f"{contender.side} on {contender.kind}"
    require_equal(len(line), writers * rounds, what)
    for name in names:
        require_equal([n for writer, n in line if writer == name], list(range(rounds)), f"{what}, {name}")
    return Run(
        max(each.ended for each in written) - min(each.began for each in written),
        sum(each.retries for each in written),
        sum(old[0] != new[0] for old, new in pairwise(line)),
    )


def _begin(barrier: Barrier) -> None:
    global _together  # noqa: PLW0603 - a barrier is inherited when a process starts, and cannot be sent to it later
    _together = barrier


def _value(name: str, n: int) -> dict[str, Any]:
    return {"step": n, "note": f"{name} has done step {n}"}


def _rest(pause: float) -> None:
    if pause:
        time.sleep(random.uniform(0, pause))


# What is shown


def _median(runs: Sequence[Run]) -> float:
    return statistics.median(run.seconds for run in runs)


def _metrics(found: dict[Contender, list[Run]], name: str) -> list[Metric]:
    metrics: list[Metric] = []
    for kind in dict.fromkeys(contender.kind for contender in found):
        fastest: dict[str, list[Run]] = {}
        for contender, runs in found.items():
            if contender.kind == kind and (
                contender.side not in fastest or _median(runs) < _median(fastest[contender.side])
            ):
                fastest[contender.side] = runs
        samples = {side: [run.seconds for run in runs] for side, runs in fastest.items()}
        targets = [(OURS, Target(ratio=1.0, base="kvgit"))] if "kvgit" in samples else []
        metrics.append(Metric.of_samples(f"{name}, {kind}", samples, targets))
    return metrics


def _table(found: dict[Contender, list[Run]], commits: int, title: str) -> Table:
    rows: list[list[str | tuple[float, Unit]]] = [
        [
            contender.kind,
            contender.side,
            contender.way,
            (_median(runs), Unit.SECONDS),
            (_median(runs) / commits, Unit.SECONDS),
            (statistics.median(run.retries for run in runs), Unit.COUNT),
            (statistics.median(run.passed for run in runs), Unit.COUNT),
        ]
        for contender, runs in sorted(found.items(), key=lambda item: (item[0].kind, item[0].side != OURS))
    ]
    return Table(
        f"{commits:,} commits in all, {title}",
        ["store", "side", "way", "in all", "a commit", "tries again by the writer", "passed to another writer"],
        rows,
    )


WORKLOADS = (Workload("contention", "8 processes commit to one branch, on Disk, PostgreSQL and Redis", run),)
