"""Calls of services whose session another client erases, with its history, while they read it."""

from __future__ import annotations

from contextlib import suppress

import pytest

from tests.support.event_loop import steps_of
from tests.support.services.erasing import Erasing
from tests.support.services.history_contract import text, texts
from versioned_state import Memory
from versioned_state.errors import SessionNotFoundError
from versioned_state.services.agent_state import StateService
from versioned_state.services.schemas.session import Session
from versioned_state.services.session_history import SessionHistoryService


@pytest.mark.parametrize("opened", ["cold", "warm"])
@pytest.mark.parametrize("call", ["save", "export", "rounds", "sessions", "delete", "retain"])
def test_a_user_who_is_erased_at_any_read_of_a_call_of_the_state_service_is_no_error(call: str, opened: str) -> None:
    state = {"messages": [f"message {n} " * 30 for n in range(100)]}
    long = "x" * 300

    async def attempt(reads: int) -> bool:
        memory = Memory()
        async with StateService.over(memory) as other:
            for number in range(3):
                await other.save_state("u", {**state, "n": number}, long)
        store = Erasing(memory)
        async with StateService.over(store) as service:
            if opened == "warm":
                await service.save_state("u", {**state, "n": "warm"}, long)
            store.left = reads
            if call == "save":
                assert await service.save_state("u", {**state, "n": "late"}, long) in (1, 4, 5)
            elif call == "export":
                assert await service.export_state("u", long, 2) in (None, {**state, "n": 1})
            elif call == "rounds":
                assert await service.list_rounds("u", long) in ([], [1, 2, 3], [1, 2, 3, 4])
            elif call == "sessions":
                assert await service.list_sessions("u") in ([], [long])
            elif call == "delete":
                await service.delete_state("u", long, 2)
            else:
                assert await service.retain("u", long, keep_last=1) in (0, 2, 3)
            was_erased, store.left = store.left is None, None
            rounds = await service.list_rounds("u", long)
            if call == "save" and rounds:
                assert await service.export_state("u", long) == {**state, "n": "late"}
            assert await service.save_state("u", state, long) == max(rounds, default=0) + 1
            assert service.repository.fsck().ok
        return was_erased

    assert steps_of(attempt, first=0) or opened == "warm"


@pytest.mark.parametrize("opened", ["cold", "warm"])
@pytest.mark.parametrize("call", ["create", "get", "append", "list", "delete"])
def test_a_user_who_is_erased_at_any_read_of_a_call_of_the_history_service_is_no_error(call: str, opened: str) -> None:
    session = Session(id="x" * 300, user_id="u")

    async def attempt(reads: int) -> bool:
        memory = Memory()
        async with SessionHistoryService.over(memory) as other:
            await other.create_session("u", session.id)
            await other.append_message(session, [text(f"message {n} " * 30) for n in range(100)])
        store = Erasing(memory)
        async with SessionHistoryService.over(store, create_missing=False) as service:
            if opened == "warm":
                await service.append_message(session, text("warm"))
            store.left = reads
            if call == "create":
                assert len((await service.create_session("u", session.id)).messages) in (0, 100, 101)
            elif call == "get":
                found = await service.get_session("u", session.id)
                assert found is None or len(found.messages) in (100, 101)
            elif call == "append":
                with suppress(SessionNotFoundError):
                    await service.append_message(session, text("late"))
            elif call == "list":
                assert [each.id for each in await service.list_sessions("u")] in ([], [session.id])
            else:
                await service.delete_session("u", session.id)
            was_erased, store.left = store.left is None, None
            await service.create_session("u", session.id)
            await service.append_message(session, text("anew"))
            found = await service.get_session("u", session.id, last=1)
            assert texts(found) == ["anew"]
            assert service.repository.fsck().ok
        return was_erased

    assert steps_of(attempt, first=0) or opened == "warm"
