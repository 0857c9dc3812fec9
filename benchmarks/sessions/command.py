"""The command line of ``scripts/bench sessions``; ``--part`` chooses one table.

Appending to a list of 1,000 dataclasses or models is measured by ``scripts/bench typed``.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from benchmarks import arguments, report
from benchmarks.measure import workplace
from benchmarks.servers import Servers
from benchmarks.sessions import appends, calls, checkpoints, requests, stored
from benchmarks.sessions.sample import MESSAGES, POPPED

CHECKPOINTS: Final = 3_000
APPENDS: Final = 1_000


def main(given: Sequence[str]) -> int:
    """Measure, print the tables, and return the exit code."""
    parser = arguments.parser(
        "sessions",
        "Calls on one of many sessions.",
        quick="few sessions",
        parts=("calls", "bytes", "appends", "requests", "checkpoints"),
    )
    parser.add_argument(
        "--stores", type=arguments.words, default=["disk", "redis", "postgres"], help="of disk,redis,postgres"
    )
    parser.add_argument("--sizes", type=arguments.numbers, metavar="N,N", help="numbers of sessions")
    options = parser.parse_args(given)
    with workplace() as folder, Servers() as servers:
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
                [f"{count:,} checkpoints with writes", "MB", "put", "writes", "latest"],
                list(checkpoints.rows(folder / "checkpoints", count)),
            )
        print(f"\n{time.perf_counter() - started:.0f} seconds in all")
    return 0


def _print(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    print()
    report.print_table(columns, rows)
