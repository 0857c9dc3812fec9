"""``SessionService``: a session's state, messages, memory and files on one branch, changed by turns. Layer: services.

::

    turn ── opened at the head ── your block ──┬── one commit: state, messages, memory, files, and the round's number
                                               ├── the branch had moved: our changes are merged by path,
                                               │   the messages appended anew
                                               └── the block raised: nothing
"""

from __future__ import annotations

import os
import re
from abc import abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from versioned_state.arguments import as_ttl, count, instance_of
from versioned_state.errors import InvalidArgumentError, ServiceNotStartedError
from versioned_state.repository.history.commit import Commit
from versioned_state.repository.names.branch_name import id_of
from versioned_state.repository.repository import Repository
from versioned_state.services import users
from versioned_state.services.agent_state.session_handle import Session
from versioned_state.services.agent_state.state_service import StateService, VersionedStateService
from versioned_state.services.base import ServiceWithLifecycleManager, as_id, check_counts
from versioned_state.services.memory.memories import session_name
from versioned_state.services.memory.memory_service import MemoryService
from versioned_state.services.memory.stored_memory import Addition
from versioned_state.services.session.chat import ChatService
from versioned_state.services.session.session_memory import SessionMemoryService
from versioned_state.services.session.stored_turns import OpenTurn, StoredTurns
from versioned_state.services.session.turn import Turn, TurnState
from versioned_state.services.session_history.session_history_service import SessionHistoryService
from versioned_state.services.session_history.stored_sessions import SessionName
from versioned_state.services.store_service import StoreService
from versioned_state.services.users import UserErasure
from versioned_state.storage import KVStore

if TYPE_CHECKING:
    from versioned_state.repository.merging.policies import Policy

_ID: Final = re.compile("[0-9a-f]{48}")

_PARTS: Final = {
    "max_state_bytes": "state",
    "max_rounds": "state",
    "embedder": "memory",
    "vector_bytes": "memory",
} | dict.fromkeys(("create_missing", "max_message_bytes", "max_messages", "max_messages_per_session"), "history")
"""Options of the services that a ``SessionService`` has as parts."""


class SessionService(ServiceWithLifecycleManager):
    """Sessions whose state, messages and memory change together, by turns.

    ::

        async with service.turn("alice", "trip") as turn:
            turn.append({"role": "user", "content": [{"type": "text", "text": "To Rome!"}]})
            turn.state["city"] = "Rome"
        turn.commit.id

    Attributes:
        state, history, memory: the same sessions as a ``StateService``, a ``SessionHistoryService`` and a
            ``MemoryService``.
    """

    @staticmethod
    def over(store: KVStore | Repository | str | os.PathLike[str], **options: Any) -> VersionedSessionService:
        """Return the service over a store, a ``Repository`` or a URL.

        The options are those of ``VersionedSessionService``.
        """
        return VersionedSessionService.over(store, **options)

    @property
    @abstractmethod
    def state(self) -> StateService:
        """The states of the sessions: a round is a turn."""

    @property
    @abstractmethod
    def history(self) -> SessionHistoryService:
        """The messages of the sessions."""

    @property
    @abstractmethod
    def memory(self) -> MemoryService:
        """The memories of the users, of all their sessions."""

    @abstractmethod
    def turn(self, user_id: str, session_id: str, *, ttl_seconds: float | None = None, message: str = "") -> Turn:
        """Return a turn of a session, which is created if it does not exist: ``async with service.turn(…) as turn``."""

    @abstractmethod
    async def undo(self, user_id: str, session_id: str, turns: int = 1) -> Commit | None:
        """Take back the last turns of a session, with all that came after them.

        Returns the new head, or None without a turn before.
        """

    @abstractmethod
    async def fork(self, user_id: str, session_id: str, to: str | None = None) -> str:
        """Copy a session, with its history, at the cost of a reference.

        Returns the id of the copy, by default a new one.
        """

    @abstractmethod
    async def log(self, user_id: str, session_id: str, *, limit: int | None = None) -> list[Commit]:
        """Return the commits of a session, newest first. The list is empty if there is no such session."""

    @abstractmethod
    async def delete_session(self, user_id: str, session_id: str) -> None:
        """Delete a session: state, messages, memory and files. Without effect if it does not exist."""


