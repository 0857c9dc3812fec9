"""Memories of AgentScope over a store.

The contract is written from its interface; its own memory in memory passes it too.

These tests run in an environment that has agentscope: ``scripts/test --long`` makes one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from agentscope.agent import ReActAgent
from agentscope.formatter import DashScopeChatFormatter
from agentscope.memory import InMemoryMemory
from agentscope.message import Msg, TextBlock, ToolUseBlock
from agentscope.model import ChatModelBase, ChatResponse

from tests.support import processes
from tests.support.killed_writers import assert_kept
from tests.support.stores import OneCondition
from versioned_state import Memory, Versioned
from versioned_state.agents.modules import VersionedSession
from versioned_state.errors import InvalidArgumentError, PickleRefusedError
from versioned_state.integrations.agentscope import VersionedMemory


@pytest.fixture(params=["ours", "ours on disk", "ours on a store with one condition", "theirs in memory"])
def memory(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    if request.param == "theirs in memory":
        yield InMemoryMemory()
    else:
        places: dict[str, Any] = {"ours": Memory(), "ours on disk": tmp_path / "store"}
        with VersionedMemory(places.get(request.param, OneCondition()), "s") as ours:
            yield ours


@pytest.fixture
def ours() -> VersionedMemory:
    return VersionedMemory(Memory(), "s", "ann")


def said(letter: str) -> Msg:
    message = Msg("ann", letter, "user")
    message.id = f"id {letter}"
    return message


async def texts(memory: Any, **options: Any) -> str:
    return "".join(message.content for message in await memory.get_memory(**options))


async def test_messages_come_back_as_they_were(memory):
    call = ToolUseBlock(type="tool_use", id="1", name="book", input={"city": "Rome", "n": [1, None]})
    messages = [
        Msg("ann", "ä\U0001f600", "user", metadata={"deep": {"list": [1.5]}}, invocation_id="i"),
        Msg("guide", [TextBlock(type="text", text="Booking."), call], "assistant"),
    ]
    await memory.add(messages[0])
    await memory.add(messages[1:])
    found = await memory.get_memory()
    assert [vars(each) for each in found] == [vars(each) for each in messages]
    assert await memory.size() == 2


async def test_nothing_is_added_for_none_and_a_message_is_added_once(memory):
    assert (await memory.get_memory(), await memory.size()) == ([], 0)
    await memory.add(None)
    await memory.add([])
    await memory.add(said("a"))
    await memory.add([said("a"), said("b")], marks="new")
    assert await texts(memory) == "ab"
    assert await texts(memory, mark="new") == "b"
    await memory.add(said("a"), allow_duplicates=True)
    assert await texts(memory) == "aba"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, "abcd"),
        ({"mark": "x"}, "bd"),
        ({"exclude_mark": "x"}, "ac"),
        ({"mark": "x", "exclude_mark": "y"}, "b"),
        ({"mark": "z"}, ""),
        ({"exclude_mark": "z"}, "abcd"),
    ],
)
async def test_marks_choose_messages(memory, options, expected):
    for letter, marks in (("a", None), ("b", "x"), ("c", ["y"]), ("d", ["x", "y"])):
        await memory.add(said(letter), marks=marks)
    assert await texts(memory, **options) == expected


async def test_messages_are_deleted_by_id_and_by_mark(memory):
    for letter, marks in (("a", None), ("b", "x"), ("c", ["y"]), ("d", ["x", "y"]), ("e", "z")):
        await memory.add(said(letter), marks=marks)
    assert await memory.delete(["id a", "id nowhere"]) == 1
    assert await memory.delete([]) == 0
    assert await memory.delete_by_mark("nowhere") == 0
    assert await memory.delete_by_mark(["y", "z"]) == 3
    assert await texts(memory) == "b"
    await memory.clear()
    assert (await memory.get_memory(), await memory.size()) == ([], 0)


@pytest.mark.parametrize(
    ("arguments", "changed", "with_x", "with_y"),
    [
        ({"new_mark": "y"}, 2, "bc", "abcd"),
        ({"new_mark": "y", "old_mark": "x"}, 2, "", "bcd"),
        ({"new_mark": "y", "msg_ids": ["id a", "id b"]}, 2, "bc", "abcd"),
        ({"new_mark": "y", "old_mark": "x", "msg_ids": ["id a", "id b"]}, 1, "c", "bcd"),
        ({"new_mark": None, "old_mark": "x"}, 2, "", "cd"),
        ({"new_mark": "y", "msg_ids": []}, 0, "bc", "cd"),
        ({"new_mark": "y", "old_mark": "nowhere"}, 0, "bc", "cd"),
    ],
)
async def test_marks_are_added_replaced_and_removed(memory, arguments, changed, with_x, with_y):
    for letter, marks in (("a", None), ("b", "x"), ("c", ["x", "y"]), ("d", "y")):
        await memory.add(said(letter), marks=marks)
    found = await memory.update_messages_mark(**arguments)
    if isinstance(memory, VersionedMemory):  # theirs does not count a message that loses a mark and has the new one
        assert found == changed
    assert await texts(memory, mark="x") == with_x
    assert await texts(memory, mark="y") == with_y
    assert await texts(memory) == "abcd"


async def test_the_summary_comes_first(memory):
    await memory.add(said("a"))
    await memory.update_compressed_summary("S")
    assert await texts(memory) == "Sa"
    assert await texts(memory, prepend_summary=False) == "a"
    await memory.clear()
    assert await texts(memory) == "S"


@pytest.mark.parametrize(
    "call",
    [
        lambda memory: memory.add(said("b"), marks=[1]),
        lambda memory: memory.get_memory(mark=["x"]),
        lambda memory: memory.get_memory(exclude_mark=1),
        lambda memory: memory.delete_by_mark([1]),
    ],
    ids=["add", "get", "exclude", "delete"],
)
async def test_what_is_no_mark_is_refused(memory, call):
    await memory.add(said("a"))
    with pytest.raises(TypeError):
        await call(memory)
    assert await texts(memory) == "a"


class Scripted(ChatModelBase):  # type: ignore[misc, unused-ignore]
    """A model that answers with the number of messages that it gets."""

    def __init__(self) -> None:
        super().__init__("scripted", stream=False)

    async def __call__(self, messages: Any, *args: Any, **kwargs: Any) -> ChatResponse:
        return ChatResponse(content=[TextBlock(type="text", text=f"{len(messages)} messages")])


def agent(memory: Any) -> Any:
    made = ReActAgent("Friday", "prompt", Scripted(), DashScopeChatFormatter(), memory=memory)
    made.set_console_output_enabled(enabled=False)
    return made


async def test_an_agent_has_what_was_said(memory):
    for expected in ("2 messages", "4 messages"):
        reply = await agent(memory)(Msg("ann", "A room in Rome, please.", "user"))
        assert reply.get_text_content() == expected
    assert await memory.size() == 4


# Ours


async def test_sessions_and_users_have_memories_of_their_own():
    store = Memory()
    one, two = VersionedMemory(store, "s", "ann"), VersionedMemory(store, "s", "bob")
    await one.add(said("a"))
    assert (await texts(one), await texts(two), await texts(VersionedMemory(store, "t", "ann"))) == ("a", "", "")
    assert one.branch() == "agentscope/ann/s"
    assert one.branch("t", "bob") == VersionedMemory(store, "t", "bob").branch()


async def test_the_history_of_a_memory_says_what_came_and_left(ours):
    await ours.add([said("a"), said("b")])
    await ours.update_messages_mark("old", msg_ids=["id a"])
    await ours.delete(["id b"])
    await ours.update_compressed_summary("S")
    repository, branch = ours.repository, ours.branch()
    assert [commit.message for commit in repository.log(branch)] == ["summary", "messages -1", "marks", "messages +2"]
    assert str(repository.diff(f"{branch}~3", f"{branch}~2")) == "+ messages[0].marks = ['old']"
    with Versioned(repository, branch=branch) as state:
        state.undo(2)
    assert await texts(ours) == "ab"


async def test_another_handle_has_the_summary_and_a_session_that_is_loaded_does_not_bring_an_old_one_back(ours):
    await ours.update_compressed_summary("old")
    sessions = VersionedSession()
    await sessions.save_session_state("one", agent=agent(ours))
    other = VersionedMemory(ours.repository, "s", "ann")
    await other.update_compressed_summary("new")
    await sessions.load_session_state("one", agent=agent(ours))
    assert await texts(ours) == await texts(other) == "new"


async def test_what_is_not_data_is_refused_and_nothing_is_added(ours):
    message = said("a")
    message.metadata = {"socket": open}
    with pytest.raises(PickleRefusedError, match="metadata"):
        await ours.add([said("b"), message])
    assert await ours.size() == 0
    with pytest.raises(InvalidArgumentError):
        VersionedMemory(Memory(), 1)  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["", "a/b", "..", "\ud800\0", "é" * 300])
async def test_any_text_is_an_id(text):
    memory = VersionedMemory(Memory(), text, text)
    await memory.add(said("a"))
    assert await texts(memory) == "a"


async def test_tasks_that_add_at_once_lose_nothing(ours):
    await asyncio.gather(*(ours.add(said(letter)) for letter in "abcdefgh" * 2))
    assert sorted(await texts(ours)) == sorted("abcdefgh")


def add(path: Path, times: int, writer: int) -> None:
    async def work() -> None:
        with VersionedMemory(path, "s") as memory:
            for number in range(times):
                await memory.add(Msg(str(writer), str(number), "user"))

    asyncio.run(work())


@pytest.mark.parametrize("times", [6, pytest.param(100, marks=pytest.mark.long)])
def test_processes_that_add_at_once_lose_and_mix_nothing(tmp_path, times):
    processes.join(*[processes.fork(partial(add, tmp_path / "store", times, writer)) for writer in range(4)])
    with VersionedMemory(tmp_path / "store", "s") as memory:
        found = asyncio.run(memory.get_memory())
    for writer in range(4):
        assert [message.content for message in found if message.name == str(writer)] == [
            str(number) for number in range(times)
        ]
    assert len(found) == 4 * times


@pytest.mark.long
def test_what_was_added_before_a_kill_is_there(tmp_path):
    program = """
    import asyncio, sys
    from agentscope.message import Msg
    from versioned_state.integrations.agentscope import VersionedMemory

    async def work():
        with VersionedMemory(sys.argv[1], "s") as memory:
            for number in range(int(sys.argv[2]), 10_000):
                await memory.add(Msg("a", str(number), "user"))
                print(number, flush=True)

    asyncio.run(work())
    """

    def numbers() -> list[int]:
        with VersionedMemory(tmp_path / "store", "s") as memory:
            return [int(message.content) for message in asyncio.run(memory.get_memory())]

    assert_kept(program, tmp_path / "store", numbers, rounds=5)
