"""``scripts/bench commit``: a small commit's cost here and, with ``--against``, in another checkout, in turns.

Each checkout runs in a process of its own (`benchmarks.commit_worker`) and has its turns in alternation with the other,
so a machine that slows down slows both. A turn is one conversation, 40 counter commits or 40 appends to about 230 small
messages; the n-th turns of both sides are compared as a pair, and the ratio is the median over the pairs.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks import arguments, data, report
from benchmarks.measure import paired, workplace

ROOT = Path(__file__).resolve().parents[1]
WORKER = Path(__file__).with_name("commit_worker.py")
WORKLOADS = {
    "replay": "a message of a real conversation",
    "counter": "a number that grows by one",
    "messages": "one more of 230 small messages",
}
COUNTED_TURNS = 12


class Worker:
    """A process that runs the package of one checkout."""

    def __init__(self, checkout: Path, folder: Path, conversations: Path) -> None:
        if not (checkout / "versioned_state" / "__init__.py").is_file():
            raise SystemExit(f"error: {checkout} is not a checkout of versioned-state")
        # -P: the worker's own folder is not searched, so that the packages come from the checkout and from .venv only.
        self.process = subprocess.Popen(
            [sys.executable, "-P", WORKER, folder, conversations],
            env={**os.environ, "PYTHONPATH": str(checkout)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        package = Path(self._answer())
        if not package.is_relative_to(checkout):
            raise SystemExit(f"error: the worker for {checkout} imported {package}")

    def ask(self, kind: str, workload: str, number: int) -> Any:
        """Let the worker take one turn; returns its figures."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([kind, workload, number]) + "\n")
        self.process.stdin.flush()
        return self._answer()

    def close(self) -> None:
        """End the process."""
        self.process.communicate()

    def _answer(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"error: the worker ended with {self.process.wait()}")
        return json.loads(line)


def main(given: Sequence[str]) -> int:
    """Measure, print the table, and return the exit code."""
    parser = arguments.parser(
        "commit", "What a small commit costs: time, function calls, requests to the store, bytes sent.", turns=200
    )
    parser.add_argument(
        "--against", type=Path, metavar="PATH", help="another checkout, measured in turns with this one"
    )
    options = parser.parse_args(given)
    checkouts = {"here": ROOT}
    if options.against is not None:
        checkouts["against"] = options.against.resolve()
    source = data.load()
    with workplace() as folder, ExitStack() as stack:
        conversations = folder / "conversations.json"
        conversations.write_text(json.dumps(source.conversations), encoding="utf-8")
        for side, checkout in checkouts.items():
            print(f"  {side}: {checkout}, {_revision(checkout)}")
        for note in source.notes:
            print(f"note: {note}")
        workers = {}
        for side, checkout in checkouts.items():
            workers[side] = Worker(checkout, folder / side, conversations)
            stack.callback(workers[side].close)
        rows = [row for workload in WORKLOADS for row in _rows(workload, workers, options.turns)]
    print()
    report.print_table(
        ["a commit of", "side", "time", "ratio", "10 to 90 % of pairs", "calls", "requests", "bytes"], rows
    )
    return 0


def _rows(workload: str, workers: dict[str, Worker], turns: int) -> list[list[str]]:
    seconds: dict[str, list[float]] = {side: [] for side in workers}
    for turn in range(turns):
        order = list(workers) if turn % 2 else list(reversed(workers))
        for side in order:
            seconds[side].append(statistics.median(workers[side].ask("seconds", workload, turn)))
    rows: list[list[str]] = []
    for side, worker in workers.items():
        counted = range(COUNTED_TURNS)
        calls = [count for turn in counted for count in worker.ask("calls", workload, turn)]
        requests, sent = zip(
            *(pair for turn in counted for pair in worker.ask("requests", workload, turn)), strict=True
        )
        rows.append(
            [
                WORKLOADS[workload] if not rows else "",
                side,
                f"{statistics.median(seconds[side]) * 1e6:.0f} µs",
                *(paired(seconds["here"], seconds["against"]) if side == "here" and len(seconds) > 1 else ("", "")),
                f"{statistics.median(calls):.0f}",
                f"{statistics.mean(requests):.2f}",
                f"{statistics.mean(sent):.0f}",
            ]
        )
    return rows


def _revision(checkout: Path) -> str:
    """The commit of a checkout, and whether its files differ from it."""

    def git(*command: str) -> str:
        done = subprocess.run(["git", "-C", checkout, *command], check=False, capture_output=True, text=True)
        return done.stdout.strip()

    found = git("log", "-1", "--format=%h %s") or "not a git checkout"
    return found + (", with changes" if git("status", "--porcelain", "--", "versioned_state") else "")
