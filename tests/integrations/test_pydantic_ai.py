"""Conversations of pydantic-ai over a store.

The contract is written from its interface, and its own store in memory passes it too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent, BinaryContent, DeferredToolRequests
from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import (
    ConversationConflict,
    ConversationEntry,
    ConversationRecord,
    ConversationStore,
    InMemoryConversationStore,
)
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.test import TestModel
from pydantic_ai.usage import RunUsage

from tests.support import framework_messages, processes
from tests.support.killed_writers import assert_kept
from versioned_state import Disk, Memory, Repository, Versioned
from versioned_state.errors import InvalidArgumentError, StateError
from versioned_state.integrations.pydantic_ai import VersionedConversationStore

Place = Any


def ask(text: str) -> ModelMessage:
    return ModelRequest(parts=[UserPromptPart(text)])


def answer(text: str) -> ModelMessage:
    return ModelResponse(parts=[TextPart(text)])


def texts(messages: list[ModelMessage]) -> list[Any]:
    return [message.parts[0].content for message in messages]


@pytest.fixture(params=["ours", "ours on disk", "theirs in memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ConversationStore]:
    if request.param == "theirs in memory":
        yield InMemoryConversationStore()
    else:
        with VersionedConversationStore(Memory() if request.param == "ours" else tmp_path / "store") as ours:
            yield ours


async def talk(
    store: ConversationStore, conversation_id: str = "trip", *letters: str, scope: str | None = None
) -> Conversation:
    """Save one message at a time, each by a conversation that was loaded for it."""
    conversation = Conversation(conversation_id=conversation_id)
    for letter in letters or "abcd":
        conversation = await store.load(conversation_id, scope=scope) or conversation
        conversation.messages.append(ask(letter))
        await store.save(conversation, scope=scope)
    return conversation


async def loaded(store: ConversationStore, conversation_id: str = "trip", **options: Any) -> Conversation:
    conversation = await store.load(conversation_id, **options)
    assert conversation is not None
    return conversation


# The contract


async def test_what_is_saved_is_loaded(store):
    assert await store.load("trip") is None
    conversation = Conversation(
        messages=[ask("a"), answer("b")], conversation_id="trip", usage=RunUsage(requests=3, input_tokens=7)
    )
    entries = await store.save(conversation)
    assert [entry.message for entry in entries] == conversation.messages
    assert [entry.parent_id for entry in entries] == [None, entries[0].id]
    found = await loaded(store)
    assert found == conversation
    assert found.usage == RunUsage(requests=3, input_tokens=7)
    assert await store.load_entries("trip") == entries


async def test_a_save_stores_the_new_messages(store):
    conversation = await talk(store)
    assert texts((await loaded(store)).messages) == list("abcd")
    conversation.messages.append(ask("e"))
    (entry,) = await store.save(conversation)
    assert entry.parent_id == (await store.load_entries("trip"))[3].id
    assert await store.save(conversation) == []
    assert texts((await loaded(store)).messages) == list("abcde")


async def test_an_agent_continues_what_was_saved(store):
    agent = Agent(TestModel(custom_output_text="a room in Rome"))
    for number in range(3):
        conversation = await store.load("trip") or Conversation(conversation_id="trip")
        result = await agent.run(f"question {number}", conversation=conversation)
        await store.save(result)
    found = await loaded(store)
    assert len(found.messages) == 6
    assert found.usage.requests == 3


@pytest.mark.parametrize(("limit", "expected"), [(0, ""), (1, "d"), (3, "bcd"), (9, "abcd")])
async def test_the_last_messages_are_loaded_and_saved_on(store, limit, expected):
    await talk(store)
    window = await loaded(store, limit=limit)
    assert texts(window.messages) == list(expected)
    entries = await store.load_entries("trip", limit=limit)
    assert entries == (
        (await store.load_entries("trip"))[4 - limit :] if limit <= 4 else await store.load_entries("trip")
    )
    window.messages.append(ask("e"))
    await store.save(window)
    assert texts((await loaded(store)).messages) == list("abcde")


async def test_a_conversation_that_was_saved_meanwhile_is_a_conflict(store):
    await talk(store)
    first, second = await loaded(store), await loaded(store)
    first.messages.append(ask("first"))
    second.messages.append(ask("second"))
    await store.save(first)
    with pytest.raises(ConversationConflict):
        await store.save(second)
    with pytest.raises(ConversationConflict):
        await store.save(Conversation(conversation_id="trip"))
    assert texts((await loaded(store)).messages) == [*"abcd", "first"]


async def test_a_rewritten_history_leaves_the_old_one(store):
    conversation = await talk(store)
    conversation.messages[1:] = [ask("B"), ask("C")]
    await store.save(conversation)
    assert texts((await loaded(store)).messages) == list("aBC")
    record = await store.read_record("trip")
    assert [texts([entry.message for entry in await store.read_history(tip)]) for tip in record.branches] == [
        list("abcd")
    ]
    assert texts([entry.message for entry in await store.read_history(record.branches[0], limit=2)]) == list("cd")
    assert (await store.read_history(record.branches[0], limit=2))[0].parent_id == (
        await store.read_history(record.branches[0])
    )[1].id


async def test_a_history_that_the_record_no_longer_names_is_released(store):
    conversation = await talk(store)
    conversation.messages[1:] = [ask("B")]
    await store.save(conversation)
    record = await store.read_record("trip")
    (tip,) = record.branches
    await store.write_record(replace(record, branches=[], revision="next"), expected_revision=record.revision)
    assert (await store.read_record("trip")).branches == []
    assert texts((await loaded(store)).messages) == list("aB")
    if isinstance(store, VersionedConversationStore):
        assert "left" not in store.repository.snapshot(store.branch("trip"))
        with pytest.raises(LookupError):
            await store.read_history(tip)


async def test_branches_are_left_and_taken_up_again(store):
    conversation = await talk(store)
    tip = (await store.load_entries("trip"))[-1].id
    branch = await store.branch("trip", at=2, expected_revision=conversation.revision)
    assert texts(branch.messages) == list("ab")
    branch.messages.append(ask("E"))
    await store.save(branch)
    other = (await store.load_entries("trip"))[-1].id
    assert texts((await loaded(store)).messages) == list("abE")

    back = await store.branch("trip", at=1, expected_revision=branch.revision)
    back.messages.append(ask("F"))
    await store.save(back)
    assert texts((await loaded(store)).messages) == list("aF")
    record = await store.read_record("trip")
    assert record.branches == [tip, other]
    assert [texts([entry.message for entry in await store.read_history(each)]) for each in record.branches] == [
        list("abcd"),
        list("abE"),
    ]

    again = await store.branch("trip", from_entry=tip, expected_revision=back.revision)
    assert texts(again.messages) == list("abcd")
    third = (await store.read_history(tip))[2]
    middle = await store.branch("trip", from_entry=third.id, expected_revision=again.revision)
    assert texts(middle.messages) == list("abc")
    assert await store.read_entry(third.id) == third
    with pytest.raises(ConversationConflict):
        await store.branch("trip", at=1, expected_revision=conversation.revision)
    nothing = await store.branch("trip", at=0, expected_revision=middle.revision)
    assert nothing.messages == (await loaded(store)).messages == []


async def test_a_fork_shares_entries_and_goes_its_own_way(store):
    await talk(store)
    entries = await store.load_entries("trip")
    fork = await store.fork("trip", at=2, new_conversation_id="what if")
    fork.messages.append(ask("E"))
    await store.save(fork)
    assert texts((await loaded(store, "what if")).messages) == list("abE")
    assert (await store.load_entries("what if"))[:2] == entries[:2]
    record = await store.read_record("what if")
    assert (record.forked_from, record.forked_at) == ("trip", entries[1].id)
    with pytest.raises(ConversationConflict):
        await store.fork("trip", new_conversation_id="what if")

    await store.delete("trip")
    assert await store.load("trip") is None
    assert texts((await loaded(store, "what if")).messages) == list("abE")
    assert await store.read_entry(entries[1].id) == entries[1]
    with pytest.raises(LookupError):
        await store.read_entry(entries[3].id)
    with pytest.raises(LookupError):
        await store.read_history(entries[3].id)


async def test_a_fork_of_an_empty_conversation_is_empty(store):
    await store.save(Conversation(conversation_id="trip"))
    assert (await store.fork("trip", new_conversation_id="copy")).messages == []
    assert (await loaded(store, "copy")).messages == []
    assert await store.load_entries("copy") == []


async def test_conversations_are_kept_to_their_scope(store):
    await talk(store, "trip", scope="ann")
    await talk(store, "bill", scope="bob")
    assert await store.load("trip", scope="bob") is None
    with pytest.raises(ConversationConflict):
        await store.save(await loaded(store), scope="bob")
    await store.delete("trip", scope="bob")
    assert texts((await loaded(store, scope="ann")).messages) == list("abcd")
    assert [record.conversation_id for record in await store.list_conversations(scope="ann")] == ["trip"]
    assert await store.list_conversations(scope="eve") == []


async def test_conversations_are_listed_newest_first(store):
    for name in ("x", "y", "z", "x"):
        conversation = await store.load(name) or Conversation(conversation_id=name)
        conversation.messages.append(ask(name))
        await store.save(conversation)
    listed = await store.list_conversations()
    assert [record.conversation_id for record in listed] == ["x", "z", "y"]
    assert listed == [await store.read_record(record.conversation_id) for record in listed]
    assert [record.conversation_id for record in await store.list_conversations(limit=2)] == ["x", "z"]
    assert await store.list_conversations(limit=0) == []


async def test_a_deleted_conversation_begins_anew(store):
    old = await talk(store)
    await store.delete("trip")
    await store.delete("trip")
    assert await store.list_conversations() == []
    with pytest.raises(ConversationConflict):
        await store.delete_record("trip", expected_revision=old.revision)
    with pytest.raises(ConversationConflict):
        await store.save(old)
    await talk(store, "trip", "new")
    assert texts((await loaded(store)).messages) == ["new"]


async def test_a_paused_run_keeps_what_it_waits_for(store):
    requests = DeferredToolRequests(
        approvals=[ToolCallPart("pay", {"amount": 3}, tool_call_id="c")], metadata={"c": {"why": "large"}}
    )
    await store.save(Conversation(conversation_id="trip", messages=[ask("pay")], deferred_tool_requests=requests))
    assert (await loaded(store)).deferred_tool_requests == requests


async def test_an_entry_that_is_not_there_is_an_error(store):
    with pytest.raises(LookupError):
        await store.read_entry("nowhere")
    with pytest.raises(LookupError):
        await store.read_history("nowhere")
    assert await store.read_history(None) == []
    with pytest.raises(ConversationConflict):
        await store.write_record(ConversationRecord(conversation_id="trip", head_id="nowhere"), expected_revision=None)
    assert await store.read_record("trip") is None
    with pytest.raises(UserError):
        await store.load("trip", limit=-1)


async def test_what_is_returned_is_a_copy(store):
    await talk(store)
    found = await loaded(store)
    found.messages[0].parts[0].content = "changed"
    found.usage.requests = 99
    assert texts((await loaded(store)).messages) == list("abcd")
    assert (await loaded(store)).usage.requests == 0


async def test_tasks_that_save_at_once_lose_nothing(store):
    async def add(text: str) -> None:
        while True:
            conversation = await store.load("trip") or Conversation(conversation_id="trip")
            conversation.messages += [ask(text), answer(text)]
            try:
                await store.save(conversation)
            except ConversationConflict:
                continue
            return

    await asyncio.gather(*(add(str(number)) for number in range(8)))
    found = texts((await loaded(store)).messages)
    assert found[::2] == found[1::2]
    assert sorted(found[::2]) == sorted(map(str, range(8)))


# Ours


async def test_an_entry_that_follows_none_is_a_conflict():
    store = VersionedConversationStore(Memory())
    entry = ConversationEntry(id="b", parent_id="nowhere", message=ask("b"))
    with pytest.raises(ConversationConflict):
        await store.write_record(
            ConversationRecord(conversation_id="x", head_id="b"), new_entries=[entry], expected_revision=None
        )
    assert list(store.repository.branches) == []


@dataclass
class Offer:
    """A result of a tool."""

    city: str


async def test_messages_come_back_as_they_were_in_another_process(tmp_path):
    messages = framework_messages.pydantic_ai()
    with VersionedConversationStore(tmp_path / "store") as store:
        await store.save(Conversation(conversation_id="trip", messages=messages))
    with VersionedConversationStore(tmp_path / "store") as store:
        found = (await loaded(store)).messages
    assert framework_messages.record(found) == framework_messages.record(messages)
    content: Any = found[0].parts[1].content
    assert isinstance(content[2], BinaryContent)


async def test_classes_of_ones_own_come_back_if_they_are_named(tmp_path):
    messages: list[ModelMessage] = [ModelRequest(parts=[ToolReturnPart("find", Offer("Rome"), tool_call_id="c")])]
    for classes in (__name__, [__name__]):
        with VersionedConversationStore(Memory(), classes=classes) as store:
            await store.save(Conversation(conversation_id="trip", messages=messages))
            assert (await loaded(store)).messages[0].parts[0].content == Offer("Rome")


async def test_what_would_have_to_be_pickled_is_refused(tmp_path):
    store = VersionedConversationStore(tmp_path / "store")
    await talk(store)
    conversation = await loaded(store)
    conversation.messages.append(ModelRequest(parts=[ToolReturnPart("find", open, tool_call_id="c")]))
    with pytest.raises(StateError, match=r"messages\[4\]"):
        await store.save(conversation)
    assert texts((await loaded(store)).messages) == list("abcd")


def test_a_repository_must_read_the_classes():
    with pytest.raises(InvalidArgumentError, match="pydantic_ai"):
        VersionedConversationStore(Repository(Memory(), pickle="refuse"))
    VersionedConversationStore(Repository(Memory(), pickle="refuse", classes=["pydantic_ai"]))
    VersionedConversationStore(Repository(Memory()))


async def test_diff_log_blame_and_grep_show_messages():
    store = VersionedConversationStore(Memory())
    await talk(store, "trip", "a room in Rome", "in May")
    repository, branch = store.repository, store.branch("trip")
    assert [commit.message for commit in repository.log(branch)] == ["messages +1", "messages +1"]
    assert "+ messages[1] = ModelRequest(parts=[UserPromptPart(content='in May'" in str(
        repository.diff(f"{branch}~1", branch)
    )
    assert [str(match.path) for match in repository.grep("Rome", branch)] == ["messages[0].parts[0].content"]
    assert len({row.commit for row in repository.blame("messages", branch)}) == 2


async def test_a_fork_has_the_log_of_what_it_came_from():
    store = VersionedConversationStore(Memory())
    await talk(store)
    await store.fork("trip", at=2, new_conversation_id="copy")
    log = list(store.repository.log(store.branch("copy")))
    assert [commit.message for commit in log] == ["record", *["messages +1"] * 4]
    assert store.repository.merge_base(store.branch("copy"), store.branch("trip")) == store.repository.commit(
        store.branch("trip")
    )


async def test_an_undone_save_is_as_if_it_had_never_been():
    store = VersionedConversationStore(Memory())
    before = await talk(store)
    conversation = await loaded(store)
    conversation.messages.append(ask("e"))
    await store.save(conversation)
    with Versioned(store.repository, branch=store.branch("trip")) as state:
        state.undo()
    found = await loaded(store)
    assert texts(found.messages) == list("abcd")
    assert found.revision == before.revision
    found.messages.append(ask("f"))
    await store.save(found)
    assert texts((await loaded(store)).messages) == [*"abcdf"]


async def test_a_store_that_was_opened_anew_finds_entries(tmp_path):
    with VersionedConversationStore(tmp_path / "store") as store:
        conversation = await talk(store)
        entries = await store.load_entries("trip")
        assert entries is not None
        await store.branch("trip", at=1, expected_revision=conversation.revision)
    for entry in entries:
        with VersionedConversationStore(tmp_path / "store") as store:
            assert await store.read_entry(entry.id) == entry


@pytest.mark.parametrize("conversation_id", ["", "a/b", "..", "\ud800\0", "é" * 300])
async def test_any_id_is_a_conversation_of_its_own(conversation_id):
    store = VersionedConversationStore(Memory())
    await talk(store, "other", "x")
    await talk(store, conversation_id)
    assert texts((await loaded(store, conversation_id)).messages) == list("abcd")
    assert {record.conversation_id for record in await store.list_conversations()} == {"other", conversation_id}


async def test_a_branch_without_a_record_is_no_conversation():
    store = VersionedConversationStore(Memory())
    with Versioned(store.repository, branch=store.branch("trip")) as state:
        state["a"] = 1
        state.commit()
    assert await store.load("trip") is None
    assert await store.list_conversations() == []
    await talk(store)
    assert texts((await loaded(store)).messages) == list("abcd")


def add(path: Path, times: int, writer: int) -> None:
    async def work() -> None:
        with VersionedConversationStore(path) as store:
            number = 0
            while number < times:
                conversation = await store.load("shared") or Conversation(conversation_id="shared")
                conversation.messages += [ask(f"{writer} {number}"), answer(f"{writer} {number}")]
                try:
                    await store.save(conversation)
                except ConversationConflict:
                    continue
                number += 1

    asyncio.run(work())


@pytest.mark.parametrize("times", [5, pytest.param(100, marks=pytest.mark.long)])
def test_processes_that_save_at_once_lose_and_mix_nothing(tmp_path, times):
    processes.join(*[processes.fork(partial(add, tmp_path / "store", times, writer)) for writer in range(4)])
    repository = Repository(Disk(tmp_path / "store"))
    found = texts(repository.snapshot("pydantic-ai/shared")["messages"])
    assert found[::2] == found[1::2]
    for writer in range(4):
        assert [text for text in found[::2] if text.startswith(f"{writer} ")] == [
            f"{writer} {number}" for number in range(times)
        ]


@pytest.mark.long
def test_what_was_saved_before_a_kill_is_there(tmp_path):
    program = """
    import asyncio, sys
    from pydantic_ai.conversation import Conversation
    from pydantic_ai.messages import ModelRequest, UserPromptPart
    from versioned_state.integrations.pydantic_ai import VersionedConversationStore

    async def work():
        with VersionedConversationStore(sys.argv[1]) as store:
            conversation = await store.load("trip") or Conversation(conversation_id="trip")
            for number in range(int(sys.argv[2]), 10_000):
                conversation.messages.append(ModelRequest(parts=[UserPromptPart(str(number))]))
                await store.save(conversation)
                print(number, flush=True)

    asyncio.run(work())
    """

    def numbers() -> list[int]:
        with VersionedConversationStore(tmp_path / "store") as store:
            return list(map(int, texts(asyncio.run(loaded(store)).messages)))

    assert_kept(program, tmp_path / "store", numbers, rounds=15)
