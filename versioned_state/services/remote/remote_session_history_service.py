"""``RemoteSessionHistoryService``: the sessions of a server. Layer: services."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from versioned_state.arguments import instance_of
from versioned_state.errors import AccessDeniedError, InvalidArgumentError
from versioned_state.services.remote.remote_service import RemoteService
from versioned_state.services.schemas.session import Session
from versioned_state.services.session_history.messages import as_messages, session_of
from versioned_state.services.session_history.session_history_service import Given, SessionHistoryService


class RemoteSessionHistoryService(RemoteService, SessionHistoryService):
    """A server's session history, with the calls of ``VersionedSessionHistoryService``.

    The other arguments are those of ``RemoteService``.

    Args:
        create_missing: ``get_session`` creates a session that never existed, unless the token only reads.
    """

    lane_of = "history"

    def __init__(self, url: str, token: str, *, create_missing: bool = True, **options: Any) -> None:
        super().__init__(url, token, **options)
        self._create_missing = create_missing

    async def create_session(
        self, user_id: str, session_id: str | None = None, *, ttl_seconds: float | None = None, last: int | None = None
    ) -> Session:
        """Create a session and return it. An existing session is returned with its messages, and does not change."""
        if session_id is None or not _stripped(session_id):
            session_id = str(uuid4())  # here, so that a repeated request does not create another one
        created = await self._call(
            "POST", "/v1/history/sessions", user_id, _stripped(session_id), ttl_seconds=ttl_seconds, last=last
        )
        return session_of(created)

    async def get_session(self, user_id: str, session_id: str, last: int | None = None) -> Session | None:
        """Return a session with its messages, or the ``last`` ones, oldest first, or None if it was deleted."""
        session_id = _stripped(session_id)
        found = await self._call("GET", "/v1/history/session", user_id, session_id, last=last, absent=lambda: None)
        if found is None and self._create_missing:
            try:
                found = await self._call(
                    "POST", "/v1/history/session", user_id, session_id, last=last, absent=lambda: None
                )
            except AccessDeniedError:
                return None
        return None if found is None else session_of(found)

    async def delete_session(self, user_id: str, session_id: str) -> None:
        """Delete a session. Does nothing if there is none."""
        await self._call("DELETE", "/v1/history/session", user_id, _stripped(session_id), absent=lambda: None)

    async def list_sessions(self, user_id: str, *, after: str | None = None, limit: int | None = None) -> list[Session]:
        """List the sessions of a user, without their messages."""
        found = await self._call("GET", "/v1/history/sessions", user_id, after=after, limit=limit, absent=list)
        return [session_of(each) for each in found]

    async def append_message(
        self, session: Session, message: Given | Sequence[Given], *, ttl_seconds: float | None = None
    ) -> None:
        """Append one or more messages to a stored session and to the given session object: all of them or none."""
        if not hasattr(session, "messages"):
            raise InvalidArgumentError(
                f"session must be a Session, not {type(session).__name__}", remains="nothing was appended"
            )
        messages = as_messages(message)
        if messages:
            body = [stored for _, stored in messages]
            await self._call(
                "POST",
                "/v1/history/messages",
                session.user_id,
                _stripped(session.id),
                body=body,
                ttl_seconds=ttl_seconds,
            )
            session.messages.extend(each for each, _ in messages)

    async def delete_user_sessions(self, user_id: str) -> None:
        """Delete all sessions that a user has at the time of the call. After a failure, some are left."""
        await self._call("DELETE", "/v1/history/sessions", user_id, absent=lambda: None)


def _stripped(session_id: object) -> str:
    return instance_of("session_id", session_id, str).strip()
