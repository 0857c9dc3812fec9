"""The position of a handle: its branch, the head as last seen, and the live values; and how it moves to another head. Layer: state.

::

    stage ── land ──┬── publish ── the head is ours
                    ├── the branch had moved: merge, and publish again
                    └── the reply was lost: in doubt, until it is found, or barred

After any failure the staged changes are still there.
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
from versioned_state.state.branch.resolving import Resolving
from versioned_state.state.worktree.entries import Savepoint, Staged
from versioned_state.state.worktree.unfinished import Move
from versioned_state.state.worktree.worktree import Worktree
from versioned_state.values.keys import path_of
from versioned_state.values.trees.nodes import Nodes
from versioned_state.values.trees.tree import Tree, same

_ATTEMPTS: Final = 1000
"""Merges onto a branch that keeps moving, before a commit gives up. With the backoff this is the better part of a minute."""


class HandlePosition(NamedTuple):
    """The branch of a handle, its record as last seen, and the head. One assignment moves a handle."""

    branch: str
    ref: Ref
    head: Commit


class _LateMerge:
    """``BranchHandle._merge_late``, for the worktree. It does not hold the handle, which must be freed once nobody else holds it."""

    def __init__(self, handle: weakref.ReferenceType[BranchHandle]) -> None:
        self._handle = handle

    def __call__(self, nodes: Nodes, base: Tree, ours: Tree, theirs: Tree) -> Tree:
        handle = self._handle()
        assert handle is not None, "its worktree is at work"
        return handle._merge_late(nodes, base, ours, theirs)


class BranchHandle:
    """A branch as one handle sees it. Not for two threads at once."""

    def __init__(self, repository: Repository, branch: str, author: str | None) -> None:
        self.repository = repository
        self.author = author
        ref = repository.database.ref("branch", branch)
        self.position = HandlePosition(branch, ref, self.commit_of(ref))
        self.landings = 0
        self.worktree = Worktree(repository.database.objects, repository.database.policy, self.head.tree, _LateMerge(weakref.ref(self)))
        self.unfinished = self.worktree.unfinished
        self._in_doubt: CommitInDoubt | None = None
        self._finishing = False

    @property
    def branch(self) -> str:
        return self.position.branch

    @property
    def ref(self) -> Ref:
        """The branch's record as this handle last saw it."""
        return self.position.ref

    @property
    def head(self) -> Commit:
        return self.position.head

    def set_position(self, ref: Ref, head: Commit) -> None:
        """Take a record of the same branch, and its head, as the ones last seen."""
        self.position = HandlePosition(self.position.branch, ref, head)

    def let_go(self) -> None:
        """Let go of the store and of the live values. The names of the branch and its head stay."""
        del self.repository, self.worktree
        self._in_doubt = None

    def commit_of(self, ref: Ref) -> Commit:
        """The head of a ref; the empty root commit if the ref has none."""
        return self.repository.database.commits.read(ROOT_ADDRESS) if ref.head is None else self.repository.database.commits.read(ref.head)

    def read_ref(self) -> Ref:
        """The branch's record as it is in the store now."""
        return self.repository.database.ref("branch", self.branch)

    def read_head(self) -> tuple[Ref, Commit]:
        """The branch's record and its head as they are in the store now. Raises ``BranchMovedError`` if the branch was deleted."""
        ref = self.read_ref()
        return ref, self._theirs(ref)

    def _theirs(self, ref: Ref) -> Commit:
        """The head of the branch, which others may have moved. Raises ``BranchMovedError`` if they deleted the branch."""
        if ref.head is None and self.head.id != ROOT_ID:
            raise BranchMovedError(
                self.branch,
                expected=self.head.id,
                actual=None,
                hint=f"it was deleted; repository.branches.create({self.branch!r}, state.head) brings it back",
            )
        return self.commit_of(ref)

    def clean(self, call: str) -> Staged:
        """An empty staging. Raises ``UncommittedChangesError`` if there are changes."""
        staged = self.worktree.stage(lenient=True)
        if staged.changes or staged.failed:
            paths = [str(path_of(key)) for key in (*staged.changes, *staged.failed)]
            raise UncommittedChangesError(call, paths)
        return staged

    def begin(self, at: Commit) -> None:
        """Create the branch at a commit, and move there. Nothing was loaded yet. Raises ``RefExistsError``."""
        self.set_position(*self.repository.branches.begin(self.branch, at))
        self.worktree.tree = self.head.tree

    # Committing

    def land(
        self,
        staged: Staged,
        write: Callable[[Tree, Commit], Commit],
        on_moved: OnMoved = OnMoved.MERGE,
        *,
        resolving: Resolving,
        allow_empty: bool = False,
    ) -> Commit:
        """Publish a commit of the staged changes, on our head or, if the branch has moved, on its new head."""
        ref, parent, tree = self.ref, self.head, staged.tree
        for attempt in range(_ATTEMPTS):
            if parent != self.head and same(tree, parent.tree) and not allow_empty:
                # The others made the same change.
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
                # Only the record changed: the branch was created again, or was reset and came back.
                continue
            if on_moved is OnMoved.REFUSE:
                break
            parent = found
            if on_moved is OnMoved.MERGE:
                tree = self.merged(staged, self.head.tree, staged.tree, parent.tree, resolving)
        raise self.moved_error(resolving)

    def moved_error(self, resolving: Resolving) -> BranchMovedError:
        """The error of a call that gave up because the branch moved; to be raised."""
        actual = self.commit_of(self.read_ref())
        return BranchMovedError(self.branch, expected=self.head.id, actual=actual.id, remains=resolving.remains)

    def publish(self, ref: Ref, commit: Commit, staged: Staged, resolving: Resolving) -> Ref | None:
        """Move the branch to a commit; None if others had moved it. An unknown outcome is looked up at once, or stays in doubt."""
        question = CommitInDoubt(staged, commit, ref, under_way=True)
        self.unfinished.question = question
        try:
            moved = self.repository.database.publish(ref, commit, staged.staging)
        except StorageError as error:
            if isinstance(error, StoreClosedError):
                self.unfinished.question = None
                raise
            # The store may have the commit, and only the reply was lost.
            question.under_way = isinstance(error, UnknownOutcomeError)
            try:
                moved = find_commit(self, question)
            except StorageError:
                self._in_doubt, self.unfinished.question = question, None
                raise CommitInDoubtError(commit.id) from error
            if moved is not None:
                return moved
            self.unfinished.question = None
            if isinstance(error, UnknownOutcomeError):  # by now it is known
                raise UnreachableStoreError("the store failed", remains=resolving.remains) from error
            raise
        except StateError:
            self.unfinished.question = None
            raise
        if moved is None:
            self.unfinished.question = None
        return moved

    def adopt_commit(self, commit: Commit, ref: Ref, staged: Staged) -> None:
        """Make a published commit the head. It holds the staged changes, alone or merged with those of others."""
        position = self._land(commit, ref, staged)
        self.worktree.adopt(staged, staged.tree)
        self.position = position
        self.landings += 1
        if same(staged.tree, commit.tree) and not staged.replaced:
            self.worktree.tree = commit.tree
        else:
            self.worktree.update(staged.tree, commit.tree, also=staged.replaced)
        self.unfinished.move = None

    # Steps that an exception interrupted

    def _land(self, commit: Commit, ref: Ref, staged: Staged) -> HandlePosition:
        """Record that a commit landed, before the live values follow. Returns where the handle then stands."""
        keep = staged.failed.keys() - staged.replaced if staged.failed else ()
        position = HandlePosition(self.position.branch, ref, commit)
        self.unfinished.move = Move(commit.tree, commit.tree, staged.staging, keep=keep, commits=True, position=position)
        self.unfinished.question = None
        return position

    def _leave_for(self, target: Commit, position: HandlePosition) -> None:
        """Record a move to another commit that drops uncommitted changes, before the live values follow."""
        self.unfinished.move = Move(target.tree, target.tree, journal=0, tails={}, position=position)
        self.unfinished.question = None

    def finish(self) -> None:
        """Ask the store for an outcome, and end an interrupted step. Raises ``StorageError``; the next call tries again."""
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
                        self._land(question.commit, ref, question.staged)
                elif isinstance(question, MoveInDoubt):
                    ref = find_move(self, question)
                    if ref is not None:
                        self._leave_for(question.target, HandlePosition(self.branch, ref, question.target))
            unfinished.question = None
            move = self.worktree.finish()
            if move is not None:
                if move.position is not None:
                    self.position = move.position
                if move.commits:
                    self.landings += 1
                unfinished.move = None
        finally:
            self._finishing = False

    def roll_back(self, savepoint: Savepoint) -> None:
        """Give the live values their content at a savepoint, merged with the changes that the head has taken in since."""
        head = self.worktree.tree  # not ``self.head``, which may differ while a commit is in doubt
        if not same(savepoint.head, head):
            staged = replace(savepoint.staged, replaced=set())
            tree = self.merged(staged, savepoint.head, staged.tree, head, Resolving({"**": "ours"}))
            savepoint = replace(savepoint, staged=replace(staged, tree=tree), head=head)
        self.worktree.restore(savepoint)

    def resolve_doubt(self, *, discarding: bool = False) -> bool:
        """Look up a commit in doubt, before anything is repeated. Returns whether there was one and it landed.

        Raises ``MergeConflictError`` if it landed on commits of others that conflict with our changes since. The commit is then still in
        doubt, and nothing was changed; ``discard`` resolves the doubt.
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
                self._leave_for(commit, position)
                self.worktree.update(base, commit.tree)
                self.position = position
                self.unfinished.move = None
            else:
                since = self.worktree.stage(lenient=True)
                self.merged(since, base, since.tree, commit.tree, Resolving())  # raises, if it must, before anything is changed
                self.worktree.adopt_late(doubt.staged)
                self._merge_head(base, commit, ref, Resolving())
        self._in_doubt = None
        return ref is not None

    # Merging

    def policies(self, resolving: Resolving) -> Policies:
        """The policies of the call, over those that the repository keeps."""
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
        """The root merged from three, with its new objects staged. Raises ``MergeConflictError``; nothing was changed then."""
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
        except UnserializableValueError as error:  # a value from a policy or a person
            error.remains = resolving.remains
            raise
        if merged.conflicts:
            merge = None if resolving.again is None else Merge(merged.conflicts, resolving.resolutions, resolving.again)
            raise MergeConflictError(self.branch, merged.conflicts, merge=merge, remains=resolving.remains)
        staged.replaced.clear()
        staged.replaced.update(merged.replaced)
        return merged.tree

    def _merge_late(self, nodes: Nodes, base: Tree, ours: Tree, theirs: Tree) -> Tree:
        """The root merged from three, for values that changed here before they could follow the head. Raises ``MergeConflictError``."""
        from versioned_state.repository.merging.merge import merge_trees

        policies = self.policies(Resolving())
        merged = merge_trees(
            nodes, (base, ours, theirs), pickles=self.repository.database.policy, policies=policies, resolutions=(), theirs_first=True
        )
        if merged.conflicts:
            error = MergeConflictError(self.branch, merged.conflicts)
            error.hint = (
                "the store failed when our head moved, and it was changed here before it followed: assign the key anew, or discard()"
            )
            raise error
        return merged.tree

    def refresh(self, resolving: Resolving) -> Commit:
        """Take in the commits of others to the branch, with our changes on top; the new head."""
        self.resolve_doubt()
        ref, theirs = self.read_head()
        if theirs != self.head:
            self._merge_head(self.head.tree, theirs, ref, resolving)
        else:
            self.set_position(ref, theirs)
        return self.head

    def follow(self, ref: Ref, head: Commit) -> Commit:
        """Move to the head to which others moved the branch. There are no uncommitted changes."""
        position = HandlePosition(self.branch, ref, head)
        if head != self.head:
            self._move_to(head, position)
        else:
            self.position = position
        return head

    def _merge_head(self, base: Tree, theirs: Commit, ref: Ref, resolving: Resolving) -> None:
        """Move to another commit, with our changes since ``base`` on top. Raises ``MergeConflictError``, and then changes nothing."""
        try:
            staged = self.worktree.stage(lenient=True)
            expected = self.merged(staged, base, staged.tree, theirs.tree, resolving)
        except MissingObjectError:
            # No ref led to our head any more, so gc collected it.
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
        """Prepare a second try of a commit that failed for a missing object, which gc collected.

        The commit had stored the object ahead, or our head had it, and no ref led to our head any more.

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
        """Give the live values the content of another commit; uncommitted changes are dropped."""
        self._leave_for(target, position)
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
            head = self.head  # no commit to point to: like ours, the branch begins with its first commit
        else:
            ref, head = self.repository.branches.begin(branch, self.head)
        self._move_to(head, HandlePosition(branch, ref, head))

    def move_branch(self, target: Commit, action: str, *, staged: Staged | None = None, at: tuple[Ref, Commit] | None = None) -> None:
        """Move the branch from our head to another commit, with an entry in its reflog; live values follow.

        Args:
            staged: has a new commit, and the objects that it needs.
            at: the record of the branch and its head, if that is not our head.

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
                moved = None  # the branch moved, and the reply was lost
            except StateError:
                self.unfinished.question = None
                raise
            if moved is None:
                ref = self.read_ref()
                stands = self.commit_of(ref)
                if stands != target:  # an earlier call, whose reply was lost, may have moved it
                    if stands != head:
                        break
                    continue
                moved = ref
            # If this fails, repeating the call does the rest: it finds the branch at the target.
            self._move_to(target, HandlePosition(self.branch, moved, target))
            return
        self.unfinished.question = None
        raise BranchMovedError(self.branch, expected=head.id, actual=stands.id)
