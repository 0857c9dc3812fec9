"""``RemoteSessionService``: the sessions of a server, whose turns begin and end with a request each.

Layer: services.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final
from uuid import uuid4

from versioned_state.arguments import as_ttl, count, instance_of
from versioned_state.errors import InvalidArgumentError
from versioned_state.services.base import as_id, check_counts
from versioned_state.services.remote import bodies
from versioned_state.services.remote.remote_memory_service import RemoteMemoryService
from versioned_state.services.remote.remote_service import RemoteService
from versioned_state.services.remote.remote_session_history_service import RemoteSessionHistoryService
from versioned_state.services.remote.remote_state_service import RemoteStateService
from versioned_state.services.session.session_service import SessionService
from versioned_state.services.session.turn import Turn, TurnState

_ROOT: Final = "/v1/session"


@dataclass(frozen=True, slots=True)
class RemoteCommit:
    """A commit of a server's session: the attributes of ``Commit`` that do not need the store.

    Two are equal if their ids are.

    Attributes:
        id: 48 hex digits.
        parents: the ids of its parents.
        time: microseconds since 1970, UTC.
        author: the author, or None.
        message: the message.
        meta: the data kept with it.
    """

    id: str
    parents: tuple[str, ...] = field(compare=False)
    time: int = field(compare=False)
    author: str | None = field(compare=False)
    message: str = field(compare=False)
    meta: dict[str, Any] = field(compare=False)

    @property
    def short(self) -> str:
        """The first 12 digits of the id."""
        return self.id[:12]


def _commit(document: dict[str, Any] | None) -> Any:
    if document is None:
        return None
    return RemoteCommit(**{**document, "parents": tuple(document["parents"]), "meta": document["meta"] or {}})


class _History(RemoteSessionHistoryService):
    root = _ROOT


class _Memory(RemoteMemoryService):
    root = _ROOT


class RemoteSessionService(RemoteService, SessionService):
    """The session service of a server: see ``RemoteService`` for its arguments, and ``SessionService`` for its calls.

    A turn begins with a request for the state, of which it has a copy, and ends with a request that has the changed
    keys. A turn whose session was moved back meanwhile raises ``BranchMovedError``.
    """

    lane_of = "session"

    def __init__(self, url: str, token: str, *, create_missing: bool = True, **options: Any) -> None:
        super().__init__(url, token, **options)
        self._parts = (
            RemoteStateService(url, token, **options),
            _History(url, token, create_missing=create_missing, **options),
            _Memory(url, token, **options),
        )

    @property
    def state(self) -> RemoteStateService:
        return self._parts[0]

    @property
    def history(self) -> RemoteSessionHistoryService:
        return self._parts[1]

    @property
    def memory(self) -> RemoteMemoryService:
        return self._parts[2]

    async def start(self) -> None:
        """Get ready. Nothing is sent: ``health`` finds out whether the server answers."""
        for each in self._parts:
            await each.start()
        await super().start()

    async def stop(self) -> None:
        """Refuse new calls, finish the accepted ones, and close the connections."""
        await super().stop()
        for each in self._parts:
            await each.stop()

    def turn(self, user_id: str, session_id: str, *, ttl_seconds: float | None = None, message: str = "") -> Turn:
        user, session = as_id("user_id", user_id), _session(session_id)
        if ttl_seconds is not None:
            as_ttl(ttl_seconds)
        return _RemoteTurn(self, user, session, ttl_seconds, instance_of("message", message, str))

    async def undo(self, user_id: str, session_id: str, turns: int = 1) -> Any:
        count("turns", turns, least=1)
        answer = await self._call("POST", "/v1/session/undo", user_id, _session(session_id), turns=turns)
        return _commit(answer["commit"])

    async def fork(self, user_id: str, session_id: str, to: str | None = None) -> str:
        # here, so that a repeated request does not make another copy
        name = str(uuid4()) if to is None else _session(to)
        await self._call("POST", "/v1/session/fork", user_id, _session(session_id), to=name)
        return name

    async def log(self, user_id: str, session_id: str, *, limit: int | None = None) -> list[Any]:
        """Return the commits of a session, newest first, and at most 1,000.

        The list is empty if there is no such session.
        """
        check_counts(limit=limit)
        found = await self._call("GET", "/v1/session/log", user_id, _session(session_id), limit=limit, absent=list)
        return [_commit(each) for each in found]

    async def delete_session(self, user_id: str, session_id: str) -> None:
        await self._call("DELETE", "/v1/session", user_id, _session(session_id), absent=lambda: None)


class _CopiedState(TurnState):
    """The state of a turn as a copy, of which the values that were read are compared at the end."""

    def __init__(self, values: dict[str, Any]) -> None:
        super().__init__(values)
        self._values: dict[str, Any] | None
        self._before: dict[str, bytes | None] = {}

    def _note(self, key: str) -> None:
        if key not in self._before:
            self._before[key] = bodies.encode({key: self._open[key]}) if key in self._open else None

    def __getitem__(self, key: str) -> Any:
        self._note(key)
        return super().__getitem__(key)

    def __setitem__(self, key: str, value: Any) -> None:
        if type(key) is not str:
            raise InvalidArgumentError(
                f"the keys of a state must be strings, not {type(key).__name__}", remains="nothing was changed"
            )
        self._note(key)
        super().__setitem__(key, value)

    def __delitem__(self, key: str) -> None:
        self._note(key)
        super().__delitem__(key)

    def changes(self) -> tuple[dict[str, Any], list[str]]:
        """Return the keys with other values than at the beginning, and the removed keys."""
        now = self._open
        changed = {
            key: now[key]
            for key, before in self._before.items()
            if key in now and bodies.encode({key: now[key]}) != before
        }
        return changed, [key for key, before in self._before.items() if before is not None and key not in now]


class _RemoteTurn(Turn):
    """A turn of a server's session."""

    def __init__(
        self, service: RemoteSessionService, user_id: str, session_id: str, ttl_seconds: float | None, message: str
    ) -> None:
        super().__init__()
        self._service = service
        self._ids = user_id, session_id
        self._ttl_seconds = ttl_seconds
        self._message = message
        self._base = ""

    async def _begin(self) -> TurnState:
        found = await self._service._call("GET", "/v1/session/turn", *self._ids)
        self._base = found["base"]
        return _CopiedState(found["state"])

    async def _end(self, state: TurnState) -> Any:
        assert isinstance(state, _CopiedState)
        values, removed = state.changes()
        body = {
            "base": self._base,
            "values": values,
            "removed": removed,
            "messages": self._messages,
            "memory": self._remembered,
            "message": self._message,
        }
        answer = await self._service._call(
            "POST", "/v1/session/turn", *self._ids, body=body, ttl_seconds=self._ttl_seconds
        )
        return _commit(answer["commit"])

    async def _fail(self) -> None:
        """Do nothing: nothing was sent."""


def _session(session_id: object) -> str:
    session = as_id("session_id", session_id).strip()
    if not session:
        raise InvalidArgumentError("session_id must not be empty")
    return session
