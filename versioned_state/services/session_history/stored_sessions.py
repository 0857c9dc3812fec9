"""``StoredSessions``: sessions as branches of a repository, and appends as commits. Synchronous. Layer: services."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from versioned_state.arguments import count
from versioned_state.errors import (
    BranchMovedError,
    CommitInDoubtError,
    IdempotencyConflictError,
    QuotaExceededError,
    SessionNotFoundError,
    StateError,
    UnknownRevisionError,
)
from versioned_state.repository.committing import OnMoved
from versioned_state.repository.history.commit import Commit
from versioned_state.repository.maintenance.expire import expire_branch
from versioned_state.repository.names.branch_name import branch_name, id_of
from versioned_state.repository.refs.reflog import EXPIRE
from versioned_state.repository.repository import Repository
from versioned_state.repository.views.snapshot import Snapshot
from versioned_state.services.base import check_counts
from versioned_state.services.calls.handles import Handles, close_handle
from versioned_state.services.calls.heads import at_head, at_listed, is_over, iter_sessions, unless_erased
from versioned_state.services.calls.locks import Locks
from versioned_state.services.calls.spending import current_spend
from versioned_state.services.calls.turn import ALONE, APART, Steps, sent
from versioned_state.services.schemas.agent_schemas import Message
from versioned_state.services.schemas.session import Session
from versioned_state.services.users import UserErasure, delete_user
from versioned_state.state.branch import port
from versioned_state.state.branch.branch_handle import GIVEN_UP
from versioned_state.state.branch.commit_options import CommitOptions
from versioned_state.state.branch.publisher import MovedError, again_if_moved
from versioned_state.state.branch.together import prepare_commit
from versioned_state.state.keyspace import KeySpace
from versioned_state.state.versioned import Versioned
from versioned_state.values.encode.walks import exceeds

MESSAGES: Final = "messages"
"""The key of the messages in a session's state."""

_NAMESPACE: Final = "session"
_ID: Final = "id"
"""The key, in that namespace, of a session's id, if the name of its branch has only a hash of it."""

_READ_AT_ONCE: Final = 1024
"""Messages that one call of the store reads, if only the last ones of a session are wanted."""


class SessionName(NamedTuple):
    """The ids of a session, as they are returned."""

    user_id: str
    session_id: str


@dataclass(frozen=True, slots=True)
class Quotas:
    """The limits of a service. None means no limit. Raises ``InvalidArgumentError``.

    Attributes:
        message_bytes, messages, sessions: what exceeds them is refused.
        kept: the messages that stay in a session, the newest ones.
    """

    message_bytes: int | None = None
    messages: int | None = None
    sessions: int | None = None
    kept: int | None = None

    def __post_init__(self) -> None:
        check_counts(max_message_bytes=self.message_bytes, max_messages=self.messages, max_sessions=self.sessions)
        if self.kept is not None:
            count("max_messages_per_session", self.kept, least=1)

    def check_sizes(self, stored: list[dict[str, Any]]) -> None:
        """Raise ``QuotaExceededError`` for a message that is too large."""
        if self.message_bytes is not None and any(exceeds(message, self.message_bytes) for message in stored):
            raise QuotaExceededError("the size of a message", limit=self.message_bytes)


@dataclass(frozen=True, slots=True)
class Append:
    """Messages to append to a session.

    Attributes:
        session: the caller's session, to which ``messages`` are added once they are stored.
        stored: the stored forms of ``messages``.
        ttl: as for ``Versioned``, in microseconds.
    """

    branch: str
    session: Session
    messages: list[Message]
    stored: list[dict[str, Any]]
    ttl: int | None


