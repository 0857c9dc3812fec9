"""A chat store of LlamaIndex over a store.

The contract is written from its interface, and its own ``SimpleChatStore`` passes it too.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
from llama_index.core.base.llms.types import (
    AudioBlock,
    DocumentBlock,
    ImageBlock,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
)
from llama_index.core.llms import ChatMessage, MessageRole
from llama_index.core.memory import ChatMemoryBuffer, Memory as LlamaMemory
from llama_index.core.storage.chat_store import SimpleChatStore
from llama_index.core.storage.chat_store.base import BaseChatStore
from llama_index.core.storage.chat_store.base_db import AsyncDBChatStore, MessageStatus
from llama_index.core.storage.chat_store.sql import SQLAlchemyChatStore
from sqlalchemy import NullPool
from sqlalchemy.ext.asyncio import create_async_engine

from tests.support import processes
from tests.support.killed_writers import assert_kept
from versioned_state import Disk, Memory, Repository, Versioned
from versioned_state.errors import StateError
from versioned_state.integrations.llama_index import VersionedChatStore, VersionedDBChatStore
from versioned_state.storage import Counting

Store = Any


def say(text: str) -> ChatMessage:
    return ChatMessage(role="user", content=text)


ABC = [say("a"), say("b"), say("c")]


@pytest.fixture(params=["ours", "ours on disk", "theirs"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    if request.param == "theirs":
        yield SimpleChatStore()
    else:
        with VersionedChatStore(Memory() if request.param == "ours" else tmp_path / "store") as ours:
            yield ours


# The contract


def test_it_is_a_chat_store(store):
    assert isinstance(store, BaseChatStore)


def test_messages_are_added_at_the_end_or_before_another_one(store):
    assert store.get_messages("ann") == []
    for message in ABC:
        store.add_message("ann", message)
    store.add_message("bob", say("x"))
    store.add_message("ann", say("0"), idx=0)
    store.add_message("ann", say("B"), idx=-1)
    assert store.get_messages("ann") == [say("0"), *ABC[:2], say("B"), ABC[2]]
    assert store.get_messages("bob") == [say("x")]
    assert sorted(store.get_keys()) == ["ann", "bob"]


@pytest.mark.parametrize(
    "after", [[], ABC[:1], [*ABC, say("d")], [say("x")], [say("x"), *ABC], [ABC[0], say("B"), ABC[2]], list(ABC)]
)
def test_messages_are_set(store, after):
    store.set_messages("ann", list(ABC))
    assert store.get_messages("ann") == ABC
    store.set_messages("ann", after)
    assert store.get_messages("ann") == after
    assert store.get_keys() == ["ann"]


def test_a_key_is_deleted_with_its_messages(store):
    assert store.delete_messages("ann") is None
    store.set_messages("ann", list(ABC))
    assert store.delete_messages("ann") == ABC
    assert store.delete_messages("ann") is None
    assert store.get_messages("ann") == []
    assert store.get_keys() == []
    store.add_message("ann", say("new"))
    assert store.get_messages("ann") == [say("new")]


@pytest.mark.parametrize(
    ("at", "left"), [(0, "bc"), (1, "ac"), (2, "ab"), (-1, "ab"), (-3, "bc"), (3, "abc"), (99, "abc")]
)
def test_a_message_is_deleted(store, at, left):
    store.set_messages("ann", list(ABC))
    deleted = store.delete_message("ann", at)
    assert deleted == (ABC[at] if len(left) == 2 else None)
    assert [message.content for message in store.get_messages("ann")] == list(left)
    assert store.delete_message("nobody", 0) is None


def test_the_last_message_is_deleted(store):
    store.set_messages("ann", list(ABC))
    assert [store.delete_last_message("ann") for _ in range(3)] == ABC[::-1]
    assert store.get_messages("ann") == []
    assert store.delete_last_message("nobody") is None


async def test_each_call_has_a_coroutine(store):
    await store.aset_messages("ann", ABC[:1])
    await store.async_add_message("ann", ABC[1])
    await store.async_add_message("ann", ABC[2])
    assert await store.aget_messages("ann") == ABC
    assert await store.adelete_message("ann", 0) == ABC[0]
    assert await store.adelete_last_message("ann") == ABC[2]
    assert await store.aget_keys() == ["ann"]
    assert await store.adelete_messages("ann") == ABC[1:2]
    assert await store.aget_keys() == []


def test_a_memory_keeps_its_messages_there(store):
    memory = ChatMemoryBuffer.from_defaults(
        chat_store=store, chat_store_key="ann", token_limit=1000, tokenizer_fn=str.split
    )
    for message in ABC:
        memory.put(message)
    again = ChatMemoryBuffer.from_defaults(
        chat_store=store, chat_store_key="ann", token_limit=2, tokenizer_fn=str.split
    )
    assert again.get() == ABC[1:]
    assert again.get_all() == ABC
    again.reset()
    assert memory.get_all() == []


# The contract of the stores of a Memory


@pytest.fixture(params=["ours", "ours on disk", "theirs"])
def db_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    if request.param == "theirs":
        # otherwise connections stay open
        engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path / 'sqlite'}", poolclass=NullPool)
        yield SQLAlchemyChatStore("messages", async_engine=engine)
    else:
        with VersionedDBChatStore(Memory() if request.param == "ours" else tmp_path / "store") as ours:
            yield ours


ACTIVE, ARCHIVED = MessageStatus.ACTIVE, MessageStatus.ARCHIVED


async def test_messages_are_added_and_archived(db_store):
    assert isinstance(db_store, AsyncDBChatStore)
    assert await db_store.get_messages("ann") == []
    assert await db_store.count_messages("ann") == 0
    await db_store.add_messages("ann", ABC)
    await db_store.add_message("ann", say("d"))
    await db_store.add_message("bob", say("x"))
    assert await db_store.archive_oldest_messages("ann", 2) == ABC[:2]
    assert await db_store.get_messages("ann") == [ABC[2], say("d")]
    assert await db_store.get_messages("ann", ARCHIVED) == ABC[:2]
    assert await db_store.get_messages("ann", None) == [*ABC, say("d")]
    assert [await db_store.count_messages("ann", status) for status in (ACTIVE, ARCHIVED, None)] == [2, 2, 4]
    assert sorted(await db_store.get_keys()) == ["ann", "bob"]


@pytest.mark.parametrize(
    ("limit", "offset", "expected"), [(2, None, "ab"), (2, 1, "bc"), (None, None, "abc"), (9, 0, "abc"), (1, 9, "")]
)
async def test_pages_of_messages(db_store, limit, offset, expected):
    await db_store.add_messages("ann", ABC)
    assert [message.content for message in await db_store.get_messages("ann", limit=limit, offset=offset)] == list(
        expected
    )


async def test_messages_of_a_memory_are_set_and_deleted(db_store):
    await db_store.add_messages("ann", [*ABC, say("d")])
    await db_store.archive_oldest_messages("ann", 1)
    assert await db_store.delete_oldest_messages("ann", 1) == [ABC[1]]
    assert await db_store.get_messages("ann", None) == [ABC[0], ABC[2], say("d")]
    await db_store.delete_messages("ann", ARCHIVED)
    assert await db_store.get_messages("ann", None) == [ABC[2], say("d")]
    await db_store.archive_oldest_messages("ann", 1)
    await db_store.set_messages("ann", ABC)
    assert await db_store.get_messages("ann") == await db_store.get_messages("ann", None) == ABC
    await db_store.delete_messages("ann")
    assert await db_store.get_messages("ann", None) == await db_store.get_keys() == []
    assert await db_store.archive_oldest_messages("ann", 3) == await db_store.delete_oldest_messages("ann", 3) == []


async def test_a_page_reads_its_messages_and_no_others():
    store = Memory()
    chat = VersionedDBChatStore(store)
    await chat.add_messages("ann", [ChatMessage(f"{number} " * 50) for number in range(2_000)])
    await chat.archive_oldest_messages("ann", 1_000)
    counting = Counting(store)
    found = await VersionedDBChatStore(counting).get_messages("ann", None, limit=4, offset=998)
    assert [message.content.split()[0] for message in found] == ["998", "999", "1000", "1001"]
    assert counting.counts.bytes_read < 10_000


async def test_a_memory_is_deleted_unread():
    store = Memory()
    texts = [Random(number).randbytes(50).hex() for number in range(500)]
    await VersionedDBChatStore(store).add_messages("ann", [ChatMessage(text) for text in texts])
    counting = Counting(store)
    chat = VersionedDBChatStore(counting)
    await chat.delete_messages("ann")
    assert counting.counts.bytes_read < 5_000
    assert await chat.get_messages("ann") == []


async def test_a_memory_archives_what_is_over_its_limit(db_store):
    memory = LlamaMemory.from_defaults(
        session_id="ann",
        chat_store=db_store,
        token_limit=40,
        token_flush_size=10,
        chat_history_token_ratio=0.5,
        tokenizer_fn=str.split,
    )
    said = [
        ChatMessage(role="user" if number % 2 == 0 else "assistant", content="a word " * 3 + str(number))
        for number in range(10)
    ]
    for message in said:
        await memory.aput(message)
    assert await memory.aget_all() == said
    archived = await db_store.get_messages("ann", ARCHIVED)
    assert archived
    assert [*archived, *await memory.aget()] == said


# Ours


async def test_both_stores_have_the_same_active_messages():
    repository = Repository(Memory())
    new, old = VersionedDBChatStore(repository), VersionedChatStore(repository)
    await new.add_messages("ann", ABC)
    await new.archive_oldest_messages("ann", 1)
    assert old.get_messages("ann") == ABC[1:]
    assert [commit.message for commit in repository.log(new.branch("ann"))] == ["messages archived: 1", "messages +3"]
    assert str(repository.diff(f"{new.branch('ann')}~1", new.branch("ann"))).count("'role': 'user'") == 2


async def test_a_message_of_a_memory_is_deleted_by_its_index():
    store = VersionedDBChatStore(Memory())
    await store.add_messages("ann", ABC)
    await store.archive_oldest_messages("ann", 1)
    assert [await store.delete_message("ann", at) for at in (3, -1, 1, 0, 0, 0)] == [
        None,
        None,
        ABC[1],
        ABC[0],
        ABC[2],
        None,
    ]
    assert await store.get_messages("ann", None) == []


def test_messages_come_back_as_they_were(tmp_path):
    blocks = [
        TextBlock(text="hi"),
        ImageBlock(image=b"\x89PNG", detail="low"),
        ImageBlock(url="https://example.com/rome.png"),
        AudioBlock(audio=b"RIFF", format="wav"),
        DocumentBlock(data=b"%PDF", title="trip"),
        ToolCallBlock(tool_name="find", tool_kwargs={"city": "Rome", "day": None}, tool_call_id="c"),
        ThinkingBlock(content="hm"),
    ]
    message = ChatMessage(role=MessageRole.ASSISTANT, blocks=blocks, additional_kwargs={"n": 1, "nothing": None})
    with VersionedChatStore(tmp_path / "store") as store:
        store.add_message("ann", message)
    with VersionedChatStore(tmp_path / "store") as store:
        (found,) = store.get_messages("ann")
    assert found == message
    assert [type(block) for block in found.blocks] == [type(block) for block in blocks]


def test_a_message_that_is_no_data_leaves_the_key_as_it_was():
    store = VersionedChatStore(Memory())
    store.set_messages("ann", ABC)
    with pytest.raises(Exception, match=r"(?i)seriali"):
        store.add_message("ann", ChatMessage("x", additional_kwargs={"socket": object()}))
    assert store.get_messages("ann") == ABC


def test_what_is_returned_is_a_copy():
    store = VersionedChatStore(Memory())
    store.set_messages("ann", ABC)
    store.get_messages("ann")[0].content = "changed"
    assert store.get_messages("ann") == ABC


@pytest.mark.parametrize("key", ["", "a/b", "..", "\ud800\0", "é" * 300])
def test_any_text_is_a_key(key):
    store = VersionedChatStore(Memory())
    store.add_message("other", say("x"))
    store.add_message(key, say("a"))
    store.add_message(key, say("b"))
    assert store.get_messages(key) == ABC[:2]
    assert set(store.get_keys()) == {key, "other"}
    assert store.branch(key) in store.repository.branches


def test_what_changes_nothing_makes_no_commit():
    store = VersionedChatStore(Memory())
    store.delete_message("ann", 0)
    assert list(store.repository.branches) == []
    store.set_messages("ann", ABC)
    store.set_messages("ann", ABC)
    assert len(list(store.repository.log(store.branch("ann")))) == 1


def test_diff_log_blame_and_grep_show_messages():
    store = VersionedChatStore(Memory())
    store.add_message("ann", say("a room in Rome"))
    store.set_messages("ann", [say("a room in Rome"), say("in May")])
    repository, branch = store.repository, store.branch("ann")
    assert [commit.message for commit in repository.log(branch)] == ["messages +1", "messages +1"]
    assert str(repository.diff(f"{branch}~1", branch)).startswith("+ messages[1] = {'role': 'user', ")
    assert [str(match.path) for match in repository.grep("Rome", branch)] == ["messages[0].blocks[0].text"]
    assert len({row.commit for row in repository.blame("messages", branch)}) == 2


def test_an_undo_of_the_branch_takes_back_a_change():
    store = VersionedChatStore(Memory())
    store.set_messages("ann", ABC)
    store.delete_last_message("ann")
    with Versioned(store.repository, branch=store.branch("ann")) as state:
        state.undo()
    assert store.get_messages("ann") == ABC


def test_a_path_is_opened_and_closed(tmp_path):
    store = VersionedChatStore(str(tmp_path / "store"))
    store.add_message("ann", say("a"))
    store.close()
    with pytest.raises(StateError):
        store.get_messages("ann")


# Many writers


def test_threads_that_add_at_once_lose_nothing():
    store = VersionedChatStore(Memory())
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda number: store.add_message("ann", say(str(number))), range(40)))
    assert sorted(int(message.content or "") for message in store.get_messages("ann")) == list(range(40))


def add(path: Path, times: int, writer: int) -> None:
    with VersionedChatStore(path) as store:
        for number in range(times):
            store.add_message("shared", say(f"{writer} {number}"))


@pytest.mark.parametrize("times", [8, pytest.param(100, marks=pytest.mark.long)])
def test_processes_that_add_at_once_lose_and_mix_nothing(tmp_path, times):
    processes.join(*[processes.fork(partial(add, tmp_path / "store", times, writer)) for writer in range(4)])
    found = [
        each["blocks"][0]["text"]
        for each in Repository(Disk(tmp_path / "store")).snapshot("llama-index/shared")["messages"]
    ]
    assert len(found) == 4 * times
    for writer in range(4):
        assert [text for text in found if text.startswith(f"{writer} ")] == [
            f"{writer} {number}" for number in range(times)
        ]


@pytest.mark.long
def test_what_was_added_before_a_kill_is_there(tmp_path):
    program = """
    import sys
    from llama_index.core.llms import ChatMessage
    from versioned_state.integrations.llama_index import VersionedChatStore, VersionedDBChatStore

    with VersionedChatStore(sys.argv[1]) as store:
        for number in range(int(sys.argv[2]), 10_000):
            store.add_message("ann", ChatMessage(str(number)))
            print(number, flush=True)
    """

    def numbers() -> list[int]:
        with VersionedChatStore(tmp_path / "store") as store:
            return [int(message.content or "") for message in store.get_messages("ann")]

    assert_kept(program, tmp_path / "store", numbers, rounds=15)
