"""Commits on several branches at once: in one batch, so that all of them are made or none, or each by itself. Layer: state.

::

    stage each ── one batch ──┬── each commit is the head of its handle
                              ├── a branch had moved: merge, and try the batch again
                              └── the reply was lost: each handle finds its own commit, or that there is none of them

Each handle records its commit before the batch is sent. So after an interrupt its next call finds out the outcome, as after a single
commit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from versioned_state.errors import (
    STAGED,
    BranchMovedError,
    CommitInDoubtError,
    InvalidArgumentError,
    MissingObjectError,
    StateError,
    StorageError,
    StoreClosedError,
    UnknownOutcomeError,
    UnreachableStoreError,
)
from versioned_state.repository.database import Publication, backoff
from versioned_state.repository.history.commit import Commit
from versioned_state.repository.names.mapping import check_conditions
from versioned_state.repository.refs.ref import NOTHING, Ref
from versioned_state.state.aio.caller import ready
from versioned_state.state.branch.branch_handle import BranchHandle
from versioned_state.state.branch.commit_options import CommitOptions
from versioned_state.state.branch.in_doubt import CommitInDoubt, find_commit
from versioned_state.state.branch.merging import merge_roots, replacing_root
from versioned_state.state.branch.operations import Description, stage_changes, write_on
from versioned_state.state.branch.resolving import Resolving
from versioned_state.state.worktree.entries import NewEntries, Staged
from versioned_state.values.trees.tree import Tree, same

if TYPE_CHECKING:
    from versioned_state.state.versioned import Versioned

_ATTEMPTS: Final = 1000


class PreparedCommit:
    """A commit that ``Database.publish_each`` makes with those of other handles. Until it is settled, the handle must make no other call.

    Attributes:
        publication: the argument for ``publish_each``; ``settle`` takes the answer.
    """

    def __init__(self, part: _Part, options: CommitOptions, resolving: Resolving) -> None:
        handle = part.handle
        self._part = part
        self._resolving = resolving
        self._commit = _written(part, options)
        beside = handle.asking(part.ref, self._commit, part.staged)
        self.publication = Publication(part.ref, self._commit, part.staged.staging, beside, handle.ttl)

    def settle(self, answer: Ref | StateError | None) -> Commit | None:
        """The commit, which is the new head; None if it was not made because the branch had moved, or if a commit by itself must find out.

        Raises as ``Versioned.commit``. If there is no commit, the staged changes are still there.
        """
        handle, part = self._part.handle, self._part
        moved = answer if isinstance(answer, Ref) else handle.answered(answer, self._resolving)
        if moved is None:
            return None
        handle.adopt_commit(self._commit, moved, part.staged)
        if part.pending:
            handle.pending.forget(part.pending)
        handle.tell_hooks()
        return self._commit


def prepare_commit(state: Versioned, options: CommitOptions) -> PreparedCommit | None:
    """Begin to commit the changes of a state that no other thread uses; None if it has no changes. Raises as ``Versioned.commit``.

    It reads only the objects that the changes need.
    """
    resolving = Resolving(options.policies, remains=STAGED)
    state._check_open()
    state._handle.resolve_doubt()
    part = _stage(state._handle, options, resolving)
    return None if part is None else PreparedCommit(part, options, resolving)


@dataclass(slots=True)
class _Part:
    """The part of one handle: its staged changes, the commit to make of them, and the head to make it on."""

    handle: BranchHandle
    staged: Staged
    ours: Tree
    message: str
    pending: NewEntries
    ref: Ref
    parent: Commit
    tree: Tree
    commits: list[Commit] = field(default_factory=list)

    @property
    def is_needless(self) -> bool:
        """Whether another writer has made the same changes."""
        return self.parent != self.handle.head and same(self.tree, self.parent.tree)


def commit_together(states: Sequence[Versioned], options: CommitOptions) -> list[Commit]:
    """Commit the changes of several states; see ``Repository.commit_together``."""
    resolving = Resolving(options.policies, remains=STAGED)
    with _locked(states):
        _check_states(states)
        for state in states:
            state._transactions.refuse("commit_together")
            state._handle.resolve_doubt()
        handles = [state._handle for state in states]
        try:
            _commit(handles, options, resolving)
        except MissingObjectError:
            for handle in handles:
                handle.recover(options.on_moved, resolving)
            _commit(handles, options, resolving)
        for handle in handles:
            handle.tell_hooks()
        return [handle.head for handle in handles]


@contextmanager
def _locked(states: Sequence[Versioned]) -> Iterator[None]:
    """Hold the locks of all states, taken in one order, so that two such calls do not wait for each other."""
    with ExitStack() as stack:
        for state in sorted(states, key=lambda state: id(state._lock)):
            stack.enter_context(ready(state._lock))
        for state in states:
            state._check_open()
        try:
            yield
        except BaseException:
            for state in states:
                with suppress(StateError):
                    state._check_open()  # an interrupted call is ended before its exception goes on
            raise


def _check_states(states: Sequence[Versioned]) -> None:
    branches = [state.branch for state in states]
    if len(set(branches)) < len(branches):
        raise InvalidArgumentError("two of the states are on one branch", remains="nothing was changed", hint="commit one after the other")
    if any(state.repository.store is not states[0].repository.store for state in states):
        raise InvalidArgumentError(
            "the states are in different stores", remains="nothing was changed", hint="open them over one store: Versioned(store, branch=…)"
        )


def _commit(handles: Sequence[BranchHandle], options: CommitOptions, resolving: Resolving) -> None:
    parts = [part for part in [_stage(handle, options, resolving) for handle in handles] if part is not None]
    for attempt in range(_ATTEMPTS):
        needed = [part for part in parts if not part.is_needless]
        if len(needed) > 1:
            check_conditions(handles[0].repository.database, len(needed), "commit_together")
        moved = _publish(needed, options, resolving) if needed else []
        if moved is not None:
            _adopt(parts, needed, moved)
            return
        if attempt:
            backoff(attempt)
        for part in needed:
            _follow(part, options, resolving)
    raise parts[0].handle.moved_error(resolving)


def _stage(handle: BranchHandle, options: CommitOptions, resolving: Resolving) -> _Part | None:
    """The share of one handle; None if it has no changes."""
    staged, ours, message, pending = stage_changes(handle, options, resolving)
    return None if message is None else _Part(handle, staged, ours, message, pending, handle.ref, handle.head, ours)


def _publish(parts: Sequence[_Part], options: CommitOptions, resolving: Resolving) -> list[Ref] | None:
    """Move all branches to their commits; None if one of them had moved, or a hook's condition does not hold."""
    database = parts[0].handle.repository.database
    publications = []
    questions = []
    for part in parts:
        handle = part.handle
        commit = _written(part, options)
        beside = handle.asked(commit, part.ref, part.staged) if handle.hooks.all else NOTHING
        publications.append(Publication(part.ref, commit, part.staged.staging, beside, handle.ttl))
        questions.append(CommitInDoubt(part.staged, commit, part.ref, under_way=True))
        part.commits.append(commit)
    for part, question in zip(parts, questions, strict=True):
        part.handle.unfinished.question = question
    try:
        moved = database.publish_together(publications)
    except StorageError as error:
        moved = None if isinstance(error, StoreClosedError) else _find(parts, questions, error)
        if moved is None:
            _forget_questions(parts)
            if isinstance(error, UnknownOutcomeError):  # the outcome is known now
                raise UnreachableStoreError("the store failed", remains=resolving.remains) from error
            raise
    except StateError:
        _forget_questions(parts)
        raise
    if moved is None:
        _forget_questions(parts)
        for part in parts:
            part.handle.hooks.batch_refused()
    return moved


