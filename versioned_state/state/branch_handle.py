"""Where a handle stands: its branch, the head as it last saw it, the live values over it; and the ways to another head. Layer: state.

::

    stage ── land ──┬── publish ── the head is ours
                    ├── the branch had moved: merge, and publish again
                    └── the reply was lost: in doubt, until it is found, or barred

Whatever fails leaves what was staged as it is.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, NamedTuple

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
from versioned_state.repository.merging.policies import Policies, Policy, read_policies
from versioned_state.repository.refs.ref import Ref
from versioned_state.repository.repository import Repository
from versioned_state.state.commit_options import OnMoved
from versioned_state.state.in_doubt import CommitInDoubt, MoveInDoubt, find_commit, find_move
from versioned_state.state.worktree.entries import Savepoint, Staged
from versioned_state.state.worktree.unfinished import Move
from versioned_state.state.worktree.worktree import Worktree
from versioned_state.values.keys import path_of
from versioned_state.values.trees.nodes import Nodes
from versioned_state.values.trees.tree import Tree, same

if TYPE_CHECKING:
    from versioned_state.repository.merging.merge import Resolutions

UNCHANGED: Final = "nothing was changed"
"""What most calls leave where they fail."""

_ATTEMPTS: Final = 1000
"""Merges onto a branch that keeps moving, before a commit gives up. With the backoff this is the better part of a minute."""


@dataclass(slots=True)
class Resolving:
    """How conflicts are settled in one call: policies that were given, what was resolved by hand, and how to do the call again.

    ``remains`` is what the call leaves where it fails, as its errors say.
    """

    policies: Mapping[str, Policy] = field(default_factory=dict)
    resolutions: Resolutions = ()
    again: Callable[[Resolutions], Commit] | None = None
    remains: str = UNCHANGED


class Position(NamedTuple):
    """Where a handle stands: its branch, the record of it as last seen, and the head. One assignment moves a handle."""

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
        self.position = Position(branch, ref, self.commit_of(ref))
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
        self.position = Position(self.position.branch, ref, head)

    def let_go(self) -> None:
        """Let go of the store and of the live values. The names of the branch and its head stay."""
        del self.repository, self.worktree
        self._in_doubt = None

    def commit_of(self, ref: Ref) -> Commit:
        """The head of a ref; the empty root commit where it has none."""
        return self.repository.database.commits.read(ROOT_ADDRESS) if ref.head is None else self.repository.database.commits.read(ref.head)

    def read_ref(self) -> Ref:
        """The branch's record as it is in the store now."""
        return self.repository.database.ref("branch", self.branch)

    def now(self) -> tuple[Ref, Commit]:
        """The branch's record, and its head, as they are in the store now, be that our head or not. Raises as ``refresh``."""
        ref = self.read_ref()
        return ref, self._theirs(ref)

    def _theirs(self, ref: Ref) -> Commit:
        """Where others moved the branch. Raises ``BranchMovedError`` where they deleted it, which is no state to merge with."""
        if ref.head is None and self.head.id != ROOT_ID:
            raise BranchMovedError(
                self.branch,
                expected=self.head.id,
                actual=None,
                hint=f"it was deleted; repository.branches.create({self.branch!r}, state.head) brings it back",
            )
        return self.commit_of(ref)

    def clean(self, call: str) -> Staged:
        """What is staged, which must be nothing. Raises ``UncommittedChangesError``."""
        staged = self.worktree.stage(lenient=True)
        if staged.changes or staged.failed:
            paths = [str(path_of(key)) for key in (*staged.changes, *staged.failed)]
            raise UncommittedChangesError(call, paths)
        return staged

    def begin(self, at: Commit) -> None:
        """Make the branch, where there is none, at a commit, and stand there. Nothing was loaded yet. Raises ``RefExistsError``."""
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
        """Publish a commit of what was staged, on the head or, where the branch has moved, on its new one."""
        ref, parent, tree = self.ref, self.head, staged.tree
        for attempt in range(_ATTEMPTS):
            if parent != self.head and same(tree, parent.tree) and not allow_empty:
                # The others made the very change that we would make.
                self.adopt_commit(parent, ref, staged)
                return parent
            commit = write(tree, parent)
            moved = self.publish(ref, commit, staged, resolving)
            if moved is not None:
                self.adopt_commit(commit, moved, staged)
                return commit
            if attempt:
                backoff(attempt)
            ref, found = self.now()
            if found == parent:
                # Only its record changed: it was created where it was, or reset to there and back.
                continue
            if on_moved is OnMoved.REFUSE:
                break
            parent = found
            if on_moved is OnMoved.MERGE:
                tree = self.merged(staged, self.head.tree, staged.tree, parent.tree, resolving)
        raise self.moved(resolving)

    def moved(self, resolving: Resolving) -> BranchMovedError:
        """The error of a call that gave up because the branch has moved, or would not stop moving; to be raised."""
        actual = self.commit_of(self.read_ref())
        return BranchMovedError(self.branch, expected=self.head.id, actual=actual.id, remains=resolving.remains)

    def publish(self, ref: Ref, commit: Commit, staged: Staged, resolving: Resolving) -> Ref | None:
        """Move the branch to a commit; None where it had moved. An outcome that is not known is looked up at once, or kept in doubt."""
        question = CommitInDoubt(staged, commit, ref, under_way=True)
        self.unfinished.question = question
        try:
            moved = self.repository.database.publish(ref, commit, staged.staging)
        except StorageError as error:
            if isinstance(error, StoreClosedError):
                self.unfinished.question = None
                raise
            # The store may have done it all the same, and only the reply was lost.
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
        """Make a commit the head that holds what was staged, or that merged with what others committed."""
        self._land(commit, ref, staged)
        self.worktree.adopt(staged, staged.tree)
        self.set_position(ref, commit)
        self.landings += 1
        if same(staged.tree, commit.tree) and not staged.replaced:
            self.worktree.tree = commit.tree
        else:
            self.worktree.update(staged.tree, commit.tree, also=staged.replaced)
        self.unfinished.move = None

    # What an exception left unfinished

    def _land(self, commit: Commit, ref: Ref, staged: Staged) -> None:
        """Record that a commit landed, and that the live values are to follow."""
        keep = staged.failed.keys() - staged.replaced if staged.failed else ()
        position = Position(self.position.branch, ref, commit)
        self.unfinished.move = Move(commit.tree, commit.tree, staged.staging, keep=keep, commits=True, position=position)
        self.unfinished.question = None

    def _leave_for(self, target: Commit, position: Position) -> None:
        """Record that the live values are to hold the content of another commit, and that uncommitted changes are dropped."""
        self.unfinished.move = Move(target.tree, target.tree, journal=0, tails={}, position=position)
        self.unfinished.question = None

    def finish(self) -> None:
        """Find out what the store did, and end what an exception came into. Raises ``StorageError``; the next call tries again."""
        if self._finishing:
            return
        self._finishing = True
        try:
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
                        self._leave_for(question.target, Position(self.branch, ref, question.target))
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
        """Have the live values hold what they did at a savepoint, with what the head has taken in since."""
        head = self.worktree.tree  # what the savepoint recorded too; while a commit is in doubt it may differ from the head
        if not same(savepoint.head, head):
            staged = replace(savepoint.staged, replaced=set())
            tree = self.merged(staged, savepoint.head, staged.tree, head, Resolving({"**": "ours"}))
            savepoint = replace(savepoint, staged=replace(staged, tree=tree), head=head)
        self.worktree.restore(savepoint)

    def settle(self, *, discarding: bool = False) -> bool:
        """Find out what became of a commit whose outcome was not known when it failed, before anything is repeated: whether it landed.

        Raises ``MergeConflictError`` where it landed on top of what others committed, and that conflicts with what was changed here
        since. The commit is then still in doubt, and nothing was changed; ``discard`` settles it.
        """
        doubt = self._in_doubt
        if doubt is None:
            return False
        ref = find_commit(self, doubt)
        if ref is not None:
            base, commit = doubt.staged.tree, doubt.commit
            if discarding:
                self.worktree.adopt_late(doubt.staged)
                position = Position(self.branch, ref, commit)
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
        """The policies that the repository keeps, and over them those that a call was given."""
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
        """The root merged from three, its new objects staged. Raises ``MergeConflictError``, and then nothing was changed."""
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
        except UnserializableValueError as error:  # what a policy or a person gave
            error.remains = resolving.remains
            raise
        if merged.conflicts:
            merge = None if resolving.again is None else Merge(merged.conflicts, resolving.resolutions, resolving.again)
            raise MergeConflictError(self.branch, merged.conflicts, merge=merge, remains=resolving.remains)
        staged.replaced.clear()
        staged.replaced.update(merged.replaced)
        return merged.tree

    def _merge_late(self, nodes: Nodes, base: Tree, ours: Tree, theirs: Tree) -> Tree:
        """The root merged from three, where values were changed here before they could follow the head. Raises ``MergeConflictError``."""
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
        """Take in what others committed to the branch, with our changes on top; the new head."""
        self.settle()
        ref, theirs = self.now()
        if theirs != self.head:
            self._merge_head(self.head.tree, theirs, ref, resolving)
        else:
            self.set_position(ref, theirs)
        return self.head

    def follow(self, ref: Ref, head: Commit) -> Commit:
        """Stand where others moved the branch. There is nothing that is not committed."""
        position = Position(self.branch, ref, head)
        if head != self.head:
            self._move_to(head, position)
        else:
            self.position = position
        return head

    def _merge_head(self, base: Tree, theirs: Commit, ref: Ref, resolving: Resolving) -> None:
        """Stand on another commit, with our changes since ``base`` on top. Raises ``MergeConflictError``, and then changes nothing."""
        try:
            staged = self.worktree.stage(lenient=True)
            expected = self.merged(staged, base, staged.tree, theirs.tree, resolving)
        except MissingObjectError:
            # Nothing led to our head any more, and it was collected.
            staged, base = self.worktree.stage_over(theirs.tree)
            expected = self.merged(staged, base, staged.tree, theirs.tree, resolving)
        position = Position(self.branch, ref, theirs)
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
        """See to it that a commit that failed for a missing object can be tried again: what it relied on was collected.

        That may be what was sent ahead, or what our head had, which nothing led to any more.

        Raises:
            BranchMovedError, MergeConflictError: nothing was changed.
        """
        ref, theirs = self.now()
        if theirs != self.head and on_moved is OnMoved.REFUSE:
            raise self.moved(resolving)
        if theirs != self.head and on_moved is OnMoved.MERGE:
            self._merge_head(self.head.tree, theirs, ref, resolving)
        self.worktree.distrust()

    def _move_to(self, target: Commit, position: Position) -> None:
        """Have the live values hold what another commit does; what is not committed is dropped."""
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
        """Stand on another branch. There is nothing that is not committed. Raises ``UnknownRevisionError`` where it is not there."""
        ref = self.repository.database.ref("branch", branch)
        if ref.head is not None:
            head = self.commit_of(ref)
        elif not create:
            head = self.repository.branches[branch]  # raises
        elif self.ref.head is None:
            head = self.head  # no commit to point to: like ours, it is there with its first
        else:
            ref, head = self.repository.branches.begin(branch, self.head)
        self._move_to(head, Position(branch, ref, head))

    def move_branch(self, target: Commit, action: str, *, staged: Staged | None = None, at: tuple[Ref, Commit] | None = None) -> None:
        """Move the branch from our head to another commit, and write that down in its reflog; live values follow.

        Args:
            staged: has the commit, and what it needs, where it is a new one.
            at: the branch and its head, where that is not our head any more.

        Raises:
            BranchMovedError: the branch is neither at the one nor at the other. Nothing was changed.
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
                moved = None  # it was done, and its reply was lost
            except StateError:
                self.unfinished.question = None
                raise
            if moved is None:
                ref = self.read_ref()
                stands = self.commit_of(ref)
                if stands != target:  # it may be there already, by an earlier call whose reply was lost
                    if stands != head:
                        break
                    continue
                moved = ref
            # Where this fails, the same call does the rest: it finds the branch where it is to be.
            self._move_to(target, Position(self.branch, moved, target))
            return
        self.unfinished.question = None
        raise BranchMovedError(self.branch, expected=head.id, actual=stands.id)
