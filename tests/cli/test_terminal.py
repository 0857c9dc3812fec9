"""In a real terminal: colours, the pager, the progress bar, the width. And what of it is gone in a pipe."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import Vstate
from tests.support.examples import Trip
from tests.support.long_runs import first
from tests.support.terminal import run, run_in_terminal
from versioned_state import Disk, Versioned

COLOR = re.compile(r"\x1b\[[0-9;]*m")


def test_a_terminal_gets_colours_and_a_pipe_does_not(trip: Trip, tmp_path: Path):
    log = ["--store", str(trip.path), "--no-pager", "log", "--stat"]
    screen = run_in_terminal(*log, cwd=tmp_path)
    piped = run(*log, cwd=tmp_path)
    assert screen.code == piped.returncode == 0
    assert COLOR.search(screen.text)
    assert COLOR.sub("", screen.text).replace("\r\n", "\n") == piped.stdout.decode()
    assert b"\x1b" not in piped.stdout


DECIDED: list[tuple[list[str], dict[str, str], bool]] = [
    ([], {}, True),
    ([], {"NO_COLOR": "1"}, False),
    (["--color", "always"], {"NO_COLOR": "1"}, True),
    ([], {"NO_COLOR": ""}, True),
    ([], {"TERM": "dumb"}, False),
    (["--color", "never"], {}, False),
]


@pytest.mark.parametrize(
    ("command", "options", "more", "colored"),
    first(4, [("show", *each) for each in DECIDED]) + first(2, [("nothing", *each) for each in DECIDED]),
)
def test_who_decides_on_colours(
    options: list[str], more: dict[str, Any], colored: Any, command: str, trip: Trip, tmp_path: Path
):
    screen = run_in_terminal(
        "--store",
        str(trip.path),
        "--no-pager",
        *options,
        "show",
        *(["nothing"] if command == "nothing" else []),
        cwd=tmp_path,
        **more,
    )
    assert ("error: " in COLOR.sub("", screen.text)) == (command == "nothing")
    assert bool(COLOR.search(screen.text)) == colored


def test_colours_can_be_had_in_a_pipe(trip: Trip, tmp_path: Path):
    assert COLOR.search(run("--store", str(trip.path), "--color", "always", "log", cwd=tmp_path).stdout.decode())


# The pager


@pytest.fixture
def pager(tmp_path: Path) -> str:
    """A pager that leaves a trace and marks what goes through it."""
    script = tmp_path / "pager"
    script.write_text(
        f"#!/bin/sh\ntouch '{tmp_path}/started'\necho \"$LESS\" > '{tmp_path}/less'\nexec sed 's/^/paged: /'\n"
    )
    script.chmod(0o755)
    return str(script)


@pytest.mark.parametrize("command", first(3, ["log", "diff main~3 main", "get main:", "show", "keys"]))
def test_long_output_is_paged(command: str, pager: str, trip: Trip, tmp_path: Path):
    screen = run_in_terminal("--store", str(trip.path), *command.split(), cwd=tmp_path, PAGER=pager)
    assert screen.code == 0
    assert screen.lines
    assert all(line.startswith("paged: ") for line in screen.lines)
    assert (tmp_path / "less").read_text() == "FRX\n"


@pytest.mark.parametrize(
    ("args", "more"),
    first(
        7,
        [
            (["log", "--no-pager"], {}),
            (["log", "--json"], {}),
            (["status"], {}),
            (["log"], {"TERM": "dumb"}),
            (["log"], {"VSTATE_PAGER": ""}),
            (["log"], {"VSTATE_PAGER": "no-such-program --at-all"}),
            (["log", "nothing"], {}),  # an error is shown at once, without an empty screen before it
            (["--no-pager", "log"], {}),
            (["log"], {"VSTATE_PAGER": "cat"}),
            (["log"], {"VSTATE_PAGER": "a quote that ' does not end"}),
            (["diff", "main", "main"], {}),  # nothing to show
        ],
    ),
)
def test_what_is_not_paged(args: list[str], more: dict[str, Any], pager: str, trip: Trip, tmp_path: Path):
    screen = run_in_terminal("--store", str(trip.path), *args, cwd=tmp_path, **({"PAGER": pager} | more))
    assert "paged: " not in screen.text
    assert not (tmp_path / "started").exists()
    assert ("error: " in COLOR.sub("", screen.text)) == ("nothing" in args)


def test_a_pipe_is_not_paged(pager: str, trip: Trip, tmp_path: Path):
    assert b"paged" not in run("--store", str(trip.path), "log", cwd=tmp_path, PAGER=pager).stdout


@pytest.mark.parametrize("pager", first(2, ["head -n 2", "sh -c 'exec <&-; sleep 0.1'", "true"]))
def test_leaving_the_pager_early_is_no_error(pager: str, big_store: Path, tmp_path: Path):
    screen = run_in_terminal("--store", str(big_store), "get", "main:", cwd=tmp_path, PAGER=pager)
    assert screen.code == 0
    assert len(screen.lines) <= 2
    assert "error" not in screen.text


# The width


@pytest.mark.parametrize("columns", first(2, [47, 200, 30]))
def test_lists_keep_to_the_width(columns: int, trip: Trip, tmp_path: Path):
    for command in ("status", "log --oneline"):
        screen = run_in_terminal(
            "--store", str(trip.path), *command.split(), cwd=tmp_path, columns=columns, PAGER="cat"
        )
        rows = [
            line
            for line in COLOR.sub("", "\n".join(screen.lines)).split("\n")
            if line[:2] in ("* ", "  ") or command != "status"
        ]
        assert rows
        assert max(map(len, rows)) <= columns
        assert any(row.endswith("…") for row in rows) == (columns < 100)


def test_values_are_laid_out_for_the_width(trip: Trip, tmp_path: Path):
    wide, narrow = (
        run_in_terminal("--store", str(trip.path), "get", "main~2:messages", cwd=tmp_path, columns=columns, PAGER="cat")
        for columns in (200, 40)
    )
    assert len(wide.lines) == 1
    assert len(narrow.lines) > 4


# The progress bar


def test_an_import_shows_its_progress_and_leaves_none_of_it(tmp_path: Path):
    file = tmp_path / "chat.jsonl"
    file.write_text(
        "".join(json.dumps([{"role": "user", "content": f"{n} {m}"} for m in range(20)]) + "\n" for n in range(20))
    )
    screen = run_in_terminal("--store", "store", "import", "chat.jsonl", cwd=tmp_path)
    assert screen.code == 0
    shown = COLOR.sub("", screen.text)
    assert re.search(r"importing [━╸╺ ]+ +100% [\d,]+ commits", shown)
    assert "imported 400 commits onto 20 branches" in shown
    assert "\x1b[2K" in screen.text.partition("imported ")[0].rpartition("commits")[2]  # the bar's line was erased
    piped = run("--store", "piped", "import", "chat.jsonl", cwd=tmp_path)
    assert piped.stdout == b""
    assert piped.stderr.decode().splitlines()[0].startswith("imported 400 commits onto 20 branches")
    assert b"\x1b" not in piped.stderr


def test_bars_are_ascii_if_the_terminal_does_not_take_utf8(trip: Trip, tmp_path: Path):
    stats = run("--store", str(trip.path), "stats", cwd=tmp_path, PYTHONIOENCODING="ascii").stdout.decode("ascii")
    assert re.search(r"  #+ ", stats)
    assert "\\u" not in stats
    narrow = run_in_terminal("--store", str(trip.path), "status", cwd=tmp_path, columns=40, PYTHONIOENCODING="ascii")
    assert any(line.endswith("...") for line in narrow.lines)
    assert "\\u" not in narrow.text
    file = tmp_path / "chat.jsonl"
    file.write_text(
        "".join(json.dumps([{"role": "user", "content": f"{n} {m}"} for m in range(20)]) + "\n" for n in range(20))
    )
    screen = run_in_terminal("--store", "store", "import", "chat.jsonl", cwd=tmp_path, PYTHONIOENCODING="ascii")
    assert "importing" in screen.text
    assert screen.text.isascii()
    assert "\\u" not in screen.text


# A comparison that finds much


def test_a_terminal_is_shown_the_first_changes_and_a_pipe_all(vstate: Vstate, tmp_path: Path):
    store = tmp_path / "store"
    with Versioned(Disk(store)) as state:
        for by in (0, 1):
            state["n"] = {f"k{number:04}": [number + by, "x" * (number % 7)] for number in range(1_200)}
            state.commit()
    asked = ["--store", str(store), "--no-pager"]
    for command in ("diff", "show"):
        screen = COLOR.sub("", run_in_terminal(*asked, command, "--full", cwd=tmp_path).text)
        assert screen.count("~ n.k") == 1_000
        assert "… and more changes" in screen
        assert "-n COUNT shows more of them" in screen
        piped = vstate(*asked, command, "--full").stdout
        assert piped.count("~ n.k") == 1_200
        assert "more changes" not in piped
    brief = vstate(*asked, "diff", "-n", "20").stdout
    assert brief.startswith(" of the first 20 changes:\n")
    assert brief.endswith("more changes\n")
    assert len(vstate(*asked, "diff", "--json", "-n", "7").stdout.splitlines()) == 7
    assert (
        len(COLOR.sub("", run_in_terminal(*asked, "diff", "--full", "-n", "1300", cwd=tmp_path).text).split("~ n.k"))
        == 1_201
    )
    assert "1,200 changed" in run_in_terminal(*asked, "diff", "--stat", cwd=tmp_path).text
    assert vstate(*asked, "diff", "--stat", "-n", "7").code == 2
