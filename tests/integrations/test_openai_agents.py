"""A session of the OpenAI Agents SDK over a store: its protocol, undo, forks, branches, and many writers.

No model is called.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from agents import Agent, OpenAIResponsesCompactionSession, RunConfig, Runner, Session, SessionSettings
from agents.extensions.memory import EncryptedSession
from agents.testing import ScriptedModel, assistant_message
from agents.usage import InputTokensDetails, Usage

from tests.support import processes
from tests.support.killed_writers import assert_kept
from versioned_state import Disk, Memory, Repository, Versioned
from versioned_state.errors import InvalidArgumentError, RefExistsError, StateError
from versioned_state.integrations.openai_agents import VersionedSession

Item = Any


def user(text: str) -> Item:
    return {"role": "user", "content": text}


def answer(text: str) -> Item:
    return {"role": "assistant", "content": text}


TALK = [
    user("hi"),
    answer("hello"),
    user("a room in Rome"),
    answer("which dates?"),
    {"type": "function_call", "name": "find"},
]


@pytest.fixture
def session() -> VersionedSession:
    return VersionedSession(Memory(), "user-123")


@asynccontextmanager
async def talk(session: VersionedSession) -> AsyncIterator[VersionedSession]:
    await session.add_items(TALK[:1])
    await session.add_items(TALK[1:])
    yield session


# The protocol


def test_it_is_a_session_of_the_framework(session):
    assert isinstance(session, Session)
    assert session.session_id == "user-123"


async def test_a_run_keeps_its_items_and_the_next_one_has_them(session):
    model = ScriptedModel([[assistant_message("hello")], [assistant_message("Rome")]])
    agent = Agent(name="guide", model=model)
    config = RunConfig(tracing_disabled=True)
    await Runner.run(agent, "hi", session=session, run_config=config)
    await Runner.run(agent, "where?", session=session, run_config=config)
    assert [item["role"] for item in await session.get_items()] == ["user", "assistant"] * 2
    assert len(model.calls[1].input) == 3


@pytest.mark.parametrize(("limit", "expected"), [(None, TALK), (2, TALK[-2:]), (0, []), (-1, TALK), (99, TALK)])
async def test_the_newest_items_up_to_a_limit(session, limit, expected):
    async with talk(session):
        assert await session.get_items(limit) == expected
        session.session_settings = SessionSettings(limit=limit)
        assert await session.get_items() == expected


def test_settings_may_be_a_dict():
    settings = VersionedSession(Memory(), "s", session_settings={"limit": 3}).session_settings
    assert settings == SessionSettings(limit=3)


async def test_items_are_popped_from_the_end(session):
    async with talk(session):
        assert [await session.pop_item() for _ in range(6)] == [*reversed(TALK), None]
        assert await session.get_items() == []


async def test_a_cleared_session_is_empty_and_history_has_its_items(session):
    async with talk(session):
        await session.clear_session()
        assert await session.get_items() == []
        assert session.repository.snapshot(f"{session.branch()}~1")["messages"] == TALK


async def test_what_changes_nothing_makes_no_commit(session):
    await session.add_items([])
    await session.clear_session()
    assert await session.pop_item() is None
    assert list(session.repository.branches) == []


async def test_an_item_that_cannot_be_stored_leaves_the_session_as_it_was(session):
    async with talk(session):
        with pytest.raises(StateError, match="messages"):
            await session.add_items([user("kept?"), {"role": "user", "content": object()}])
        assert await session.get_items() == TALK


async def test_what_is_returned_is_a_copy(session):
    async with talk(session):
        (await session.get_items())[0]["content"] = "changed"
        assert await session.get_items() == TALK


@pytest.mark.parametrize("session_id", ["", "a/b", "..", "HEAD", "\ud800\0", "é" * 300])
async def test_any_id_is_a_session_of_its_own(session_id):
    store = Memory()
    other, session = VersionedSession(store, "a"), VersionedSession(store, session_id)
    await other.add_items([user("other")])
    async with talk(session):
        await session.create_branch_from_turn(2, "b")
        assert await session.get_items() == TALK[:2]
        assert await session.get_items(branch_id="main") == TALK
        assert await other.get_items() == [user("other")]
        assert session.branch(session_id, "main") == other.branch(session_id)


# History


async def test_diff_log_blame_and_grep_show_items(session):
    async with talk(session):
        await session.pop_item()
    repository, branch = session.repository, session.branch()
    assert [commit.message for commit in repository.log(branch)] == ["messages -1", "messages +4", "messages +1"]
    assert "+ messages[1] = {'role': 'assistant', 'content': 'hello'}" in str(
        repository.diff(f"{branch}~2", f"{branch}~1")
    )
    assert [str(match.path) for match in repository.grep("Rome", branch)] == ["messages[2].content"]
    assert repository.blame("messages[0]", branch)[0].commit.message == "messages +1"


def size(store: Memory) -> int:
    return sum(len(key) + len(store.get(key) or b"") for key in store.keys(""))


async def test_an_append_stores_the_item_and_no_more():
    store = Memory()
    session = VersionedSession(store, "s")
    await session.add_items([user(f"{number}" * 50) for number in range(2_000)])
    before = size(store)
    await session.add_items([user("one more")])
    assert size(store) - before < 4_000


async def test_undo_takes_back_turns(session):
    async with talk(session):
        assert await session.undo() == TALK[2:]
        assert await session.get_items() == TALK[:2]
        with pytest.raises(InvalidArgumentError, match="1 turn, not 2"):
            await session.undo(2)
        assert await session.get_items() == TALK[:2]
        with Versioned(session.repository, branch=session.branch()) as state:
            state.undo()
        assert await session.undo(2) == TALK
        assert await session.get_items() == []


async def test_a_fork_begins_with_the_items_and_goes_its_own_way(session):
    async with talk(session):
        whole, part = await session.fork(), await session.fork("part", turn=2)
        await part.add_items([user("a room in Oslo")])
        assert await whole.get_items() == await session.get_items() == TALK
        assert await part.get_items() == [*TALK[:2], user("a room in Oslo")]
        with pytest.raises(RefExistsError):
            await session.fork("part")
        with pytest.raises(InvalidArgumentError, match="no turn 3"):
            await session.fork("third", turn=3)
        assert "openai-agents/third" not in session.repository.branches
        empty = await VersionedSession(session.repository, "never").fork("empty")
        assert await empty.get_items() == []


# Branches of a session


async def test_branches_begin_at_turns(session):
    async with talk(session):
        assert await session.create_branch_from_turn(2, "oslo") == "oslo" == session.branch_id
        await session.add_items([user("a room in Oslo")])
        assert await session.get_items() == [*TALK[:2], user("a room in Oslo")]
        generated = await session.create_branch_from_content("OSLO")
        assert await session.get_items() == TALK[:2]
        await session.switch_to_branch("main")
        assert await session.get_items() == TALK
        listed = {each["branch_id"]: each for each in await session.list_branches()}
        assert set(listed) == {"main", "oslo", generated}
        assert listed["oslo"] == {"branch_id": "oslo", "message_count": 3, "user_turns": 2, "is_current": False}
        assert listed["main"]["is_current"]
        await session.delete_branch(generated)
        await session.clear_session()
        assert [each["branch_id"] for each in await session.list_branches()] == ["main"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda session: session.create_branch_from_turn(3), "no turn 3"),
        (lambda session: session.create_branch_from_turn(0), "turn"),
        (lambda session: session.create_branch_from_turn(1, "  "), "blank"),
        (lambda session: session.create_branch_from_turn(1, "x" * 64), "63 bytes"),
        (lambda session: session.create_branch_from_turn(1, "main"), "'main' already"),
        (lambda session: session.create_branch_from_turn(1, "there"), "'there' already"),
        (lambda session: session.create_branch_from_content("nowhere"), "nowhere"),
        (lambda session: session.switch_to_branch("nowhere"), "no branch 'nowhere'"),
        (lambda session: session.delete_branch("nowhere"), "no branch 'nowhere'"),
        (lambda session: session.delete_branch("main"), "cannot be deleted"),
        (lambda session: session.delete_branch("there"), "in use"),
    ],
)
async def test_a_call_that_cannot_be_changes_nothing(session, call: Callable[[VersionedSession], Any], message):
    async with talk(session):
        await session.create_branch_from_turn(2, "there")
        await session.add_items(TALK[2:])
        before = dict(session.repository.branches)
        with pytest.raises(ValueError, match=message):
            await call(session)
        assert dict(session.repository.branches) == before
        assert session.branch_id == "there"


async def test_a_branch_that_another_handle_deleted_does_not_come_back(session):
    async with talk(session):
        await session.create_branch_from_turn(2, "gone")
        await VersionedSession(session.repository, "user-123").delete_branch("gone")
        with pytest.raises(InvalidArgumentError, match="no branch 'gone'"):
            await session.add_items([user("hi")])
        assert "openai-agents/user-123/gone" not in session.repository.branches


async def test_turns_are_listed_and_found(session):
    async with talk(session):
        await session.add_items([{"role": "user", "content": [{"type": "input_text", "text": "and a " + "x" * 200}]}])
        turns = await session.get_conversation_turns()
        assert [each["turn"] for each in turns] == [1, 2, 3]
        assert turns[1] == {
            "turn": 2,
            "content": "a room in Rome",
            "full_content": "a room in Rome",
            "can_branch": True,
        }
        assert len(turns[2]["content"]) == 103
        assert [each["turn"] for each in await session.find_turns_by_content("ROOM")] == [2]
        assert [each["turn"] for each in await session.find_turns_by_content("and a x")] == [3]
        assert await session.find_turns_by_content("input_text") == []


@dataclass
class Ran:
    """The part of a run's result that has its usage."""

    usage: Usage

    @property
    def context_wrapper(self) -> Ran:
        return self


