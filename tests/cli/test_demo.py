"""The demo: the first thing that people see of the project. It is the same each time, and what it shows is true."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from tests.support.command_line import Vstate
from tests.support.examples import control_characters
from tests.support.terminal import run, run_in_terminal
from versioned_state import Disk, Repository
from versioned_state.cli.demo import demo  # noqa: F401 - before a test begins: what registers itself within one is forgotten at its end

IDS = re.compile(r"\b(?:[0-9a-f]{12}|[0-9a-f]{48})\b")


def test_it_prints(vstate: Vstate, snapshot: Callable[[str, str], None]):
    shown = vstate("demo", "trip").shown("vstate demo trip")
    numbers: dict[str, str] = {}

    def tidy(match: re.Match[str]) -> str:
        number = numbers.setdefault(match.group()[:12], f"commit-{len(numbers) + 1:-<5}")
        return number.ljust(len(match.group()), "-")

    # Sizes depend on releases of zstd, a little; the test below has an eye on them.
    snapshot("demo", re.sub(r"[\d.]+ (KB|bytes)", lambda match: f"N {match[1]}".rjust(len(match.group())), IDS.sub(tidy, shown)))


def test_every_run_is_the_same(vstate: Vstate):
    first, second = (vstate("demo", name).stdout for name in ("trip1", "trip2"))
    assert first.replace("trip1", "") == second.replace("trip2", "")


def test_what_it_shows_is_in_the_store_and_the_commands_work(vstate: Vstate, tmp_path: Path):
    shown = vstate("demo", "trip").stdout
    commands = [line.split()[1:] for line in shown.splitlines() if line.startswith("  vstate --store trip ")]
    assert len(commands) == 4
    for command in commands:
        done = vstate(*command)
        assert done.code == 0
        assert done.stdout
    with Repository(Disk(tmp_path / "trip", read_only=True), pickle="refuse") as repository:
        ids = {commit.short for commit in repository.log("main")}
        assert len(ids) == 14
        assert ids <= set(IDS.findall(shown))
        assert repository.snapshot("main~7")["budget"] == {"limit": 600, "spent": 440, "currency": "EUR"}
        assert repository.snapshot("main")["budget"] == {"limit": 500, "spent": 454, "currency": "EUR"}


def test_a_round_of_a_long_chat_costs_little(vstate: Vstate):
    lines = [line for line in vstate("demo", "trip").stdout.splitlines() if line.startswith("round ")]
    (trip, *_), _, (chat, whole, compressed) = ([float(size) for size in re.findall(r"([\d.]+) KB", line)] for line in lines)
    assert chat < 1.5 * trip
    assert chat < whole / 100
    assert chat < compressed / 20


def test_without_a_folder_it_makes_one_and_names_it(tmp_path: Path):
    done = run("demo", cwd=tmp_path, TMPDIR=str(tmp_path))
    (made,) = tmp_path.iterdir()
    assert done.returncode == 0
    assert made.name.startswith("vstate-demo-")
    assert f"--store {made} ".encode() in done.stdout
    assert (made / "store.sqlite3").exists()


def test_it_is_clean_in_a_pipe(vstate: Vstate):
    result = vstate("demo", "trip")
    assert result.stderr == ""
    assert control_characters(result.stdout) == set()
    assert max(map(len, result.stdout.splitlines())) < 200


def test_a_folder_with_something_in_it_is_refused(vstate: Vstate, tmp_path: Path):
    assert vstate("demo", "trip").code == 0
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


def test_in_a_terminal_it_has_colours_and_a_table_that_fits(tmp_path: Path):
    for columns in (120, 60):
        screen = run_in_terminal("demo", f"trip{columns}", cwd=tmp_path, columns=columns)
        assert screen.code == 0
        assert "\x1b[" in screen.text
        plain = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(screen.lines))
        table = plain.partition("What did it know then, and")[2].partition("──")[0].splitlines()
        assert len(table) > 10
        assert max(map(len, table)) <= columns
