"""A handle on a branch: its branch, the last head it saw, its live values, and the moves from one head to another. Layer: state.

::

    stage ── commit_staged ──┬── publish ── the commit is the head
                             ├── the branch had moved: merge, and publish again
                             └── the reply was lost: in doubt until found or barred

A failure keeps the staged changes.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Final, NamedTuple

from versioned_state.errors import (
    BranchMovedError,
    CommitInDoubtError,
    MergeConflictError,
    MissingObjectError,
    StateError,
    StorageError,
    StoreClosedError,
    UncommittedChangesError,
    UnknownOutcomeError,
    UnreachableStoreError,
    UnserializableValueError,
)
from versioned_state.repository.database import backoff
from versioned_state.repository.history.commit import ROOT_ADDRESS, ROOT_ID, Commit
from versioned_state.repository.merging.policies import Policies, read_policies
from versioned_state.repository.refs.ref import Ref
from versioned_state.repository.repository import Repository
from versioned_state.state.branch.commit_options import OnMoved
from versioned_state.state.branch.in_doubt import CommitInDoubt, MoveInDoubt, find_commit, find_move
from versioned_state.state.branch.pending import PendingEntries
from versioned_state.state.branch.resolving import Resolving
from versioned_state.state.worktree.entries import Savepoint, Staged
from versioned_state.state.worktree.unfinished import Move
from versioned_state.state.worktree.worktree import Worktree
from versioned_state.values.keys import path_of
from versioned_state.values.trees.nodes import Nodes
from versioned_state.values.trees.tree import Tree, same

_ATTEMPTS: Final = 1000
"""Attempts to commit to a branch that keeps moving. With the backoff they take most of a minute."""


class HandlePosition(NamedTuple):
    """The branch of a handle, the last record of the branch that it saw, and the head. One assignment moves a handle."""

    branch: str
    ref: Ref
    head: Commit


class _LateMerge:
    """``BranchHandle._merge_late`` through a weak reference, so that the worktree does not keep its handle alive."""

    def __init__(self, handle: weakref.ReferenceType[BranchHandle]) -> None:
        self._handle = handle

    def __call__(self, nodes: Nodes, base: Tree, ours: Tree, theirs: Tree) -> Tree:
        handle = self._handle()
        assert handle is not None, "the handle owns the worktree that calls"
        return handle._merge_late(nodes, base, ours, theirs)


class BranchHandle:
    """A branch as one handle sees it. Not for two threads at once."""

    def __init__(self, repository: Repository, branch: str, author: str | None) -> None:
        self.repository = repository
        self.author = author
        ref = repository.database.ref("branch", branch)
        self.position = HandlePosition(branch, ref, self.commit_of(ref))
        self.commits_made = 0
        self.pending = PendingEntries()
        self.worktree = Worktree(repository.database.objects, repository.database.policy, self.head.tree, _LateMerge(weakref.ref(self)))
        self.unfinished = self.worktree.unfinished
        self._in_doubt: CommitInDoubt | None = None
        self._finishing = False

    @property
    def branch(self) -> str:
        return self.position.branch

    @property
    def ref(self) -> Ref:
        """The last record of the branch that this handle saw."""
        return self.position.ref

    @property
    def head(self) -> Commit:
        return self.position.head

    def set_position(self, ref: Ref, head: Commit) -> None:
        """Set the record of the branch and the head; the branch stays the same."""
        self.position = HandlePosition(self.position.branch, ref, head)

    def close(self) -> None:
        """Release the store and the live values. The branch and the head can still be read."""
        del self.repository, self.worktree
        self._in_doubt = None

    def commit_of(self, ref: Ref) -> Commit:
        """The head of a ref; the empty root commit if the ref has none."""
        return self.repository.database.commits.read(ROOT_ADDRESS) if ref.head is None else self.repository.database.commits.read(ref.head)

    def read_ref(self) -> Ref:
        """Read the record of the branch from the store."""
        return self.repository.database.ref("branch", self.branch)

    def read_head(self) -> tuple[Ref, Commit]:
        """Read the record of the branch and its head from the store. Raises ``BranchMovedError`` if the branch was deleted."""
        ref = self.read_ref()
        return ref, self._head_of(ref)

    def _head_of(self, ref: Ref) -> Commit:
        """The head of a record of this branch. Raises ``BranchMovedError`` if the branch was deleted."""
        if ref.head is None and self.head.id != ROOT_ID:
            raise BranchMovedError(
                self.branch,
                expected=self.head.id,
                actual=None,
                hint=f"it was deleted; repository.branches.create({self.branch!r}, state.head) brings it back",
            )
        return self.commit_of(ref)

    def clean(self, call: str) -> Staged:
        """Stage no changes, for the new objects of ``call``. Raises ``UncommittedChangesError`` if there are changes."""
        staged = self.worktree.stage(lenient=True)
        if staged.changes or staged.failed:
            paths = [str(path_of(key)) for key in (*staged.changes, *staged.failed)]
            raise UncommittedChangesError(call, paths)
        return staged

    def begin(self, at: Commit) -> None:
        """Create the branch at a commit and move there, before any value is loaded. Raises ``RefExistsError``."""
        self.set_position(*self.repository.branches.begin(self.branch, at))
        self.worktree.tree = self.head.tree

    # Committing

    def commit_staged(
        self,
        staged: Staged,
        write: Callable[[Tree, Commit], Commit],
        on_moved: OnMoved = OnMoved.MERGE,
        *,
        resolving: Resolving,
        allow_empty: bool = False,
    ) -> Commit:
        """Publish a commit of the staged changes on our head, or on the new head if the branch has moved."""
        ref, parent, tree = self.ref, self.head, staged.tree
        for attempt in range(_ATTEMPTS):
            if parent != self.head and same(tree, parent.tree) and not allow_empty:
                # Another writer made the same change.
                self.adopt_commit(parent, ref, staged)
                return parent
            commit = write(tree, parent)
            moved = self.publish(ref, commit, staged, resolving)
            if moved is not None:
                self.adopt_commit(commit, moved, staged)
                return commit
            if attempt:
                backoff(attempt)
            ref, found = self.read_head()
            if found == parent:
                # Only the record changed: the branch was created again, or was moved away and back.
                continue
            if on_moved is OnMoved.REFUSE:
                break
            parent = found
            if on_moved is OnMoved.MERGE:
                tree = self.merged(staged, self.head.tree, staged.tree, parent.tree, resolving)
        raise self.moved_error(resolving)

    def moved_error(self, resolving: Resolving) -> BranchMovedError:
        """The error of a call that gave up because the branch moved."""
        actual = self.commit_of(self.read_ref())
        return BranchMovedError(self.branch, expected=self.head.id, actual=actual.id, remains=resolving.remains)

    def publish(self, ref: Ref, commit: Commit, staged: Staged, resolving: Resolving) -> Ref | None:
        """Move the branch to a commit. Returns the new record, or None if the branch had moved.

        If the outcome is unknown, the store is asked at once; if that fails too, the commit stays in doubt.
        """
        question = CommitInDoubt(staged, commit, ref, under_way=True)
        self.unfinished.question = question
        try:
            moved = self.repository.database.publish(ref, commit, staged.staging)
        except StorageError as error:
            if isinstance(error, StoreClosedError):
                self.unfinished.question = None
                raise
            # The store may have the commit even so: perhaps only the reply was lost.
            question.under_way = isinstance(error, UnknownOutcomeError)
            try:
                moved = find_commit(self, question)
            except StorageError:
                self._in_doubt, self.unfinished.question = question, None
                raise CommitInDoubtError(commit.id) from error
            if moved is not None:
                return moved
            self.unfinished.question = None
            if isinstance(error, UnknownOutcomeError):  # the outcome is known now
                raise UnreachableStoreError("the store failed", remains=resolving.remains) from error
            raise
        except StateError:
            self.unfinished.question = None
            raise
        if moved is None:
            self.unfinished.question = None
        return moved

    def adopt_commit(self, commit: Commit, ref: Ref, staged: Staged) -> None:
        """Make a published commit the head. It holds the staged changes, alone or merged with changes of others."""
        position = self._record_commit(commit, ref, staged)
        self.worktree.adopt(staged, staged.tree)
        self.position = position
        self.commits_made += 1
        if same(staged.tree, commit.tree) and not staged.replaced:
            self.worktree.tree = commit.tree
        else:
            self.worktree.update(staged.tree, commit.tree, also=staged.replaced)
        self.unfinished.move = None

    # Steps that an exception interrupted

    def _record_commit(self, commit: Commit, ref: Ref, staged: Staged) -> HandlePosition:
        """Record a published commit before the live values are updated. Returns the new position."""
        keep = staged.failed.keys() - staged.replaced if staged.failed else ()
        position = HandlePosition(self.position.branch, ref, commit)
        self.unfinished.move = Move(commit.tree, commit.tree, staged.staging, keep=keep, commits=True, position=position)
        self.unfinished.question = None
        return position

    def _record_move(self, target: Commit, position: HandlePosition) -> None:
        """Record a move that drops uncommitted changes before the live values are updated."""
        self.unfinished.move = Move(target.tree, target.tree, journal=0, tails={}, position=position)
        self.unfinished.question = None

    def finish(self) -> None:
        """Complete an interrupted step, asking the store for an unknown outcome. After a ``StorageError`` the next call tries again."""
        if self._finishing:
            return
        try:
            self._finishing = True
            unfinished = self.unfinished
            question = unfinished.question
            if unfinished.move is None:
                if isinstance(question, CommitInDoubt):
                    ref = find_commit(self, question)
                    if ref is not None:
                        self._record_commit(question.commit, ref, question.staged)
                elif isinstance(question, MoveInDoubt):
                    ref = find_move(self, question)
                    if ref is not None:
                        self._record_move(question.target, HandlePosition(self.branch, ref, question.target))
            unfinished.question = None
            move = self.worktree.finish()
            if move is not None:
                if move.position is not None:
                    self.position = move.position
                if move.commits:
                    self.commits_made += 1
                unfinished.move = None
        finally:
            self._finishing = False

    def roll_back(self, savepoint: Savepoint) -> None:
        """Restore the live values to a savepoint, merged with the changes that the head has received since."""
        head = self.worktree.tree  # ``self.head`` may differ while a commit is in doubt
        if not same(savepoint.head, head):
            staged = replace(savepoint.staged, replaced=set())
            tree = self.merged(staged, savepoint.head, staged.tree, head, Resolving({"**": "ours"}))
            savepoint = replace(savepoint, staged=replace(staged, tree=tree), head=head)
        self.worktree.restore(savepoint)

    def resolve_doubt(self, *, discarding: bool = False) -> bool:
        """Ask the store for a commit in doubt, before the next commit. Returns whether the branch has it.

        Raises ``MergeConflictError`` if the branch has it, together with commits of others that conflict with our later changes. Then
        nothing was changed and the commit is still in doubt; ``discard`` resolves the doubt.
        """
        doubt = self._in_doubt
        if doubt is None:
            return False
        ref = find_commit(self, doubt)
        if ref is not None and doubt.commit != self.head:  # if it is the head, an interrupted call took it in
            base, commit = doubt.staged.tree, doubt.commit
            if discarding:
                self.worktree.adopt_late(doubt.staged)
                position = HandlePosition(self.branch, ref, commit)
                self._record_move(commit, position)
                self.worktree.update(base, commit.tree)
                self.position = position
                self.unfinished.move = None
            else:
                since = self.worktree.stage(lenient=True)
                self.merged(since, base, since.tree, commit.tree, Resolving())  # raises before anything is changed
                self.worktree.adopt_late(doubt.staged)
                self._merge_head(base, commit, ref, Resolving())
        self._in_doubt = None
        return ref is not None

    # Merging

    def policies(self, resolving: Resolving) -> Policies:
        """The policies of the call, then those of the repository."""
        return Policies(read_policies(self.repository.store), resolving.policies)

    def merged(
        self,
        staged: Staged,
        base: Tree,
        ours: Tree,
        theirs: Tree,
        resolving: Resolving,
        *,
        theirs_first: bool = True,
        counting: bool = True,
    ) -> Tree:
        """Merge three roots and stage the new objects. If it raises ``MergeConflictError``, nothing was changed."""
        from versioned_state.repository.merging.merge import Merge, merge_trees

        policies = self.policies(resolving)
        try:
            merged = merge_trees(
                Nodes(staged.staging, staging=staged.staging),
                (base, ours, theirs),
                pickles=self.repository.database.policy,
                policies=policies,
                resolutions=resolving.resolutions,
                theirs_first=theirs_first,
                counting=counting,
                unstorable=staged.failed,
            )
        except UnserializableValueError as error:  # a value that a policy or the caller gave
            error.remains = resolving.remains
            raise
        if merged.conflicts:
            merge = None if resolving.again is None else Merge(merged.conflicts, resolving.resolutions, resolving.again)
            raise MergeConflictError(self.branch, merged.conflicts, merge=merge, remains=resolving.remains)
        staged.replaced.clear()
        staged.replaced.update(merged.replaced)
        return merged.tree

    def _merge_late(self, nodes: Nodes, base: Tree, ours: Tree, theirs: Tree) -> Tree:
        """Merge three roots for stale values that were changed here. Raises ``MergeConflictError``."""
        from versioned_state.repository.merging.merge import merge_trees

        policies = self.policies(Resolving())
        merged = merge_trees(
            nodes, (base, ours, theirs), pickles=self.repository.database.policy, policies=policies, resolutions=(), theirs_first=True
        )
        if merged.conflicts:
            error = MergeConflictError(self.branch, merged.conflicts)
            error.hint = "the store failed when our head moved, and you changed the value before its update: assign the key, or discard()"
            raise error
        return merged.tree

    def refresh(self, resolving: Resolving) -> Commit:
        """Move to the head of the branch, with our changes on top. Returns that head."""
        self.resolve_doubt()
        ref, theirs = self.read_head()
        if theirs != self.head:
            self._merge_head(self.head.tree, theirs, ref, resolving)
        else:
            self.set_position(ref, theirs)
        return self.head

    def follow(self, ref: Ref, head: Commit) -> Commit:
        """Move to the current head of the branch. There are no uncommitted changes."""
        position = HandlePosition(self.branch, ref, head)
        if head != self.head:
            self._move_to(head, position)
        else:
            self.position = position
        return head

    def _merge_head(self, base: Tree, theirs: Commit, ref: Ref, resolving: Resolving) -> None:
        """Move to another commit, with our changes since ``base`` on top. If it raises ``MergeConflictError``, nothing was changed."""
        try:
            staged = self.worktree.stage(lenient=True)
            expected = self.merged(staged, base, staged.tree, theirs.tree, resolving)
        except MissingObjectError:
            # gc collected our head after the last ref to it was gone.
            staged, base = self.worktree.stage_over(theirs.tree)
            expected = self.merged(staged, base, staged.tree, theirs.tree, resolving)
        position = HandlePosition(self.branch, ref, theirs)
        keep = staged.failed.keys() - staged.replaced
        self.unfinished.move = Move(expected, theirs.tree, staged.staging, keep=keep, position=position)
        try:
            self.worktree.update(staged.tree, expected, base=base, head=theirs.tree, also=staged.replaced)
        except StateError:
            if self.worktree.tree is theirs.tree:
                self.position = position
            self.unfinished.move = None
            raise
        self.position = position
        self.unfinished.move = None

    def recover(self, on_moved: OnMoved, resolving: Resolving) -> None:
        """Prepare to retry a commit that failed because gc had collected an object.

        The object was stored ahead of the commit, or belonged to our head after the last ref to our head was gone.

        Raises:
            BranchMovedError, MergeConflictError: nothing was changed.
        """
        ref, theirs = self.read_head()
        if theirs != self.head and on_moved is OnMoved.REFUSE:
            raise self.moved_error(resolving)
        if theirs != self.head and on_moved is OnMoved.MERGE:
            self._merge_head(self.head.tree, theirs, ref, resolving)
        self.worktree.distrust()

    def _move_to(self, target: Commit, position: HandlePosition) -> None:
        """Drop uncommitted changes and update the live values to another commit."""
        self._record_move(target, position)
        try:
            try:
                self.worktree.restore()
                self.worktree.update(self.head.tree, target.tree)
            except MissingObjectError:
                self.worktree.drop(target.tree)
        except StateError:
            self.unfinished.move = None
            raise
        self.position = position
        self.unfinished.move = None

    # Moving

    def switch(self, branch: str, *, create: bool) -> None:
        """Move to another branch. There are no uncommitted changes. Raises ``UnknownRevisionError`` if there is no such branch."""
        ref = self.repository.database.ref("branch", branch)
        if ref.head is not None:
            head = self.commit_of(ref)
        elif not create:
            head = self.repository.branches[branch]  # raises
        elif self.ref.head is None:
            head = self.head  # our branch has no commit to point to: like ours, the new one begins with its first commit
        else:
            ref, head = self.repository.branches.begin(branch, self.head)
        self._move_to(head, HandlePosition(branch, ref, head))

    def move_branch(self, target: Commit, action: str, *, staged: Staged | None = None, at: tuple[Ref, Commit] | None = None) -> None:
        """Move the branch to another commit, write an entry to its reflog, and update the live values.

        Args:
            staged: holds the new objects, if the target is a new commit.
            at: the record of the branch and its head, if they differ from ours.

        Raises:
            BranchMovedError: the branch is at neither of the two commits. Nothing was changed.
        """
        ref, head = at or (self.ref, self.head)
        for _ in range(2):
            self.unfinished.question = MoveInDoubt(ref, target, action)
            try:
                if staged is not None and target.address in staged.staging:
                    moved = self.repository.database.publish(ref, target, staged.staging, action=action, author=self.author)
                else:
                    moved = self.repository.database.move(ref, target, action=action, author=self.author)
            except UnknownOutcomeError:
                if target == head or self.commit_of(self.read_ref()) != target:
                    self.unfinished.question = None
                    raise
                moved = None  # the branch moved, but the reply was lost
            except StateError:
                self.unfinished.question = None
                raise
            if moved is None:
                ref = self.read_ref()
                actual = self.commit_of(ref)
                if actual != target:  # the reply may have been lost in an earlier call
                    if actual != head:
                        break
                    continue
                moved = ref
            # If this fails, a second call completes the move: it finds the branch at the target.
            self._move_to(target, HandlePosition(self.branch, moved, target))
            return
        self.unfinished.question = None
        raise BranchMovedError(self.branch, expected=head.id, actual=actual.id)
