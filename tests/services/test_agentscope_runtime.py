"""Data that AgentScope Runtime 1.0.0 wrote to Redis, as it was recorded, is copied into the services here."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import ANY
from uuid import uuid4

import pytest
import redis

from tests.support.servers.redis import RedisServer
from versioned_state import Memory
from versioned_state.errors import InvalidArgumentError, StorageError
from versioned_state.services.agent_state import StateService
from versioned_state.services.agentscope_runtime import CopyReport, copy_from_redis
from versioned_state.services.memory import MemoryService
from versioned_state.services.schemas.agent_schemas import Message
from versioned_state.services.session_history import SessionHistoryService
from versioned_state.storage.wrappers.faulty import Fault, Faulty

RECORDED = Path(__file__).parent / "documents" / "agentscope_runtime_redis.json"
DATABASE = 9
"""Of the tests' server, for the keys of the runtime, which have no prefix."""


@pytest.fixture
def theirs(redis_server: RedisServer) -> Iterator[redis.Redis]:
    """A database with the recorded keys."""
    with redis.Redis.from_url(redis_server.url, db=DATABASE) as client:
        client.flushdb()
        for key, value in json.loads(RECORDED.read_text("utf-8")).items():
            if isinstance(value, dict):
                client.hset(key, mapping=value)
            elif isinstance(value, list):
                client.sadd(key, *value)
            else:
                client.set(key, value)
        yield client
        client.flushdb()


@pytest.fixture
def url(theirs: redis.Redis, redis_server: RedisServer) -> str:
    return f"{redis_server.url}?db={DATABASE}"


def said(text: str) -> dict[str, Any]:
    return {"id": f"msg_{uuid4()}", "role": "user", "content": [{"type": "text", "text": text}]}


def texts(messages: Sequence[Message | dict[str, Any]]) -> list[str | None]:
    return [message.get_text_content() if isinstance(message, Message) else None for message in messages]


async def test_everything_is_here_as_it_was_there(url: str, tmp_path: Path) -> None:
    place = f"disk:{tmp_path / 'store'}"
    report = await copy_from_redis(url, place)
    assert report == CopyReport(5, 5, 4, {"user_state:who:is:it": report.left_out["user_state:who:is:it"]})
    assert "ids=" in report.left_out["user_state:who:is:it"]

    async with StateService.over(place) as states:
        assert await states.list_sessions("alice") == ["default", "trip"]
        assert await states.list_rounds("alice", "trip") == [1, 2, 10]
        assert await states.export_state("alice", "trip") == {"mood": "late", "place": [41.9, 12.5]}
        first = await states.export_state("alice", "trip", 1)
        assert first == {"mood": "calm", "memory": {"content": []}, "toolkit": {"active_groups": []}}
        assert await states.export_state("team:blue", "a:b") == {"n": 1}
        assert [commit.meta["round"] for commit in states.repository.log(states.branch("alice", "trip"))] == [10, 2, 1]

    async with SessionHistoryService.over(place, create_missing=False) as histories:
        assert [each.id for each in await histories.list_sessions("alice")] == ["empty", "trip"]
        trip = await histories.get_session("alice", "trip")
        assert trip is not None
        there = json.loads(json.loads(RECORDED.read_text("utf-8"))["session:alice:trip"])
        assert trip.messages == [Message.model_validate(message) for message in there["messages"]]
        blue = await histories.get_session("team:blue", "x:y")
        assert blue is not None
        assert texts(blue.messages) == ["hi"]
        stored = histories.repository.snapshot(histories.branch("alice", "trip"))["messages"]
        assert "usage" not in stored[0], "a null says nothing"
        assert stored[2]["content"][1]["data"] == {"when": None, "nights": 3}, "but in data it does"
        assert stored[2]["metadata"] == {"tags": ["trip", None]}

    async with MemoryService.over(place) as memories:
        assert texts(await memories.list_memory("alice")) == ["Tom is ill", "I live in Rome", "My cat is called Tom"]
        assert texts(
            await memories.search_memory("team:blue", [{"role": "user", "content": [{"type": "text", "text": "BLUE"}]}])
        ) == ["we are blue"]