def used(tokens: int) -> Any:
    details = InputTokensDetails.model_validate({"cached_tokens": 1, "cache_write_tokens": 0})
    return Ran(
        Usage(requests=1, input_tokens=tokens, output_tokens=1, total_tokens=tokens + 1, input_tokens_details=details)
    )


async def test_usage_is_kept_with_its_turn(session):
    assert await session.get_session_usage() is None
    await session.store_run_usage(used(1))  # there is no turn
    assert list(session.repository.branches) == []
    for number in (1, 2, 3):
        await session.add_items([user(str(number)), answer("hi")])
        if number != 2:
            await session.store_run_usage(used(99))
            await session.store_run_usage(used(10 * number))
    kept = await session.get_turn_usage(1)
    assert (kept["input_tokens"], kept["total_tokens"], kept["input_tokens_details"]["cached_tokens"]) == (10, 11, 1)
    assert await session.get_turn_usage(2) == {}
    assert [(each["user_turn_number"], each["input_tokens"]) for each in await session.get_turn_usage()] == [
        (1, 10),
        (3, 30),
    ]
    assert await session.get_session_usage() == {
        "requests": 2,
        "input_tokens": 40,
        "output_tokens": 2,
        "total_tokens": 42,
        "total_turns": 2,
    }

    await session.create_branch_from_turn(2, "b")
    await session.add_items([user("other")])
    await session.store_run_usage(used(5))
    assert [(each["user_turn_number"], each["input_tokens"]) for each in await session.get_turn_usage()] == [(2, 5)]
    assert (await session.get_session_usage())["input_tokens"] == 45
    assert (await session.get_session_usage("main"))["input_tokens"] == 40

    await session.switch_to_branch("main")
    await session.pop_item()
    assert (await session.get_turn_usage(3))["input_tokens"] == 30
    await session.pop_item()
    assert await session.get_turn_usage(3) == {}
    await session.add_items([user("3 again")])
    assert await session.get_turn_usage(3) == {}
    await session.clear_session()
    assert await session.get_session_usage() is None


