"""``MessageLog``: the messages of threads, each a list on a branch of its own. Layer: integrations."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeVar

from versioned_state.errors import RefExistsError, UnknownRevisionError
from versioned_state.integrations.adapter import Writers
from versioned_state.repository.committing import OnMoved
from versioned_state.repository.history.commit import ROOT, Commit
from versioned_state.repository.names.branch_name import id_of
from versioned_state.repository.views.snapshot import Snapshot
from versioned_state.services.calls.heads import at_head, at_listed, head_of, iter_sessions, unless_erased
from versioned_state.state.branch import port
from versioned_state.state.sequence import StateSequence
from versioned_state.state.versioned import Versioned

T = TypeVar("T")

MESSAGES: Final = "messages"
"""The key of the list."""

_NAMESPACE: Final = "thread"
_ID: Final = "id"
"""The key, in that namespace, of the id of a thread, if the name of its branch has only a hash of it."""


class MessageLog:
    """Messages of threads: a thread is a branch with a list under ``messages``, and a change of the list is a commit.

    To append messages or to read the last ones costs these messages, whatever the length of the list. Any number of
    threads and processes may change one list: a change whose branch has moved is made again on the new head, so changes
    are never mixed. Safe for many threads.
    """

    def __init__(self, writers: Writers) -> None:
        self._repository = writers.repository
        self._writers = writers

    def exists(self, branch: str) -> bool:
        """Return whether there is such a branch."""
        return head_of(self._repository.database, branch) is not None

    def threads(self, prefix: str) -> list[str]:
        """List the ids of the threads whose branches are named by a prefix and the id."""
        found = []
        for info in iter_sessions(self._repository, prefix):
            thread = id_of(info.name.removeprefix(prefix))
            if thread is None:
                thread = at_listed(self._repository.database, info, self._kept_id, None)
            if thread is not None:
                found.append(thread)
        return found

    def _kept_id(self, head: Commit) -> str | None:
        found: str | None = self._repository.snapshot(head).namespace(_NAMESPACE).get(_ID)
        return found

    def at_head(self, branch: str, read: Callable[[Snapshot], T], absent: T) -> T:
        """Return the result of a function that reads a branch, or ``absent`` if there is none.

        It may be called again.
        """
        return at_head(self._repository.database, branch, lambda head: read(self._repository.snapshot(head)), absent)

    def read(self, branch: str, last: int | None = None) -> list[Any]:
        """Return copies of the messages, or of the last ones, oldest first. A missing branch has none."""
        return self.at_head(branch, partial(_messages, last), [])

    def change(
        self,
        branch: str,
        change: Callable[[StateSequence], T],
        message: str = "",
        *,
        create: bool = True,
        thread: str | None = None,
    ) -> T:
        """Change the messages in one commit, and return the result of the function that does.

        Args:
            change: called with the list at the head of the branch, and again with a new one if the branch has moved. If
                it raises, or changes nothing, no commit is made.
            message: describes the commit; by default the number of messages that came or left.
            create, thread: as for ``edit``.

        Raises:
            UnknownRevisionError, CommitInDoubtError, StateError: as ``edit``.
        """

        def edit(state: Versioned) -> tuple[T, str]:
            messages = state.sequence(MESSAGES)
            before = len(messages)
            return change(messages), message or f"messages {len(messages) - before:+}"

        return self.edit(branch, edit, create=create, thread=thread)

    def edit(
        self, branch: str, edit: Callable[[Versioned], tuple[T, str]], *, create: bool = True, thread: str | None = None
    ) -> T:
        """Change a state in one commit.

        Args:
            edit: called with the state at the head of the branch, and again with a new one if the branch has moved.
                Returns the result and the message of the commit. If it raises, or changes nothing, no commit is made.
            create: begin a missing branch.
            thread: the id that ``threads`` returns of a branch that is begun; only needed if the name of the branch has
                a hash of it.

        Raises:
            UnknownRevisionError: there is no such branch, and none is begun.
            CommitInDoubtError: the store failed, and whether it has the change is not known.
            StateError: nothing was changed.
        """

        def commit(state: Versioned) -> T:
            is_new = port.handle(state).ref.head is None
            if is_new and not create:
                raise UnknownRevisionError(branch)
            result, message = edit(state)
            if is_new and thread is not None and len(state) and id_of(branch.rpartition("/")[2]) != thread:
                state.namespace(_NAMESPACE)[_ID] = thread
            state.commit(message, on_moved=OnMoved.REFUSE)
            return result

        return self._writers.write(branch, commit)

    def fork(self, branch: str, target: str, *, keep: int | None = None) -> None:
        """Begin a branch with the messages of another one, and its history. A missing branch has an empty fork.

        Args:
            keep: the messages that it begins with, the first ones. By default all: then both share them, and nothing is
                read.

        Raises:
            RefExistsError: there is a branch of that name.
        """
        repository = self._repository
        if keep is None:
            unless_erased(
                lambda: repository.branches.begin(target, head_of(repository.database, branch) or ROOT, origin=branch)
            )
            return

        def begin(state: Versioned) -> None:
            if port.handle(state).ref.head is not None:
                raise RefExistsError("branch", target)
            head = head_of(repository.database, branch)
            state[MESSAGES] = [] if head is None else _messages(None, repository.snapshot(head))[:keep]
            state.commit(f"fork after {keep} messages", parent=head or ROOT, on_moved=OnMoved.REFUSE)

        self._writers.write(target, begin)

    def delete(self, branch: str) -> Snapshot | None:
        """Delete a branch and return its last content, or None if there was none. Its reflog keeps it until it expires.

        Reads no messages.
        """
        try:
            return self._repository.snapshot(self._repository.branches.delete(branch, force=True))
        except UnknownRevisionError:
            return None


def _messages(last: int | None, snapshot: Snapshot) -> list[Any]:
    if MESSAGES not in snapshot:
        return []
    if last is None:
        found: list[Any] = snapshot[MESSAGES]
        return found
    kept = snapshot.sequence(MESSAGES)
    return kept[max(len(kept) - last, 0) :]
