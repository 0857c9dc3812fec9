"""The position of a handle, and commits and moves in doubt: the handle does not know whether it has moved. Layer: state.

A reply was lost, or an exception such as Ctrl-C came before it. The handle asks the store before it repeats anything.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from versioned_state.repository.history import graph
from versioned_state.repository.history.commit import Commit
from versioned_state.repository.refs.ref import Ref
from versioned_state.state.worktree.entries import Staged

if TYPE_CHECKING:
    from versioned_state.state.branch.branch_handle import BranchHandle

GIVEN_UP: Final = "commit given up"
"""The reflog's words for a record of a branch that was replaced to bar a late commit; the branch did not move."""

_RECENT: Final = 100
"""The number of recent moves of a branch among which an interrupted one is searched for."""


class HandlePosition(NamedTuple):
    """The branch of a handle, the last record of the branch that it saw, and the head. One assignment moves a handle."""

    branch: str
    ref: Ref
    head: Commit


class CommitInDoubt:
    """A commit that the store may have: its staged changes, the ref to move, and whether the write may still arrive."""

    __slots__ = ("commit", "ref", "staged", "under_way")

    def __init__(self, staged: Staged, commit: Commit, ref: Ref, *, under_way: bool) -> None:
        self.staged = staged
        self.commit = commit
        self.ref = ref
        self.under_way = under_way


class MoveInDoubt:
    """A move of the branch to ``target`` that the store may have made."""

    __slots__ = ("action", "ref", "target")

    def __init__(self, ref: Ref, target: Commit, action: str) -> None:
        self.ref = ref
        self.target = target
        self.action = action


def find_commit(handle: BranchHandle, doubt: CommitInDoubt) -> Ref | None:
    """The ref at a commit in doubt, if the branch has that commit, perhaps below later commits; None if it never will.

    Raises ``StorageError``: the doubt remains.
    """
    database = handle.repository.database
    while True:
        ref = handle.read_ref()
        if ref.head is not None and graph.is_ancestor(doubt.commit, handle.commit_of(ref), database.commits.read):
            return database.after_commit(doubt.ref, doubt.commit, ttl=handle.ttl)
        if not doubt.under_way or ref.stored != doubt.ref.stored:
            return None
        # The write may still arrive: it may be in the buffers of a server, or wait for a lock there. Replacing the record that it expects,
        # by another one for the same commit, makes it fail for good.
        head = handle.commit_of(ref)
        barred = database.move(ref, None if ref.head is None else head, action=GIVEN_UP, author=handle.author)
        if barred is not None:
            if head == handle.head:
                handle.set_position(barred, head)
            return None


def find_move(handle: BranchHandle, doubt: MoveInDoubt) -> Ref | None:
    """The ref at the target of a move in doubt if the branch made it, even if it has moved since; None if it did not."""
    ref = handle.read_ref()
    if ref.stored == doubt.ref.stored:
        return None
    if handle.commit_of(ref) == doubt.target:
        return ref
    for position in islice(handle.repository.reflog(handle.branch), _RECENT):
        if position.action == doubt.action and position.commit == doubt.target:
            return handle.repository.database.after_commit(ref, doubt.target, ttl=handle.ttl)
    return None
