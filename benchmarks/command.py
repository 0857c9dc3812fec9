"""The command line of the benchmarks: choose workloads and sides, run them, print and save what they measured."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import (
    agents,
    arguments,
    commits,
    data,
    report,
    services,
    services_history,
    services_http,
    services_soak,
    sides,
    workloads,
)
from benchmarks.frameworks import command as frameworks
from benchmarks.measure import environment
from benchmarks.sessions import command as sessions
from benchmarks.workloads.base import Context

RESULTS = Path(__file__).parent / "results"


_OTHERS: dict[str, Any] = {
    "commit": commits,
    "agents": agents,
    "frameworks": frameworks,
    "sessions": sessions,
    "services history": services_history,
    "services http": services_http,
    "services soak": services_soak,
    "services": services,
}
"""The benchmarks with a command line of their own, by the words that name them; the longer ones first."""


def main() -> int:
    """Run the workloads that the command line names (all without a name) and return the exit code."""
    given = sys.argv[1:]
    for name, module in _OTHERS.items():
        words = name.split()
        if given[: len(words)] == words:
            return int(module.main(given[len(words) :]))
    parser = _parser()
    options = parser.parse_args(given)
    if options.list:
        for workload in workloads.WORKLOADS.values():
            print(f"{workload.name:14} {workload.summary}")
        return 0
    unknown = [name for name in options.workload if name not in workloads.WORKLOADS]
    if unknown:
        parser.error(f"unknown workload {unknown[0]!r}; known: {', '.join(workloads.WORKLOADS)}")
    wanted = options.sides or sides.NAMES
    strange = [name for name in wanted if name not in sides.NAMES]
    if strange:
        parser.error(f"unknown side {strange[0]!r}; known: {', '.join(sides.NAMES)}")
    chosen, missing = sides.load(wanted)
    if not chosen:
        parser.error("no side can be run: " + "; ".join(missing))
    source = data.load()
    with tempfile.TemporaryDirectory(prefix="vstate-bench-") as folder:
        context = Context(
            folder=Path(folder),
            sides=chosen,
            data=source,
            out=options.out,
            quick=options.quick,
            full=options.full,
        )
        options.out.mkdir(parents=True, exist_ok=True)
        surroundings = environment(context.folder)
        settings = {name: side(context.fresh(f"settings-{name}")).settings() for name, side in chosen.items()}
        report.print_heading(surroundings, settings, [*source.notes, *missing], quick=options.quick)
        for name in options.workload or workloads.WORKLOADS:
            workload = workloads.WORKLOADS[name]
            result = workload.measure(context)
            report.print_result(result)
            report.save(
                result, options.out, environment=surroundings, sides=settings, data=source.source, quick=options.quick
            )
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Time this library and its peers at the same work on the same data, in one run.",
        epilog="`commit [--against PATH]` measures small commits of this library alone, here and in another checkout; "
        "`agents` measures calls of tasks beside bare commits; `frameworks` measures adapters beside the frameworks' "
        "own stores; `sessions` measures calls on one of many sessions; `services` saves for many users beside "
        "AgentScope Runtime, `services history` appends, `services http` requests to `vstate serve`, and "
        "`services soak` memory and files over time. Each has a `--help`.",
    )
    parser.add_argument(
        "workload", nargs="*", metavar="WORKLOAD", help="what to run (all without a name); --list shows them"
    )
    parser.add_argument("--list", action="store_true", help="list the workloads and stop")
    parser.add_argument(
        "--quick", action="store_true", help="small sizes and few rounds: to see that it works, not to quote"
    )
    parser.add_argument("--full", action="store_true", help="the largest sizes of `growth` as well")
    parser.add_argument("--sides", type=arguments.words, metavar="A,B", help=f"only these of {', '.join(sides.NAMES)}")
    parser.add_argument(
        "--out", type=Path, default=RESULTS, metavar="FOLDER", help="where the JSON and the SVG go (benchmarks/results)"
    )
    return parser
