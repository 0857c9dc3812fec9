"""The command line of ``scripts/bench sessions``; ``--part`` chooses one table.

Appending to a list of 1,000 dataclasses or models is measured by ``scripts/bench typed``.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks import report
from benchmarks.measure import environment
from benchmarks.servers import Servers
from benchmarks.sessions import appends, calls, checkpoints, requests, stored
from benchmarks.sessions.sample import MESSAGES, POPPED

CHECKPOINTS: Final = 3_000
APPENDS: Final = 1_000


def main(arguments: Sequence[str]) -> int:
    """Measure, print the tables, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks sessions", description="Calls on one of many sessions.")
    parser.add_argument(
        "--stores",
        type=lambda text: text.split(","),
        default=["disk", "redis", "postgres"],
        help="of disk,redis,postgres",
    )
    parser.add_argument(
        "--sizes", type=lambda text: [int(each) for each in text.split(",")], metavar="N,N", help="numbers of sessions"
    )
    parser.add_argument("--quick", action="store_true", help="few sessions: to see that it works, not to quote")
    parser.add_argument(
        "--part", choices=("calls", "bytes", "appends", "requests", "checkpoints"), help="one part only"
    )
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="vstate-bench-") as name, Servers() as servers:
        folder = Path(name)
        print(", ".join(f"{name} {value}" for name, value in environment(folder).items()))
        started = time.perf_counter()
        for kind in options.stores if options.part in (None, "calls") else ():
            sizes = options.sizes or (calls.QUICK if options.quick else calls.SIZES[kind])
            columns = [
                dict(calls.rows(calls.open_store(kind, folder / f"{kind}-{size}", servers), size)) for size in sizes
            ]
            rows = [
                [call, *(column.get(call, "") for column in columns), calls.AIMS.get(call, "")] for call in columns[-1]
            ]
            _print([kind, *(f"{size:,} sessions" for size in sizes), "aim"], rows)
        if options.part in (None, "bytes"):
            _print(
                ["what stays on a disk", "bytes"], list(stored.rows(folder / "bytes", 100 if options.quick else 2_000))
            )
        if options.part in (None, "appends"):
            rows = appends.rows(folder, 100 if options.quick else APPENDS)
            _print(["100 bytes appended to", "side", "values and keys", "file", "time", "aim"], rows)
        if options.part in (None, "requests"):
            for size, make in requests.KINDS.items():
                title = [
                    f"{MESSAGES:,} messages of {size}",
                    "request",
                    "ours to it",
                    f"pop of {POPPED:,}, cold",
                    "asked of the store",
                ]
                _print(title, list(requests.rows(folder, make)))
        if options.part in (None, "checkpoints"):
            count = 200 if options.quick else CHECKPOINTS
            _print(
                [f"{count:,} checkpoints with writes", "MB", "put", "writes", "latest"], checkpoints.rows(folder, count)
            )
        print(f"\n{time.perf_counter() - started:.0f} seconds in all")
    return 0


def _print(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    print()
    report.print_table(columns, rows)
