"""The heads of sessions' branches, read without a handle. Layer: services."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, TypeVar

from versioned_state.errors import BranchMovedError, MissingObjectError
from versioned_state.repository.database import Database
from versioned_state.repository.history.commit import Commit
from versioned_state.repository.names.branches import BranchInfo
from versioned_state.repository.refs.ref import Ref
from versioned_state.repository.repository import Repository
from versioned_state.services.calls.deadline import check_deadline

T = TypeVar("T")

ERASURES: Final = 10
"""Attempts of a call on a session that is erased again and again, before the store counts as damaged."""


def unless_erased(call: Callable[[], T]) -> T:
    """Return the result of a call on a session.

    It is repeated if the session was deleted or erased while the call worked on it.
    """
    for _ in range(ERASURES):
        try:
            return call()
        except MissingObjectError:
            continue
        except BranchMovedError as error:
            if error.actual is not None:
                raise
    return call()


def head_of(database: Database, branch: str) -> Commit | None:
    """Read the head of a session.

    Returns None if there is no session, or if its time to live is over. Cost: a read or two.
    """
    ref, head = database.read_head("branch", branch)
    return None if head is None or is_over(database, ref, head) else head


def is_over(database: Database, ref: Ref, head: Commit) -> bool:
    """Return whether the time to live of a session is over. ``expire`` may not have deleted it yet."""
    return bool(ref.ttl) and ref.changed(head) + ref.ttl <= database.now()


def iter_sessions(repository: Repository, prefix: str, *, after: str | None = None) -> Iterator[BranchInfo]:
    """Iterate over the branches of sessions with a prefix whose time to live is not over, after one name.

    Cost: what it lists.

    Raises ``LateError`` if the caller's deadline has passed.
    """
    now = repository.database.now()
    for info in repository.branches.iter_info(prefix=prefix, after=after):
        check_deadline()
        if "/" not in info.name[len(prefix) :] and (info.expires is None or info.expires > now):
            yield info


def at_head(database: Database, branch: str, function: Callable[[Commit], T], absent: T) -> T:
    """Return the result of a function that only reads history from a session's head, or ``absent`` if there is none."""
    head, is_again = head_of(database, branch), False
    while head is not None:
        try:
            return function(head)
        except MissingObjectError:
            # The session was deleted or rewritten meanwhile, or its older history pruned, and gc collected that.
            database.commits.refresh_shallow()
            before, head = head, head_of(database, branch)
            if head == before and is_again:
                raise
            is_again = head == before
    return absent


def at_listed(database: Database, info: BranchInfo, function: Callable[[Commit], T], absent: T) -> T:
    """Return the result as ``at_head``, for a session that was just listed, with its head."""
    try:
        return function(info.head)
    except MissingObjectError:
        return at_head(database, info.name, function, absent)
