"""If the store is missing, foreign, newer or damaged, a command prints one line and a hint, and changes nothing."""

from __future__ import annotations

import json
import os
import platform
import random
import shutil
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgpack
import pytest
from blake3 import blake3

from tests.support.command_line import Vstate, assert_error
from tests.support.damage import flipped
from tests.support.examples import Trip
from tests.support.terminal import COMMAND
from versioned_state import Disk, Versioned
from versioned_state.values import accelerator

READING = ["log", "show", "diff", "get notes", "keys", "status", "export", "log --json", "status --json"]


# Which store


def test_the_store_is_an_option_before_or_behind_the_command(vstate: Vstate, trip: Trip):
    before = vstate("--store", str(trip.path), "log", "--oneline")
    assert before.stdout
    assert vstate("log", "--store", str(trip.path), "--oneline") == before
    assert vstate("--store", "/nowhere", "log", "--oneline", "--store", str(trip.path)) == before
    assert vstate("--store", f"disk:{trip.path}", "log", "--oneline") == before


def test_the_store_is_in_the_environment_or_here(
    vstate: Vstate, trip: Trip, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    expected = vstate("log", "--oneline", store=trip.path).stdout
    monkeypatch.setenv("VSTATE_STORE", str(trip.path))
    assert vstate("log", "--oneline").stdout == expected
    assert_error(vstate("log", store=tmp_path / "other"), "other")  # the option wins
    monkeypatch.setenv("VSTATE_STORE", "")
    assert_error(vstate("log"), "there is no .vstate in this folder or above it")
    (tmp_path / ".vstate").symlink_to(trip.path)
    assert vstate("log", "--oneline").stdout == expected


def test_a_tilde_is_the_home_folder(vstate: Vstate, trip: Trip, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HOME", str(trip.path.parent))
    assert vstate("--store=~/store", "log", "-n", "1").code == 0


@pytest.mark.parametrize("command", READING)
def test_there_is_no_store(command: str, vstate: Vstate, tmp_path: Path):
    result = vstate(*command.split())
    assert_error(result, "no store was named", "hint: vstate --store PATH")
    assert result.stdout == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", READING)
def test_a_missing_store_is_not_made(command: str, vstate: Vstate, tmp_path: Path):
    assert_error(
        vstate(*command.split(), store=tmp_path / "none"),
        f"there is no store at {tmp_path}/none",
        "hint: vstate --store PATH",
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("url", "word"),
    [("redis:host", "redis://host:6379"), ("ftp://x", "ftp"), ("memory:", "memory"), ("disk://x", "disk:PATH")],
)
def test_a_url_that_cannot_be_meant(url: str, word: str, vstate: Vstate):
    assert_error(vstate("--store", url, "log"), word, "hint: ")
    assert_error(vstate("--store", url, "import", "-", stdin=b'[{"role": "user"}]'), word, "hint: ")


# A folder that is not a store


def test_a_folder_of_other_files(vstate: Vstate, tmp_path: Path):
    (tmp_path / "file").write_text("mine")
    for command in READING:
        assert_error(vstate(*command.split(), store=tmp_path), "is not a store", "hint: ")
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


def test_a_file(vstate: Vstate, tmp_path: Path):
    file = tmp_path / "file"
    file.write_text("mine")
    assert_error(vstate("log", store=file), "not a directory", "hint: ")
    assert file.read_text() == "mine"


def test_a_database_of_another_program(vstate: Vstate, tmp_path: Path):
    folder = tmp_path / "other"
    folder.mkdir()
    with sqlite3.connect(folder / "store.sqlite3") as other:
        other.execute("CREATE TABLE t(x)")
    other.close()
    before = (folder / "store.sqlite3").read_bytes()
    assert_error(vstate("log", store=folder), "another program", "hint: ")
    assert (folder / "store.sqlite3").read_bytes() == before


def test_a_store_without_commits(vstate: Vstate, tmp_path: Path):
    Versioned(Disk(tmp_path / "empty")).close()
    assert_error(vstate("log", store=tmp_path / "empty"), "there are no commits yet")
    assert vstate("log", "--all", store=tmp_path / "empty").stdout == ""
    assert "0 branches, 0 tags" in vstate("status", store=tmp_path / "empty").stdout


def test_a_store_without_main_is_asked_for_a_branch(vstate: Vstate, tmp_path: Path):
    for name in ("one", "two"):
        with Versioned(Disk(tmp_path / "s"), branch=name) as state:
            state["x"] = name
            state.commit()
    assert_error(
        vstate("log", store=tmp_path / "s"),
        "no branch 'main'",
        "hint: name a branch, such as one; vstate status lists them, vstate switch chooses one",
    )


# What is newer, or damaged


@contextmanager
def tables(path: Path) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(path / "store.sqlite3")
    with connection:
        yield connection
    connection.close()


def newer_file(path: Path) -> None:
    with tables(path) as connection:
        connection.execute("PRAGMA user_version = 99")


def newer_format(path: Path) -> None:
    body = b"versioned-state\n" + msgpack.packb(99)
    with tables(path) as connection:
        connection.execute(
            "UPDATE entries SET value = ? WHERE key = ?", (body + blake3(body).digest(length=8), b"format")
        )


def changed_objects(path: Path) -> None:
    with tables(path) as connection:
        rows = connection.execute("SELECT key, value FROM objects").fetchall()
        connection.executemany(
            "UPDATE objects SET value = ? WHERE key = ?", [(flipped(value), key) for key, value in rows]
        )


def lost_objects(path: Path) -> None:
    with tables(path) as connection:
        connection.execute("DELETE FROM objects")


def changed_ref(path: Path) -> None:
    with tables(path) as connection:
        (value,) = connection.execute("SELECT value FROM entries WHERE key = ?", (b"ref/branch/main",)).fetchone()
        connection.execute("UPDATE entries SET value = ? WHERE key = ?", (value + b"\0", b"ref/branch/main"))


def lost_ref(path: Path) -> None:
    with tables(path) as connection:
        connection.execute("DELETE FROM entries WHERE key = ?", (b"ref/branch/main",))


def lost_format(path: Path) -> None:
    with tables(path) as connection:
        connection.execute("DELETE FROM entries WHERE key = ?", (b"format",))


def strange_value(path: Path) -> None:
    with tables(path) as connection:
        connection.execute("UPDATE entries SET value = 17 WHERE key = ?", (b"ref/branch/main",))


def overwritten(path: Path) -> None:
    file = path / "store.sqlite3"
    size = file.stat().st_size
    file.write_bytes(file.read_bytes()[:4096] + random.Random(1).randbytes(size - 4096))


def no_database(path: Path) -> None:
    (path / "store.sqlite3").write_bytes(b"not a database " * 1000)


def emptied(path: Path) -> None:
    (path / "store.sqlite3").write_bytes(b"")


@pytest.mark.parametrize(
    ("damage", "word"),
    [
        (newer_file, "upgrade versioned-state"),
        (newer_format, "upgrade versioned-state"),
        (changed_objects, "corrupt"),
        (lost_objects, "missing"),
        (changed_ref, "ref 'main' is corrupt"),
        (lost_ref, "ref 'main' is corrupt"),
        (lost_format, "no format record"),
        (strange_value, "damaged"),
        (overwritten, "damaged"),
        (no_database, "not a store"),
        (emptied, "is empty"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
@pytest.mark.parametrize("command", ["log", "log --json", "show", "diff", "get notes", "keys", "export"])
def test_a_damaged_store_is_one_line(
    command: str, damage: Callable[[Path], None], word: str, vstate: Vstate, own_trip: Trip
):
    damage(own_trip.path)
    before = {file.name: file.read_bytes() for file in own_trip.path.iterdir()}
    assert_error(vstate(*command.split(), store=own_trip.path), word)
    assert {file.name: file.read_bytes() for file in own_trip.path.iterdir()} == before


def test_status_shows_what_can_be_read_beside_what_cannot(vstate: Vstate, own_trip: Trip):
    idea = bytes.fromhex(own_trip.commits[3].id)
    with tables(own_trip.path) as connection:
        connection.execute("DELETE FROM objects WHERE key = ?", (idea,))
    shown = vstate("status", store=own_trip.path)
    assert shown.code == 0
    assert f"idea    damaged: object {own_trip.commits[3].id} is missing" in shown.stdout
    assert own_trip.commits[4].short in shown.stdout
    assert '"error": "object ' in vstate("status", "--json", store=own_trip.path).stdout


def test_status_says_verbosely_whether_the_accelerator_is_active(vstate: Vstate, own_trip: Trip):
    shown = vstate("status", "-v", store=own_trip.path)
    assert f"\npython       {platform.python_version()}\naccelerator  {accelerator.status}\n" in shown.stdout
    assert "accelerator" not in vstate("status", store=own_trip.path).stdout
    facts = json.loads(vstate("status", "--verbose", "--json", store=own_trip.path).stdout)
    assert facts["accelerator"] == accelerator.status
    switched_off = subprocess.run(
        [*COMMAND, "--store", str(own_trip.path), "status", "-v"],
        env={**os.environ, "VERSIONED_STATE_FAST": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "accelerator  not " in switched_off.stdout


# Where it lies


def test_a_store_that_cannot_be_written_is_read_and_left_alone(vstate: Vstate, own_trip: Trip):
    before = {file.name: (file.stat().st_mtime_ns, file.read_bytes()) for file in own_trip.path.iterdir()}
    folder = own_trip.path.stat().st_mtime_ns  # no file was made there either, not even for a moment
    own_trip.path.chmod(0o500)
    (own_trip.path / "store.sqlite3").chmod(0o400)
    try:
        for command in READING:
            assert vstate(*command.split(), store=own_trip.path).code == 0
        assert {file.name: (file.stat().st_mtime_ns, file.read_bytes()) for file in own_trip.path.iterdir()} == before
        assert own_trip.path.stat().st_mtime_ns == folder
    finally:
        own_trip.path.chmod(0o700)


def test_a_store_is_read_beside_a_writer(vstate: Vstate, own_trip: Trip):
    with Versioned(Disk(own_trip.path)) as state:
        for count in range(3):
            state["count"] = count
            commit = state.commit(f"count {count}")
            assert commit.short in vstate("log", "-n", "1", store=own_trip.path).stdout
            assert vstate("get", "count", store=own_trip.path).stdout == f"{count}\n"
        assert vstate("status", store=own_trip.path).code == 0


def test_a_copy_of_a_store_in_use_is_read(vstate: Vstate, own_trip: Trip, tmp_path: Path):
    with Versioned(Disk(own_trip.path)) as state:
        state["count"] = 1
        state.commit("written")
        shutil.copytree(own_trip.path, tmp_path / "copy")  # with its log
    assert "written" in vstate("log", "-n", "1", store=tmp_path / "copy").stdout
