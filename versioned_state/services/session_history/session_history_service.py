"""``SessionHistoryService``: the messages of sessions, and its implementation over a store. Layer: services."""

from __future__ import annotations

import os
from abc import abstractmethod
from asyncio import gather
from collections.abc import Sequence
from functools import partial
from typing import Any, Final
from uuid import uuid4

from versioned_state.arguments import as_ttl, count
from versioned_state.errors import InvalidArgumentError
from versioned_state.off_loop import to_the_end
from versioned_state.repository.names.branch_name import branch_name
from versioned_state.repository.repository import Repository
from versioned_state.services.base import ServiceWithLifecycleManager, as_id, check_counts
from versioned_state.services.calls.locks import Locks
from versioned_state.services.calls.turn import Steps
from versioned_state.services.schemas.agent_schemas import Message
from versioned_state.services.schemas.session import Session
from versioned_state.services.session_history.messages import as_messages
from versioned_state.services.session_history.stored_sessions import Append, Quotas, SessionName, StoredSessions
from versioned_state.services.store_service import StoreService, on_redis
from versioned_state.services.users import UserErasure
from versioned_state.storage import KVStore

Given = Message | dict[str, Any]
"""A message as an argument."""


_DELETED_AT_ONCE: Final = 16


class SessionHistoryService(ServiceWithLifecycleManager):
    """The messages of sessions, by user and session.

    ``over`` returns one over any store. Adapters to other services subclass it.
    """

    @staticmethod
    def over(store: KVStore | Repository | str | os.PathLike[str], **options: Any) -> VersionedSessionHistoryService:
        """Return the service over a store, a ``Repository`` or a URL.

        The options are those of ``VersionedSessionHistoryService``.
        """
        return VersionedSessionHistoryService.over(store, **options)

    @abstractmethod
    async def create_session(self, user_id: str, session_id: str | None = None) -> Session:
        """Create a session and return it. An existing session is returned with its messages.

        Args:
            session_id: stripped of blanks. If it is None or blank, a new id is made.
        """

    @abstractmethod
    async def get_session(self, user_id: str, session_id: str) -> Session | None:
        """Return a session with copies of its messages, oldest first, or None if there is no such session."""

    @abstractmethod
    async def delete_session(self, user_id: str, session_id: str) -> None:
        """Delete a session. Does nothing if there is none."""

    @abstractmethod
    async def list_sessions(self, user_id: str) -> list[Session]:
        """List the sessions of a user, without their messages."""

    @abstractmethod
    async def append_message(self, session: Session, message: Given | Sequence[Given]) -> None:
        """Append one or more messages to a stored session and to the given session object: all of them or none.

        Args:
            message: a ``Message``, a dict of its fields, or a list of either.
        """

    async def delete_user_sessions(self, user_id: str) -> None:
        """Delete all sessions of a user."""
        for session in await self.list_sessions(user_id):
            await self.delete_session(user_id, session.id)


