"""The simulation: 200 seeds every day, 100,000 in the long run, and the seeds of faults that were found before."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SEEDS = 200
BLOCKS = 4


def _run(*arguments: object) -> subprocess.CompletedProcess[str]:
    # In a process of its own: the order of sets of strings is part of a run, and the surroundings of the library are
    # replaced there.
    command = [sys.executable, "-m", "tests.simulation", *map(str, arguments)]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("block", range(BLOCKS))
def test_no_seed_fails(block):
    each = SEEDS // BLOCKS
    result = _run("--count", each, "--start", block * each)
    assert result.returncode == 0, result.stdout + result.stderr


def test_no_fault_that_was_found_is_back():
    result = _run("--regressions", "--steps", 200)
    assert result.returncode == 0, result.stdout[-8000:] + result.stderr[-2000:]


def test_a_seed_repeats_its_run_step_by_step():
    seeds = (3, 13, 34, 9700066)  # the last one waits for random times
    first, second = (_run("--digest", *seeds) for _ in range(2))
    assert first.stdout == second.stdout
    assert first.stdout.count("\n") >= len(seeds)


def test_a_seed_that_fails_shows_its_steps_and_exits_with_1(tmp_path):
    broken = (
        "import tests.simulation.invariants as i; "
        "i._whole = lambda world, repository, when: world.model.fail('broken on purpose')"
    )
    main = "import sys; from tests.simulation.__main__ import main; sys.exit(main(['7']))"
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    result = subprocess.run(
        [sys.executable, "-c", f"{broken}; {main}"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 1
    assert "broken on purpose" in result.stdout
    assert "*** " in result.stdout


@pytest.mark.long
def test_no_seed_of_the_long_run_fails():
    for start in range(0, 100_000, 2_000):
        result = _run("--count", 2_000, "--start", start, "--processes", os.cpu_count() or 1)
        assert result.returncode == 0, result.stdout + result.stderr
