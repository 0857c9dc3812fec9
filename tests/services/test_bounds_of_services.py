"""Sessions that keep their newest messages alone, and memory that expires."""

from __future__ import annotations

import pytest

from tests.support.services.clock import Clock
from tests.support.services.history_contract import texts
from tests.support.services.memory_contract import said, texts_of
from versioned_state import Memory, Repository
from versioned_state.errors import InvalidArgumentError
from versioned_state.services.memory import MemoryService
from versioned_state.services.session_history import SessionHistoryService


async def test_the_oldest_messages_leave_a_session_beyond_its_limit_and_history_keeps_them() -> None:
    async with SessionHistoryService.over(Memory(), max_messages_per_session=3) as service:
        session = await service.create_session("u", "s")

        async def kept() -> list[str]:
            found = await service.get_session("u", "s")
            assert found is not None
            return texts(found)

        for number in range(3):
            await service.append_message(session, said(str(number)))
        await service.append_message(session, [said("3"), said("4")])
        assert await kept() == ["2", "3", "4"]
        await service.append_message(session, [said(str(number)) for number in range(5, 12)])
        assert await kept() == ["9", "10", "11"]
        log = service.repository.log(service.branch("u", "s"))
        assert [len(service.repository.snapshot(commit)["messages"]) for commit in log] == [3, 3, 3, 2, 1, 0]
    for wrong in (0, -1, True, "3"):
        with pytest.raises(InvalidArgumentError, match="max_messages_per_session"):
            SessionHistoryService.over(Memory(), max_messages_per_session=wrong)


async def test_memory_expires_after_its_time_to_live_and_begins_anew() -> None:
    store, clock = Memory(), Clock()
    async with (
        MemoryService.over(Repository(store, clock=clock), ttl_seconds=60) as service,
        MemoryService.over(Repository(store, clock=clock)) as other,
    ):
        await service.add_memory("u", [said("apple one")], "s")
        clock.wait(50)
        assert texts_of(await other.search_memory("u", [said("apple")])) == ["apple one"]
        clock.wait(11)
        assert await service.list_memory("u") == []
        await other.add_memory("u", [said("apple two")], "s")
        assert texts_of(await other.search_memory("u", [said("apple")])) == ["apple two"]
        await service.add_memory("v", [said("apple")])
        clock.wait(61)
        assert await service.list_memory("v") == []
        assert service.repository.expire() == [service.branch("v")]
    for wrong in (-1, True, "1"):
        with pytest.raises(InvalidArgumentError, match="ttl_seconds"):
            MemoryService.over(store, ttl_seconds=wrong)
