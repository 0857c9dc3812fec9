"""Commits of several states: in one batch, or prepared for a batch of the caller. Layer: state."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING

from versioned_state.errors import STAGED, InvalidArgumentError, MissingObjectError, RefExistsError, StateError
from versioned_state.records import replace
from versioned_state.repository.history.commit import Commit
from versioned_state.repository.names.tags import CommitTag
from versioned_state.state.aio.caller import ready
from versioned_state.state.branch.branch_handle import BranchHandle
from versioned_state.state.branch.commit_options import CommitOptions
from versioned_state.state.branch.merging import Resolving
from versioned_state.state.branch.operations import propose
from versioned_state.state.branch.publisher import PreparedCommit, publish

if TYPE_CHECKING:
    from versioned_state.state.branch.port import BranchState


def prepare_commit(state: BranchState, options: CommitOptions) -> PreparedCommit | None:
    """Begin to commit the changes of a state that no other thread uses.

    Returns None without changes. Raises as ``Versioned.commit``.

    Reads only the objects that the changes need. The caller sends the publication, and settles the answer.
    """
    state._check_open()
    state._handle.resolve_doubt()
    proposal, _ = propose(state._handle, options, Resolving(options.policies, remains=STAGED))
    return None if proposal is None else PreparedCommit(proposal)


def commit_together(states: Sequence[BranchState], options: CommitOptions, names: Sequence[str | None]) -> list[Commit]:
    """Commit the changes of several states, each with the tag of that name if it is not None.

    See ``Repository.commit_together``.
    """
    resolving = Resolving(options.policies, remains=STAGED)
    with _locked(states):
        _check_states(states)
        tags = [None if name is None else CommitTag(states[0]._handle.repository.database, name) for name in names]
        landed = []
        for state in states:
            state._transactions.refuse("commit_together")
            landed.append(state._handle.resolve_doubt())
        handles = [state._handle for state in states]
        try:
            _commit(handles, options, resolving, tags)
        except MissingObjectError:
            for handle in handles:
                handle.recover(options.on_moved, resolving)
            _commit(handles, options, resolving, tags)
        except RefExistsError as error:
            error.remains = resolving.remains
            raise
        for handle, tag, has_landed in zip(handles, tags, landed, strict=True):
            handle.notify_hooks()
            if (
                tag is not None
                and not tag.is_made
                and not (has_landed and handle.repository.tags.get(tag.name) == handle.head)
            ):
                handle.repository.tags.create(tag.name, at=handle.head)
        return [handle.head for handle in handles]


def _commit(
    handles: Sequence[BranchHandle], options: CommitOptions, resolving: Resolving, tags: Sequence[CommitTag | None]
) -> None:
    found = []
    for handle, tag in zip(handles, tags, strict=True):
        own = options if tag is None else replace(options, tag=tag.name)
        found.append(propose(handle, own, resolving, tag=tag)[0])
    proposals = [proposal for proposal in found if proposal is not None]
    if proposals:
        publish(proposals, options.on_moved, resolving)


@contextmanager
def _locked(states: Sequence[BranchState]) -> Iterator[None]:
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
                    state._check_open()  # completes an interrupted call before its exception propagates
            raise


def _check_states(states: Sequence[BranchState]) -> None:
    branches = [state.branch for state in states]
    if len(set(branches)) < len(branches):
        raise InvalidArgumentError("two of the states are on one branch", hint="commit one after the other")
    if any(state._handle.repository.store is not states[0]._handle.repository.store for state in states):
        raise InvalidArgumentError(
            "the states are in different stores", hint="open them over one store: Versioned(store, branch=…)"
        )
