"""``vstate import --from``: the command's options, its output, errors and interrupts.

The imports are tested in tests/integrations.
"""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.command_line import Vstate, assert_error
from tests.support.terminal import COMMAND
from tests.support.waiting import eventually
from versioned_state import Disk, Repository

TABLES = """
    CREATE TABLE agent_sessions (session_id);
    CREATE TABLE agent_messages (id INTEGER PRIMARY KEY, session_id, message_data, created_at);
"""


def sessions(path: Path, **counts: int) -> Path:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript(TABLES)
        for name, count in counts.items():
            rows = [
                (name, json.dumps({"role": "user", "content": f"message {number}"}), "2026-01-01")
                for number in range(count)
            ]
            connection.executemany(
                "INSERT INTO agent_messages (session_id, message_data, created_at) VALUES (?, ?, ?)", rows
            )
    return path


@pytest.fixture
def source(tmp_path: Path) -> str:
    return str(sessions(tmp_path / "sessions.db", anna=3, bo=2))


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "store"


def messages(place: Path, branch: str) -> int:
    with Disk(place) as store:
        return len(Repository(store).snapshot(branch)["messages"])


def test_it_says_what_it_imported_and_where_to_look(vstate: Vstate, source: str, place: Path):
    result = vstate("import", "--from", "openai-agents", source, store=place)
    assert result.code == 0
    assert result.stdout == ""
    assert "imported 5 commits of 2 threads" in result.stderr
    assert "compared with the source: 2 threads, the same" in result.stderr
    assert "log openai-agents/anna" in result.stderr
    again = vstate("import", "--from", "openai-agents", source, store=place)
    assert "imported 0 commits of 2 threads" in again.stderr
    assert "(5 were there already)" in again.stderr


def test_json_has_each_thread(vstate: Vstate, source: str, place: Path):
    result = vstate("import", "--from", "openai-agents", source, "--json", store=place)
    assert json.loads(result.stdout) == {
        "dry_run": False,
        "commits": 5,
        "threads": [
            {"thread": "session 'anna'", "branch": "openai-agents/anna", "commits": 3, "verified": True},
            {"thread": "session 'bo'", "branch": "openai-agents/bo", "commits": 2, "verified": True},
        ],
    }


def test_a_dry_run_makes_no_store_and_counts_what_is_missing(vstate: Vstate, source: str, place: Path, tmp_path: Path):
    result = vstate("import", "--from", "openai-agents", source, "--dry-run", store=place)
    assert result.stdout.splitlines() == [
        "would import 3 of session 'anna' onto openai-agents/anna",
        "would import 2 of session 'bo' onto openai-agents/bo",
    ]
    assert not place.exists()
    vstate("import", "--from", "openai-agents", str(sessions(tmp_path / "part.db", anna=1)), store=place)
    result = vstate("import", "--from", "openai-agents", source, "--dry-run", "--json", store=place)
    assert [each["commits"] for each in json.loads(result.stdout)["threads"]] == [2, 2]
    assert messages(place, "openai-agents/anna") == 1


def test_several_files_become_one_store(vstate: Vstate, source: str, place: Path, tmp_path: Path):
    other = str(sessions(tmp_path / "other.db", carl=4))
    result = vstate("import", "--from", "openai-agents", source, other, store=place)
    assert "imported 9 commits of 3 threads" in result.stderr
    assert messages(place, "openai-agents/carl") == 4


def damage(source: str) -> None:
    with closing(sqlite3.connect(source)) as connection, connection:
        connection.execute("UPDATE agent_messages SET message_data = '{' WHERE id = 2")


def test_a_damaged_row_is_an_error_that_names_it(vstate: Vstate, source: str, place: Path):
    damage(source)
    result = vstate("import", "--from", "openai-agents", source, store=place)
    assert result.code == 1
    assert "message 2 of session 'anna' is damaged" in result.stderr
    assert "--keep-going" in result.stderr
    assert "nothing was imported" in result.stderr


