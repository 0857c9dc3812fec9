"""The programs and notebooks in examples/ run, and are short enough to be read at a sitting."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.notebooks import read_notebook, run_notebook

FOLDER = Path(__file__).parents[1] / "examples"
EXAMPLES = sorted(FOLDER.glob("*.py"))
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.stem)
def test_the_example_runs(example: Path, tmp_path: Path):
    done = subprocess.run([sys.executable, str(example)], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout
    assert not list(tmp_path.iterdir()), "an example leaves nothing behind"


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.stem)
def test_the_example_is_short(example: Path):
    assert len(example.read_text("utf-8").splitlines()) < 120


def masked(outputs: Any) -> str:
    """Outputs without ids and times."""
    text = re.sub(r"\b[0-9a-f]{12,}\b", "x", json.dumps(outputs, indent=1))
    return re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "t", text)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_notebook_gives_the_outputs_that_it_shows(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    notebook = read_notebook(path)
    shown = [cell["outputs"] for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert masked(run_notebook(notebook)) == masked(shown), "python -m tests.support.notebooks stores new outputs"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_notebook_is_short(path: Path):
    assert sum(len(cell["source"]) for cell in read_notebook(path)["cells"]) < 100
