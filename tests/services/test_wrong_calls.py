"""Calls as somebody makes them who does not know the services: each error names the argument, and says the way out."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from versioned_state.errors import InvalidArgumentError, StateError, UnknownRevisionError
from versioned_state.services import RemoteStateService
from versioned_state.services.agent_state import InMemoryStateService, StateService
from versioned_state.services.memory import InMemoryMemoryService, MemoryService
from versioned_state.services.sandbox import SandboxService
from versioned_state.services.schemas.agent_schemas import Message
from versioned_state.services.schemas.session import Session
from versioned_state.services.session_history import InMemorySessionHistoryService, SessionHistoryService

OPENAI = {"role": "user", "content": "hello"}


@pytest.mark.parametrize("service", [StateService, SessionHistoryService, MemoryService])
def test_a_setting_that_is_missing_is_not_a_store_in_memory(service: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="None is not a store") as caught:
        service.over(None)
    assert "memory:" in caught.value.hint


@pytest.mark.parametrize(
    "option", [{"threads": 0}, {"threads": "4"}, {"handles": -1}, {"handles": None}, {"cache_bytes": -1}], ids=repr
)
@pytest.mark.parametrize("service", [InMemoryStateService, InMemorySessionHistoryService, InMemoryMemoryService])
def test_an_option_that_makes_no_sense_is_named_at_once(service: Callable[..., object], option: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError, match=next(iter(option))):
        service(**option)


async def test_an_argument_is_named() -> None:
    async with InMemoryStateService() as states, InMemorySessionHistoryService() as histories:
        with pytest.raises(InvalidArgumentError, match="older_than must be a timedelta, not int"):
            await states.retain("u", older_than=30)  # type: ignore[arg-type]
        with pytest.raises(InvalidArgumentError, match="session_id must be a string, not int"):
            await histories.list_sessions("u", after=7)  # type: ignore[arg-type]


async def test_a_message_of_chat_completions_says_how_to_convert_it() -> None:
    async with InMemorySessionHistoryService() as histories, InMemoryMemoryService() as memories:
        session = await histories.create_session("u", "s")
        for call in (histories.append_message(session, OPENAI), memories.add_memory("u", [OPENAI])):
            with pytest.raises(InvalidArgumentError, match="content") as caught:
                await call
            assert "from_openai_message" in caught.value.hint
        await histories.append_message(session, Message.from_openai_message(OPENAI))
        with pytest.raises(InvalidArgumentError) as caught:
            await histories.append_message(Session(id="s", user_id="u"), {"role": "robot"})
        assert not caught.value.hint


async def test_a_text_is_not_a_message() -> None:
    async with InMemoryMemoryService() as memories:
        query: Any = "cat"
        with pytest.raises(
            InvalidArgumentError, match=r"^the message is not valid: Input should be .*; nothing was changed"
        ) as caught:
            await memories.search_memory("u", query)
        assert "Message(role=" in caught.value.hint


@pytest.mark.parametrize("service", [StateService, SessionHistoryService, MemoryService])
def test_an_abstract_service_says_which_ones_can_be_made(service: Any) -> None:
    with pytest.raises(TypeError, match=rf"{service.__name__}\.over\(store_or_url\).*InMemory{service.__name__}\(\)"):
        service()

    class Adapter(service):  # type: ignore[misc]
        """Lacks what it has to implement."""

    with pytest.raises(TypeError, match="health"):
        Adapter()


async def test_a_service_shows_its_place_and_no_password() -> None:
    service = StateService.over("redis://user:secret@host/0")
    assert repr(service) == "<VersionedStateService over redis://user:***@host/0, not started>"
    async with InMemoryStateService() as states:
        assert repr(states).startswith("<InMemoryStateService over <Repository over <Memory")
        assert not repr(states).endswith("not started>")
    assert (
        repr(RemoteStateService("http://127.0.0.1:8420", "secret")) == "<RemoteStateService at http://127.0.0.1:8420>"
    )


async def test_a_restore_before_there_is_a_round_says_so() -> None:
    async with InMemoryStateService() as states, SandboxService(states) as sandboxes:
        sandboxes.connect("s", "u", ["filesystem"])
        with pytest.raises(UnknownRevisionError, match="the latest round"):
            await sandboxes.restore("s", "u")
        with pytest.raises(UnknownRevisionError, match="round 3"):
            await sandboxes.restore("s", "u", 3)


async def test_arguments_that_are_right_work() -> None:
    async with InMemoryStateService(threads=1, handles=0, cache_bytes=0) as states:
        assert await states.save_state("u", {}) == 1
        assert await states.retain("u", older_than=timedelta(days=1)) == 0
        with pytest.raises(StateError):
            await states.retain("u")
