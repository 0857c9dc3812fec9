"""``Chat``: the messages of sessions on the branches that also have their states and memories. Layer: services.

::

    @history["messages"]     the messages, oldest first
    @history.@ids["<id>"]    the number of the message with that id, counted from the session's first one
    @history["left"]         how many of the oldest messages have left the list
    @history["taken"]        how many messages it has from an older branch

A message that is appended again, with the same id and content, is stored once. On its first use, a session takes in the
messages that a ``SessionHistoryService`` by itself has kept on a branch of its own, and that branch is deleted.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final

from versioned_state.errors import (
    BranchMovedError,
    IdempotencyConflictError,
    SessionNotFoundError,
    UnknownRevisionError,
)
from versioned_state.repository.committing import OnMoved
from versioned_state.repository.history.commit import Commit
from versioned_state.repository.names.branch_name import branch_name
from versioned_state.repository.refs.ref import Ref
from versioned_state.repository.repository import Repository
from versioned_state.repository.views.snapshot import Snapshot
from versioned_state.services.agent_state.reading import rounds_at
from versioned_state.services.calls.handles import Handles
from versioned_state.services.calls.heads import head_of, unless_erased
from versioned_state.services.calls.locks import Locks
from versioned_state.services.schemas.session import Session
from versioned_state.services.session_history.session_history_service import VersionedSessionHistoryService
from versioned_state.services.session_history.stored_sessions import (
    MESSAGES,
    Append,
    Quotas,
    SessionName,
    StaleHandleError,
    StoredSessions,
    keep_id,
)
from versioned_state.state.branch import port
from versioned_state.state.branch.publisher import again_if_moved
from versioned_state.state.keyspace import KeySpace
from versioned_state.state.versioned import Versioned
from versioned_state.values.keys import namespace_prefix, user_key
from versioned_state.values.trees.prefetch import fetch_paths

HISTORY: Final = "history"
_IDS: Final = "ids"
_LEFT: Final = "left"
_TAKEN: Final = "taken"

_ID_PREFIX: Final = namespace_prefix(HISTORY) + namespace_prefix(_IDS)

_READ_AT_ONCE: Final = 1024
"""Messages of an older branch that are read at once."""


class Chat(StoredSessions):
    """See the module.

    Args:
        forget: erases what lies beside the store for a session that is deleted.
    """

    def __init__(
        self,
        repository: Repository,
        handles: Handles[Versioned],
        quotas: Quotas,
        creations: Locks,
        forget: Callable[[str], object],
    ) -> None:
        super().__init__(repository, handles, quotas, creations)
        self._quotas = quotas
        self._forget = forget

    def space(self, state: Versioned) -> KeySpace:
        return state.namespace(HISTORY)

    def kept(self, snapshot: Snapshot) -> Snapshot:
        return snapshot.namespace(HISTORY)

    def _kept_id(self, head: Commit) -> Any:
        return super()._kept_id(head) or rounds_at(self._database, head).session_id

    # Reading

    def head(self, branch: str, name: SessionName) -> Commit | None:
        """Return the head of a session, which has all its messages from now on, or None if there is no session."""
        head = head_of(self._database, branch)
        has_messages = head is not None and MESSAGES in self.kept(self._repository.snapshot(head))
        if not has_messages and self.older(branch) is not None:
            self.take_in(branch, name)
            head = head_of(self._database, branch)
        return head

    def read(self, branch: str, name: SessionName, last: int | None) -> Session | None:
        self.head(branch, name)
        return super().read(branch, name, last)

    def names(self, prefix: str) -> list[str]:
        older = {
            name.removeprefix(f"{VersionedSessionHistoryService.kind}/") for name in super().names(_older_name(prefix))
        }
        return sorted(older.union(super().names(prefix)))

    def listing(self, user_id: str, prefix: str, after: str | None, limit: int | None) -> list[Session]:
        found = {
            branch_name(each.id): each
            for each in super().listing(user_id, _older_name(prefix), after and _older_name(after), limit)
        }
        found |= {branch_name(each.id): each for each in super().listing(user_id, prefix, after, limit)}
        return [found[name] for name in sorted(found)][:limit]

    # Writing

    def stage(self, state: Versioned, stored: list[dict[str, Any]]) -> int:
        """Append the messages that the session does not have yet.

        Raises:
            IdempotencyConflictError: it has one with the same id and other content.
        """
        space = self.space(state)
        if MESSAGES not in space:
            space[MESSAGES] = []
        if not stored:
            return 0
        messages, ids, left = space.sequence(MESSAGES), space.namespace(_IDS), space.get(_LEFT, 0)
        worktree = port.handle(state).worktree
        fetch_paths(
            worktree.encoder.nodes, worktree.tree.top, [_ID_PREFIX + user_key(message["id"]) for message in stored]
        )
        first, new = left + len(messages), list[dict[str, Any]]()
        for message in stored:
            id = message["id"]
            number = ids.get(id)
            if number is None:
                ids[id] = first + len(new)
                new.append(message)
            elif number >= left and (new[number - first] if number >= first else messages[number - left]) != message:
                raise IdempotencyConflictError(
                    f"the session has another message with the id {id!r}",
                    remains="nothing was appended",
                    hint="give each message an id of its own, or append it again as it was",
                )
        leaving = super().stage(state, new) if new else 0
        if leaving:
            space[_LEFT] = left + leaving
        return leaving

    def released(self, state: Versioned, stored: list[dict[str, Any]]) -> None:
        """Release the committed messages."""
        space = self.space(state)
        space.release(MESSAGES)
        ids = space.namespace(_IDS)
        for message in stored:
            ids.release(message["id"])

    def _extend(self, state: Versioned, items: list[Append]) -> None:
        session = items[0].session
        if self.is_older(state):
            self.take_in(state.branch, SessionName(session.user_id, session.id))
            raise StaleHandleError(SessionNotFoundError(session.id))
        super()._extend(state, items)

    def is_older(self, state: Versioned) -> bool:
        """Return whether the messages of a handle's session are on the branch of a separate history service.

        Cost: 0, or one read.
        """
        return MESSAGES not in self.space(state) and self.older(state.branch) is not None

    def delete(self, branch: str) -> None:
        super().delete(branch)
        super().delete(_older_name(branch))
        self._forget(branch)

    # Older sessions

    def older(self, branch: str) -> Commit | None:
        """Return the head of the session's messages on the branch of a separate history service, or None."""
        return head_of(self._database, _older_name(branch))

    def take_in(self, branch: str, name: SessionName) -> None:
        """Take in a session's messages from a separate history service's branch, if there is one, and delete that."""
        older = _older_name(branch)

        def attempt(_: None) -> None:
            head = self.older(branch)
            if head is None:
                return
            self._handles.forget(branch)
            with self._handles.handle(branch) as state:
                self._copy(state, self._repository.snapshot(head), name)
            with suppress(UnknownRevisionError):
                self._repository.branches.remove(older, partial(_check_head, older, head))

        unless_erased(lambda: again_if_moved(attempt, None, lambda _: None))

    def _copy(self, state: Versioned, older: Snapshot, name: SessionName) -> None:
        """Commit the messages of another branch of which the session has none, or only the first ones."""
        space = self.space(state)
        if MESSAGES not in space:
            space[MESSAGES] = []
            keep_id(state, name.session_id)
        messages, ids, given, taken = (
            space.sequence(MESSAGES),
            space.namespace(_IDS),
            older.sequence(MESSAGES),
            space.get(_TAKEN, 0),
        )
        for at in range(taken, len(given), _READ_AT_ONCE):
            batch = given[at : at + _READ_AT_ONCE]
            for number, message in enumerate(batch, len(messages)):
                ids.setdefault(message["id"], number)
            messages.extend(batch)
        space[_TAKEN] = len(given)
        state.commit(f"messages of {_older_name(state.branch)}", on_moved=OnMoved.REFUSE)
        for id in ids:
            ids.release(id)
        space.release(MESSAGES)


def _check_head(branch: str, head: Commit, _: Ref, now: Commit) -> None:
    """Raise ``BranchMovedError`` if a branch has moved from a head."""
    if now != head:
        raise BranchMovedError(branch, expected=head.id, actual=now.id)


def _older_name(branch: str) -> str:
    """Return the name of a session's branch as a separate history service names it."""
    return f"{VersionedSessionHistoryService.kind}/{branch}"


class ChatService(VersionedSessionHistoryService):
    """The session history of a ``SessionService``: the messages on the branches of its sessions.

    Attributes:
        forget: erases what lies beside the store for a session. The ``SessionService`` sets it.
    """

    kind = ""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.forget: Callable[[str], object] = bool  # nothing lies there

    def _prefix(self, user_id: str) -> str:
        return super()._prefix(user_id).removeprefix("/")

    @property
    def _sessions(self) -> Chat:
        return self.stored

    @property
    def stored(self) -> Chat:
        """The messages, for a call on a thread."""
        return Chat(*self._accepted, self._quotas, self._creations, self.forget)

    def check_sizes(self, stored: list[dict[str, Any]]) -> None:
        """Raise ``QuotaExceededError`` for a message that is too large."""
        self._quotas.check_sizes(stored)