async def test_usage_stays_with_its_turn_when_others_are_compacted(session):
    for number in range(4):
        await session.add_items([user(str(number)), answer("hi")])
        await session.store_run_usage(used(number))
    snapshot = await session._get_compaction_snapshot(3, prune_prefix=lambda item: item.get("content") in ("0", "hi"))
    assert await snapshot.replace_suffix(1, [answer("a summary")])
    assert [item["content"] for item in await session.get_items()] == ["1", "hi", "2", "hi", "a summary"]
    assert [(each["user_turn_number"], each["input_tokens"]) for each in await session.get_turn_usage()] == [
        (1, 1),
        (2, 2),
    ]


async def test_tools_are_counted_by_turn(session):
    calls = [
        {"type": "function_call", "name": "find"},
        {"type": "function_call_output", "output": "a room"},
        {"type": "function_call", "name": "find"},
        {"type": "mcp_call", "name": "pay", "server_label": "bank"},
        {"type": "web_search_call"},
        {"type": "tool_search_call"},
        {"type": "function_call", "name": "pay", "namespace": "bank"},
    ]
    await session.add_items([user("1"), *calls, user("2"), calls[0], answer("done")])
    assert await session.get_tool_usage() == [
        ("bank.pay", 2, 1),
        ("find", 2, 1),
        ("tool_search", 1, 1),
        ("web_search_call", 1, 1),
        ("find", 1, 2),
    ]
    turns = await session.get_conversation_by_turns()
    assert [each["type"] for each in turns[2]] == ["user", "function_call", "assistant"]
    assert turns[1][2] == {"type": "function_call_output", "tool_name": None}


# Compaction


class Compactor:
    """The part of OpenAI's client that compacts: it answers one message."""

    def __init__(self) -> None:
        self.responses = self

    async def compact(self, **options: Any) -> Any:
        class Compacted:
            output = [answer("a summary")]  # noqa: RUF012 - as the client's, an attribute
            usage = None

        return Compacted


