"""The publisher: commits and moves of branches, sent to the store for one handle or for several. Layer: state.

::

    proposal ── commit on the head ── one batch ──┬── each commit is the head of its handle
                        ▲                         ├── the reply was lost: search the branch
                        │                         │   └── that fails too: the commits stay in doubt
                        └── merge ── a branch had moved

Nothing else sends the commit of a handle, searches for it after a lost reply, or tries again because a branch has
moved. Before a batch is sent, each handle records its commit, so that after an interrupt the next call on the handle
finds out whether the store has it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from versioned_state.errors import (
    STAGED,
    BranchMovedError,
    CommitInDoubtError,
    FormatError,
    MissingObjectError,
    StateError,
    StorageError,
    StoreClosedError,
    UnknownOutcomeError,
    UnreachableStoreError,
)
from versioned_state.repository.committing import OnMoved
from versioned_state.repository.database import Publication, backoff
from versioned_state.repository.history.commit import Commit
from versioned_state.repository.refs.ref import NOTHING, BatchPart, Ref
from versioned_state.state.branch.branch_handle import BranchHandle, head_address
from versioned_state.state.branch.merging import Resolving, merge_roots
from versioned_state.state.worktree.entries import NewEntries, Staged
from versioned_state.state.worktree.unfinished import CommitInDoubt, HandlePosition, MoveInDoubt
from versioned_state.values.trees.tree import Tree, same

if TYPE_CHECKING:
    from versioned_state.repository.names.tags import CommitTag
    from versioned_state.repository.refs.notes import CommitNote

A = TypeVar("A")
T = TypeVar("T")

ATTEMPTS: Final = 1000
"""The number of attempts on a branch that keeps moving. With the pauses they last most of a minute."""


class Proposal(NamedTuple):
    """A commit to make on a head. It never changes: if the branch has moved, another proposal takes its place.

    Attributes:
        handle: the handle that adopts the commit.
        staged: the changes of the handle's values, which the commit has, and the new objects.
        write: stages a commit of a root on a head, with its message, author and meta, and returns it.
        ref: the record of the branch on which the commit is to be made.
        head: the head of that record.
        tree: the root to commit on that head.
        ours: the root to commit on the handle's own head: the staged root, unless hooks have amended it.
        pending: the entries of series that the handle kept for its next commit, and that this one has.
        tag: a tag to make for the commit.
        allow_empty: make the commit even if the head has all that it changes.
        note: a note of the commit.
        parent: the parent of the commit, if the caller has chosen it: the branch moves from its head to the commit, and
            the reflog says so.
    """

    handle: BranchHandle
    staged: Staged
    write: Callable[[Tree, Commit], Commit]
    ref: Ref
    head: Commit
    tree: Tree
    ours: Tree
    pending: NewEntries = {}  # noqa: RUF012 - it is never changed
    tag: CommitTag | None = None
    allow_empty: bool = False
    parent: Commit | None = None
    note: CommitNote | None = None

    @property
    def is_needless(self) -> bool:
        """Whether another writer has made a head with the same content."""
        return (
            self.head != self.handle.head and same(self.tree, self.head.tree) and not (self.allow_empty or self.parent)
        )

    @property
    def action(self) -> str | None:
        """The words of the reflog for a commit that is not a child of the head, or None if it is one."""
        return None if self.parent is None or self.parent == self.head else f"commit onto {self.parent.short}"

    def on_new_head(self, on_moved: OnMoved, resolving: Resolving) -> Proposal:
        """Return the proposal for the present head of the branch.

        Raises:
            BranchMovedError: the branch has moved and ``on_moved`` refuses that, or the branch was deleted. Nothing was
                changed.
            MergeConflictError: both sides changed a path. Nothing was changed.
        """
        handle = self.handle
        ref, head = handle.read_head()
        if head == self.head:
            # Only the record has changed: the branch was created again, or was moved away and back.
            return self._replace(ref=ref)
        if on_moved is OnMoved.REFUSE:
            raise handle.moved_error(resolving)
        tree = self.tree
        if on_moved is OnMoved.MERGE:
            tree = merge_roots(
                handle, self.staged, handle.root_of(handle.head), self.ours, handle.root_of(head), resolving
            )
        return self._replace(ref=ref, head=head, tree=tree)


class MovedError(Exception):
    """A branch has moved since its proposal was made, or a condition of a part does not hold.

    The error never leaves a handle.
    """


def again_if_moved(attempt: Callable[[A], T], given: A, behind: Callable[[A], A] | None = None) -> T:
    """Return the result of an attempt, which is repeated while the branch keeps moving, with pauses that grow.

    Args:
        given: the argument of the first attempt.
        behind: makes the argument of the next attempt from that of the last one: reads the new head, or raises. Without
            it, an attempt that raises ``BranchMovedError`` is not repeated, but one that raises ``MovedError`` is.

    Raises:
        BranchMovedError, MovedError: the last attempt raised it.
    """
    for number in range(ATTEMPTS):
        try:
            return attempt(given)
        except (MovedError, BranchMovedError) as error:
            if number == ATTEMPTS - 1 or (behind is None and isinstance(error, BranchMovedError)):
                raise
        # Outside of the block: the next error does not have this one as its context, and nothing keeps this one, or the
        # handles in its traceback, alive.
        if number:
            backoff(number)
        if behind is not None:
            given = behind(given)
    raise AssertionError


def publish(proposals: Sequence[Proposal], on_moved: OnMoved, resolving: Resolving) -> Commit:
    """Make commits, all or none, on the present heads of the branches. Their handles adopt them. Returns the last one.

    Where another writer has made the same changes, the handle adopts the head instead, and no commit is made.

    Raises:
        BranchMovedError, MergeConflictError: as ``Proposal.on_new_head``.
        CommitInDoubtError: the store failed, and cannot be searched either. The next call on each handle searches it.
        StorageError: the store failed, and has none of the commits.
    """
    needless: list[Proposal] = []

    def behind(sent: Sequence[Proposal]) -> list[Proposal]:
        rest: list[Proposal] = []
        for each in sent:
            moved = each.on_new_head(on_moved, resolving)
            (needless if moved.is_needless else rest).append(moved)
        return rest

    try:
        commit = again_if_moved(partial(send, remains=resolving.remains), proposals, behind)
    except MovedError:
        raise proposals[0].handle.moved_error(resolving) from None
    for each in needless:
        commit = each.head
        _adopt(each, commit, each.ref)
    assert commit is not None
    return commit


def publish_anew(handle: BranchHandle, attempt: Callable[[None], Commit | None], resolving: Resolving) -> Commit:
    """Return the commit of an attempt that reads the head of the branch and calls ``send``.

    Repeat it while the branch keeps moving.
    """
    try:
        commit = again_if_moved(attempt, None)
    except MovedError:
        raise handle.moved_error(resolving) from None
    assert commit is not None
    return commit


def send(proposals: Sequence[Proposal], remains: str) -> Commit | None:
    """Make commits in one batch, each on the head of its proposal. Their handles adopt them.

    Returns the last one, or None if there are no proposals. Raises as ``publish``, and ``MovedError``.

    Args:
        remains: the attribute of that name of the errors. See ``StateError``.
    """
    prepared: list[PreparedCommit] = []
    publications: list[Publication] = []
    try:
        for proposal in proposals:
            each = PreparedCommit(proposal)
            prepared.append(each)
            publications.append(each.publication)
        if publications[1:]:
            refs = len(publications) + sum(each.tag is not None for each in proposals)
            from versioned_state.repository.names.mapping import check_conditions

            check_conditions(proposals[0].handle.repository.database, refs, "commit_together")
    except BaseException:
        _forget(prepared)
        raise
    if not prepared:
        return None
    try:
        moved = proposals[0].handle.repository.database.publish(publications)
    except StateError as error:
        moved = _answered(prepared, error, remains)
    else:
        if moved is None:
            _answered(prepared, None, remains)
    for each in prepared:
        if each.proposal.tag is not None:
            each.proposal.tag.settle(made=moved is not None)
    if moved is None:
        raise MovedError
    for each, ref in zip(prepared, moved, strict=True):
        _adopt(each.proposal, each.commit, ref)
    return each.commit


class PreparedCommit:
    """A commit that is written on the head of its proposal, recorded on its handle, and sent to the store next.

    Until its outcome is settled, the handle must make no other call. After an exception in between, the next call
    searches for the commit.

    Attributes:
        commit: the commit.
        publication: the request to the store: an argument for ``Database.publish`` or ``publish_each``.
    """

    commit: Commit

    __slots__ = ("commit", "proposal", "publication")

    def __init__(self, proposal: Proposal) -> None:
        self.proposal: Final = proposal
        handle, ref, staged = proposal.handle, proposal.ref, proposal.staged
        self.commit = commit = proposal.write(proposal.tree, proposal.head)
        part = handle.checked(commit, ref, staged) if handle.hooks.all else NOTHING
        if proposal.tag is not None:
            part = part.joined(proposal.tag.part(commit))
        if proposal.note is not None:
            part = part.joined(proposal.note.part(commit))
        if handle.stamp is not None:
            part = part.joined(handle.stamp.part())
        self.publication: Publication = Publication(ref, commit, staged.staging, part, handle.ttl)
        if proposal.parent is not None:
            self.publication = self.publication._replace(action=proposal.action, author=handle.author)
        handle.unfinished.question = CommitInDoubt(staged, commit, ref, under_way=True)

    def settle(self, answer: Ref | StateError | None, remains: str = STAGED) -> Commit | None:
        """Return the commit, which is the new head, or None if the branch had moved or only ``publish`` can find out.

        Raises as ``publish``. If there is no commit, the staged changes are still there.

        Args:
            answer: the element of the result of ``publish_each``.
        """
        found = [answer] if isinstance(answer, Ref) else _answered([self], answer, remains)
        if found is None:
            return None
        _adopt(self.proposal, self.commit, found[0])
        self.proposal.handle.notify_hooks()
        return self.commit


def _adopt(proposal: Proposal, commit: Commit, ref: Ref) -> None:
    proposal.handle.adopt_commit(commit, ref, proposal.staged)
    if proposal.handle.stamp is not None:
        proposal.handle.stamp.made()
    if proposal.pending:
        proposal.handle.pending.forget(proposal.pending)


def _forget(sent: Sequence[PreparedCommit]) -> None:
    for each in sent:
        each.proposal.handle.unfinished.question = None


def _answered(sent: Sequence[PreparedCommit], answer: StateError | None, remains: str) -> list[Ref] | None:
    """Settle the recorded commits after an error, or after the answer that a branch had moved (None).

    Returns the new records of the branches if the store has the commits nevertheless, since only the reply was lost. It
    has all or none.
    """
    handles = [each.proposal.handle for each in sent]
    questions = [handle.unfinished.question for handle in handles]
    if isinstance(answer, StorageError) and not isinstance(answer, StoreClosedError | FormatError):
        for question in questions:
            question.under_way = isinstance(answer, UnknownOutcomeError)
        try:
            found = [handle.find_commit(question) for handle, question in zip(handles, questions, strict=True)]
        except StorageError:
            for handle, question in zip(handles, questions, strict=True):
                handle.doubt(question)
            raise CommitInDoubtError(sent[0].commit.id) from answer
        refs = [ref for ref in found if ref is not None]
        if len(refs) == len(sent):
            return refs
    _forget(sent)
    if isinstance(answer, UnknownOutcomeError):  # the outcome is known now
        raise UnreachableStoreError("the store failed", remains=remains) from answer
    if answer is not None:
        raise answer
    for handle in handles:
        handle.hooks.batch_refused()
    return None


# Moves to another commit, which are logged


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
            moved = _move(handle, ref, target, action, staged)
        except UnknownOutcomeError:
            if target == head or head_address(handle.read_ref()) != target.address:
                handle.unfinished.question = None
                raise
            moved = None  # the branch moved, but the reply was lost
        except StateError:
            handle.unfinished.question = None
            raise
        if moved is None:
            handle.hooks.batch_refused()
            ref = handle.read_ref()
            actual = head_address(ref)
            if actual != target.address:  # the reply may have been lost in an earlier call
                if actual != head.address:
                    break
                continue
            moved = ref
        # If this fails, a second call completes the move: it finds the branch at the target.
        handle.move_to(HandlePosition(handle.branch, moved, target), dropping=dropping)
        return
    handle.unfinished.question = None
    raise BranchMovedError(handle.branch, expected=head.id, actual=actual.hex())


def _move(handle: BranchHandle, ref: Ref, target: Commit, action: str, staged: Staged | None) -> Ref | None:
    """Send a move to the store once. Returns the new record, or None if the branch had moved."""
    database = handle.repository.database
    part: BatchPart = NOTHING
    if staged is None or target.address not in staged.staging:
        if handle.hooks.all:
            part = handle.hooks.batch_part()
        return database.move(ref, target, action=action, author=handle.author, part=part)
    if handle.hooks.all:
        part = handle.checked(target, ref, staged)
    if handle.stamp is not None:
        part = part.joined(handle.stamp.part())
    moved = database.publish([Publication(ref, target, staged.staging, part, handle.ttl, action, handle.author)])
    if moved is None:
        return None
    if handle.stamp is not None:
        handle.stamp.made()
    return moved[0]


def raise_if_moved(handle: BranchHandle, error: MissingObjectError) -> None:
    """Raise ``BranchMovedError`` if the branch is no longer at the handle's head: gc or a purge may have collected it.

    Then the store needs no repair, which a ``MissingObjectError`` would call for. The handle needs the new head.
    """
    actual = head_address(handle.read_ref())
    if actual != handle.head.address:
        raise BranchMovedError(handle.branch, expected=handle.head.id, actual=actual.hex()) from error


def again_if_swept(handle: BranchHandle, call: Callable[[], T]) -> T:
    """Return the result of a call that moves the branch.

    It is repeated if gc or purge deleted its target before the branch moved.
    """
    ref = handle.ref
    failure: MissingObjectError | None = None

    def attempt() -> T:
        nonlocal failure
        if failure is not None and handle.ref is not ref:
            raise failure  # the branch has moved, so the call must not be repeated
        try:
            return call()
        except MissingObjectError as error:
            failure = error
            if handle.ref is ref:
                raise_if_moved(handle, error)
            raise

    return handle.repository.database.unless_swept(attempt)
