"""Fixtures of the command line's tests: a runner, stores, and snapshots.

``VSTATE_UPDATE_SNAPSHOTS=1`` writes the files in ``snapshots/`` anew instead of comparing with them; read the
difference.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.support.command_line import SNAPSHOTS, Result, Vstate, speaks_python
from tests.support.examples import MINUTE, START, Trip, make_hostile, make_trip
from tests.support.forked_trips import make_fork
from versioned_state import Disk, Versioned
from versioned_state.cli.main import vstate as group
from versioned_state.cli.render import text


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing of the user's: neither settings nor folder."""
    names = "VSTATE_STORE VSTATE_KEY_FILE VSTATE_BRANCH VSTATE_AUTHOR VSTATE_SIGN_KEY VSTATE_PAGER PAGER LESS"
    for name in f"{names} NO_COLOR COLUMNS LINES FORCE_COLOR".split():
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state-home"))  # where the current branch is kept
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def vstate() -> Vstate:
    """Run a command line in this process: ``vstate("log", "main", store=path)``."""

    def run(*args: str, store: Path | None = None, stdin: bytes = b"") -> Result:
        options = [] if store is None else ["--store", str(store)]
        result = CliRunner().invoke(group, [*options, *args], input=stdin, prog_name="vstate")
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        assert not speaks_python(result.stderr), f"what vstate says is for Python: {result.stderr}"
        return Result(result.stdout, result.stderr, result.exit_code)

    return run


@pytest.fixture(scope="session")
def trip(tmp_path_factory: pytest.TempPathFactory) -> Trip:
    """A store to look at. It is shared: do not write to it."""
    return make_trip(tmp_path_factory.mktemp("trip") / "store")


@pytest.fixture
def own_trip(trip: Trip, tmp_path: Path) -> Trip:
    """A copy of it, to write to or to damage."""
    path = tmp_path / "own"
    shutil.copytree(trip.path, path)
    return Trip(path, trip.commits)


@pytest.fixture
def hostile(tmp_path: Path) -> Iterator[Path]:
    """A store full of escape sequences and of pickles that make a file: it fails the test if that file ever appears."""
    target = tmp_path / "unpickled"
    make_hostile(tmp_path / "hostile", target)
    yield tmp_path / "hostile"
    assert not target.exists(), "something was unpickled"


@pytest.fixture
def snapshot(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compare a text with the file of that name in ``snapshots/``."""

    def compare(name: str, text: str) -> None:
        file = SNAPSHOTS / f"{name}.txt"
        if os.environ.get("VSTATE_UPDATE_SNAPSHOTS"):
            file.write_text(text, encoding="utf-8")
        assert file.exists(), f"there is no {file}; VSTATE_UPDATE_SNAPSHOTS=1 writes it"
        assert text == file.read_text(encoding="utf-8")

    return compare


@pytest.fixture(scope="session")
def big_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with more to print than a pipe or a pager's buffer holds."""
    path = tmp_path_factory.mktemp("big") / "store"
    with Versioned(Disk(path)) as state:
        state["list"] = list(range(30_000))
        state["text"] = "line\n" * 60_000
        for count in range(200):
            state["count"] = count
            state.commit("message " * 100)
    return path


@pytest.fixture(scope="session")
def _fork(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("fork") / "store"
    make_fork(path)
    return path


@pytest.fixture
def fork(_fork: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store of one's own with two branches, named by ``VSTATE_STORE``, at a fixed time."""
    path = tmp_path / "fork"
    shutil.copytree(_fork, path)
    monkeypatch.setenv("VSTATE_STORE", str(path))
    monkeypatch.setenv("VSTATE_AUTHOR", "tester")
    monkeypatch.setattr(text, "now", lambda: START + 100 * MINUTE)
    return path
