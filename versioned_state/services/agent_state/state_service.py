"""``StateService``, and the one over a store: a session is a branch, and a round a commit. Layer: services."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from functools import lru_cache
from typing import Any, Final, TypeVar

from versioned_state.agents.modules.containers import captured_whole
from versioned_state.arguments import age, as_ttl, count, instance_of
from versioned_state.errors import (
    InvalidArgumentError,
    QuotaExceededError,
    UnknownRevisionError,
)
from versioned_state.repository.history.commit import Commit
from versioned_state.repository.names.branch_name import branch_name, id_of
from versioned_state.repository.repository import Repository
from versioned_state.services import users
from versioned_state.services.agent_state import saving
from versioned_state.services.agent_state.reading import commit_of, content_of, readable_rounds, rounds_at
from versioned_state.services.agent_state.rounds import NO_ROUNDS, check_number
from versioned_state.services.agent_state.session_handle import Session, SessionHandle
from versioned_state.services.agent_state.session_saves import AskedSave, Limits, SessionSaves, encoded
from versioned_state.services.base import ServiceWithLifecycleManager, as_id, check_counts
from versioned_state.services.calls.heads import at_head, at_listed, head_of, iter_sessions
from versioned_state.services.calls.locks import Locks
from versioned_state.services.session_hooks import SessionHooks
from versioned_state.services.store_service import StoreService, on_redis
from versioned_state.services.users import UserErasure
from versioned_state.storage import KVStore
from versioned_state.values.encode.walks import exceeds

T = TypeVar("T")

DEFAULT_SESSION: Final = "default"

_USERS: Final = "%users"
"""The lane of calls on all data of a user."""


class StateService(ServiceWithLifecycleManager):
    """Keeps the states of agents: dicts, by user, session and round.

    A falsy ``session_id`` is ``"default"``. Rounds are numbers, in any order and with gaps. The latest round is the
    highest one. Your own adapter implements ``save_state``, ``export_state`` and ``health``, and the other calls if it
    can.
    """

    @staticmethod
    def over(store: KVStore | Repository | str | os.PathLike[str], **options: Any) -> VersionedStateService:
        """Return the service over a store, a ``Repository`` or a URL.

        The options are those of ``VersionedStateService``.
        """
        return VersionedStateService.over(store, **options)

    @abstractmethod
    async def save_state(
        self,
        user_id: str,
        state: dict[str, Any],
        session_id: str | None = None,
        round_id: int | None = None,
        ttl_seconds: float | None = None,
    ) -> int:
        """Save a state as a round, by default the one after the highest, or 1. Returns the number of the round."""

    @abstractmethod
    async def export_state(
        self, user_id: str, session_id: str | None = None, round_id: int | None = None
    ) -> dict[str, Any] | None:
        """Return the state of a round, by default of the latest one, as a copy, or None if there is no such round."""

    async def list_sessions(self, user_id: str) -> list[str]:
        """List the ids of a user's sessions, in order."""
        raise NotImplementedError(f"{type(self).__name__} does not list sessions")

    async def list_rounds(self, user_id: str, session_id: str | None = None) -> list[int]:
        """List the rounds of a session, in order."""
        raise NotImplementedError(f"{type(self).__name__} does not list rounds")

    async def delete_state(self, user_id: str, session_id: str | None = None, round_id: int | None = None) -> None:
        """Delete a round of a session, by default the session. Without effect if it does not exist."""
        raise NotImplementedError(f"{type(self).__name__} does not delete states")


