"""Imports of sessions: of the OpenAI Agents SDK, of Google's ADK, and of AgentScope.

Each is read back through the adapter.
"""

from __future__ import annotations

import json
import pickle
import random
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from agents import SQLiteSession
from agents.extensions.memory import AdvancedSQLiteSession

from tests.support.importing import import_into, stop_after
from versioned_state import Memory, Repository, Versioned
from versioned_state.agents.modules import StateModule, VersionedSession as ModulesSession
from versioned_state.errors import InvalidArgumentError, StateError
from versioned_state.integrations.adk_branches import branch_of
from versioned_state.integrations.importing.run import open_importer
from versioned_state.integrations.importing.source import (
    DamagedRowError,
    ImportMismatchError,
    PickledRowError,
    SourceFormatError,
    ThreadExistsError,
)
from versioned_state.integrations.openai_agents import VersionedSession
from versioned_state.storage import KVStore


def imported(framework: str, source: Path, store: KVStore, *, told: Any = None, **options: Any) -> int:
    report = import_into(store, framework, source, told=told, **options)
    assert all(each.verified for each in report.threads)
    return report.written


def log(store: KVStore, branch: str) -> list[str]:
    return [commit.message for commit in Repository(store).log(branch)][::-1]


@pytest.fixture
def store() -> Memory:
    return Memory()


# The OpenAI Agents SDK


def random_items(seed: int) -> list[Any]:
    chance = random.Random(seed)
    kinds = [
        lambda at: {
            "role": "user",
            "content": f"question {at} \ud83d\ude00".encode("utf-16", "surrogatepass").decode("utf-16"),
        },
        lambda at: {
            "role": "assistant",
            "content": [{"type": "output_text", "text": f"answer {at}", "logprobs": [0.5, None, True]}],
        },
        lambda at: {"type": "function_call", "name": "find", "arguments": "{}", "call_id": str(at)},
    ]
    return [chance.choice(kinds)(at) for at in range(chance.randrange(1, 30))]


async def test_a_session_has_the_items_that_the_sdk_reads(tmp_path, store):
    names = ["user-123", "of/Anna %", "ü" * 200]
    for seed, name in enumerate(names):
        with closing(SQLiteSession(name, tmp_path / "oa.db")) as session:
            for item in random_items(seed):
                await session.add_items([item])
            await session.pop_item()
    written = imported("openai-agents", tmp_path / "oa.db", store)
    for name in names:
        with closing(SQLiteSession(name, tmp_path / "oa.db")) as session:
            wanted = await session.get_items()
        assert await VersionedSession(store, name).get_items() == wanted
        assert len(log(store, VersionedSession(store, name).branch())) == len(wanted)
        written -= len(wanted)
    assert written == 0
    assert imported("openai-agents", tmp_path / "oa.db", store) == 0


async def test_branches_and_usage_of_an_advanced_session_come_along(tmp_path, store):
    session = AdvancedSQLiteSession(session_id="s", db_path=tmp_path / "oa.db", create_tables=True)
    for turn in range(3):
        await session.add_items([{"role": "user", "content": f"q{turn}"}, {"role": "assistant", "content": f"a{turn}"}])
    with closing(sqlite3.connect(tmp_path / "oa.db")) as connection, connection:
        connection.execute(
            "INSERT INTO turn_usage (session_id, branch_id, user_turn_number, requests, input_tokens, output_tokens,"
            " total_tokens, input_tokens_details) VALUES ('s', 'main', 2, 1, 10, 5, 15, '{\"cached_tokens\": 3}')"
        )
    await session.create_branch_from_turn(2, "other")
    await session.add_items([{"role": "user", "content": "instead"}])
    imported("openai-agents", tmp_path / "oa.db", store)
    mine = VersionedSession(store, "s")
    assert await mine.get_items() == await session.get_items(branch_id="main")
    assert await mine.get_items(branch_id="other") == await session.get_items(branch_id="other")
    assert [each["branch_id"] for each in await mine.list_branches()] == ["main", "other"]
    assert await mine.get_turn_usage(2, "main") == await session.get_turn_usage(2, "main")
    assert await mine.get_turn_usage(1, "main") == {}
    session.close()