class VersionedSessionHistoryService(StoreService, SessionHistoryService):
    """Sessions over a store: each is a branch with a list under ``messages``, and an append is a commit.

    The cost of an append or of a read of the last messages is that of these messages, whatever the length of the
    session. Appends that wait for their turn on one session are committed together. Each call returns once its messages
    are stored.

    Args:
        store: as for ``StoreService``. The other options of ``StoreService`` are allowed too.
        create_missing: ``get_session`` creates a session that never existed. For a deleted one it returns None until
            ``create_session``.
        ttl_seconds: new sessions expire that long after their last change, or never if it is None.
            ``repository.expire()`` deletes them.
        max_message_bytes: the largest size of a message, about as packed. Larger ones are refused.
        max_messages: how many messages a session may have. An append of more is refused.
        max_messages_per_session: how many messages stay in a session: an append removes the oldest ones beyond. History
            keeps them.
        max_sessions: how many sessions a user may have. Each process that creates one at the same moment may exceed it
            by one.
    """

    kind = "%messages"

    def __init__(
        self,
        store: KVStore | Repository | str | os.PathLike[str] | None = None,
        *,
        create_missing: bool = True,
        ttl_seconds: float | None = None,
        max_message_bytes: int | None = None,
        max_messages: int | None = None,
        max_sessions: int | None = None,
        max_messages_per_session: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(store, **options)
        self._quotas = Quotas(max_message_bytes, max_messages, max_sessions, max_messages_per_session)
        self._creations = Locks()
        self._create_missing = create_missing
        self._ttl = None if ttl_seconds is None else as_ttl(ttl_seconds)

    def branch(self, user_id: str, session_id: str) -> str:
        """Return the name of a session's branch. Raises ``InvalidArgumentError`` if an id is not a string."""
        return super().branch(user_id, _stripped(session_id))

    async def create_session(
        self, user_id: str, session_id: str | None = None, *, ttl_seconds: float | None = None, last: int | None = None
    ) -> Session:
        """Create a session and return it. An existing session is returned with its messages, and does not change.

        Args:
            session_id: stripped of blanks. If it is None or blank, a new id is made.
            ttl_seconds: overrides that of the service. 0 means never.
            last: read only this many of the newest messages of an existing session.

        Raises:
            InvalidArgumentError: an argument is invalid.
            QuotaExceededError: the user has too many sessions.
            StorageError: the store failed. The session may have been created.
        """
        session_id = _stripped("" if session_id is None else session_id) or str(uuid4())
        branch, last = self.branch(user_id, session_id), _as_last(last)
        ttl = self._ttl if ttl_seconds is None else as_ttl(ttl_seconds)
        name = SessionName(user_id, session_id)
        return await self.run_in_turn(branch, lambda: self._sessions.create(branch, name, ttl, last))

    async def get_session(self, user_id: str, session_id: str, last: int | None = None) -> Session | None:
        """Return a session with copies of its messages, oldest first.

        Returns None if it was deleted and not created again, and without ``create_missing`` if it was never created. A
        session that gc has removed, 30 days after its deletion, counts as never created. Cost: a read, and one path
        with the messages.

        Args:
            last: read only this many of the newest messages.

        Raises:
            InvalidArgumentError: an argument is invalid.
            StorageError: the store failed.
        """
        branch, last = self.branch(user_id, session_id), _as_last(last)
        name = SessionName(user_id, session_id.strip())
        return await self.run_in_turn(branch, lambda: self._get(branch, name, last))

    async def delete_session(self, user_id: str, session_id: str) -> None:
        """Delete a session, if there is one.

        Its reflog keeps it for 30 days, and ``repository.branches`` can restore it.

        Raises:
            InvalidArgumentError: an id is not a string.
            StorageError: the store failed. The session may have been deleted.
        """
        branch = self.branch(user_id, session_id)
        await self.run_in_turn(branch, lambda: self._delete(branch))

    async def list_sessions(self, user_id: str, *, after: str | None = None, limit: int | None = None) -> list[Session]:
        """List the sessions of a user, without their messages, in the order of their branches' names.

        Cost: what it lists.

        Args:
            after: begin after the session with this id, which need not exist.
            limit: the largest number of sessions to return.

        Raises:
            InvalidArgumentError: an argument is invalid.
            StorageError: the store failed.
        """
        prefix = self._prefix(user_id)
        start = None if after is None else self.branch(user_id, after)
        check_counts(limit=limit)
        return await self.run_in_turn(prefix, lambda: self._sessions.listing(user_id, prefix, start, limit))

    async def append_message(
        self, session: Session, message: Given | Sequence[Given], *, ttl_seconds: float | None = None
    ) -> None:
        """Append one or more messages to a stored session and to the given session object: all of them or none.

        The messages are stored as they are at the call. Cost: one batch to the store, and two reads and one path unless
        this service has used the session recently.

        Args:
            session: gives the ids of the user and the session. Its messages are not read.
            message: a ``Message``, a dict of its fields, or a list of either.
            ttl_seconds: from now on the session expires that long after its last change. 0 means never, and None as
                before.

        Raises:
            InvalidArgumentError: a message is not valid.
            QuotaExceededError: a message is too large, or the session would have too many.
            UnserializableValueError, PickleRefusedError, LimitExceededError: a value in a message cannot be stored.
            SessionNotFoundError: there is no such session. This is also a ``KeyError``.
            CommitInDoubtError: the store failed, and may have the messages. Read the session to find out.
            StorageError: the store failed. Nothing was appended.

            After any of them, the session object is as it was.
        """
        _check_session(session)
        branch, ttl = self.branch(session.user_id, session.id), _as_ttl(ttl_seconds)
        messages = as_messages(message)
        self._quotas.check_sizes([stored for _, stored in messages])
        if messages:
            item = Append(branch, session, [each for each, _ in messages], [stored for _, stored in messages], ttl)
            await self._run_item_steps(branch, item, self._append)

    async def delete_user_sessions(self, user_id: str) -> None:
        """Delete all sessions of a user at the time of the call.

        If it is cancelled, it ends first. After a failure, some are left.

        Raises:
            InvalidArgumentError: the id is not a string.
            StorageError: the store failed.
        """
        await to_the_end(self._delete_all(user_id))

    async def delete_user(self, user_id: str) -> UserErasure:
        """Erase all of a user's data in the store, with its history, also that of the other services.

        Returns a report as proof.

        Cost: as of ``purge``. A call on the user's sessions that is made meanwhile begins a new session.

        Raises:
            InvalidArgumentError: the id is not a string.
            UnsafeStoreError: gc cannot run over this store, so nothing could be erased. Nothing was changed.
            UnfinishedPurgeError: it did not finish. Its ``report`` lists the erased branches. Run it again.
            StoreBusyError, StorageError: nothing was erased.
        """
        prefix = self._prefix(user_id)
        return await self.run_in_turn(prefix, lambda: self._sessions.erase_user(user_id))

    @property
    def _sessions(self) -> StoredSessions:
        """The sessions, for a call on a thread."""
        return StoredSessions(*self._accepted, self._quotas, self._creations)

    def _get(self, branch: str, name: SessionName, last: int | None) -> Session | None:
        sessions = self._sessions
        found = sessions.read(branch, name, last)
        if found is not None or not self._create_missing or not name.session_id or sessions.was_deleted(branch):
            return found
        return sessions.create(branch, name, self._ttl, last)

    def _append(self, items: list[Append]) -> Steps[Sequence[None]]:
        return self._sessions.append_in_steps(items)

    async def _delete_all(self, user_id: str) -> None:
        prefix = self._prefix(user_id)
        database, branch = self.repository.database, f"{VersionedSessionHistoryService.kind}/{branch_name(user_id)}"
        names = await self.run_in_turn(prefix, lambda: database.planned(branch, lambda: self._sessions.names(prefix)))
        for at in range(0, len(names), _DELETED_AT_ONCE):
            await gather(
                *(self.run_in_turn(name, partial(self._delete, name)) for name in names[at : at + _DELETED_AT_ONCE])
            )
        await self.run_in_turn(prefix, lambda: database.end_plan(branch))

    def _delete(self, branch: str) -> None:
        self._sessions.delete(branch)

    def _prefix(self, user_id: str) -> str:
        """Return the prefix of a user's branches. Raises ``InvalidArgumentError`` if the id is not a string."""
        return f"{self.kind}/{branch_name(as_id('user_id', user_id))}/"


class InMemorySessionHistoryService(VersionedSessionHistoryService):
    """Sessions in memory, lost with the service. ``start`` is optional."""

    def __init__(self, **options: Any) -> None:
        super().__init__(None, **options)


class RedisSessionHistoryService(VersionedSessionHistoryService):
    """Sessions on a Redis or Valkey server.

    Args:
        redis_url: a URL for ``open_store``, by default of the server on this machine. A ``KVStore`` or ``Repository``
            works too.
        redis_client: refused, because the service needs connections of its own.

    Raises:
        InvalidArgumentError: a client was given, or the URL is malformed.
    """

    def __init__(
        self, redis_url: str | KVStore | Repository | None = None, redis_client: object = None, **options: Any
    ) -> None:
        super().__init__(on_redis(redis_url, redis_client), **options)


def _as_ttl(seconds: float | None) -> int | None:
    return None if seconds is None else as_ttl(seconds)


def _stripped(session_id: Any) -> Any:
    return session_id.strip() if isinstance(session_id, str) else session_id


def _check_session(session: object) -> None:
    """Raise ``InvalidArgumentError`` unless it is a ``Session``, or has the same attributes."""
    if not all(hasattr(session, name) for name in ("id", "user_id")) or not isinstance(
        getattr(session, "messages", None), list
    ):
        raise InvalidArgumentError(
            f"session must be a Session, not {type(session).__name__}", remains="nothing was appended"
        )


def _as_last(last: int | None) -> int | None:
    return None if last is None else count("last", last)
