"""Programs in a process of their own, with the tests' modules at hand or without them."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def run_program(tmp_path: Path) -> Callable[..., str]:
    """Run a program, and return its output.

    ``alone``: without the tests' own modules. Further arguments are environment variables.
    """

    def run(program: str, *arguments: str, alone: bool = False, **environment: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(program), *arguments],
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path if alone else ROOT,
            env={**os.environ, **environment},
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run