async def test_an_interrupted_import_goes_on(tmp_path, store):
    items = [{"role": "user", "content": str(number)} for number in range(20)]
    for name in "ab":
        with closing(SQLiteSession(name, tmp_path / "oa.db")) as session:
            await session.add_items(items)
    for stop in (3, 25):
        with pytest.raises(KeyboardInterrupt):
            imported("openai-agents", tmp_path / "oa.db", store, told=stop_after(stop))
    assert len(log(store, "openai-agents/a")) == 20
    assert len(log(store, "openai-agents/b")) == 5
    assert imported("openai-agents", tmp_path / "oa.db", store) == 15
    assert await VersionedSession(store, "b").get_items() == items
    with closing(SQLiteSession("b", tmp_path / "oa.db")) as session:
        await session.add_items(items[:2])
    assert imported("openai-agents", tmp_path / "oa.db", store) == 2


async def test_a_session_that_others_have_written_is_refused(tmp_path, store):
    with closing(SQLiteSession("a", tmp_path / "oa.db")) as session:
        await session.add_items([{"role": "user", "content": "1"}, {"role": "user", "content": "2"}])
    await VersionedSession(store, "a").add_items([{"role": "user", "content": "1"}])
    with pytest.raises(ThreadExistsError, match="not of an import"):
        imported("openai-agents", tmp_path / "oa.db", store)
    assert len(log(store, "openai-agents/a")) == 1


async def test_a_session_that_was_changed_at_its_source_is_refused(tmp_path, store):
    with closing(SQLiteSession("a", tmp_path / "oa.db")) as session:
        await session.add_items([{"role": "user", "content": "1"}, {"role": "user", "content": "2"}])
        imported("openai-agents", tmp_path / "oa.db", store)
        await session.pop_item()
        await session.add_items([{"role": "user", "content": "3"}])
    with pytest.raises(ThreadExistsError, match="differ from number 2 on"):
        imported("openai-agents", tmp_path / "oa.db", store)


def make(path: Path, script: str) -> Path:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(script)
    return path


OPENAI = """
    CREATE TABLE agent_sessions (session_id); INSERT INTO agent_sessions VALUES ('a');
    CREATE TABLE agent_messages (id INTEGER PRIMARY KEY, session_id, message_data, created_at);
"""


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("'a', '{', ''", "message 1 of session 'a' is damaged: it is not JSON"),
        ("'a', NULL, ''", "null instead of JSON"),
        ("'a', x'ff', ''", "not text"),
        ("x'00', '{}', ''", "not text"),
    ],
)
def test_a_damaged_row_of_a_session_is_named(tmp_path, store, row, words):
    source = make(tmp_path / "oa.db", OPENAI + f"INSERT INTO agent_messages VALUES (1, {row});")
    with pytest.raises(DamagedRowError, match=words):
        imported("openai-agents", source, store)
    assert list(Repository(store).branches) == []


@pytest.mark.parametrize("framework", ["langgraph", "openai-agents", "adk"])
def test_a_database_of_another_framework_is_refused(tmp_path, framework):
    source = make(tmp_path / "other.db", "CREATE TABLE users (id); CREATE TABLE things (id)")
    with pytest.raises(SourceFormatError, match="has no table") as caught:
        open_importer(framework, str(source))
    assert "things, users" in caught.value.hint
    with pytest.raises(SourceFormatError, match="has no table"):
        open_importer(framework, str(make(tmp_path / "empty.db", "")))


def test_an_unknown_framework_is_refused(tmp_path):
    with pytest.raises(InvalidArgumentError, match="framework"):
        open_importer("crewai", str(tmp_path))


# Google's ADK


