"""Where a handle stands: its branch, the head as it last saw it, the live values over it; and the ways to another head. Layer: state.

::

    stage ── land ──┬── publish ── the head is ours
                    ├── the branch had moved: merge, and publish again
                    └── the reply was lost: in doubt, until it is found, or barred

Whatever fails leaves what was staged as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from versioned_state.errors import (
    BranchMovedError,
    CommitInDoubtError,
    MergeConflictError,
    StorageError,
    UncommittedChangesError,
    UnknownOutcomeError,
    UnreachableStoreError,
)
from versioned_state.objects.address import Address
from versioned_state.repository import history
from versioned_state.repository.commit import ROOT_ID, Commit
from versioned_state.repository.merge import Conflict, Merge, Resolutions, merge_trees
from versioned_state.repository.policies import Policies, Policy, read_policies
from versioned_state.repository.refs import Ref, ref_at
from versioned_state.repository.repository import Repository, backoff
from versioned_state.state.slots import Staged
from versioned_state.state.worktree import Worktree
from versioned_state.values.decoder import Decoder
from versioned_state.values.diff import diff_maps
from versioned_state.values.encoder import Encoder
from versioned_state.values.keys import path_of
from versioned_state.values.merge import Sides
from versioned_state.values.nodes import Nodes
from versioned_state.values.pickles import PicklePolicy
from versioned_state.values.tree import Tree, same

GIVEN_UP: Final = "commit given up"
"""What the reflog says where the record of a branch was changed to bar a late commit; the branch did not move."""

_ATTEMPTS: Final = 1000
"""Merges onto a branch that keeps moving, before a commit gives up. With the backoff this is the better part of a minute."""


class OnMoved(Enum):
    """What a commit does where its branch has moved since this handle last saw it."""

    MERGE = "merge"
    """Merge our changes by path onto the new head; ``MergeConflictError`` where both sides changed the same."""
    REFUSE = "refuse"
    """Raise ``BranchMovedError``."""
    REPLACE = "replace"
    """Make the new head the parent, and our content, as it is, the state."""


@dataclass(frozen=True, slots=True)
class Settling:
    """How conflicts are settled in one call: policies that were given, what was resolved by hand, and how to do the call again."""

    policies: Mapping[str, Policy] = field(default_factory=dict)
    resolutions: Resolutions = ()
    again: Callable[[Resolutions], Commit] | None = None


@dataclass(frozen=True, slots=True)
class _InDoubt:
    """A commit that the store may have or not: what was staged for it, the ref that it was to move, and whether it may still do so."""

    staged: Staged
    commit: Commit
    ref: Ref
    under_way: bool


class Standing:
    """A branch as one handle sees it. Not for two threads at once."""

    def __init__(self, repository: Repository, branch: str, author: str | None) -> None:
        self.repository = repository
        self.branch = branch
        self.author = author
        self.ref = repository.ref("branch", branch)
        self.head = self.commit_of(self.ref)
        self.worktree = Worktree(repository.objects, repository.policy, self.head.tree)
        self._in_doubt: _InDoubt | None = None

    def commit_of(self, ref: Ref) -> Commit:
        """The head of a ref; the empty root commit where it has none."""
        return self.repository.read(ROOT_ID) if ref.head is None else self.repository.commit_at(ref.head)

    def read_ref(self) -> Ref:
        """The branch's record as it is in the store now."""
        return self.repository.ref("branch", self.branch)

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

    # Committing

    def land(
        self,
        staged: Staged,
        write: Callable[[Tree, Commit], Commit],
        on_moved: OnMoved = OnMoved.MERGE,
        *,
        settling: Settling,
        allow_empty: bool = False,
    ) -> Commit:
        """Publish a commit of what was staged, on the head or, where the branch has moved, on its new one."""
        ref, parent, tree = self.ref, self.head, staged.tree
        for attempt in range(_ATTEMPTS):
            if parent != self.head and same(tree, parent.tree) and not allow_empty:
                # The others made the very change that we would make.
                self.stand_on(parent, ref, staged)
                return parent
            commit = write(tree, parent)
            moved = self.publish(ref, commit, staged)
            if moved is not None:
                self.stand_on(commit, moved, staged)
                return commit
            if attempt:
                backoff(attempt)
            ref = self.read_ref()
            found = self._theirs(ref)
            if found == parent:
                # Only its record changed: it was created where it was, or reset to there and back.
                continue
            if on_moved is OnMoved.REFUSE:
                break
            parent = found
            if on_moved is OnMoved.MERGE:
                tree = self.merged(staged, self.head.tree, staged.tree, parent.tree, settling)
        actual = self.commit_of(self.read_ref())
        raise BranchMovedError(self.branch, expected=self.head.id, actual=actual.id)

    def publish(self, ref: Ref, commit: Commit, staged: Staged) -> Ref | None:
        """Move the branch to a commit; None where it had moved. An outcome that is not known is looked up at once, or kept in doubt."""
        try:
            return self.repository.publish(ref, commit, staged.staging)
        except StorageError as error:
            # The store may have done it all the same, and only the reply was lost.
            self._in_doubt = _InDoubt(staged, commit, ref, isinstance(error, UnknownOutcomeError))
            try:
                moved = self._find(self._in_doubt)
            except StorageError:
                raise CommitInDoubtError(commit.id) from error
            self._in_doubt = None
            if moved is not None:
                return moved
            if isinstance(error, UnknownOutcomeError):  # by now it is known
                raise UnreachableStoreError("the store failed; nothing was committed, and the staged changes are still there") from error
            raise

    def stand_on(self, commit: Commit, ref: Ref, staged: Staged) -> None:
        """Make a commit the head that holds what was staged, or that merged with what others committed."""
        self.worktree.adopt(staged, staged.tree)
        self.ref, self.head = ref, commit
        if same(staged.tree, commit.tree):
            self.worktree.tree = commit.tree
        else:
            self.worktree.retarget(staged.tree, commit.tree)

    def _find(self, doubt: _InDoubt) -> Ref | None:
        """The ref as of a commit in doubt, if the branch has it, be it below what others committed since; None if it never will.

        Raises ``StorageError``: the doubt remains.
        """
        while True:
            ref = self.read_ref()
            if ref.head is not None and history.is_ancestor(doubt.commit, self.commit_of(ref), self.repository.read):
                return ref_at(doubt.ref, Address(bytes.fromhex(doubt.commit.id)))
            if not doubt.under_way or ref.stored != doubt.ref.stored:
                return None
            # The write may still be on its way, in the buffers of a server or waiting for a lock there. A record that is not the one
            # that it expects, though for the same commit, bars it for good.
            head = self.commit_of(ref)
            barred = self.repository.move(ref, None if ref.head is None else head, action=GIVEN_UP, author=self.author)
            if barred is not None:
                if head == self.head:
                    self.ref = barred
                return None

    def settle(self, *, discarding: bool = False) -> bool:
        """Find out what became of a commit whose outcome was not known when it failed, before anything is repeated: whether it landed.

        Raises ``MergeConflictError`` where it landed on top of what others committed, and that conflicts with what was changed here
        since. The commit is then still in doubt, and nothing was changed; ``discard`` settles it.
        """
        doubt = self._in_doubt
        if doubt is None:
            return False
        ref = self._find(doubt)
        if ref is not None:
            base, commit = doubt.staged.tree, doubt.commit
            if discarding:
                self.worktree.adopt_late(doubt.staged)
                self.worktree.retarget(base, commit.tree)
                self.head = commit
            else:
                since = self.worktree.stage(lenient=True)
                self.merged(since, base, since.tree, commit.tree, Settling())  # raises, if it must, before anything is changed
                self.worktree.adopt_late(doubt.staged)
                self._take_in(base, commit, Settling())
            self.ref = ref
        self._in_doubt = None
        return ref is not None

    # Merging

    def policies(self, settling: Settling) -> Policies:
        """The policies that the repository keeps, and over them those that a call was given."""
        return Policies(read_policies(self.repository.store), settling.policies)

    def merged(
        self, staged: Staged, base: Tree, ours: Tree, theirs: Tree, settling: Settling, *, theirs_first: bool = True, counting: bool = True
    ) -> Tree:
        """The root merged from three, its new objects staged. Raises ``MergeConflictError``, and then nothing was changed."""
        nodes = Nodes(staged.staging, staging=staged.staging)
        tree, conflicts = merge_trees(
            nodes,
            (base, ours, theirs),
            pickles=self.repository.policy,
            policies=self.policies(settling),
            resolutions=settling.resolutions,
            theirs_first=theirs_first,
            counting=counting,
        )
        if staged.failed:
            describing = Decoder(Encoder(nodes, PicklePolicy("refuse", private=False)), describe=True)
            changed = ((key, old, new) for key, old, new in diff_maps(nodes, base, theirs) if key in staged.failed)
            # Ours cannot be stored, so there is nothing to merge, and nothing to show.
            conflicts += tuple(Conflict(path_of(key), Sides(old, None, new), describing) for key, old, new in changed)
        if conflicts:
            merge = None if settling.again is None else Merge(conflicts, settling.resolutions, settling.again)
            raise MergeConflictError(self.branch, conflicts, merge=merge)
        return tree

    def refresh(self, settling: Settling) -> Commit:
        """Take in what others committed to the branch, with our changes on top; the new head."""
        self.settle()
        ref = self.read_ref()
        theirs = self._theirs(ref)
        if theirs != self.head:
            self._take_in(self.head.tree, theirs, settling)
        self.ref = ref
        return self.head

    def _take_in(self, base: Tree, theirs: Commit, settling: Settling) -> None:
        """Stand on another commit, with our changes since ``base`` on top. Raises ``MergeConflictError``, and then changes nothing."""
        staged = self.worktree.stage(lenient=True)
        expected = self.merged(staged, base, staged.tree, theirs.tree, settling)
        self.worktree.retarget(staged.tree, expected, base=base, head=theirs.tree)
        self.head = theirs

    # Moving

    def switch(self, branch: str) -> None:
        """Stand on another branch, which must exist. There is nothing that is not committed. Raises ``UnknownRevisionError``."""
        ref = self.repository.ref("branch", branch)
        head = self.repository.branches[branch] if ref.head is None else self.commit_of(ref)
        self.worktree.restore()
        self.worktree.retarget(self.head.tree, head.tree)
        self.branch, self.ref, self.head = branch, ref, head

    def point_to(self, target: Commit, action: str, *, staged: Staged | None = None) -> None:
        """Move the branch from our head to another commit, and write that down in its reflog; live values follow.

        Args:
            staged: what the commit needs that is not stored yet.

        Raises:
            BranchMovedError: the branch is neither at the one nor at the other. Nothing was changed.
        """
        if staged is not None:
            self.repository.store.apply({}, {}, objects=staged.staging.sealed())
        ref = self.ref
        for _ in range(2):
            try:
                moved = self.repository.move(ref, target, action=action, author=self.author)
            except UnknownOutcomeError:
                if target == self.head or self.commit_of(self.read_ref()) != target:
                    raise
                moved = None  # it was done, and its reply was lost
            if moved is None:
                ref = self.read_ref()
                stands = self.commit_of(ref)
                if stands != target:  # it may be there already, by an earlier call whose reply was lost
                    if stands != self.head:
                        break
                    continue
                moved = ref
            self.worktree.restore()  # where this fails, the same call does the rest: it finds the branch where it is to be
            self.worktree.retarget(self.head.tree, target.tree)
            self.ref, self.head = moved, target
            return
        raise BranchMovedError(self.branch, expected=self.head.id, actual=stands.id)
