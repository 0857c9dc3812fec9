"""The program as the shell sees it: exit codes, pipes that close, streams that are not there, what it imports."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from tests.support.examples import Trip
from tests.support.long_runs import first
from tests.support.terminal import COMMAND, ROOT, complete, environment, run
from versioned_state import Disk, Versioned
from versioned_state.cli.commands import catalog


def bash(script: str, *, cwd: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """Run a script in which ``vstate`` is the program."""
    line = f'vstate() {{ {shlex.join(COMMAND)} "$@"; }}\n{script}'
    return subprocess.run(
        ["bash", "-c", line], cwd=cwd, env=environment(**more), capture_output=True, text=True, timeout=60
    )


@pytest.mark.parametrize(
    ("args", "code"),
    first(
        5,
        [
            (["log"], 0),
            ([], 0),
            (["diff", "--exit-code", "main~1", "main"], 1),
            (["log", "nothing"], 1),
            (["get"], 2),
            (["--version"], 0),
            (["log", "--help"], 0),
            (["diff", "--exit-code", "main", "main"], 0),
            (["get", "messages["], 1),
            (["log", "--nothing"], 2),
            (["nothing"], 2),
        ],
    ),
)
def test_exit_codes(args: list[str], code: int, trip: Trip, tmp_path: Path):
    done = run(*args, cwd=tmp_path, VSTATE_STORE=str(trip.path))
    assert done.returncode == code
    assert bool(done.stderr) == (b"error: " in done.stderr) == (code != 0 and "--exit-code" not in args)
    assert bool(done.stdout) == (not done.stderr and args[-2:] != ["main", "main"])


def test_the_version_is_that_of_the_package(tmp_path: Path):
    assert run("--version", cwd=tmp_path).stdout.startswith(b"vstate ")


@pytest.mark.parametrize("command", first(3, ["get main:", "log", "get text --raw", "export", "get main: --json"]))
def test_a_pipe_that_closes_is_no_error(command: str, big_store: Path, tmp_path: Path):
    done = bash(
        f"vstate {command} | head -c 10 > head; echo ${{PIPESTATUS[@]}}", cwd=tmp_path, VSTATE_STORE=str(big_store)
    )
    assert done.stderr == ""
    assert done.stdout == "0 0\n"
    assert (tmp_path / "head").stat().st_size == 10


@pytest.mark.parametrize("command", first(2, ["get main:", "log", "export", "get text --raw"]))
def test_a_full_disk_is_one_line(command: str, big_store: Path, tmp_path: Path):
    done = bash(f"vstate {command} > /dev/full", cwd=tmp_path, VSTATE_STORE=str(big_store))
    assert done.stderr == "error: No space left on device\n"
    assert done.returncode == 1


def test_streams_may_be_closed(trip: Trip, tmp_path: Path):
    assert bash("vstate log >&-", cwd=tmp_path, VSTATE_STORE=str(trip.path)).returncode == 0
    assert bash("vstate log nothing 2>&-", cwd=tmp_path, VSTATE_STORE=str(trip.path)).returncode == 1


@pytest.mark.parametrize("encoding", first(1, ["ascii", "latin-1", "utf-8"]))
def test_a_terminal_that_knows_few_characters(encoding: str, trip: Trip, tmp_path: Path):
    more = {"VSTATE_STORE": str(trip.path), "PYTHONIOENCODING": encoding, "LANG": "C"}
    name = {"ascii": "Bruna Magalh\\xe3es", "latin-1": "Bruna Magalhães", "utf-8": "Bruna Magalhães"}[encoding]
    assert name in run("log", cwd=tmp_path, **more).stdout.decode(encoding)
    *_, commit = [
        json.loads(line) for line in run("log", "--json", "-n", "3", cwd=tmp_path, **more).stdout.splitlines()
    ]
    assert commit["author"] == "Bruna Magalhães"
    assert run("log", "∅", cwd=tmp_path, **more).returncode == 1


def test_arguments_are_utf_8_in_any_locale(own_trip: Trip, tmp_path: Path):
    more = {"VSTATE_STORE": str(own_trip.path), "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    assert run("set", "größe", '"ü∅"', "--author=Zoë", "-m", "für später", cwd=tmp_path, **more).stderr == b""
    with Versioned(Disk(own_trip.path)) as state:
        assert (state.head.author, state.head.message, state["größe"]) == ("Zoë", "für später", "ü∅")
    assert run("get", "HEAD:größe", cwd=tmp_path, **more).stdout == b"\\xfc\\u2205\n"
    result = run("--store", str(own_trip.path), "set", "k", '"\udcff"', cwd=tmp_path)
    assert (result.returncode, result.stderr[:6]) == (2, b"error:")


def test_an_unexpected_error_is_one_line_unless_the_traceback_is_asked_for(trip: Trip, tmp_path: Path):
    (tmp_path / "sitecustomize.py").write_text(
        "from versioned_state.cli.render import text\n"
        "def broken(*_):\n    raise RuntimeError('broken\\x1b[2J')\ntext.iter_refs = broken\n"
    )
    more = {"VSTATE_STORE": str(trip.path), "PYTHONPATH": f"{tmp_path}:{ROOT}"}
    done = run("log", cwd=tmp_path, **more)
    assert done.stderr.decode().splitlines() == [
        "error: RuntimeError: broken\\x1b[2J",
        "hint: this should not happen; vstate --debug shows where it did",
    ]
    assert done.returncode == 1
    for args in (["--debug", "log"], ["log", "--debug"]):
        assert b"Traceback" in run(*args, cwd=tmp_path, **more).stderr


def loaded_by(*args: str, cwd: Path, **more: str) -> set[str]:
    """The modules that a command line has loaded when it ends."""
    script = (
        "import sys\nfrom versioned_state.cli.main import vstate\n"
        "try:\n    vstate.main(sys.argv[1:])\nfinally:\n    print(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *args], env=environment(**more), cwd=cwd, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines()[-1].split())


def test_looking_does_not_load_what_it_does_not_need(trip: Trip, tmp_path: Path):
    """A log starts in the time of Python and of reading: no numpy, no other command, no live state."""
    loaded = loaded_by("--store", str(trip.path), "log", "-n", "1", "--oneline", cwd=tmp_path)
    assert not {name.partition(".")[0] for name in loaded} & {"numpy", "asyncio"}
    unused = ("state", "cli.commands.change", "repository.inspect", "repository.maintenance", "repository.shown")
    assert not {name for name in loaded if name.startswith(tuple(f"versioned_state.{each}" for each in unused))}
    assert "cloudpickle" not in loaded


@pytest.mark.parametrize("args", [["--help"], [], ["--version"], ["completion", "bash"]])
def test_help_loads_no_engine(args: list[str], tmp_path: Path):
    loaded = {
        name.removeprefix("versioned_state.")
        for name in loaded_by(*args, cwd=tmp_path)
        if name.startswith("versioned_state.")
    }
    assert {name.partition(".")[0] for name in loaded} <= {"cli", "errors", "lazy", "objects", "records", "repository"}
    # for --version
    assert {name for name in loaded if name.startswith("repository")} <= {"repository", "repository.format"}
    assert len([name for name in loaded if name.startswith("cli.commands.")]) <= 3


def test_every_command_of_the_help_is_there():
    for _, rows in catalog.sections():
        for name, summary in rows:
            command = catalog.load(name)
            assert command is not None
            assert command.name == name
            assert summary.endswith(".")
            assert command.help
    assert not set(catalog.ELSEWHERE) & set(catalog.names())
    assert catalog.load("nothing") is None


# Completion


def test_the_shell_completes_commands_options_branches_and_tags(trip: Trip, tmp_path: Path):
    assert complete("vstate stat") == ["status", "stats"]
    assert "--oneline" in complete("vstate log --on")
    assert complete(f"vstate --store {trip.path} log ") == ["idea", "main", "merged", "v1"]
    assert complete(f"vstate --store {trip.path} diff main v") == ["v1"]
    assert complete(f"vstate --store {trip.path} log main..m") == ["main..main", "main..merged"]
    assert complete("vstate show m", VSTATE_STORE=str(trip.path)) == ["main", "merged"]
    assert complete("vstate --store /nowhere log m") == []


def test_the_shell_completes_places_paths_and_folders(trip: Trip, tmp_path: Path):
    more = {"VSTATE_STORE": str(trip.path)}
    assert complete("vstate get bud", **more) == ["budget"]
    assert complete("vstate get budget.l", **more) == ["budget.limit"]
    assert complete("vstate get m", **more) == ["messages", "main:", "merged:"]
    assert complete("vstate show main~2:p", **more) == ["main~2:prefs"]
    assert complete("vstate diff main~3:budget.s", **more) == ["main~3:budget.spent"]
    assert complete("vstate log --path no", **more) == ["notes"]
    assert complete("vstate set prefs.", **more) == ["prefs.people"]
    assert complete("vstate blame messages[", **more) == [f"messages[{index}]" for index in range(4)]
    assert complete("vstate get nothing:x", **more) == []
    assert complete("vstate --store /no") == ["dir,/no"]
    assert complete("vstate --key-file /no") == ["file,/no"]


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
@pytest.mark.parametrize(
    ("typed", "offered"),
    first(
        3,
        [
            ("get main:bud", ["budget"]),
            ("get @wor", ["worker.job"]),
            ("diff main..me", ["main..merged"]),
            ("log ma", ["main"]),
            ("get main:budget.", ["budget.limit", "budget.spent"]),
            ("show main~1:", ["budget", "messages", "notes", "prefs", '["user/1"]']),
        ],
    ),
)
def test_bash_completes_words_that_it_splits(typed: str, offered: list[str], trip: Trip, tmp_path: Path):
    """As readline does it: the words are split at COMP_WORDBREAKS, and a reply replaces the last one."""
    line = f"vstate {typed}"
    words = " ".join(shlex.quote(word) for word in re.findall(r"[:=@]|[^\s:=@]+", line))
    script = (
        f'eval "$(vstate completion bash)"; compopt() {{ :; }}; COMP_LINE={shlex.quote(line)}; COMP_POINT={len(line)}\n'
        f"COMP_WORDS=({words}); COMP_CWORD=$(( ${{#COMP_WORDS[@]}} - 1 )); _vstate_completion {tmp_path}/vstate\n"
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    (tmp_path / "vstate").write_text(f'#!/bin/sh\nexec {shlex.join(COMMAND)} "$@"\n')
    (tmp_path / "vstate").chmod(0o755)
    done = bash(script, cwd=tmp_path, VSTATE_STORE=str(trip.path))
    assert (done.stdout.splitlines(), done.stderr) == (offered, "")


def test_the_shell_is_not_given_what_drives_the_terminal(hostile: Path, tmp_path: Path):
    assert complete(f"vstate --store {hostile} switch ") == ["main"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_completion_script_names_the_program(shell: str, tmp_path: Path):
    done = run("completion", shell, cwd=tmp_path)
    assert done.returncode == 0
    assert b"_VSTATE_COMPLETE" in done.stdout


def test_what_one_process_prints_another_reads(tmp_path: Path):
    value = {
        "price": Decimal("2.50"),
        "at": datetime(2026, 1, 2, tzinfo=ZoneInfo("Europe/Berlin")),
        1: {(b"\xff", "\ud800")},
    }
    with Versioned(Disk(tmp_path / "store")) as state:
        state["a"] = value
        state.commit()
    done = bash(
        "vstate get a --json | vstate set b - && vstate diff main~1 main --json | wc -l",
        cwd=tmp_path,
        VSTATE_STORE="store",
    )
    assert (done.stdout.splitlines()[-1].strip(), done.stderr) == ("1", "")
    with Versioned(Disk(tmp_path / "store")) as state:
        assert repr(state["b"]) == repr(value)
