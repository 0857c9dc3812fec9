"""The command line of ``scripts/bench frameworks``; ``--framework`` and ``--part`` choose among the tables."""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks import report
from benchmarks.frameworks import langgraph
from benchmarks.measure import environment

FRAMEWORKS: Final[dict[str, Any]] = {"langgraph": langgraph}
"""A module for each. ``PARTS`` maps the name of a table to a function of a folder and ``quick``, which returns its title and its rows."""


def main(arguments: Sequence[str]) -> int:
    """Measure, print the tables, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks frameworks", description="Adapters beside the frameworks' own stores.")
    parser.add_argument("--framework", choices=FRAMEWORKS, help="one of them only")
    parser.add_argument("--part", help="one table only")
    parser.add_argument("--quick", action="store_true", help="small sizes: to see that it works, not to quote")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="vstate-bench-") as name:
        folder = Path(name)
        print(", ".join(f"{name} {value}" for name, value in environment(folder).items()))
        started = time.perf_counter()
        for framework, module in FRAMEWORKS.items():
            for part, measure in module.PARTS.items():
                if options.framework in (None, framework) and options.part in (None, part):
                    place = folder / f"{framework}-{part}"
                    place.mkdir()
                    title, rows = measure(place, quick=options.quick)
                    print()
                    report.print_table([title, "ours", "theirs", "ours / theirs", "aim"], rows)
        print(f"\n{time.perf_counter() - started:.0f} seconds in all")
    return 0
