"""The calls that change something in the three services: what is there before, the call, and a look at all there is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from tests.support.services.history_contract import text as said, texts
from tests.support.services.memory_contract import texts_of
from versioned_state.errors import RefExistsError
from versioned_state.services import SessionService
from versioned_state.services.agent_state import StateService
from versioned_state.services.memory import MemoryService
from versioned_state.services.schemas.session import Session
from versioned_state.services.session_history import SessionHistoryService

USERS = ("u", "v")


@dataclass(frozen=True)
class Change:
    """A call that changes something.

    Attributes:
        of: the service of the call.
        call: makes it.
        is_remote: whether the services over HTTP have it.
    """

    name: str
    of: Any
    call: Callable[[Any], Awaitable[Any]]
    is_remote: bool = True


async def prepare(service: Any) -> None:
    """Make what is there before each change."""
    for user in USERS:
        if isinstance(service, SessionService):
            for id in ("s", "t"):
                for number in range(3):
                    await take_turn(service, f"{id} {number}", user, id)
        elif isinstance(service, StateService):
            for number in range(3):
                await service.save_state(user, {"n": number, "list": [{"item": n} for n in range(20 + number)]}, "s")
            await service.save_state(user, {"other": True}, "t")
        elif isinstance(service, SessionHistoryService):
            for id in ("s", "t"):
                session = await service.create_session(user, id)
                await service.append_message(session, [said(f"{id} {n}") for n in range(3)])
        else:
            for id in ("s", "t"):
                await service.add_memory(user, [said(f"{id} {n}") for n in range(3)], id)


async def take_turn(service: SessionService, text: str, user: str = "u", session: str = "s") -> None:
    """Take a turn that changes the state, the messages and the memory of a session."""
    async with service.turn(user, session) as turn:
        turn.state["n"] = text
        turn.state.setdefault("list", []).append({"item": text})
        turn.append(said(text))
        turn.remember(said(f"fact {text}"))


async def _fork(service: SessionService) -> None:
    with suppress(RefExistsError):
        await service.fork("u", "s", to="copy")


async def look(service: Any) -> Any:
    """Return all that a service has."""
    seen: dict[str, Any] = {}
    for user in USERS:
        if isinstance(service, SessionService):
            for part in (service.state, service.history, service.memory):
                seen |= {f"{type(part).__name__} {name}": value for name, value in (await look(part)).items()}
        elif isinstance(service, StateService):
            for id in await service.list_sessions(user):
                rounds = await service.list_rounds(user, id)
                seen[f"{user} {id}"] = [(number, await service.export_state(user, id, number)) for number in rounds]
        elif isinstance(service, SessionHistoryService):
            for each in await service.list_sessions(user):
                session = await service.get_session(user, each.id)
                seen[f"{user} {each.id}"] = None if session is None else texts(session)
        else:
            seen[user] = texts_of(await service.list_memory(user, {"page_size": 100}))
            seen[f"{user} found"] = sorted(texts_of(await service.search_memory(user, [said("0 1 2 new")])))
    return seen


STATE = {"n": "new", "list": [{"item": n} for n in range(25)]}
NEW = Session(id="s", user_id="u")

CHANGES = [
    Change("save", StateService, lambda service: service.save_state("u", STATE, "s")),
    Change("save a new session", StateService, lambda service: service.save_state("u", STATE, "new")),
    Change("replace a round", StateService, lambda service: service.save_state("u", STATE, "s", 2)),
    Change("delete a state", StateService, lambda service: service.delete_state("u", "s")),
    Change("delete a round", StateService, lambda service: service.delete_state("u", "s", 3)),
    Change("retain", StateService, lambda service: service.retain("u", "s", keep_last=1), is_remote=False),
    Change("delete a user's states", StateService, lambda service: service.delete_user("u"), is_remote=False),
    Change("create a session", SessionHistoryService, lambda service: service.create_session("u", "new")),
    Change("get a new session", SessionHistoryService, lambda service: service.get_session("u", "new")),
    Change("append", SessionHistoryService, lambda service: service.append_message(NEW.model_copy(), said("new"))),
    Change(
        "append some",
        SessionHistoryService,
        lambda service: service.append_message(NEW.model_copy(), [said("new"), said("newer")]),
    ),
    Change("delete a session", SessionHistoryService, lambda service: service.delete_session("u", "s")),
    Change("delete all sessions", SessionHistoryService, lambda service: service.delete_user_sessions("u")),
    Change(
        "delete a user's sessions", SessionHistoryService, lambda service: service.delete_user("u"), is_remote=False
    ),
    Change("add", MemoryService, lambda service: service.add_memory("u", [said("new"), said("newer")], "s")),
    Change("delete a memory", MemoryService, lambda service: service.delete_memory("u", "s")),
    Change("delete all memory", MemoryService, lambda service: service.delete_memory("u")),
    Change("turn", SessionService, lambda service: take_turn(service, "new")),
    Change("first turn", SessionService, lambda service: take_turn(service, "new", session="new")),
    Change("undo", SessionService, lambda service: service.undo("u", "s")),
    Change("fork", SessionService, _fork),
    Change("delete a whole session", SessionService, lambda service: service.delete_session("u", "s")),
    Change("clear", MemoryService, lambda service: service.clear_all_memory(), is_remote=False),
    Change("delete a user's memory", MemoryService, lambda service: service.delete_user("u"), is_remote=False),
]
