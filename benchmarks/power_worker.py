"""A turn of the workload ``power``: writers commit to a ``Disk`` with ``durability="power"``, each to its own branch.

    python -m benchmarks.power_worker FOLDER SYNCS WAY WRITERS ROUNDS

SYNCS is ``shared``, or ``each``, which makes SQLite sync every commit while it holds its lock. WAY is ``threads`` or
``processes``. Prints the seconds from the moment when all writers are ready to the end of the last one.
"""

from __future__ import annotations

import multiprocessing
import sys
import threading
import time
from pathlib import Path
from typing import Any

from benchmarks.workloads.base import require_equal
from versioned_state import Disk, Repository, Versioned
from versioned_state.storage.local import log_sync


def _commit(repository: Repository, number: int, rounds: int, ready: Any) -> None:
    state = Versioned(repository, branch=f"writer-{number}")
    state["messages"] = []
    state.commit()
    ready.wait(120)
    for n in range(rounds):
        state["messages"].append({"n": n, "text": "one more message"})
        state.commit()


def _commit_in_a_process(folder: Path, number: int, rounds: int, ready: Any) -> None:
    with Repository(Disk(folder, durability="power")) as repository:
        _commit(repository, number, rounds, ready)


def run(folder: Path, way: str, writers: int, rounds: int) -> float:
    """Return the seconds of all commits."""
    Versioned(Disk(folder, durability="power")).close()
    if way == "threads":
        with Repository(Disk(folder, durability="power")) as repository:
            ready: Any = threading.Barrier(writers + 1)
            workers: list[Any] = [
                threading.Thread(target=_commit, args=(repository, n, rounds, ready)) for n in range(writers)
            ]
            return _time(workers, ready)
    context = multiprocessing.get_context("fork")
    ready = context.Barrier(writers + 1)
    return _time(
        [context.Process(target=_commit_in_a_process, args=(folder, n, rounds, ready)) for n in range(writers)], ready
    )


def _time(workers: list[Any], ready: Any) -> float:
    for worker in workers:
        worker.start()
    ready.wait(120)
    began = time.perf_counter()
    for worker in workers:
        worker.join()
    return time.perf_counter() - began


def main(folder: str, syncs: str, way: str, writers: str, rounds: str) -> None:
    """Run the writers, print their seconds, and check the store."""
    if syncs == "each":
        log_sync.SUPPORTED = False  # type: ignore[misc]
    seconds = run(Path(folder), way, int(writers), int(rounds))
    with Repository(Disk(folder)) as repository:
        for number in range(int(writers)):
            found = repository.snapshot(f"writer-{number}")["messages"]
            require_equal([message["n"] for message in found], list(range(int(rounds))), f"{syncs}, writer {number}")
    print(seconds)


if __name__ == "__main__":
    main(*sys.argv[1:])