V1 = """
    CREATE TABLE adk_internal_metadata (key TEXT PRIMARY KEY, value TEXT);
    INSERT INTO adk_internal_metadata VALUES ('schema_version', '1');
    CREATE TABLE sessions (app_name TEXT, user_id TEXT, id TEXT, state TEXT, create_time DATETIME,
        update_time DATETIME);
    CREATE TABLE events (id TEXT, app_name TEXT, user_id TEXT, session_id TEXT, invocation_id TEXT,
        timestamp DATETIME, event_data TEXT);
    CREATE TABLE app_states (app_name TEXT PRIMARY KEY, state TEXT, update_time DATETIME);
    CREATE TABLE user_states (app_name TEXT, user_id TEXT, state TEXT, update_time DATETIME);
"""
V0 = """
    CREATE TABLE sessions (app_name TEXT, user_id TEXT, id TEXT, state TEXT, create_time DATETIME,
        update_time DATETIME);
    CREATE TABLE events (id TEXT, app_name TEXT, user_id TEXT, session_id TEXT, invocation_id TEXT, author TEXT,
        actions BLOB, long_running_tool_ids_json TEXT, branch TEXT, timestamp DATETIME, content TEXT, partial BOOLEAN,
        error_code TEXT);
"""


def event(number: int, author: str, text: str, delta: dict[str, Any] | None = None) -> dict[str, Any]:
    content = {"parts": [{"text": text}], "role": author}
    actions = {"state_delta": delta or {}, "artifact_delta": {}}
    return {
        "id": f"e{number}",
        "invocation_id": f"i{number}",
        "author": author,
        "timestamp": 1.5 + number,
        "content": content,
        "actions": actions,
    }


EVENTS = [
    event(1, "user", "a room in Rome", {"city": "Rome", "app:seen": 1}),
    event(2, "guide", "which dates?", {"asked": True, "temp:x": 1}),
    event(3, "user", "Monday", {"city": "Roma"}),
]
STATE = {"lang": "en", "city": "Roma", "asked": True}
BEGAN = "1970-01-01 00:00:01.500000"
SESSION = {"app_name": "app", "user_id": "anna", "id": "s/1", "create_time": 1.5}


def adk(path: Path, events: list[dict[str, Any]], state: dict[str, Any] = STATE) -> Path:
    make(path, V1)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("INSERT INTO sessions VALUES ('app', 'anna', 's/1', ?, ?, '')", [json.dumps(state), BEGAN])
        connection.execute("INSERT INTO sessions VALUES ('app', 'anna', 'empty', '{}', NULL, '')")
        connection.execute("INSERT INTO app_states VALUES ('app', '{\"seen\": 1}', '')")
        connection.execute("INSERT INTO user_states VALUES ('app', 'anna', '{\"plan\": \"pro\"}', '')")
        add(connection, events)
    return path


def add(connection: sqlite3.Connection, events: list[dict[str, Any]]) -> None:
    for each in events:
        row = [
            each["id"],
            "app",
            "anna",
            "s/1",
            each["invocation_id"],
            f"2026-01-01 00:00:0{each['timestamp']}",
            json.dumps(each),
        ]
        connection.execute("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?)", row)


def test_a_session_of_the_adk_has_its_events_and_its_state_after_each(tmp_path, store):
    source = adk(tmp_path / "adk.db", EVENTS)
    assert imported("adk", source, store) == 6
    repository = Repository(store)
    branch = "google-adk/app/anna/s%2F1"
    assert branch == branch_of("app", "anna", "s/1")
    others = ["google-adk-app/app", "google-adk-user/app/anna", "google-adk/app/anna/empty"]
    assert sorted(repository.branches) == [*others, branch]
    assert repository.snapshot(branch).copy() == {"events": EVENTS, "session": SESSION, "state": STATE}
    assert log(store, branch) == ["user: a room in Rome", "guide: which dates?", "user: Monday"]
    states = [repository.snapshot(commit)["state"] for commit in repository.log(branch)][::-1]
    assert states == [{"lang": "en", "city": "Rome"}, {"lang": "en", "city": "Rome", "asked": True}, STATE]
    assert repository.snapshot("google-adk-app/app")["state"] == {"seen": 1}
    assert repository.snapshot("google-adk-user/app/anna")["state"] == {"plan": "pro"}
    empty = {**SESSION, "id": "empty", "create_time": 0.0}
    assert repository.snapshot("google-adk/app/anna/empty").copy() == {"session": empty, "state": {}}
    assert imported("adk", source, store) == 0