def _written(part: _Part, options: CommitOptions) -> Commit:
    """Stage the commit of a part on the parent that it has by now."""
    handle = part.handle
    author = handle.author if options.author is None else options.author
    return write_on(handle, part.staged, part.tree, part.parent, Description(part.message, author, options.meta))


def _forget_questions(parts: Sequence[_Part]) -> None:
    for part in parts:
        part.handle.unfinished.question = None


def _find(parts: Sequence[_Part], questions: Sequence[CommitInDoubt], error: StorageError) -> list[Ref] | None:
    """The refs at the commits if the store has them; None if it never will. It has all or none."""
    for question in questions:
        question.under_way = isinstance(error, UnknownOutcomeError)
    try:
        found = [find_commit(part.handle, question) for part, question in zip(parts, questions, strict=True)]
    except StorageError:
        for part, question in zip(parts, questions, strict=True):
            part.handle._in_doubt, part.handle.unfinished.question = question, None
        raise CommitInDoubtError(questions[0].commit.id) from error
    refs = [ref for ref in found if ref is not None]
    return refs if len(refs) == len(parts) else None


def _follow(part: _Part, options: CommitOptions, resolving: Resolving) -> None:
    """Put our changes on top of the head that the branch has now. Raises ``MergeConflictError``, and nothing was changed."""
    handle = part.handle
    part.ref, found = handle.read_head()
    if found == part.parent:
        return
    if options.on_moved is options.on_moved.REFUSE:
        raise BranchMovedError(handle.branch, expected=handle.head.id, actual=found.id, remains=resolving.remains)
    part.parent = found
    if options.on_moved is options.on_moved.MERGE:
        part.tree = merge_roots(handle, part.staged, handle.root_of(handle.head), part.ours, handle.root_of(found), resolving)
    else:
        part.tree = replacing_root(part.staged, part.ours, found.tree)


def _adopt(parts: Sequence[_Part], needed: Sequence[_Part], moved: Sequence[Ref]) -> None:
    landed: dict[int, tuple[Commit, Ref]] = {id(part): (part.commits[-1], ref) for part, ref in zip(needed, moved, strict=True)}
    for part in parts:
        commit, ref = landed.get(id(part), (part.parent, part.ref))
        part.handle.adopt_commit(commit, ref, part.staged)
        if part.pending:
            part.handle.pending.forget(part.pending)
