"""Run seeds of the simulation. One that fails is shown with its steps, and the exit status is 1."""

from __future__ import annotations

import argparse
import gc
import hashlib
import logging
import os
import re
import sys
import time
import warnings
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulation import run

REGRESSIONS = Path(__file__).with_name("regressions.jsonl")


def main(arguments: list[str] | None = None) -> int:
    """Run the command line. Return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("seeds", nargs="*", type=int, help="seeds to run by themselves")
    parser.add_argument("--count", type=int, default=0, help="the number of seeds to run")
    parser.add_argument("--start", type=int, default=0, help="the first of them")
    parser.add_argument("--processes", type=int, default=1, help="the number of processes that run them")
    parser.add_argument("--regressions", action="store_true", help="run the plans of regressions.jsonl")
    parser.add_argument("--plans", type=Path, help="run the plans in a file")
    parser.add_argument(
        "--shrink",
        action="store_true",
        help="drop the operations that the failure of a seed does not need, "
        "and print the plan as a line for regressions.jsonl",
    )
    parser.add_argument(
        "--digest", action="store_true", help="print a digest of the steps of each seed, to compare two runs"
    )
    parser.add_argument("--steps", type=int, default=None, help="show only the last steps of a failing seed")
    options = parser.parse_args(arguments)
    if os.environ.get("PYTHONHASHSEED") != "0":
        # The order of sets of strings is part of a run.
        os.execve(
            sys.executable,
            [sys.executable, "-m", "tests.simulation", *sys.argv[1:]],
            {**os.environ, "PYTHONHASHSEED": "0"},
        )
    if options.count:
        return _many(range(options.start, options.start + options.count), options.processes)
    from tests.simulation import run

    plans = [run.plan_of(seed) for seed in options.seeds]
    for file in [*([REGRESSIONS] if options.regressions else []), *([options.plans] if options.plans else [])]:
        plans += [run.Plan.from_json(line) for line in file.read_text().splitlines()]
    return max([0, *(_show(plan, options) for plan in plans)])


def _quietly() -> None:
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)


def _show(plan: run.Plan, options: argparse.Namespace) -> int:
    from tests.simulation import environment, run

    _quietly()
    with environment.simulated():
        result = run.run(plan)
        if result.failures and options.shrink:
            first = kind_of(result.failures[0])
            plan = run.shrink(plan, fails=lambda other: any(kind_of(each) == first for each in other.failures))
            result = run.run(plan)
            print(plan.to_json())
    if options.digest:
        print(plan.seed, hashlib.sha256(repr(result.trace).encode()).hexdigest()[:16], result.steps)
    if result.failures:
        print(result.show(options.steps))
        return 1
    print(f"seed {plan.seed}: {len(result.operations)} operations in {result.steps} steps, no failure")
    return 0


def kind_of(failure: str) -> str:
    """A failure without its numbers and names, so that those of one cause count together."""
    first = failure.splitlines()[0]
    first = re.sub(r"\b[0-9a-f]{8,}\b|secret-[0-9a-f]+", "#", first)
    first = re.sub(r"'[^']*'|\[.*\]|\{.*\}", "…", first)
    return re.sub(r"\d+", "N", first)[:110]


def block(seeds: range) -> list[tuple[int, list[str], float, int]]:
    """Run some seeds in this process. Return the failures, the seconds of the processor and the steps of each."""
    from tests.simulation import environment, run

    _quietly()
    found = []
    with environment.simulated():
        for seed in seeds:
            began = time.process_time()
            result = run.run_seed(seed)
            found.append((seed, result.failures, time.process_time() - began, result.steps))
            if seed % 10 == 0:
                gc.collect()
    return found


def _many(seeds: range, processes: int) -> int:
    blocks = [seeds[at : at + 50] for at in range(0, len(seeds), 50)]
    done, spent, failed = 0, 0.0, 0
    kinds: Counter[str] = Counter()
    first: dict[str, list[int]] = {}
    began = time.monotonic()
    with ProcessPoolExecutor(processes) as pool:
        for results in pool.map(block, blocks) if processes > 1 else map(block, blocks):
            for seed, failures, seconds, _ in results:
                done, spent = done + 1, spent + seconds
                failed += bool(failures)
                for kind in {kind_of(failure) for failure in failures[:1]}:
                    kinds[kind] += 1
                    first.setdefault(kind, []).append(seed)
                    print(f"\rseed {seed}: {kind}", flush=True)
            each, seconds = spent / done * 1000, time.monotonic() - began
            line = (
                f"{done} of {len(seeds)} seeds, {failed} failed, {each:.0f} ms of the processor each, {seconds:.0f} s"
            )
            print(
                f"\r{line}" if sys.stderr.isatty() else line,
                end="" if sys.stderr.isatty() else "\n",
                file=sys.stderr,
                flush=True,
            )
    for kind, count in kinds.most_common():
        print(f"{count:5} {kind}  seeds {first[kind][:6]}")
    print(f"{done} seeds, {failed} failed")
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