class VersionedStateService(StoreService, StateService):
    """The states of agents over a store: every round is a commit on the branch of its session.

    The keys of a state are those of the branch, so ``repository`` has log, diff, checkout, fork, blame and undo of each
    session. A commit of your own on the branch belongs to the round below it. A save stores the changes since the last
    round, and equal content is stored once for all users. Concurrent saves of processes and machines on one session are
    separate rounds.

    Args:
        store: a ``KVStore``, a ``Repository`` or a URL; by default a store in memory.
        ttl_seconds: sessions expire that long after their last save, and are gone for callers. ``repository.expire()``
            deletes them.
        max_state_bytes: the largest size of a state, about as packed. Larger saves are refused.
        max_sessions: how many sessions with a round a user may have. Each process that creates one at the same moment
            may exceed it by one.
        max_rounds: the rounds that a session may have.
        options: as for ``StoreService``.
    """

    def __init__(
        self,
        store: KVStore | Repository | str | os.PathLike[str] | None = None,
        *,
        ttl_seconds: float | None = None,
        max_state_bytes: int | None = None,
        max_sessions: int | None = None,
        max_rounds: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(store, **options)
        self._ttl = None if ttl_seconds is None else as_ttl(ttl_seconds)
        check_counts(max_state_bytes=max_state_bytes, max_sessions=max_sessions, max_rounds=max_rounds)
        self._max_state_bytes = max_state_bytes
        self._max_sessions = max_sessions
        self._max_rounds = max_rounds
        self._creations = Locks()
        self.session_hooks: SessionHooks = SessionHooks()

    def branch(self, user_id: str, session_id: str | None = None) -> str:
        """Return the name of a session's branch. Raises ``InvalidArgumentError`` if an id is not a string."""
        return super().branch(as_id("user_id", user_id), _session(session_id))

    # Calls

    async def save_state(
        self,
        user_id: str,
        state: dict[str, Any],
        session_id: str | None = None,
        round_id: int | None = None,
        ttl_seconds: float | None = None,
    ) -> int:
        """Save a state, as it is at the call, as a round. Returns the number of the round.

        The save is all or nothing. A call that is cancelled before it has begun is dropped. One that has begun ends
        first, and then raises.

        Args:
            state: a dict with string keys.
            session_id: ``"default"`` if it is falsy.
            round_id: 0 or more, by default the highest round plus one, or 1. An existing round is replaced, and history
                keeps it.
            ttl_seconds: the session expires that long after this save, by default as set for the service, or else for
                the session. 0 means never.

        Raises:
            InvalidArgumentError: an id is not a string, the state is not a dict with string keys, or a number is
                invalid.
            QuotaExceededError: the state is too large, or the user has too many sessions, or the session too many
                rounds.
            UnserializableValueError, PickleRefusedError, LimitExceededError: a value cannot be stored; the error names
                the path.
            CommitInDoubtError: the store failed, and may have the round.
            BranchMovedError: the session was erased elsewhere, and the dict changed during this call. Nothing was
                saved.
            StorageError: the store failed, and nothing was saved.
        """
        number = check_number(round_id)
        ttl = self._ttl if ttl_seconds is None else as_ttl(ttl_seconds)
        branch, session = self._session_of(user_id, session_id)
        self._check_state(state)
        self._check_started()
        handles = self._handles
        joins = self.session_hooks.has(branch)
        ready = encoded(handles, branch, state) if handles is not None and not joins else None
        asked = AskedSave(branch, session, state if ready is not None else _copied(state), ready, number, ttl)
        if joins:
            return await self.run_in_turn(branch, lambda: self._saves.save_joined(asked))
        return await self._run_steps(branch, lambda: self._saves.save_in_steps(asked))

    async def export_state(
        self, user_id: str, session_id: str | None = None, round_id: int | None = None
    ) -> dict[str, Any] | None:
        """Return a round's state, by default the latest one's, or None if there is no such user, session or round.

        The state is a new dict, and its values have their exact types. Cost: reads the state, and O(log n) commits for
        a round that is not the latest.

        Raises:
            InvalidArgumentError: an id is not a string, or ``round_id`` not an int.
            StorageError: the store failed.
        """
        _check_read(round_id)
        branch, _ = self._session_of(user_id, session_id)

        def export(repository: Repository, head: Commit) -> dict[str, Any] | None:
            commit = commit_of(repository.database, head, round_id)
            return None if commit is None else content_of(repository, commit)

        return await self._read(branch, export, None)

    async def list_sessions(self, user_id: str) -> list[str]:
        """List the ids of a user's sessions that have a round, in order. Cost: proportional to these sessions."""
        prefix = branch_name(as_id("user_id", user_id)) + "/"

        def listed() -> list[str]:
            repository = self._accepted[0]
            found = []
            for info in iter_sessions(repository, prefix):
                rounds = at_listed(
                    repository.database, info, lambda head: rounds_at(repository.database, head), NO_ROUNDS
                )
                id = id_of(info.name.removeprefix(prefix))
                if id is None:
                    id = rounds.session_id  # on a fork, until a save, the id is that of the other session
                if rounds and id is not None and self.branch(user_id, id) == info.name:
                    found.append(id)
            return sorted(found)

        return await self.run_in_turn(prefix, listed)

    async def list_rounds(self, user_id: str, session_id: str | None = None) -> list[int]:
        """List the rounds of a session, in order, without those that ``prune`` cut off.

        The list is empty if there is no such session.
        """
        branch, _ = self._session_of(user_id, session_id)
        return await self._read(branch, lambda repository, head: readable_rounds(repository.database, head), [])

    async def delete_state(self, user_id: str, session_id: str | None = None, round_id: int | None = None) -> None:
        """Delete a round of a session, or by default the session, whose rounds then begin at 1 again.

        Without effect if it does not exist.

        The content of a deleted round stays in history, and that of a deleted session in its branch's reflog until gc,
        unless it is purged: see ``delete_user``.

        Raises:
            InvalidArgumentError: an id is not a string, or ``round_id`` not an int.
            StorageError: the store failed, and nothing was deleted.
        """
        _check_read(round_id)
        branch, session = self._session_of(user_id, session_id)
        if round_id is not None:

            def delete() -> None:
                self._saves.joined(branch, lambda state: saving.delete_round(state, session, round_id))
                self._accepted[1].forget(branch)  # it has the old rounds

            if await self._read(
                branch, lambda repository, head: round_id in rounds_at(repository.database, head), absent=False
            ):
                await self.run_in_turn(branch, delete)
            return

        def remove() -> None:
            repository, handles = self._accepted
            handles.forget(branch)
            with suppress(UnknownRevisionError):
                repository.branches.delete(branch, force=True)

        await self.run_in_turn(branch, remove)

    async def save_owned(
        self,
        user_id: str,
        state: dict[str, Any],
        session_id: str | None = None,
        round_id: int | None = None,
        ttl_seconds: float | None = None,
    ) -> int:
        """Save a dict that no longer changes, as ``save_state``: it is not copied, nor read on the event loop."""
        number = check_number(round_id)
        ttl = self._ttl if ttl_seconds is None else as_ttl(ttl_seconds)
        branch, session = self._session_of(user_id, session_id)
        self._check_started()
        asked = AskedSave(branch, session, state, None, number, ttl)

        def save() -> int:
            self._check_state(state)
            return self._saves.save_joined(asked) if self.session_hooks.has(branch) else self._saves.save_alone(asked)

        return await self.run_in_turn(branch, save)

    # Retention and users

    async def retain(
        self,
        user_id: str,
        session_id: str | None = None,
        *,
        keep_last: int | None = None,
        older_than: timedelta | None = None,
        gc: bool = False,
    ) -> int:
        """Delete the rounds of a session beyond the last ones, or beyond an age, and their history.

        Returns how many were deleted.

        Args:
            keep_last: how many of the highest rounds stay. The latest one always stays.
            older_than: delete only those of the other rounds whose commit is older. Without it, all of them are
                deleted.
            gc: collect garbage right afterwards. Until a gc, the store keeps the content.

        Raises:
            InvalidArgumentError: neither was given, or one is invalid.
            StorageError: the store failed. Run it again.
        """
        if keep_last is None and older_than is None:
            raise InvalidArgumentError("retain needs keep_last or older_than", remains="nothing was deleted")
        if keep_last is not None:
            count("keep_last", keep_last, least=1)
        if older_than is not None:
            age("older_than", older_than)
        branch, session = self._session_of(user_id, session_id)

        def retain() -> int:
            repository = self._accepted[0]
            if head_of(repository.database, branch) is None:
                return 0
            since = None if older_than is None else repository.database.now() - older_than // timedelta(microseconds=1)
            gone, oldest = self._saves.joined(
                branch, lambda state: saving.retain(state, session, keep_last=keep_last, since=since)
            )
            if oldest is not None:
                repository.prune(branches=branch, down_to=oldest, gc=gc)
            return gone

        return await self.run_in_turn(branch, retain)

    async def delete_user(self, user_id: str) -> UserErasure:
        """Erase all of a user's data in the store, with its history, also that of the other services.

        Returns a report as proof.

        Cost: as of ``purge``. A call on the user's sessions that is made meanwhile begins a new session, which the
        report names.

        Raises:
            UnsafeStoreError: gc cannot run over this store, so nothing could be erased. Nothing was changed.
            UnfinishedPurgeError: it did not finish. Its ``report`` lists the erased branches. Run it again.
            StoreBusyError, StorageError: nothing was erased.
        """
        user = as_id("user_id", user_id)

        def erase() -> UserErasure:
            repository, handles = self._accepted
            return users.delete_user(repository, user, forget=handles.forget)

        return await self.run_in_turn(_USERS, erase)

    async def export_user(self, user_id: str, path: str | os.PathLike[str]) -> int:
        """Write all of a user's data in the store to a new file of JSON lines, for ``read_export``.

        Returns the number of records.

        Raises:
            InvalidArgumentError: the file exists.
            OSError: the file cannot be written.
            StorageError: the store failed. There is no file then.
        """
        user = as_id("user_id", user_id)
        return await self.run_in_turn(_USERS, lambda: users.export_user(self._accepted[0], user, path))

    # Sessions

    def _session_of(self, user_id: str, session_id: str | None) -> tuple[str, Session]:
        branch = self.branch(user_id, session_id)
        return branch, _session_on(branch, as_id("user_id", user_id), _session(session_id))

    def _check_state(self, state: Any) -> None:
        """Raise ``InvalidArgumentError`` or ``QuotaExceededError`` for a state that cannot be saved."""
        for key in instance_of("a state", state, dict, remains="nothing was saved"):
            if type(key) is not str:
                raise InvalidArgumentError(
                    f"the keys of a state must be strings, not {type(key).__name__}",
                    remains="nothing was saved",
                    hint="put it one level deeper",
                )
        self.check_size(state)

    def check_size(self, state: Mapping[str, Any]) -> None:
        """Raise ``QuotaExceededError`` for a state that is too large. Cost: 0 without a limit, otherwise reads it."""
        if self._max_state_bytes is not None and exceeds(dict(state), self._max_state_bytes):
            raise QuotaExceededError("the size of the state", limit=self._max_state_bytes)

    @property
    def _saves(self) -> SessionSaves:
        """The saves of sessions, for an accepted call."""
        limits = Limits(self._max_sessions, self._max_rounds)
        return SessionSaves(*self._accepted, limits, self._creations, self.session_hooks)

    def _open_handle(self, branch: str) -> SessionHandle:
        return SessionHandle(self._accepted[0], branch=branch)

    async def _read(self, branch: str, function: Callable[[Repository, Commit], T], absent: T) -> T:
        """Run a function of a session's head off the loop. Returns ``absent`` if there is no such session."""

        def call() -> T:
            repository = self._accepted[0]
            return at_head(repository.database, branch, lambda head: function(repository, head), absent)

        return await self.run_in_turn(branch, call)


class InMemoryStateService(VersionedStateService):
    """The state service in the memory of this process. ``start`` is optional."""

    def __init__(self, **options: Any) -> None:
        super().__init__(None, **options)


class RedisStateService(VersionedStateService):
    """The state service on a Redis or Valkey server.

    Args:
        redis_url: ``redis://``, ``rediss://`` or ``unix://``, with ``?prefix=`` for a store of another name; by default
            the server on this machine.
        redis_client: refused, because the service needs connections of its own.
        options: as for ``VersionedStateService``.
    """

    def __init__(self, redis_url: str | None = None, redis_client: object = None, **options: Any) -> None:
        super().__init__(on_redis(redis_url, redis_client), **options)


def _session(session_id: object) -> str:
    return as_id("session_id", session_id) if session_id else DEFAULT_SESSION


@lru_cache(maxsize=1024)
def _session_on(branch: str, user_id: str, session_id: str) -> Session:
    """Return the session on a branch. The cache serves a service that works on the same sessions again and again."""
    return Session(user_id, session_id, id_of(branch.rpartition("/")[2]) == session_id)


def _check_read(round_id: object) -> None:
    instance_of("round_id", round_id, int | None)


def _copied(state: dict[str, Any]) -> dict[str, Any]:
    return {key: captured_whole(value) for key, value in state.items()}