class VersionedSessionService(StoreService, SessionService):
    """Sessions over a store: each is the branch ``branch(user_id, session_id)``, and each turn one commit.

    A turn costs what it touches, whatever the length of the session: one read of its head, and one batch, sent together
    with those of other sessions. Turns of one session may run at the same time, also in other processes: the states are
    merged by path, and the messages of both are kept, each turn's in their order.

    The service opens what the separate services have written over the same store. States and memories lie where they
    were. The messages of a session are moved to its branch on first use, so that a separate history service has the
    session no more.

    Args:
        store: as for ``StoreService``, whose other options are allowed too.
        ttl_seconds: sessions expire that long after their last turn, or never if it is None.
        max_sessions: as for the state and the history service.
        options: those of ``VersionedStateService``, ``VersionedSessionHistoryService`` and ``VersionedMemoryService``.
    """

    def __init__(
        self,
        store: KVStore | Repository | str | os.PathLike[str] | None = None,
        *,
        ttl_seconds: float | None = None,
        max_sessions: int | None = None,
        **options: Any,
    ) -> None:
        own: dict[str, dict[str, Any]] = {"state": {}, "history": {}, "memory": {}}
        for name in _PARTS.keys() & options.keys():
            own[_PARTS[name]][name] = options.pop(name)
        super().__init__(store, **options)
        self._ttl = None if ttl_seconds is None else as_ttl(ttl_seconds)
        self._state = VersionedStateService(
            self._place, ttl_seconds=ttl_seconds, max_sessions=max_sessions, **own["state"], **options
        )
        self._history = ChatService(self._place, ttl_seconds=ttl_seconds, max_sessions=max_sessions, **own["history"])
        self._memory = SessionMemoryService(self._place, **own["memory"])
        self._history.forget = self._forget

    @property
    def state(self) -> VersionedStateService:
        self._open_in_memory()
        return self._state

    @property
    def history(self) -> ChatService:
        self._open_in_memory()
        return self._history

    @property
    def memory(self) -> SessionMemoryService:
        self._open_in_memory()
        return self._memory

    def branch(self, user_id: str, session_id: str) -> str:
        """Return the name of a session's branch.

        Raises ``InvalidArgumentError`` if an id is not a string, or is empty.
        """
        session = as_id("session_id", session_id).strip()
        if not session:
            raise InvalidArgumentError("session_id must not be empty")
        return super().branch(user_id, session)

    # Turns

    def turn(
        self,
        user_id: str,
        session_id: str,
        *,
        ttl_seconds: float | None = None,
        message: str = "",
        policies: Mapping[str, Policy] | None = None,
        workspace: str | os.PathLike[str] | None = None,
        base: str | None = None,
    ) -> StoredTurn:
        """Return a turn of a session: ``async with service.turn(…) as turn``.

        The session is created if it does not exist.

        Args:
            ttl_seconds: from this turn on, the session expires that long after its last one. By default that of the
                service. 0 is never.
            message: the message of the commit. By default, a summary of the changes.
            policies: resolve conflicts with turns that ended meanwhile, as for ``Versioned.commit``.
            workspace: a folder whose files belong to the session. They are in the commit, and if the block fails, they
                are as before it. The files of sandboxes over ``state`` are in each turn without it.
            base: the id of the head with which the turn has begun elsewhere, as ``read`` returned it.

        Raises:
            InvalidArgumentError: an argument is invalid.

            At the begin of the block: ``StorageError``. At its end, after which nothing of the turn is left, unless
                stated otherwise:

            IdempotencyConflictError: the session has another message with the id of one that was appended.
            MergeConflictError: another turn, which ended meanwhile, changed the same part of the state.
            QuotaExceededError: a message or the state is too large, or the session has too many.
            UnserializableValueError, PickleRefusedError, LimitExceededError: a value cannot be stored; the error names
                its path.
            BranchMovedError: the session was deleted or moved back meanwhile.
            CommitInDoubtError: the store failed, and may have the turn. If it is repeated with the same ids, its
                messages are stored once.
            StorageError: the store failed.
        """
        branch = self.branch(user_id, session_id)
        ttl = self._ttl if ttl_seconds is None else as_ttl(ttl_seconds)
        instance_of("message", message, str)
        if base is not None and not _ID.fullmatch(instance_of("base", base, str)):
            raise InvalidArgumentError("base must be the id of a commit, 48 hex digits")
        folder = None if workspace is None else Path(workspace)
        user, session = as_id("user_id", user_id), as_id("session_id", session_id).strip()
        asked = OpenTurn(
            branch,
            Session(user, session, id_of(branch.rpartition("/")[2]) == session),
            SessionName(user, session),
            ttl,
            message,
            dict(policies or {}),
            folder,
            base,
        )
        return StoredTurn(self, asked)

    async def read(self, user_id: str, session_id: str) -> tuple[str, dict[str, Any]]:
        """Return the id of a session's head and its state: the beginning of a turn that ends with ``turn(…, base=id)``.

        Without a session, it is the id of the empty root commit, and an empty state.
        """
        branch = self.branch(user_id, session_id)
        return await self.run_in_turn(branch, lambda: self._turns.read(branch))

    async def undo(self, user_id: str, session_id: str, turns: int = 1) -> Commit | None:
        """Take back the last turns of a session, with all that came after them: state, messages, memory and files.

        Returns the new head, or None if no turn was before them: then there is no such session any more. Its reflog
        keeps what was taken back, and ``repository`` can restore it. The files of a workspace follow with the next
        turn. Cost: reads the commits taken back.

        Raises:
            InvalidArgumentError: ``turns`` is not 1 or more, or the session has fewer, or ``prune`` removed the commit
                before them. Nothing was changed.
            SessionNotFoundError: there is no such session.
            StorageError: the store failed. The turns may have been taken back.
        """
        count("turns", turns, least=1)
        branch = self.branch(user_id, session_id)
        return await self.run_in_turn(branch, lambda: self._turns.undo(branch, session_id, turns))

    async def fork(self, user_id: str, session_id: str, to: str | None = None) -> str:
        """Copy a session, with its history, at the cost of a reference.

        Returns the id of the copy, by default a new one.

        Raises:
            SessionNotFoundError: there is no such session.
            RefExistsError: the session ``to`` exists. Nothing was changed.
            StorageError: the store failed. The copy may have been made.
        """
        branch = self.branch(user_id, session_id)
        name = SessionName(user_id, str(uuid4()) if to is None else as_id("to", to).strip())
        target = self.branch(user_id, name.session_id)
        own = SessionName(user_id, session_id.strip())
        await self.run_in_turn(branch, lambda: self._turns.fork(branch, own, target, name, self._ttl))
        return name.session_id

    async def log(self, user_id: str, session_id: str, *, limit: int | None = None) -> list[Commit]:
        """Return the commits of a session, newest first, at most ``limit``.

        The list is empty if there is no such session.

        The meta of a turn's commit has the number of its ``round``. Cost: the commits.
        """
        branch = self.branch(user_id, session_id)
        check_counts(limit=limit)
        return await self.run_in_turn(branch, lambda: self._turns.log(branch, limit))

    async def delete_session(self, user_id: str, session_id: str) -> None:
        """Delete a session: state, messages, memory and files. Its reflog keeps it for 30 days."""
        await self.history.delete_session(user_id, session_id)

    async def delete_user(self, user_id: str) -> UserErasure:
        """Erase all of a user's data in the store, with its history.

        Returns a report as proof. Raises as that of ``state``.
        """
        user = as_id("user_id", user_id)

        return await self.run_in_turn(
            f"{SessionMemoryService.kind}/{user}",
            lambda: users.delete_user(self.repository, user, forget=self._forget),
        )

    # Beginning and end

    def _forget(self, branch: str) -> None:
        self._memory.stored.forget(branch)

    def _open_in_memory(self) -> None:
        """Get ready, if the service needs no start. The parts refuse calls by themselves."""
        with suppress(ServiceNotStartedError):
            self._check_started()

    def _open(self) -> None:
        if self._lanes is None:
            super()._open()
            self._state.join(self)
            self._history.join(self)
            self._memory.join(self)

    def _stop(self) -> None:
        super()._stop()  # the calls of the parts end too: they are on the same lanes
        for part in (self._state, self._history, self._memory):
            part.leave()

    @property
    def _turns(self) -> StoredTurns:
        """The turns, for a call on a thread."""
        return StoredTurns(*self._accepted, self._history.stored, self._memory.stored, self._state.session_hooks)


class StoredTurn(Turn):
    """A turn over a store."""

    def __init__(self, service: VersionedSessionService, asked: OpenTurn) -> None:
        super().__init__()
        self._service = service
        self._asked = asked

    async def _begin(self) -> TurnState:
        service, asked = self._service, self._asked
        await service.run_in_turn(asked.branch, lambda: service._turns.open(asked))
        return TurnState(asked.handle, asked.hidden)

    async def _end(self, state: TurnState) -> Commit | None:
        service, asked = self._service, self._asked
        asked.used = state.used
        ended = False
        try:
            service.history.check_sizes(self._messages)
            service.state.check_size(state)
            asked.messages = self._messages
            asked.memory = await self._remembering()
            commit = await service._run_steps(asked.branch, lambda: service._turns.commit_in_steps(asked))
            ended = True
        finally:
            if not ended:  # also if the call was dropped before it began
                await self._fail()
        return commit

    async def _remembering(self) -> list[Addition]:
        given = self._remembered
        if not given:
            return []
        memory, asked = self._service.memory, self._asked
        made, model = await memory.embedded(given)
        return [
            Addition(asked.branch, asked.session.user_id, session_name(asked.session.session_id), given, made, model)
        ]

    async def _fail(self) -> None:
        self._asked.drop()