async def test_a_session_is_compacted(session):
    compacting: Any = OpenAIResponsesCompactionSession("user-123", session, client=Compactor(), compaction_mode="input")
    async with talk(session):
        await compacting.run_compaction({"force": True})
        assert await session.get_items() == [answer("a summary")]


async def test_the_newest_items_are_replaced_unless_they_have_changed(session):
    async with talk(session):
        snapshot = await session._get_compaction_snapshot(3)
        assert (snapshot.items, snapshot.complete) == (TALK[2:], False)
        assert (await session._get_compaction_snapshot(5)).complete
        assert await snapshot.replace_suffix(1, [answer("shorter")])
        assert await session.get_items() == [*TALK[:3], answer("shorter")]
        assert not await snapshot.replace_suffix(1, [answer("again")])
        pruning = await session._get_compaction_snapshot(
            1, prune_prefix=lambda item: item.get("content") in ("hi", "hello")
        )
        assert await pruning.replace_suffix(0, [])
        assert await session.get_items() == [user("a room in Rome")]


async def test_a_session_keeps_what_is_encrypted(session):
    encrypted = EncryptedSession(
        session_id="user-123", underlying_session=session, encryption_key="a key of a test", ttl=1000
    )
    await encrypted.add_items([user("a secret"), user("another")])
    assert await encrypted.get_items() == [user("a secret"), user("another")]
    assert list(session.repository.grep("secret", session.branch())) == []
    assert await encrypted.pop_item() == user("another")


# Many writers


async def test_tasks_that_add_at_once_lose_and_mix_nothing(session):
    await asyncio.gather(*(session.add_items([user(f"{number} a"), answer(f"{number} b")]) for number in range(20)))
    texts = [item["content"] for item in await session.get_items()]
    assert sorted(texts[::2]) == sorted(f"{number} a" for number in range(20))
    assert texts[1::2] == [text[:-1] + "b" for text in texts[::2]]


async def test_a_fork_that_several_begin_at_once_is_begun_once(session):
    async with talk(session):
        other = VersionedSession(session.repository, session.session_id)
        made = await asyncio.gather(
            *(each.fork("fork", turn=2) for each in (session, other) * 3), return_exceptions=True
        )
        assert sorted(type(each).__name__ for each in made) == ["RefExistsError"] * 5 + ["VersionedSession"]
        assert await VersionedSession(session.repository, "fork").get_items() == TALK[:2]


async def test_an_item_is_popped_once(session):
    await session.add_items([user(str(number)) for number in range(10)])
    popped = await asyncio.gather(*(session.pop_item() for _ in range(12)))
    assert sorted(item["content"] for item in popped if item is not None) == list("0123456789")


async def test_a_cancelled_call_is_done_or_not(session):
    async with talk(session):
        adding = asyncio.ensure_future(session.add_items([user("late")]))
        await asyncio.sleep(0)
        adding.cancel()
        with pytest.raises(asyncio.CancelledError):
            await adding
        assert await session.get_items() in (TALK, [*TALK, user("late")])


def add(path: Path, times: int, writer: int) -> None:
    async def work() -> None:
        with VersionedSession(path, "shared") as session:
            for number in range(times):
                await session.add_items([user(f"{writer} {number} a"), answer(f"{writer} {number} b")])

    asyncio.run(work())


@pytest.mark.parametrize("times", [8, pytest.param(100, marks=pytest.mark.long)])
def test_processes_that_add_at_once_lose_and_mix_nothing(tmp_path, times):
    processes.join(*[processes.fork(partial(add, tmp_path / "store", times, writer)) for writer in range(4)])
    repository = Repository(Disk(tmp_path / "store"))
    texts = [item["content"].rpartition(" ")[0] for item in repository.snapshot("openai-agents/shared")["messages"]]
    assert texts[::2] == texts[1::2]
    for writer in range(4):
        assert [text for text in texts[::2] if text.startswith(f"{writer} ")] == [
            f"{writer} {number}" for number in range(times)
        ]


@pytest.mark.long
def test_what_was_added_before_a_kill_is_there(tmp_path):
    program = """
    import asyncio, sys
    from versioned_state.integrations.openai_agents import VersionedSession

    async def work():
        with VersionedSession(sys.argv[1], "s") as session:
            for number in range(int(sys.argv[2]), 10_000):
                await session.add_items([{"role": "user", "content": number}])
                print(number, flush=True)

    asyncio.run(work())
    """

    def numbers() -> list[int]:
        with VersionedSession(tmp_path / "store", "s") as session:
            items: list[Item] = asyncio.run(session.get_items())
        return [item["content"] for item in items]

    assert_kept(program, tmp_path / "store", numbers, rounds=25)
