"""Moves of a handle to another branch, and of its branch to another commit. Layer: state."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from versioned_state.errors import BranchMovedError, MissingObjectError, StateError, UnknownOutcomeError
from versioned_state.repository.history.commit import Commit
from versioned_state.repository.refs.ref import NOTHING, Ref
from versioned_state.state.branch.branch_handle import BranchHandle
from versioned_state.state.branch.in_doubt import HandlePosition, MoveInDoubt
from versioned_state.state.worktree.entries import Staged

T = TypeVar("T")


def raise_if_moved(handle: BranchHandle, error: MissingObjectError) -> None:
    """Raise ``BranchMovedError`` if the branch is no longer at the handle's head: gc or a purge may have collected that.

    The store then needs no repair, as a ``MissingObjectError`` says; the handle needs the new head.
    """
    actual = handle.commit_of(handle.read_ref())
    if actual != handle.head:
        raise BranchMovedError(handle.branch, expected=handle.head.id, actual=actual.id) from error


def switch(handle: BranchHandle, branch: str, *, create: bool) -> None:
    """Move to another branch. There are no uncommitted changes. Raises ``UnknownRevisionError`` if there is no such branch."""
    ref = handle.repository.database.ref("branch", branch)
    if ref.head is not None:
        head = handle.commit_of(ref)
        handle.root_of(head)
    elif not create:
        head = handle.repository.branches[branch]  # raises
    elif handle.ref.head is None:
        head = handle.head  # our branch has no commit yet, so the new branch also begins with its first commit
    else:
        try:
            ref, head = handle.repository.branches.begin(branch, handle.head, origin=handle.branch)
        except MissingObjectError as error:
            raise_if_moved(handle, error)
            raise
    handle.move_to(HandlePosition(branch, ref, head))
    handle.ttl = None  # it belonged to the other branch


def again_if_swept(handle: BranchHandle, call: Callable[[], T]) -> T:
    """The result of a call that moves the branch. It is made again if gc or purge deleted its target before the branch moved."""
    ref = handle.ref
    failure: MissingObjectError | None = None

    def attempt() -> T:
        nonlocal failure
        if failure is not None and handle.ref is not ref:
            raise failure  # the branch has moved, so this must not be done once more
        try:
            return call()
        except MissingObjectError as error:
            failure = error
            if handle.ref is ref:
                raise_if_moved(handle, error)
            raise

    return handle.repository.database.unless_swept(attempt)


def move_branch(
    handle: BranchHandle,
    target: Commit,
    action: str,
    *,
    staged: Staged | None = None,
    at: tuple[Ref, Commit] | None = None,
    dropping: bool = False,
) -> None:
    """Move the branch to another commit, write an entry to its reflog, and update the live values.

    Args:
        staged: holds the new objects, if the target is a new commit.
        at: the record of the branch and its head, if they differ from ours.
        dropping: drop uncommitted changes; otherwise there are none.

    Raises:
        BranchMovedError: the branch is at neither of the two commits. Nothing was changed.
    """
    ref, head = at or (handle.ref, handle.head)
    if staged is None:
        handle.root_of(target)  # raises before the branch moves
    for _ in range(2):
        handle.unfinished.question = MoveInDoubt(ref, target, action)
        try:
            if staged is not None and target.address in staged.staging:
                part = handle.asked(target, ref, staged) if handle.hooks.all else NOTHING
                moved = handle.repository.database.publish(
                    ref, target, staged.staging, action=action, author=handle.author, part=part, ttl=handle.ttl
                )
            else:
                part = handle.hooks.batch_part() if handle.hooks.all else NOTHING
                moved = handle.repository.database.move(ref, target, action=action, author=handle.author, part=part)
        except UnknownOutcomeError:
            if target == head or handle.commit_of(handle.read_ref()) != target:
                handle.unfinished.question = None
                raise
            moved = None  # the branch moved, but the reply was lost
        except StateError:
            handle.unfinished.question = None
            raise
        if moved is None:
            handle.hooks.batch_refused()
            ref = handle.read_ref()
            actual = handle.commit_of(ref)
            if actual != target:  # the reply may have been lost in an earlier call
                if actual != head:
                    break
                continue
            moved = ref
        # If this fails, a second call completes the move: it finds the branch at the target.
        handle.move_to(HandlePosition(handle.branch, moved, target), dropping=dropping)
        return
    handle.unfinished.question = None
    raise BranchMovedError(handle.branch, expected=head.id, actual=actual.id)
