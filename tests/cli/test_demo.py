"""The demo: the first thing that people see of the project. It is the same each time, and what it shows is true."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.support.command_line import Result, Vstate
from tests.support.examples import control_characters
from tests.support.long_runs import first
from tests.support.terminal import run_in_terminal
from versioned_state import Disk, Repository
from versioned_state.cli.demo import demo as _demo  # noqa: F401 - before a test begins: what registers itself within one is forgotten at its end
from versioned_state.cli.main import vstate as group

FOLDER = "trip"


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    """The folder in which the demo ran, and what it printed. Do not write to it."""
    folder = tmp_path_factory.mktemp("demo")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        result = CliRunner().invoke(group, ["demo", FOLDER], prog_name="vstate")
    return folder, Result(result.stdout, result.stderr, result.exit_code)


IDS = re.compile(r"\b(?:[0-9a-f]{12}|[0-9a-f]{48})\b")


def test_it_prints(demo: tuple[Path, Result], snapshot: Callable[[str, str], None]):
    shown = demo[1].shown("vstate demo trip")
    numbers: dict[str, str] = {}

    def tidy(match: re.Match[str]) -> str:
        number = numbers.setdefault(match.group()[:12], f"commit-{len(numbers) + 1:-<5}")
        return number.ljust(len(match.group()), "-")

    # Sizes depend on releases of zstd, a little; the test below has an eye on them.
    snapshot(
        "demo",
        re.sub(r"[\d.]+ (KB|bytes)", lambda match: f"N {match[1]}".rjust(len(match.group())), IDS.sub(tidy, shown)),
    )


def test_every_run_is_the_same(demo: tuple[Path, Result], vstate: Vstate):
    assert vstate("demo", "trip2").stdout.replace("trip2", FOLDER) == demo[1].stdout


def test_what_it_shows_is_in_the_store_and_the_commands_work(
    demo: tuple[Path, Result], vstate: Vstate, monkeypatch: pytest.MonkeyPatch
):
    folder, shown = demo[0], demo[1].stdout
    monkeypatch.chdir(folder)
    commands = [line.split()[1:] for line in shown.splitlines() if line.startswith("  vstate --store trip ")]
    assert len(commands) == 4
    for command in commands:
        done = vstate(*command)
        assert done.code == 0
        assert done.stdout
    with Repository(Disk(folder / FOLDER, read_only=True), pickle="refuse") as repository:
        ids = {commit.short for commit in repository.log("main")}
        assert len(ids) == 14
        assert ids <= set(IDS.findall(shown))
        assert repository.snapshot("main~7")["budget"] == {"limit": 600, "spent": 440, "currency": "EUR"}
        assert repository.snapshot("main")["budget"] == {"limit": 500, "spent": 454, "currency": "EUR"}


def test_a_round_of_a_long_chat_costs_little(demo: tuple[Path, Result]):
    lines = [line for line in demo[1].stdout.splitlines() if line.startswith("round ")]
    (trip, *_), _, (chat, whole, compressed) = (
        [float(size) for size in re.findall(r"([\d.]+) KB", line)] for line in lines
    )
    assert chat < 1.5 * trip
    assert chat < whole / 100
    assert chat < compressed / 20


def test_without_a_folder_it_makes_one_and_names_it(vstate: Vstate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    done = vstate("demo")
    (made,) = tmp_path.iterdir()
    assert done.code == 0
    assert made.name.startswith("vstate-demo-")
    assert f"--store {made} " in done.stdout
    assert (made / "store.sqlite3").exists()


def test_it_is_clean_in_a_pipe(demo: tuple[Path, Result]):
    result = demo[1]
    assert result.stderr == ""
    assert control_characters(result.stdout) == set()
    assert max(map(len, result.stdout.splitlines())) < 200


def test_a_folder_with_something_in_it_is_refused(demo: tuple[Path, Result], vstate: Vstate, tmp_path: Path):
    shutil.copytree(demo[0] / FOLDER, tmp_path / FOLDER)
    (tmp_path / "file").touch()
    before = (tmp_path / "trip" / "store.sqlite3").read_bytes()
    for name in ("trip", "file", "."):
        result = vstate("demo", name)
        assert result.stderr.splitlines() == [
            f"error: {name} is there, and is not an empty folder",
            "hint: name one that is not there yet, or none at all",
        ]
        assert result.code == 1
    assert (tmp_path / "trip" / "store.sqlite3").read_bytes() == before


@pytest.mark.parametrize("columns", first(1, [60, 120]))
def test_in_a_terminal_it_has_colours_and_a_table_that_fits(columns: int, tmp_path: Path):
    screen = run_in_terminal("demo", f"trip{columns}", cwd=tmp_path, columns=columns)
    assert screen.code == 0
    assert "\x1b[" in screen.text
    plain = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(screen.lines))
    table = plain.partition("What did it know then, and")[2].partition("──")[0].splitlines()
    assert len(table) > 10
    assert max(map(len, table)) <= columns