async def test_a_second_copy_adds_what_is_new_and_replaces_nothing(url: str, theirs: redis.Redis) -> None:
    def ids(name: str) -> tuple[str, str] | None:
        return ("who", "is:it") if name == "who:is:it" else None if name.startswith("team") else (name[:5], name[6:])

    store = Memory()
    await copy_from_redis(url, store)
    async with (
        StateService.over(store) as states,
        SessionHistoryService.over(store) as histories,
        MemoryService.over(store) as memories,
    ):
        await states.save_state("alice", {"mood": "from here"}, "trip", 2)
        trip = await histories.create_session("alice", "trip")
        await histories.append_message(trip, said("from here"))
        await memories.add_memory("alice", [said("from here")], "monday")
        assert await copy_from_redis(url, store, ids=ids) == CopyReport(1, 0, 0, {"user_state:team:blue:a:b": ANY})
        assert await states.export_state("who", "is:it") == {"n": 2}

        theirs.hset("user_state:alice:trip", "11", '{"mood": "new"}')
        for key in ("session:alice:trip", "session:alice:empty"):
            session = json.loads(theirs.get(key) or "")
            theirs.set(key, json.dumps(session | {"messages": [*session["messages"], said("new"), said("newer")]}))
        monday = json.loads(theirs.hget("user_memory:alice", "monday") or "")
        theirs.hset(
            "user_memory:alice",
            mapping={"monday": json.dumps([*monday, said("new")]), "tuesday": json.dumps([said("new")])},
        )
        assert await copy_from_redis(url, store) == CopyReport(
            1, 2, 2, {"session:alice:trip": ANY, "user_state:who:is:it": ANY}
        )
        assert await states.export_state("alice", "trip", 2) == {"mood": "from here"}
        assert await states.export_state("alice", "trip") == {"mood": "new"}
        assert texts((await histories.create_session("alice", "trip")).messages)[-1] == "from here"
        assert texts((await histories.create_session("alice", "empty")).messages) == ["new", "newer"]
        expected = ["Tom is ill", "I live in Rome", "My cat is called Tom", "from here", "new", "new"]
        assert texts(await memories.list_memory("alice")) == expected

        trip = json.loads(theirs.get("session:alice:empty") or "")
        theirs.set("session:alice:empty", json.dumps(trip | {"messages": [*trip["messages"], said("newest")]}))
        theirs.hset("user_memory:alice", "wednesday", theirs.hget("user_memory:alice", "monday") or "")
        report = await copy_from_redis(url, store)
        assert (report.messages, report.memories) == (1, 3), "the messages of one session are in another one as well"
        assert (await copy_from_redis(url, store)).memories == 0
        assert texts((await histories.create_session("alice", "empty")).messages) == ["new", "newer", "newest"]


async def test_the_target_may_be_the_same_database(url: str, theirs: redis.Redis) -> None:
    before = set(theirs.scan_iter())
    first = await copy_from_redis(url, url)
    assert (first.rounds, first.messages, first.memories) == (5, 5, 4)
    again = await copy_from_redis(url, url)
    assert (again.rounds, again.messages, again.memories) == (0, 0, 0)
    assert list(again.left_out) == ["user_state:who:is:it"]
    assert before < set(theirs.scan_iter())
    async with StateService.over(url) as states:
        assert await states.list_rounds("alice", "trip") == [1, 2, 10]


async def test_what_is_not_the_runtimes_is_left_out_and_named(url: str, theirs: redis.Redis) -> None:
    theirs.set("session:web:1", "a cookie")
    theirs.hset("session:web:2", "a", "hash of another program")
    theirs.set("session:web:3", '{"id": "other", "user_id": "web", "messages": []}')
    theirs.set("session:web:4", '{"id": "4", "user_id": "web", "messages": [{"role": "robot"}]}')
    theirs.set("session:web: ", '{"id": " ", "user_id": "web", "messages": []}')
    theirs.hset(
        "user_state:bob:s",
        mapping={"1": "[1]", "2": "{", "x": "{}", "03": "{}", "4": '{"n": 4}', "5": "[" * 5000, "6": b"\xff"},
    )
    theirs.hset("user_memory:bob", mapping={"s": "{}", "t": '[{"role": "robot"}]', "u": "[7]", "v": "[]"})
    theirs.hset(b"user_memory:\xff", mapping={"s": '[{"role": "user", "content": [{"type": "text", "text": "odd"}]}]'})
    store = Memory()
    report = await copy_from_redis(url, store)
    assert (report.rounds, report.messages, report.memories) == (6, 5, 5)
    assert sorted(report.left_out) == [
        *("session:web: ", "session:web:1", "session:web:3", "session:web:4"),
        *("user_memory:bob s", "user_memory:bob t", "user_memory:bob u"),
        *(
            "user_state:bob:s 03",
            "user_state:bob:s 1",
            "user_state:bob:s 2",
            "user_state:bob:s 5",
            "user_state:bob:s 6",
        ),
        *("user_state:bob:s x", "user_state:who:is:it"),
    ]
    assert report.left_out["session:web:1"] == "not JSON"
    assert "not valid" in report.left_out["session:web:4"]
    async with SessionHistoryService.over(store) as histories, MemoryService.over(store) as memories:
        assert await histories.list_sessions("web") == []
        assert texts(await memories.list_memory("\udcff")) == ["odd"]


@pytest.mark.parametrize("fault", Fault)
async def test_a_copy_that_fails_anywhere_goes_on_when_it_is_run_again(url: str, fault: Fault) -> None:
    failed = 0
    for at in range(1, 2000, 2):
        store = Memory()
        faulty = Faulty(store, at=at, fault=fault)
        try:
            await copy_from_redis(url, faulty)
        except StorageError:
            failed += 1
        if not faulty.fired:
            break
        await copy_from_redis(url, store)
        async with (
            StateService.over(store) as states,
            SessionHistoryService.over(store) as histories,
            MemoryService.over(store) as memories,
        ):
            assert await states.list_rounds("alice", "trip") == [1, 2, 10]
            session = await histories.get_session("alice", "trip")
            assert session is not None
            assert len(session.messages) == 4
            assert len(await memories.list_memory("alice")) == 3
    assert failed > 5


async def test_a_server_that_is_not_there() -> None:
    with pytest.raises(StorageError):
        await copy_from_redis("unix:///nowhere/at/all", Memory())
    bad: Any = "http://x"
    with pytest.raises(InvalidArgumentError, match="not a Redis URL"):
        await copy_from_redis(bad, Memory())
