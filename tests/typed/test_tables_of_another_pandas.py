"""The tests of tables, with the other major version of pandas than the one that is installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

ROOT = Path(__file__).parents[2]
TESTS = [
    "typed/test_tables.py",
    "typed/test_merges_of_tables.py",
    "typed/test_tables_shown.py",
    "golden/test_golden_tables.py",
]


@pytest.mark.long
def test_tables_are_data_in_the_other_version_of_pandas(tmp_path: Path):
    other = "pandas>=2.3,<3" if int(pd.__version__.partition(".")[0]) > 2 else "pandas>=3"
    # In a folder of its own, which comes first on the path: all else is what is installed.
    install = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--target",
        str(tmp_path / "other"),
        other,
        "pytz",
        "tzdata",
    ]
    subprocess.run(install, check=True, capture_output=True)
    tests = [str(ROOT / "tests" / each) for each in TESTS]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--basetemp={tmp_path / 'inner'}", *tests],
        env={**os.environ, "PYTHONPATH": str(tmp_path / "other")},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:]
    assert " passed" in done.stdout
