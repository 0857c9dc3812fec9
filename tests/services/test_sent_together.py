"""Saves and appends of many sessions that go to the store in one round trip: each is made or not by itself."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from threading import Lock
from typing import Any

import pytest

from tests.support.services.together import Together
from versioned_state import Memory, Repository, Versioned
from versioned_state.errors import QuotaExceededError, SessionNotFoundError, UnserializableValueError
from versioned_state.services.agent_state import StateService
from versioned_state.services.schemas.agent_schemas import Message
from versioned_state.services.schemas.session import Session
from versioned_state.services.session_history import SessionHistoryService
from versioned_state.storage.base import Batch

SESSIONS = 20


def names(branch: str, batch: Batch) -> bool:
    """Whether a batch moves a branch."""
    return any(key.endswith(branch) for key in batch.expected)


def messages_of(session: Session | None) -> list[Message]:
    """The messages of a session that is there."""
    assert session is not None
    assert all(isinstance(message, Message) for message in session.messages)
    return [message for message in session.messages if isinstance(message, Message)]


def numbers(session: Session | None) -> list[object]:
    """The numbers in the metadata of a session's messages."""
    return [message.metadata["n"] for message in messages_of(session) if message.metadata]


def once(store: Together, branch: str, before: object) -> None:
    """Call ``before`` as soon as a batch that moves a branch is about to be applied."""
    done: list[bool] = []

    def look(batches: Sequence[Batch]) -> None:
        if not done and any(names(branch, batch) for batch in batches):
            done.append(True)
            assert callable(before)
            before()

    store.before = look


async def save_all(
    service: StateService, state: dict[str, Any], sessions: int = SESSIONS, *, fails: bool = False
) -> list[Any]:
    """Save a state in each session at once. Returns the rounds and, if some fail, errors."""
    saves = (service.save_state(f"u{at}", state) for at in range(sessions))
    return await asyncio.gather(*saves, return_exceptions=fails)


async def append_all(
    service: SessionHistoryService, sessions: Sequence[Session], number: int, *, fails: bool = False
) -> list[Any]:
    """Append a message with a number to each session at once. Returns None for each and, if some fail, errors."""
    appends = (service.append_message(session, {"metadata": {"n": number}}) for session in sessions)
    return await asyncio.gather(*appends, return_exceptions=fails)


async def test_saves_of_many_sessions_share_round_trips_and_each_is_a_round() -> None:
    store = Together(Memory())
    async with StateService.over(store) as service:
        for n in range(4):
            await asyncio.gather(
                *(service.save_state(f"u{at}", {"n": n, "at": at, "list": [*range(n)]}) for at in range(SESSIONS))
            )
        assert max(store.round_trips) > 1
        for at in range(SESSIONS):
            assert await service.list_rounds(f"u{at}") == [1, 2, 3, 4]
            assert [(await service.export_state(f"u{at}", None, n + 1)) for n in range(4)] == [
                {"n": n, "at": at, "list": [*range(n)]} for n in range(4)
            ]
    assert Repository(store).fsck().ok


async def test_a_session_that_has_moved_is_saved_alone_and_holds_up_no_other() -> None:
    store = Together(Memory())
    async with StateService.over(store) as service, StateService.over(store.store) as other:
        await save_all(service, {"n": 1})
        moved = service.branch("u3")

        def move() -> None:
            with Versioned(store.store, branch=moved) as state:
                state["by hand"] = True
                state.commit()

        once(store, moved, move)
        assert await save_all(service, {"n": 2}) == [2] * SESSIONS
        assert await other.export_state("u3") == {"n": 2}
        # the round on which the commit was made
        assert await other.export_state("u3", None, 1) == {"n": 1, "by hand": True}
        once(store, moved, lambda: Repository(store.store).branches.delete(moved, force=True))
        saved = await save_all(service, {"n": 3})
        assert saved == [1 if at == 3 else 3 for at in range(SESSIONS)]  # the session that was deleted begins anew


async def test_a_lost_answer_concerns_one_session_and_its_round_is_there_once() -> None:
    store = Together(Memory())
    async with StateService.over(store) as service:
        await save_all(service, {"n": 1})
        branch = service.branch("u5")
        store.lost = lambda batch: names(branch, batch)
        assert await save_all(service, {"n": 2}) == [2] * SESSIONS
        store.lost = lambda _: False
        assert await service.list_rounds("u5") == [1, 2]
        assert await save_all(service, {"n": 3}) == [3] * SESSIONS


async def test_a_quota_concerns_the_session_that_reaches_it() -> None:
    async with StateService.over(Together(Memory()), max_rounds=2) as service:
        await save_all(service, {"n": 1}, 4)
        await service.save_state("u0", {"n": 2})
        found = await save_all(service, {"n": 3}, 4, fails=True)
        assert isinstance(found[0], QuotaExceededError)
        assert found[1:] == [2, 2, 2]
        assert await service.export_state("u0") == {"n": 2}


