"""Without the extra ``ui``: its commands say what to install, write nothing, and notebooks show the same components."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from versioned_state import Disk, Versioned

pytestmark = pytest.mark.every_case

MISSING = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("jinja2", "markupsafe", "starlette", "uvicorn"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
"""
"""As in an environment that has the package alone."""


def run(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", MISSING + code, *arguments], capture_output=True, text=True, timeout=120
    )


@pytest.fixture
def store(tmp_path: Path) -> Path:
    state = Versioned(Disk(tmp_path / "store"))
    state["plan"] = "one\ntwo"
    state.commit("first")
    state["plan"] = "one\n2"
    state.commit("second")
    state.repository.close()
    return tmp_path / "store"


@pytest.mark.parametrize(
    ("command", "extra"),
    [
        (["show", "--html", "{}/page.html"], "ui"),
        (["log", "--html", "{}/page.html"], "ui"),
        (["ui", "--no-browser"], "ui"),
        (["serve", "--tokens", "{}/tokens.json", "--page"], "server"),
    ],
)
def test_a_command_says_what_to_install(store: Path, tmp_path: Path, command: list[str], extra: str):
    given = [part.format(tmp_path) for part in command]
    done = run("from versioned_state.cli.main import main\nmain()", "--store", str(store), *given)
    assert done.returncode == 1
    assert f"pip install 'versioned-state[{extra}]'" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "page.html").exists()


def test_a_notebook_needs_nothing(store: Path):
    shown = f"""
from versioned_state import Disk, Versioned
state = Versioned(Disk({str(store)!r}))
for thing in (
    state, state.log(), state.diff("HEAD~1", "HEAD"), state.blame(), state.grep("one"), state.checkout("HEAD"),
    state.head,
):
    print(thing._repr_html_())
"""
    done = run(shown)
    assert done.returncode == 0, done.stderr
    assert "<del>two</del>" in done.stdout
    assert '<svg class="lanes"' in done.stdout