def test_the_others_are_imported_with_keep_going(vstate: Vstate, source: str, place: Path):
    damage(source)
    result = vstate("import", "--from", "openai-agents", source, "--keep-going", "--json", store=place)
    assert result.code == 1
    assert "message 2 of session 'anna' is damaged" in result.stderr
    assert "1 thread could not be imported" in result.stderr
    anna, bo = json.loads(result.stdout)["threads"]
    assert "damaged" in anna["error"]
    assert bo == {"thread": "session 'bo'", "branch": "openai-agents/bo", "commits": 2, "verified": True}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--from", "crewai", "FILE"], "'crewai' is not one of"),
        (["--from", "openai-agents", "missing.db"], "missing.db: No such file"),
        (["--from", "openai-agents", "."], "Is a directory"),
        (["--from", "langgraph", "FILE"], "--from openai-agents imports it"),
        (["--from", "openai-agents", "FILE", "--per-item"], "--per-item is not for --from"),
        (["--from", "openai-agents", "FILE", "--branch", "main"], "--branch is not for --from"),
        (["--from", "openai-agents", "FILE", "--user", "anna"], "--user is for --from agentscope"),
        (["FILE", "--dry-run"], "--dry-run is for --from"),
        (["FILE", "--allow-pickle"], "--allow-pickle is for --from"),
    ],
)
def test_what_cannot_be_is_refused_before_a_store_is_made(
    vstate: Vstate, source: str, place: Path, arguments: list[str], words: str
):
    result = vstate("import", *[source if each == "FILE" else each for each in arguments], store=place)
    assert_error(result, words, code=result.code)
    assert result.code in (1, 2)
    assert not place.exists()


def test_a_session_of_agentscope_of_a_user(vstate: Vstate, place: Path, tmp_path: Path):
    (tmp_path / "sessions").mkdir()
    (tmp_path / "sessions" / "anna_trip.json").write_text('{"agent": {"memory": {"content": ["hi"]}}}')
    vstate("import", "--from", "agentscope", str(tmp_path / "sessions"), "--user", "anna", store=place)
    assert vstate("get", "anna/trip:agent.memory.content[0]", store=place).stdout == "hi\n"


def test_an_import_from_langgraph_without_it_says_how_to_install_it(
    vstate: Vstate, source: str, place: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, "versioned_state.integrations.importing.langgraph", None)
    result = vstate("import", "--from", "langgraph", source, store=place)
    assert_error(result, "an import from LangGraph needs a package that is not installed", "versioned-state[langgraph]")
    assert not place.exists()


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
def test_an_import_that_is_ended_keeps_what_there_is_and_the_next_one_goes_on(
    vstate: Vstate, place: Path, tmp_path: Path, end: signal.Signals
):
    source = str(sessions(tmp_path / "many.db", **{f"s{number:03}": 20 for number in range(100)}))
    command = [*COMMAND, "--store", str(place), "import", "--from", "openai-agents", source]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert eventually(lambda: _has_begun(place))
    process.send_signal(end)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == (130 if end == signal.SIGINT else -end), errors
    assert ("imported so far, and kept" in errors) == (end == signal.SIGINT)
    result = vstate("import", "--from", "openai-agents", source, "--json", store=place)
    report = json.loads(result.stdout)
    assert 0 < report["commits"] < 2000
    assert all(each["verified"] for each in report["threads"])


def test_what_is_nested_too_deeply_is_an_error_of_its_session(place: Path, tmp_path: Path):
    source = sessions(tmp_path / "deep.db", anna=1, bo=1, carl=1)
    with closing(sqlite3.connect(source)) as connection, connection:
        connection.execute("UPDATE agent_messages SET message_data = ? WHERE session_id = 'anna'", ["[" * 100_000])
        connection.execute(
            "UPDATE agent_messages SET message_data = ? WHERE session_id = 'bo'", ["[" * 900 + "]" * 900]
        )
    command = [*COMMAND, "--store", str(place), "import", "--from", "openai-agents", str(source)]
    result = subprocess.run([*command, "--keep-going"], capture_output=True, text=True, check=False, timeout=60)
    assert result.returncode == 1
    assert "message 1 of session 'anna' is damaged: it is not JSON" in result.stderr
    assert "of session 'bo' is damaged" in result.stderr  # where depends on Python's limit
    assert "imported 1 commit of 3 threads" in result.stderr
    assert messages(place, "openai-agents/carl") == 1


def _has_begun(place: Path) -> bool:
    return place.exists() and any(each.stat().st_size > 100_000 for each in place.iterdir() if each.is_file())