class StoredSessions:
    """The sessions of a repository.

    The caller makes the calls on one session one by one. Other processes may work on it too.
    """

    def __init__(self, repository: Repository, handles: Handles[Versioned], quotas: Quotas, creations: Locks) -> None:
        self._quotas = quotas
        self._creations = creations
        self._repository = repository
        self._database = repository.database
        self._handles = handles

    # Reading

    def read(self, branch: str, name: SessionName, last: int | None) -> Session | None:
        """Read a session with its messages, or only the newest ones.

        Returns None if there is none, or if its time to live is over.
        """
        return at_head(self._database, branch, lambda head: self._session(name, head, last), None)

    def was_deleted(self, branch: str) -> bool:
        """Return whether there was a session that is deleted now, and not because its time to live was over."""
        # this moves no branch
        moves = (position for position in self._repository.reflog(branch) if position.action != GIVEN_UP)
        last = next(moves, None)
        return last is not None and last.commit is None and last.action != EXPIRE

    def names(self, prefix: str) -> list[str]:
        """List the branches of the sessions with a prefix."""
        return [info.name for info in iter_sessions(self._repository, prefix)]

    def listing(self, user_id: str, prefix: str, after: str | None, limit: int | None) -> list[Session]:
        """List at most ``limit`` sessions whose branches have a prefix, without messages, after one name."""
        sessions: list[Session] = []
        for info in iter_sessions(self._repository, prefix, after=after) if limit != 0 else ():
            known = id_of(info.name.removeprefix(prefix))
            if known is None:
                known = at_listed(self._database, info, self._kept_id, None)
                if type(known) is str and not f"/{info.name}".endswith(f"/{branch_name(user_id, known)}"):
                    known = None  # a fork has that of the other session
            if type(known) is str:
                sessions.append(Session(id=known, user_id=user_id))
                if len(sessions) == limit:
                    break
        return sessions

    def _kept_id(self, head: Commit) -> Any:
        return self._repository.snapshot(head).namespace(_NAMESPACE).get(_ID)

    def space(self, state: Versioned) -> KeySpace:
        """Return the part of a handle that has the list of messages under ``MESSAGES``."""
        return state

    def kept(self, snapshot: Snapshot) -> Snapshot:
        """Return the part of a snapshot that has them."""
        return snapshot

    def _session(self, name: SessionName, head: Commit, last: int | None) -> Session:
        database = self._database
        whole = Snapshot(
            database.objects, head.tree, database.policy, commit=head, cache=database.nodes, spend=current_spend()
        )
        snapshot = self.kept(whole)
        messages: list[Any] = []
        if last is None:
            messages = snapshot.get(MESSAGES, [])
        elif last and MESSAGES in snapshot:
            kept = snapshot.sequence(MESSAGES)
            for start in range(max(len(kept) - last, 0), len(kept), _READ_AT_ONCE):
                messages += kept[start : start + _READ_AT_ONCE]
        return Session(id=name.session_id, user_id=name.user_id, messages=messages)

    # Writing

    def create(self, branch: str, name: SessionName, ttl: int | None, last: int | None) -> Session:
        """Create a session. Returns an existing one with its messages."""

        def attempt(_: None) -> Session:
            self._handles.forget(branch)  # its handle may stand on a head from before a deletion
            with self._handles.handle(branch) as state:
                ref = port.handle(state).ref
                if ref.head is not None and not is_over(self._database, ref, state.head):
                    return self._session(name, state.head, last)
                if ref.head is None:
                    with self._creation(branch):
                        self.space(state)[MESSAGES] = []
                        keep_id(state, name.session_id)
                        port.handle(state).ttl = ttl
                        # raises if another process has created it
                        state.commit("session created", on_moved=OnMoved.REFUSE)
                        port.handle(state).ttl = None
                    self.space(state).release(MESSAGES)  # appends must not load the list
                    return Session(id=name.session_id, user_id=name.user_id)
            expire_branch(self._repository.branches, branch, self._database.now())
            raise BranchMovedError(branch, expected=None, actual=state.head.id)

        return unless_erased(lambda: again_if_moved(attempt, None, lambda _: None))

    @contextmanager
    def _creation(self, branch: str) -> Iterator[None]:
        """Run a block that creates a session.

        Raises ``QuotaExceededError`` if the user has too many. Cost: lists their sessions.
        """
        limit = self._quotas.sessions
        if limit is None:
            yield
            return
        prefix = branch.rpartition("/")[0] + "/"
        # otherwise calls that create sessions at the same moment could all find room
        with self._creations.held(prefix):
            if len(self.names(prefix)) >= limit:
                raise QuotaExceededError("the number of sessions of a user", limit=limit)
            yield

    def delete(self, branch: str) -> None:
        """Delete a session, if there is one."""
        self._handles.forget(branch)
        try:
            self._repository.branches.delete(branch, force=True)
        except UnknownRevisionError:
            return

    def erase_user(self, user_id: str) -> UserErasure:
        """Erase all of a user's data in the store, history included."""
        return delete_user(self._repository, user_id, forget=self._handles.forget)

    def append_in_steps(self, items: list[Append]) -> Steps[Sequence[None]]:
        """Append to one session in one commit, sent with appends to other sessions if the session's handle is open.

        Returns a result for each item, for ``Lanes``. If it raises, nothing was appended.
        """
        try:
            state = self._handles.take(items[0].branch)
            appended = state is not None and (yield from self._append_ready(state, items))
            if not appended:
                yield ALONE
                self._append_alone(items)
        except APART as error:
            if isinstance(error, StateError):
                error.remains = "nothing was appended"
            raise
        for item in items:
            item.session.messages.extend(item.messages)
        return [None] * len(items)

    def _append_ready(self, state: Versioned, items: list[Append]) -> Steps[bool]:
        """Append on the head of an open handle. Returns False if that is not possible, and nothing was appended."""
        try:
            try:
                self._extend(state, items)
                prepared = prepare_commit(state, _options(items))
            except (StateError, StaleHandleError):  # appending alone finds out the reason
                prepared = None
            if prepared is None:
                close_handle(state)
                return False
            answer = yield from sent(prepared.publication)
            with _in_doubt():
                made = prepared.settle(answer)
            if made is None:
                close_handle(state)
                return False
            self._appended(state)
        except BaseException:
            close_handle(state)
            raise
        self._handles.give(items[0].branch, state)
        return True

    def _append_alone(self, items: list[Append]) -> None:
        branch = items[0].branch

        def attempt(is_fresh: bool) -> None:  # noqa: FBT001 - the argument of ``again_if_moved``
            with self._handles.handle(branch) as state:
                try:
                    self._extend(state, items)
                except StaleHandleError as stale:
                    raise (stale.error if is_fresh else MovedError()) from None
                options = _options(items)
                with _in_doubt():
                    state.commit(options.message, on_moved=options.on_moved)
                self._appended(state)

        try:
            # After a failure, the handle is a new one.
            unless_erased(lambda: again_if_moved(attempt, False, lambda _: True))
        except (MovedError, BranchMovedError):
            raise BranchMovedError(
                branch, expected=None, actual=None, remains="nothing was appended", hint="append again"
            ) from None

    def _extend(self, state: Versioned, items: list[Append]) -> None:
        """Add the messages to a handle.

        Raises ``StaleHandleError`` if the session cannot have them, as of the handle's head.
        """
        ref = port.handle(state).ref
        if ref.head is None or is_over(self._database, ref, state.head):
            raise StaleHandleError(SessionNotFoundError(items[0].session.id))
        stored = [message for item in items for message in item.stored]
        ttl = next((item.ttl for item in reversed(items) if item.ttl is not None), None)
        try:
            self.stage(state, stored)
        except (QuotaExceededError, IdempotencyConflictError) as error:
            raise StaleHandleError(error) from None
        port.handle(state).ttl = ttl

    def stage(self, state: Versioned, stored: list[dict[str, Any]]) -> int:
        """Append messages on a handle, for a commit.

        Returns how many the oldest are that leave. Raises ``QuotaExceededError``.
        """
        messages, limit, kept = self.space(state).sequence(MESSAGES), self._quotas.messages, self._quotas.kept
        if limit is not None and len(messages) + len(stored) > limit:
            raise QuotaExceededError("the number of messages of a session", limit=limit)
        messages.extend(stored)
        leaving = 0 if kept is None else max(0, len(messages) - kept)
        if leaving:
            del messages[:leaving]
        return leaving

    def _appended(self, state: Versioned) -> None:
        port.handle(state).ttl = None  # what other processes set later stays
        self.space(state).release(MESSAGES)  # the next append must not compare the messages of this one


class StaleHandleError(Exception):
    """The handle must be replaced by one at the head of the branch.

    ``error`` is the error to raise if that one fails likewise.
    """

    def __init__(self, error: StateError) -> None:
        super().__init__()
        self.error = error


def _options(items: list[Append]) -> CommitOptions:
    """Return the commit of an append."""
    return CommitOptions(f"messages +{sum(len(item.stored) for item in items)}", on_moved=OnMoved.REFUSE)


def keep_id(state: Versioned, session_id: str) -> None:
    """Stage the id of a session, unless the name of its branch gives it."""
    if id_of(state.branch.rpartition("/")[2]) != session_id:
        state.namespace(_NAMESPACE)[_ID] = session_id


@contextmanager
def _in_doubt() -> Iterator[None]:
    """Run a block that ends an append, in which a commit in doubt is an append in doubt."""
    try:
        yield
    except CommitInDoubtError as error:
        error.remains, error.hint = "nothing else was changed", "read the session to find out"
        raise