async def test_what_is_large_goes_alone_so_that_no_other_session_waits_for_it() -> None:
    store = Together(Memory())
    large: list[int] = []

    def look(batches: Sequence[Batch]) -> None:
        large.extend(len(batches) for batch in batches if sum(map(len, batch.objects.values())) > 500_000)

    async with StateService.over(store) as service, SessionHistoryService.over(store) as history:
        sessions = [await history.create_session(f"u{at}", "s") for at in range(SESSIONS)]
        store.before = look
        for n in range(3):
            texts = [os.urandom(500_000).hex() if at == 7 else "" for at in range(SESSIONS)]
            await asyncio.gather(*(service.save_state(f"u{at}", {"n": n, "text": texts[at]}) for at in range(SESSIONS)))
            await asyncio.gather(
                *(
                    history.append_message(sessions[at], {"metadata": {"n": n, "text": texts[at]}})
                    for at in range(SESSIONS)
                )
            )
            assert await service.export_state("u7") == {"n": n, "text": texts[7]}
        assert set(large) == {1}
        assert max(store.round_trips) > 1
        assert numbers(await history.get_session("u7", "s")) == [0, 1, 2]


async def test_saves_beside_a_gc_at_work_are_kept() -> None:
    store = Together(Memory())
    async with StateService.over(store) as service:
        await save_all(service, {"n": 1})
        collecting = asyncio.ensure_future(asyncio.to_thread(service.repository.gc))
        await save_all(service, {"n": 2, "x": "y" * 300})
        await collecting
        await save_all(service, {"n": 3})
        for at in range(SESSIONS):
            assert await service.export_state(f"u{at}", None, 2) == {"n": 2, "x": "y" * 300}
    assert Repository(store).fsck().ok


async def test_appends_to_many_sessions_share_round_trips_and_keep_their_order() -> None:
    store = Together(Memory())
    async with SessionHistoryService.over(store) as service:
        sessions = [await service.create_session(f"u{at}", "s") for at in range(SESSIONS)]
        for n in range(3):
            texts: list[dict[str, Any]] = [
                {"role": "user", "content": [{"type": "text", "text": f"{n}"}]},
                {"role": "assistant", "metadata": {"n": n}},
            ]
            await asyncio.gather(*(service.append_message(session, text) for text in texts for session in sessions))
        assert max(store.round_trips) > 1
        for at in range(SESSIONS):
            kept = messages_of(await service.get_session(f"u{at}", "s"))
            assert [message.role for message in kept] == ["user", "assistant"] * 3
            assert [message.id for message in kept] == [message.id for message in messages_of(sessions[at])]


async def test_an_append_to_a_session_that_moved_or_is_gone_concerns_no_other() -> None:
    store = Together(Memory())
    async with SessionHistoryService.over(store) as service, SessionHistoryService.over(store.store) as other:
        sessions = [await service.create_session(f"u{at}", "s") for at in range(SESSIONS)]
        await append_all(service, sessions, 1)
        theirs = await other.get_session("u2", "s")
        assert theirs is not None
        once(
            store,
            service.branch("u2", "s"),
            lambda: asyncio.run(other.append_message(theirs, {"metadata": {"n": "between"}})),
        )
        await append_all(service, sessions, 2)
        assert numbers(await other.get_session("u2", "s")) == [1, "between", 2]

        branch = service.branch("u7", "s")
        once(store, branch, lambda: Repository(store.store).branches.delete(branch, force=True))
        found = await append_all(service, sessions, 3, fails=True)
        assert isinstance(found[7], SessionNotFoundError)
        assert [each for at, each in enumerate(found) if at != 7] == [None] * (SESSIONS - 1)
        assert [len(session.messages) for session in sessions] == [2 if at == 7 else 3 for at in range(SESSIONS)]


async def test_a_lost_answer_to_an_append_leaves_its_message_once() -> None:
    store = Together(Memory())
    async with SessionHistoryService.over(store) as service:
        sessions = [await service.create_session(f"u{at}", "s") for at in range(SESSIONS)]
        branch = service.branch("u4", "s")
        store.lost = lambda batch: names(branch, batch)
        for n in range(3):
            await append_all(service, sessions, n)
        store.lost = lambda _: False
        assert numbers(await service.get_session("u4", "s")) == [0, 1, 2]


async def test_a_message_that_cannot_be_stored_concerns_its_caller() -> None:
    async with SessionHistoryService.over(Together(Memory())) as service:
        sessions = [await service.create_session(f"u{at}", "s") for at in range(4)]
        for _ in range(2):  # the handles are open the second time
            messages = [{"metadata": {"n": Lock() if at == 1 else at}} for at in range(4)]
            calls = (
                service.append_message(session, message) for session, message in zip(sessions, messages, strict=True)
            )
            found = await asyncio.gather(*calls, return_exceptions=True)
            assert [type(each) for each in found] == [type(None), UnserializableValueError, type(None), type(None)]
        with pytest.raises(UnserializableValueError):
            await service.append_message(sessions[0], messages[1])
