"""A chat service for many users: histories of sessions, memory across sessions, and an agent's state, over one store.

python examples/chat_service.py
"""

from __future__ import annotations

import asyncio
import tempfile

from versioned_state import Disk
from versioned_state.services.agent_state import StateService
from versioned_state.services.memory import MemoryService
from versioned_state.services.schemas.agent_schemas import AgentRole, Message, Role, TextContent
from versioned_state.services.session_history import SessionHistoryService

IN_VIEW = 6
"""Messages of a session that the model sees; the others are in history."""


def message(role: AgentRole, text: str) -> Message:
    return Message(role=role, content=[TextContent(text=text)])


def model(seen: list[Message], remembered: list[Message], mood: str) -> str:
    """A model goes here; this one shows what it was given."""
    known = "; ".join(each.get_text_content() or "" for each in remembered)
    return f"({mood}, {len(seen)} messages in view) I remember: {known or 'nothing'}"


class Chat:
    """What a web server would call for each request.

    It keeps nothing between two calls, so any number of processes may run it.
    """

    def __init__(self, store: Disk) -> None:
        self.states = StateService.over(store)
        self.histories = SessionHistoryService.over(store)
        self.memories = MemoryService.over(store)

    async def answer(self, user: str, session_id: str, text: str) -> str:
        """One round: read what is needed, ask the model, and keep what was said."""
        session = await self.histories.create_session(user, session_id, last=IN_VIEW)
        question = message(Role.USER, text)
        remembered = await self.memories.search_memory(user, [question], {"rank": "bm25", "top_k": 2})
        state = await self.states.export_state(user, session_id) or {"mood": "curious", "rounds": 0}

        reply = model([*session.messages, question], remembered, state["mood"])  # type: ignore[list-item]

        await self.histories.append_message(session, [question, message(Role.ASSISTANT, reply)])
        await self.memories.add_memory(user, [question], session_id)
        state = {"mood": "happy" if "thank" in text.lower() else state["mood"], "rounds": state["rounds"] + 1}
        await self.states.save_state(user, state, session_id)
        return reply


async def talk(store: Disk) -> None:
    chat = Chat(store)
    async with chat.states, chat.histories, chat.memories:
        # Users and sessions side by side: none waits for another.
        await asyncio.gather(
            chat.answer("alice", "monday", "My cat is called Tom."),
            chat.answer("bob", "monday", "I live in Oslo."),
        )
        for text in ("We fly to Rome in May.", "Thank you!", "What else?", "And then?"):
            await chat.answer("alice", "monday", text)
        reply = await chat.answer("alice", "friday", "What is my cat called?")
        print("friday:", reply)
        assert "My cat is called Tom." in reply
        assert "Tom" not in await chat.answer("bob", "friday", "What is my cat called?")

        # A session is a branch: which round changed the mood, and what did the agent have then?
        repository, branch = chat.states.repository, chat.states.branch("alice", "monday")
        blame = repository.blame("mood", branch)[0]
        round_id = blame.commit.meta["round"]
        print(f"mood of round {round_id}: {await chat.states.export_state('alice', 'monday', round_id)}")
        assert round_id == 3

        whole = await chat.histories.get_session("alice", "monday")
        assert whole is not None
        print("messages of monday:", len(whole.messages))

        # Bob leaves, and nothing of his is left in any of the services.
        report = await chat.states.delete_user("bob")
        print(
            "erased:",
            len(report.branches),
            "branches;",
            "nothing is left" if report.is_complete else f"left: {report.left}",
        )
        assert report.is_complete
        assert await chat.memories.list_memory("bob") == []


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, Disk(folder) as store:
        asyncio.run(talk(store))


if __name__ == "__main__":
    main()