def test_a_session_of_the_adk_that_has_grown_gets_the_rest(tmp_path, store):
    source = adk(tmp_path / "adk.db", EVENTS[:2], {"lang": "en", "city": "Rome", "asked": True})
    imported("adk", source, store)
    with closing(sqlite3.connect(source)) as connection, connection:
        add(connection, EVENTS[2:])
        connection.execute("UPDATE sessions SET state = ? WHERE id = 's/1'", [json.dumps(STATE)])
        connection.execute("UPDATE app_states SET state = '{\"seen\": 2}'")
    assert imported("adk", source, store) == 2
    repository = Repository(store)
    assert repository.snapshot("google-adk/app/anna/s%2F1").copy() == {
        "events": EVENTS,
        "session": SESSION,
        "state": STATE,
    }
    assert [repository.snapshot(commit)["state"]["seen"] for commit in repository.log("google-adk-app/app")] == [2, 1]


def test_pickled_actions_of_an_old_adk_need_permission(tmp_path, store):
    source = make(tmp_path / "adk.db", V0)
    with closing(sqlite3.connect(source)) as connection, connection:
        connection.execute("INSERT INTO sessions VALUES ('app', 'anna', 's', '{\"a\": 1}', NULL, '')")
        row = [
            "e",
            "app",
            "anna",
            "s",
            "i",
            "guide",
            pickle.dumps({"state_delta": {"a": 1}}),
            '["t1"]',
            None,
            "2026-01-01 00:00:00.5",
            '{"parts": []}',
            0,
            None,
        ]
        connection.execute("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
    with pytest.raises(PickledRowError, match="event 'e' of session 's'") as caught:
        imported("adk", source, store)
    assert "--allow-pickle" in caught.value.hint
    assert imported("adk", source, store, allow_pickle=True) == 1
    (found,) = Repository(store).snapshot("google-adk/app/anna/s")["events"]
    assert found["actions"] == {"state_delta": {"a": 1}}
    assert (found["timestamp"], found["long_running_tool_ids"]) == (1767225600.5, ["t1"])
    assert found["partial"] is False
    assert "error_code" not in found


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ("UPDATE adk_internal_metadata SET value = '7'", SourceFormatError, "version '7'"),
        ("UPDATE events SET event_data = '[]' WHERE id = 'e2'", DamagedRowError, "event 'e2'"),
        ("UPDATE events SET invocation_id = NULL WHERE id = 'e2'", DamagedRowError, "not text"),
        (
            "UPDATE sessions SET state = 'x' WHERE id = 's/1'",
            DamagedRowError,
            "the state of session 'app' 'anna' 's/1'",
        ),
        ("UPDATE sessions SET user_id = x'ff'", DamagedRowError, "not text"),
        ("UPDATE sessions SET create_time = 'soon' WHERE id = 's/1'", DamagedRowError, "it has no time"),
        ("ALTER TABLE events RENAME COLUMN event_data TO other", SourceFormatError, "unknown version of the ADK"),
        ("ALTER TABLE events RENAME COLUMN timestamp TO other", SourceFormatError, "no column 'timestamp'"),
    ],
)
def test_a_damaged_database_of_the_adk_is_refused(tmp_path, store, change, error, words):
    source = adk(tmp_path / "adk.db", EVENTS)
    make(source, change)
    with pytest.raises(error, match=words):
        imported("adk", source, store)


# AgentScope


class Memories(StateModule):
    def __init__(self) -> None:
        super().__init__()
        self.content: list[Any] = []
        self.register_state("content")


