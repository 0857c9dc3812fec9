"""Adapters on servers, which many machines share, and on a store that takes one condition at a time, as S3 does."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from agent_framework import Message, WorkflowCheckpoint, WorkflowCheckpointException
from llama_index.core.llms import ChatMessage
from pydantic_ai.conversation import Conversation
from pydantic_ai.messages import ModelRequest, UserPromptPart

from tests.support.stores import OneCondition
from versioned_state.integrations.agent_framework import VersionedCheckpointStorage, VersionedHistoryProvider
from versioned_state.integrations.llama_index import VersionedChatStore, VersionedDBChatStore
from versioned_state.integrations.openai_agents import VersionedSession
from versioned_state.integrations.pydantic_ai import VersionedConversationStore

Place = Any


@pytest.fixture(params=["redis", "postgres", "one condition"])
def place(request: pytest.FixtureRequest) -> Place:
    """A URL, or a store of which each adapter is handed the same."""
    return (
        OneCondition()
        if request.param == "one condition"
        else request.getfixturevalue(f"{request.param}_server").fresh_url()
    )


async def test_a_session_of_openai_agents(place):
    with VersionedSession(place, "s") as one, VersionedSession(place, "s") as two:
        await asyncio.gather(
            *(each.add_items([{"role": "user", "content": str(number)}]) for number in range(6) for each in (one, two))
        )
        found = [item["content"] for item in await two.get_items()]
        assert sorted(found) == sorted([*"012345"] * 2)
        assert [item["content"] for item in await one.undo(2)] == found[-2:]
        fork = await two.fork("fork", turn=3)
        assert len(await fork.get_items()) == 2
        assert len(await two.get_items(3)) == 3


async def test_conversations_of_pydantic_ai(place):
    with VersionedConversationStore(place) as one, VersionedConversationStore(place) as two:
        conversation = Conversation(
            conversation_id="c", messages=[ModelRequest(parts=[UserPromptPart(letter)]) for letter in "abc"]
        )
        await one.save(conversation, scope="ann")
        found = await two.load("c", scope="ann")
        assert found == conversation
        await two.fork("c", at=1, new_conversation_id="fork")
        assert [record.conversation_id for record in await one.list_conversations(scope="ann")] == ["fork", "c"]
        await one.branch("c", at=1, expected_revision=conversation.revision)
        record = await two.read_record("c")
        assert record is not None
        assert [entry.message for entry in await two.read_history(record.branches[0])] == conversation.messages
        await two.delete("c")
        assert await one.load("c") is None


async def test_chat_stores_of_llama_index(place):
    with VersionedChatStore(place) as one, VersionedDBChatStore(place) as two:
        for letter in "abc":
            await one.async_add_message("k", ChatMessage(letter))
        await two.archive_oldest_messages("k", 1)
        assert [message.content for message in one.get_messages("k")] == ["b", "c"]
        assert one.delete_messages("k") == [ChatMessage("b"), ChatMessage("c")]
        assert await two.get_keys() == []


async def test_checkpoints_and_histories_of_agent_framework(place):
    with (
        VersionedCheckpointStorage(place) as one,
        VersionedCheckpointStorage(place) as two,
        VersionedHistoryProvider(place) as history,
    ):
        await history.save_messages("s", [Message("user", ["hi"])])
        assert [message.text for message in await history.get_messages("s")] == ["hi"]
        saved = WorkflowCheckpoint("w", "h", state={"n": 1})
        if isinstance(place, OneCondition):
            with pytest.raises(WorkflowCheckpointException, match="condition"):
                await one.save(saved)
            return
        await one.save(saved)
        assert await two.get_latest(workflow_name="w") == saved
        assert await two.delete(saved.checkpoint_id)
        assert await one.list_checkpoints(workflow_name="w") == []
