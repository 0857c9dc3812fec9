"""A handle on a branch: the branch, the head read last, the live values, and the moves between heads. Layer: state.

::

    stage ── publish ──┬── adopt: the commit is the head
                       ├── the branch had moved: merge, and publish again
                       └── the reply was lost: in doubt until found or barred

``publisher`` publishes. A failure keeps the staged changes.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from versioned_state.errors import (
    BranchMovedError,
    MergeConflictError,
    MissingObjectError,
    StateError,
    StorageError,
    UncommittedChangesError,
)
from versioned_state.objects.address import Address
from versioned_state.records import replace
from versioned_state.repository.committing import OnMoved
from versioned_state.repository.history import graph
from versioned_state.repository.history.commit import ROOT_ADDRESS, ROOT_ID, Commit
from versioned_state.repository.refs.ref import BatchPart, Ref
from versioned_state.repository.refs.reflog import EXPIRE
from versioned_state.repository.repository import Repository
from versioned_state.state.aio.caller import current_caller, hold_still
from versioned_state.state.aio.held_objects import HeldObjects
from versioned_state.state.branch.hooks import Hooks
from versioned_state.state.branch.merging import LateMerge, Resolving, merge_roots
from versioned_state.state.worktree.entries import Savepoint, Staged
from versioned_state.state.worktree.pending import PendingEntries
from versioned_state.state.worktree.unfinished import CommitInDoubt, HandlePosition, Move, MoveInDoubt
from versioned_state.state.worktree.worktree import Worktree
from versioned_state.values.keys import path_of
from versioned_state.values.trees.nodes import Nodes
from versioned_state.values.trees.tree import Tree, same

if TYPE_CHECKING:
    from versioned_state.repository.refs.stamps import Stamp, StampSource
    from versioned_state.state.shape.migrations import Migrator

GIVEN_UP: Final = "commit given up"
"""The action that the reflog has for a record that was replaced to bar a late commit. The branch did not move."""

_RECENT: Final = 100
"""The number of recent moves of a branch among which an interrupted one is searched for."""

_MERGES_BESIDE: Final = 3
"""Attempts of a background call to merge while live values may change, before it holds its caller for the merge."""


def head_address(ref: Ref) -> Address:
    """Return the address of the head of a ref, which is the empty root commit if it has none.

    Unlike the commit, gc cannot delete it.
    """
    return ROOT_ADDRESS if ref.head is None else ref.head


class BranchHandle:
    """A branch, as one handle has read it. Not for two threads at once."""

    def __init__(self, repository: Repository, branch: str, author: str | None) -> None:
        self.repository = repository
        self.author = author
        database = repository.database
        ref, head = database.read_head("branch", branch)
        self.position: HandlePosition = HandlePosition(
            branch, ref, database.commits.read(ROOT_ADDRESS) if head is None else head
        )
        self.stamp: Stamp | None = None
        if database.stamp is not None:
            self.use_stamp(database.stamp)
        self.ttl: int | None = None  # in microseconds; None: as the branch has it
        self.commits_made: int = 0
        self.pending: Final = PendingEntries()
        self.objects: Final = HeldObjects(repository.database.objects)
        self.migrator: Migrator | None = None
        self.worktree: Final = Worktree(
            self.objects, database.policy, self.head.tree, LateMerge(weakref.ref(self)), database.nodes
        )
        self.worktree.mark_stored(ref.sweeps)
        self.unfinished: Final = self.worktree.unfinished
        self.hooks: Hooks = Hooks()
        self._in_doubt: CommitInDoubt | None = None
        self._finishing = False

    @property
    def branch(self) -> str:
        return self.position.branch

    @property
    def ref(self) -> Ref:
        """The record of the branch that this handle read last."""
        return self.position.ref

    @property
    def head(self) -> Commit:
        return self.position.head

    def set_position(self, ref: Ref, head: Commit) -> None:
        """Set the record of the branch and its head. The branch stays the same."""
        self.position = HandlePosition(self.position.branch, ref, head)

    @property
    def is_at_rest(self) -> bool:
        """Whether no interrupted call needs to be completed first, and no commit is in doubt."""
        unfinished = self.unfinished
        ended = unfinished.question is None and unfinished.move is None and unfinished.edit is None
        return ended and self._in_doubt is None

    def close(self) -> None:
        """Release the store and the live values. The branch and the head can still be read."""
        self.hooks.close()
        del self.repository, self.worktree, self.objects
        self.migrator = None
        self._in_doubt = None

    def commit_of(self, ref: Ref) -> Commit:
        """Return the head of a ref, or the empty root commit if it has none."""
        return self.repository.database.commits.read(head_address(ref))

    def read_ref(self) -> Ref:
        """Read the record of the branch from the store."""
        return self.repository.database.ref("branch", self.branch)

    def read_head(self) -> tuple[Ref, Commit]:
        """Read the record of the branch and its head from the store.

        Raises ``BranchMovedError`` if the branch was deleted.
        """
        database = self.repository.database
        ref, head = database.read_head("branch", self.branch)
        if head is not None:
            return ref, head
        if self.head.id != ROOT_ID and (ref.log is None or database.read_log(ref.log).action != EXPIRE):
            raise BranchMovedError(
                self.branch,
                expected=self.head.id,
                actual=None,
                hint=f"it was deleted; repository.branches.create({self.branch!r}, state.head) brings it back",
            )
        # A branch that expired while it was in use: the next commit brings it back, with the same time to live.
        return replace(ref, ttl=self.ref.ttl), self.head

    def clean(self, call: str) -> Staged:
        """Return an empty staging for the new objects of ``call``.

        Raises ``UncommittedChangesError`` if there are changes.
        """
        staged = self.worktree.stage(lenient=True, adopting=True)
        paths = [str(path_of(key)) for key in (*staged.changes, *staged.failed)]
        self.hooks.refuse(call, paths)
        if paths:
            raise UncommittedChangesError(call, paths)
        return staged

    def turn_to(self, branch: str) -> None:
        """Take a position on another branch, as a new handle on it would. No value may be loaded, and no change staged.

        Cost: a read or two; and the encoder and its caches stay.
        """
        ref, head = self.repository.database.read_head("branch", branch)
        root = self.repository.database.commits.read(ROOT_ADDRESS)
        self.position = HandlePosition(branch, ref, root if head is None else head)
        self.worktree.tree = self.head.tree
        self.worktree.mark_stored(ref.sweeps)

    def begin(self, at: Commit, *, origin: str) -> None:
        """Create the branch at a commit of another branch and move there, before any value is loaded.

        Raises ``RefExistsError``.
        """
        self.root_of(at)
        self.set_position(*self.repository.branches.begin(self.branch, at, ttl=self.ttl, origin=origin))
        self.worktree.tree = self.root_of(self.head)

    # Migrations

    def root_of(self, commit: Commit) -> Tree:
        """Return the root that the handle uses for a commit: its root at the newest version.

        Raises as ``Migrator.migrated``.
        """
        return commit.tree if self.migrator is None else self.migrator.migrated(commit).root

    @property
    def is_migrating(self) -> bool:
        """Whether the next commit writes the changes of migrations."""
        return self.migrator is not None and not self.migrator.migrated(self.head).is_written

    def migrated(self, commit: Commit, staged: Staged) -> Commit:
        """Return the parent of a commit based on ``root_of(commit)``: that commit, or a staged one of its migration."""
        return commit if self.migrator is None else self.migrator.written(commit, staged.staging, self.author)

    def use_stamp(self, source: StampSource) -> None:
        """Give the commits of this handle a stamp. Raises as ``Stamp``."""
        from versioned_state.repository.refs.stamps import Stamp

        self.stamp = Stamp(source, self.repository.database.stamps)

    def stamped(self, meta: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        """Return the meta of a commit that is about to be written, with the stamp of this handle.

        Raises as ``Stamp``.
        """
        return meta if self.stamp is None else self.stamp.on(meta)

    def moved_error(self, resolving: Resolving) -> BranchMovedError:
        """Return the error of a call that gave up because the branch moved."""
        actual = head_address(self.read_ref())
        return BranchMovedError(self.branch, expected=self.head.id, actual=actual.hex(), remains=resolving.remains)

    def checked(self, commit: Commit, ref: Ref, staged: Staged) -> BatchPart:
        """Check with the hooks that a commit may be made on a ref, and return their part of its batch.

        Raises their errors.
        """
        nodes = Nodes(staged.staging, staging=staged.staging)
        self.hooks.check(nodes, self.commit_of(ref).tree, commit.tree)
        return self.hooks.batch_part()

    def adopt_commit(self, commit: Commit, ref: Ref, staged: Staged) -> None:
        """Make a published commit the head. It contains the staged changes, alone or merged with changes of others."""
        has_others = bool(staged.replaced) or not same(staged.tree, commit.tree)
        if has_others and current_caller() is not None:
            self._adopt_beside(commit, ref, staged)
            return
        position = self._record_commit(commit, ref, staged)
        self.worktree.adopt(staged, staged.tree if has_others else commit.tree, ref.sweeps)
        self.position = position
        self.commits_made += 1
        if has_others:
            self.worktree.update(staged.tree, commit.tree, also=staged.replaced)
        self.unfinished.move = None
        if ref.sweeps and not staged.failed:  # nothing was ever deleted from most stores
            self.worktree.mark_stored(ref.sweeps)

    def _adopt_beside(self, commit: Commit, ref: Ref, staged: Staged) -> None:
        """Make a published commit with changes of others the head, while live values may have changed since staging.

        If these later changes conflict with those of others, the handle does not move, and its next call raises the
        conflict.
        """
        self.commits_made += 1
        self._in_doubt = CommitInDoubt(staged, commit, ref, under_way=False)
        self.unfinished.question = None
        with suppress(MergeConflictError, StorageError):
            self.resolve_doubt()

    def notify_hooks(self) -> None:
        """Notify the hooks of a head that they have not been notified of."""
        if self.hooks.all:
            self.hooks.notify(self.head)

    # Commits and moves in doubt

    @property
    def is_in_doubt(self) -> bool:
        """Whether the store may have a commit that this handle has not adopted."""
        return self._in_doubt is not None

    def doubt(self, commit: CommitInDoubt) -> None:
        """Keep a commit in doubt, since the store failed and could not be read either.

        The next call searches for it.
        """
        self._in_doubt, self.unfinished.question = commit, None

    def find_commit(self, doubt: CommitInDoubt) -> Ref | None:
        """Search the branch for a commit in doubt. Returns the ref at it, or None if the branch will never have it.

        Later commits may have followed it. Raises ``StorageError`` if the doubt remains.
        """
        database = self.repository.database
        while True:
            ref = self.read_ref()
            if ref.head == doubt.commit.address:
                return ref
            if ref.head is not None and graph.is_ancestor(doubt.commit, self.commit_of(ref), database.commits.read):
                return database.after_commit(doubt.ref, doubt.commit, ttl=self.ttl)
            if not doubt.under_way or ref.stored != doubt.ref.stored:
                return None
            # The write may still arrive: it may be in the buffers of a server, or wait for a lock there. Replacing the
            # record that it expects, by another one for the same commit, makes it fail for good.
            head = self.commit_of(ref)
            barred = database.move(ref, None if ref.head is None else head, action=GIVEN_UP, author=self.author)
            if barred is not None:
                if head == self.head:
                    self.set_position(barred, head)
                return None

    def find_move(self, doubt: MoveInDoubt) -> Ref | None:
        """Search the branch for a move in doubt.

        Returns the ref at its target, or None if the branch did not make the move.

        The branch may have moved since.
        """
        ref = self.read_ref()
        if ref.stored == doubt.ref.stored:
            return None
        if self.commit_of(ref) == doubt.target:
            return ref
        for position in islice(self.repository.reflog(self.branch), _RECENT):
            if position.action == doubt.action and position.commit == doubt.target:
                return self.repository.database.after_commit(ref, doubt.target, ttl=self.ttl)
        return None

    # Steps that an exception interrupted

    def _record_commit(self, commit: Commit, ref: Ref, staged: Staged) -> HandlePosition:
        """Record a published commit before the live values are updated. Returns the new position."""
        keep = staged.failed.keys() - staged.replaced if staged.failed else ()
        position = HandlePosition(self.position.branch, ref, commit)
        self.unfinished.move = Move(
            commit.tree, commit.tree, staged.staging, keep=keep, commits=True, position=position
        )
        self.unfinished.question = None
        return position

    def _record_move(self, target: Commit, position: HandlePosition) -> None:
        """Record a move that drops uncommitted changes before the live values are updated."""
        root = self.root_of(target)
        self.unfinished.move = Move(root, root, journal=0, position=position)
        self.unfinished.question = None

    def finish(self) -> None:
        """Complete an interrupted step, and find an unknown outcome in the store.

        After a ``StorageError`` the next call tries again.
        """
        if self._finishing:
            return
        try:
            self._finishing = True
            unfinished = self.unfinished
            question = unfinished.question
            if unfinished.move is None:
                if isinstance(question, CommitInDoubt):
                    ref = self.find_commit(question)
                    if ref is not None:
                        self._record_commit(question.commit, ref, question.staged)
                elif isinstance(question, MoveInDoubt):
                    ref = self.find_move(question)
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

    def roll_back(self, savepoint: Savepoint, *, within: bytes = b"") -> None:
        """Restore the live values to a savepoint, merged with later changes of the head. See ``Worktree.restore``."""
        head = self.worktree.tree  # ``self.head`` may differ while a commit is in doubt
        if not same(savepoint.head, head):
            staged = replace(self.worktree.saved(savepoint), replaced=set())
            tree = merge_roots(self, staged, savepoint.head, staged.tree, head, Resolving({"**": "ours"}))
            savepoint = replace(savepoint, staged=replace(staged, tree=tree), head=head)
        self.worktree.restore(savepoint, within=within)

    def resolve_doubt(self, *, discarding: bool = False) -> bool:
        """Search the branch for a commit in doubt, before the next commit. Returns whether the branch has it.

        Raises ``MergeConflictError`` if the branch has it, with commits of others that conflict with our later changes.
        Then nothing was changed and the commit is still in doubt. ``discard`` resolves the doubt.
        """
        doubt = self._in_doubt
        if doubt is None:
            return False
        ref = self.find_commit(doubt)
        if ref is not None and doubt.commit != self.head:  # if it is the head, an interrupted call has adopted it
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
                # raises before anything is changed
                merge_roots(self, since, base, since.tree, commit.tree, Resolving())
                self.worktree.adopt_late(doubt.staged)
                self._merge_head(base, HandlePosition(self.branch, ref, commit), Resolving())
            self.commits_made += 1
        self._in_doubt = None
        return ref is not None

    # Following the branch

    def refresh(self, resolving: Resolving) -> Commit:
        """Move to the head of the branch, with our changes on top. Returns that head."""
        self.resolve_doubt()
        ref, theirs = self.read_head()
        if theirs != self.head:
            self.hooks.take_in(theirs)
            self._merge_head(self.root_of(self.head), HandlePosition(self.branch, ref, theirs), resolving)
        else:
            self.set_position(ref, theirs)
        return self.head

    def follow(self, ref: Ref, head: Commit) -> Commit:
        """Move to the current head of the branch. There are no uncommitted changes."""
        position = HandlePosition(self.branch, ref, head)
        if head != self.head:
            self.move_to(position)
        else:
            self.position = position
        return head

    def _merge_head(self, base: Tree, position: HandlePosition, resolving: Resolving) -> None:
        """Move to another position, with our changes since ``base`` on top.

        If it raises ``MergeConflictError``, nothing was changed.
        """
        theirs = self.root_of(position.head)
        try:
            for _ in range(_MERGES_BESIDE if current_caller() is not None else 0):
                staged = self.worktree.stage(lenient=True)
                expected = merge_roots(self, staged, base, staged.tree, theirs, resolving)
                self.worktree.read_ahead(staged.tree, expected, theirs)
                with hold_still():
                    if self.worktree.holds(staged):
                        self._take_in(position, staged, base, expected)
                        return
            with hold_still():
                staged = self.worktree.stage(lenient=True)
                expected = merge_roots(self, staged, base, staged.tree, theirs, resolving)
                self._take_in(position, staged, base, expected)
        except MissingObjectError:
            # gc collected our head after the last ref to it was gone. Nothing has changed.
            with hold_still():
                staged, base = self.worktree.stage_over(theirs)
                expected = merge_roots(self, staged, base, staged.tree, theirs, resolving)
                self._take_in(position, staged, base, expected)

    def _take_in(self, position: HandlePosition, staged: Staged, base: Tree, expected: Tree) -> None:
        """Move to another position. The live values, which equal ``staged``, get the content of ``expected``."""
        theirs = self.root_of(position.head)
        keep = staged.failed.keys() - staged.replaced
        self.unfinished.move = Move(expected, theirs, staged.staging, keep=keep, position=position)
        self.unfinished.question = None
        try:
            self.worktree.update(staged.tree, expected, base=base, head=theirs, also=staged.replaced)
        except StateError:
            if self.worktree.tree is theirs:
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
            self._merge_head(self.root_of(self.head), HandlePosition(self.branch, ref, theirs), resolving)
        self.worktree.distrust()

    def move_to(self, position: HandlePosition, *, dropping: bool = False) -> None:
        """Move to another position, whose branch is at its head already, and update the live values.

        Args:
            dropping: drop uncommitted changes. If not, only changes that were made during a background call may exist;
                these stay.
        """
        if current_caller() is None:
            self._drop_to(position)
        elif dropping:
            staged = self.worktree.stage(lenient=True)
            self.worktree.read_ahead(staged.tree, self.root_of(self.head), self.root_of(position.head))
            with hold_still():
                self._drop_to(position)
        else:
            self.unfinished.question = None
            try:
                self._merge_head(self.root_of(self.head), position, Resolving())
            except MergeConflictError as error:
                error.remains = (
                    "the branch has moved; the state is as it was, with the changes that were made meanwhile"
                )
                error.hint = "refresh() raises it again, to be resolved; discard() drops the changes"
                raise

    def _drop_to(self, position: HandlePosition) -> None:
        target, root = position.head, self.root_of(position.head)
        self._record_move(target, position)
        try:
            try:
                self.worktree.restore()
                self.worktree.update(self.root_of(self.head), root)
            except MissingObjectError:
                self.worktree.drop(root)
        except StateError:
            self.unfinished.move = None
            raise
        self.position = position
        self.unfinished.move = None