async def test_a_session_of_agentscope_is_loaded_by_the_session_of_modules(tmp_path, store):
    folder = tmp_path / "sessions"
    folder.mkdir()
    (folder / "one.json").write_text('{"memory": {"content": [{"role": "user", "content": "hi"}]}}')
    (folder / "anna_two.json").write_text('{"memory": {"content": [1]}, "toolkit": {"groups": []}}')
    (folder / "notes.txt").write_text("not a session")
    assert imported("agentscope", folder, store, users=["anna", "an"]) == 2
    assert imported("agentscope", folder, store, users=["anna", "an"]) == 0
    memory = Memories()
    await ModulesSession(store).load_session_state("one", memory=memory)
    assert memory.content == [{"role": "user", "content": "hi"}]
    await ModulesSession(store).load_session_state("two", "anna", memory=memory)
    assert memory.content == [1]

    (folder / "anna_two.json").write_text('{"memory": {"content": [1, 2]}}')
    assert imported("agentscope", folder, store, users=["anna"]) == 1
    await ModulesSession(store).load_session_state("two", "anna", memory=memory)
    assert memory.content == [1, 2]
    await ModulesSession(store).save_session_state("two", "anna", memory=memory)
    memory.content.append(3)
    await ModulesSession(store).save_session_state("two", "anna", memory=memory)
    with pytest.raises(ThreadExistsError):
        imported("agentscope", folder, store, users=["anna"])


def test_one_file_of_agentscope_is_a_session_too(tmp_path, store):
    (tmp_path / "a_b.json").write_text("{}")
    (tmp_path / "c.json").write_text('{"memory": {}}')
    assert imported("agentscope", tmp_path / "c.json", store) == 1
    assert imported("agentscope", tmp_path, store) == 1
    assert sorted(Repository(store).branches) == [
        ModulesSession(store).branch("a_b"),
        ModulesSession(store).branch("c"),
    ]


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"[]", "instead of an object"), (b"{", "not JSON"), (b"\xff", "not text"), (b"", "not JSON")],
)
def test_a_damaged_session_of_agentscope_is_named(tmp_path, store, content, words):
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(DamagedRowError, match=words) as caught:
        imported("agentscope", tmp_path, store)
    assert "a.json" in str(caught.value)


def test_a_folder_without_sessions_is_refused(tmp_path):
    with pytest.raises(SourceFormatError, match="no files"):
        open_importer("agentscope", str(tmp_path))
    with pytest.raises(FileNotFoundError):
        open_importer("agentscope", str(tmp_path / "missing"))


# All of them


def test_what_somebody_writes_meanwhile_is_found_out(tmp_path, store):
    (tmp_path / "a.json").write_text('{"memory": {"content": [1]}}')

    def told(stage: str, done: int, total: int) -> None:
        if stage == "importing" and done == total:
            with Versioned(store, branch=ModulesSession(store).branch("a")) as state:
                state["memory"]["content"].append(2)
                state.commit()

    with pytest.raises(ImportMismatchError, match="session 'a'"):
        imported("agentscope", tmp_path, store, told=told)


def test_a_source_that_may_not_be_written_is_read(tmp_path, store):
    source = adk(tmp_path / "adk.db", EVENTS)
    make(source, "PRAGMA journal_mode = WAL; UPDATE events SET id = id")
    source.chmod(0o444)
    before = source.read_bytes()
    tmp_path.chmod(0o555)
    try:
        assert imported("adk", source, store) == 6
    finally:
        tmp_path.chmod(0o755)
    assert source.read_bytes() == before


def test_an_error_is_a_state_error_that_says_what_remains(tmp_path, store):
    (tmp_path / "a.json").write_text('{"memory": {}}')
    (tmp_path / "b.json").write_text("[")
    with pytest.raises(StateError) as caught:
        imported("agentscope", tmp_path, store)
    assert "what was imported before stays" in caught.value.remains
    assert list(Repository(store).branches) == [ModulesSession(store).branch("a")]
