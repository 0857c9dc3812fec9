"""Copies data of AgentScope Runtime from Redis into the services here. Layer: services.

Its keys, for a user ``u`` and a session ``s``::

    user_state:u:s     a hash: the number of a round, and the state as JSON
    session:u:s        a string: the session with its messages as JSON
    session_index:u    a set: the ids of the user's sessions
    user_memory:u      a hash: the id of a session, and its messages as JSON
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any, Final

from versioned_state.errors import InvalidArgumentError, LimitExceededError, UnserializableValueError
from versioned_state.off_loop import off_loop
from versioned_state.repository.repository import Repository
from versioned_state.services.agent_state.state_service import StateService
from versioned_state.services.memory.memory_service import MemoryService
from versioned_state.services.schemas.agent_schemas import Message
from versioned_state.services.schemas.contents import Content
from versioned_state.services.session_history.messages import as_messages
from versioned_state.services.session_history.session_history_service import SessionHistoryService
from versioned_state.storage import KVStore
from versioned_state.storage.redis.connection import Link

Ids = Callable[[str], tuple[str, str] | None]
"""Returns the user and the session that ``u:s`` names, if an id has a colon, or None if they are unknown."""

_TIMEOUT_S: Final = 30.0
_KEYS_AT_ONCE: Final = 1000
_EVERYTHING: Final = {"page_size": 2**31}


@dataclass(slots=True)
class CopyReport:
    """The report of a copy.

    Attributes:
        rounds: how many rounds of states were copied, without those that existed already.
        messages: how many messages of sessions were copied.
        memories: how many messages of memories were copied.
        left_out: the keys, or the fields of hashes (``KEY FIELD``), that were not copied, each with the reason.
    """

    rounds: int = 0
    messages: int = 0
    memories: int = 0
    left_out: dict[str, str] = field(default_factory=dict)


async def copy_from_redis(
    redis_url: str, store: KVStore | Repository | str | os.PathLike[str], *, ids: Ids | None = None, **options: Any
) -> CopyReport:
    """Copy the states, sessions and memories of AgentScope Runtime from a database of Redis, which is not changed.

    Each round becomes a commit, in the order of the numbers. The messages of a session are one commit, and so is each
    session of a memory. Nothing here is replaced, so the copy can be run again: it resumes after an interruption, and
    later it copies new data. Expiries are not copied.

    Args:
        redis_url: the URL of the services of AgentScope Runtime.
        store: a ``KVStore``, a ``Repository`` or a URL, as the services here take it.
        ids: the user and the session in the name of a state, which is ambiguous if one of the ids has a colon. Without
            it, users who have a session or a memory are recognised, and states that remain ambiguous are left out.
        options: those of ``StoreService``.

    Raises:
        InvalidArgumentError: a URL is malformed.
        MissingDependencyError: the extra ``redis`` is not installed.
        StorageError: Redis or the store failed. The copied data stays. Run it again.
    """
    runtime = _Runtime(redis_url)
    report = CopyReport()
    try:
        async with (
            StateService.over(store, **options) as states,
            SessionHistoryService.over(store, **options) as histories,
            MemoryService.over(store, **options) as memories,
        ):
            await _copy_states(runtime, states, ids or await _recognised(runtime), report)
            await _copy_sessions(runtime, histories, report)
            await _copy_memories(runtime, memories, report)
    finally:
        runtime.close()
    return report


class _Runtime:
    """The keys of AgentScope Runtime in a database of Redis, read off the event loop."""

    def __init__(self, url: str) -> None:
        self._link = Link(url, timeout=_TIMEOUT_S, options={}, scripts=())

    def close(self) -> None:
        self._link.close()

    async def keys(self, prefix: str, kind: str) -> AsyncIterator[str]:
        """Iterate over the keys of a kind with a prefix, sometimes one of them twice.

        Keys of another kind belong to other programs.
        """
        cursor = b"0"
        while True:
            cursor, found = await self._ask("SCAN", cursor, "MATCH", f"{prefix}*", "COUNT", _KEYS_AT_ONCE, "TYPE", kind)
            for key in found:
                yield _text(key)
            if cursor == b"0":
                return

    async def fields(self, key: str) -> list[str]:
        return [_text(each) for each in await self._ask("HKEYS", _bytes(key))]

    async def value(self, key: str, name: str | None = None) -> bytes | None:
        """Read a string, or a field of a hash. Returns None if it does not exist any more."""
        found: bytes | None = await (
            self._ask("GET", _bytes(key)) if name is None else self._ask("HGET", _bytes(key), _bytes(name))
        )
        return found

    async def _ask(self, *command: bytes | str | int) -> Any:
        (answer,) = await off_loop(lambda: self._link.run([command], patient=False))
        return answer


async def _recognised(runtime: _Runtime) -> Ids:
    """Return the ids of ``u:s``, by the users who have a session or a memory."""
    users = {key.removeprefix("session_index:") async for key in runtime.keys("session_index:", "set")}
    users |= {key.removeprefix("user_memory:") async for key in runtime.keys("user_memory:", "hash")}

    def ids(name: str) -> tuple[str, str] | None:
        colons = [at for at, letter in enumerate(name) if letter == ":" and at + 1 < len(name)]
        if len(colons) > 1:
            colons = [at for at in colons if name[:at] in users]
        return (name[: colons[0]], name[colons[0] + 1 :]) if len(colons) == 1 else None

    return ids


async def _copy_states(runtime: _Runtime, states: StateService, ids: Ids, report: CopyReport) -> None:
    async for key in runtime.keys("user_state:", "hash"):
        names = ids(key.removeprefix("user_state:"))
        if names is None:
            report.left_out[key] = "an id has a colon, so nobody can know where the user's id ends: say it with ids="
            continue
        user, session = names
        there = set(await states.list_rounds(user, session))
        rounds = []
        for name in await runtime.fields(key):
            if name.isascii() and name.isdecimal() and name == str(int(name)):
                rounds.append(int(name))
            else:
                report.left_out[f"{key} {name}"] = "not the number of a round"
        for number in sorted(set(rounds) - there):
            text = await runtime.value(key, str(number))
            if text is None:
                continue
            try:
                await states.save_state(user, json.loads(text), session, number)
            except _UNUSABLE as error:
                report.left_out[f"{key} {number}"] = _reason(error)
            else:
                report.rounds += 1


async def _copy_sessions(runtime: _Runtime, histories: SessionHistoryService, report: CopyReport) -> None:
    async for key in runtime.keys("session:", "string"):
        text = await runtime.value(key)
        if text is None:
            continue
        try:
            user, id, messages = _session(key, json.loads(text))
            as_messages(messages)
        except _UNUSABLE as error:
            report.left_out[key] = _reason(error)
            continue
        session = await histories.create_session(user, id)
        here, there = _ids_of(session.messages), _ids_of(messages)
        if there[: len(here)] == here:
            try:
                await histories.append_message(session, messages[len(here) :])
            except _UNUSABLE as error:
                report.left_out[key] = _reason(error)
            else:
                report.messages += len(messages) - len(here)
        elif here[: len(there)] != there:
            report.left_out[key] = "a session of this id with other messages is here"


async def _copy_memories(runtime: _Runtime, memories: MemoryService, report: CopyReport) -> None:
    async for key in runtime.keys("user_memory:", "hash"):
        user = key.removeprefix("user_memory:")
        here = Counter(_ids_of(await memories.list_memory(user, _EVERYTHING)))
        for session in sorted(await runtime.fields(key)):  # in the order of list_memory
            text = await runtime.value(key, session)
            if text is None:
                continue
            try:
                messages = [message for message in _messages(json.loads(text)) if not _taken(here, message)]
                await memories.add_memory(user, messages, session)
            except _UNUSABLE as error:
                report.left_out[f"{key} {session}"] = _reason(error)
            else:
                report.memories += len(messages)


def _taken(counted: Counter[Any], message: Any) -> bool:
    """Return whether a message is among those that were counted by their ids, and remove it from them."""
    (id,) = _ids_of([message])
    if not isinstance(id, str) or not counted[id]:
        return False
    counted[id] -= 1
    return True


def _session(key: str, found: Any) -> tuple[str, str, list[Any]]:
    """Return the user, the id and the messages of a session. Raises ``InvalidArgumentError`` if it is not a session."""
    if not isinstance(found, dict) or key != f"session:{found.get('user_id')}:{found.get('id')}":
        raise InvalidArgumentError("not a session of AgentScope Runtime")
    user, id = found["user_id"], found["id"]
    if not isinstance(user, str) or not isinstance(id, str) or not id.strip():
        raise InvalidArgumentError("a session needs an id that is not blank")
    return user, id, _messages(found.get("messages"))


def _messages(found: Any) -> list[Any]:
    """Return messages without their empty fields, which AgentScope Runtime writes as null."""
    if not isinstance(found, list):
        raise InvalidArgumentError("not a list of messages")
    return [_said(each) for each in found]


def _said(message: Any) -> Any:
    if not isinstance(message, dict):
        return message
    said = {name: value for name, value in message.items() if value is not None or name not in Message.model_fields}
    if isinstance(content := said.get("content"), list):
        said["content"] = [_without_nulls(part) if isinstance(part, dict) else part for part in content]
    return said


def _without_nulls(part: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in part.items() if value is not None or name not in Content.model_fields}


def _ids_of(messages: list[Any]) -> list[Any]:
    return [each.get("id") if isinstance(each, dict) else getattr(each, "id", None) for each in messages]


def _text(found: bytes) -> str:
    return found.decode("utf-8", "surrogateescape")


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


_UNUSABLE: Final = (ValueError, RecursionError, LimitExceededError, UnserializableValueError)
"""The errors of one value, which do not affect the others.

``InvalidArgumentError`` and ``JSONDecodeError`` are ``ValueError``s.
"""


def _reason(error: BaseException) -> str:
    return "not JSON" if isinstance(error, json.JSONDecodeError | UnicodeDecodeError | RecursionError) else str(error)
