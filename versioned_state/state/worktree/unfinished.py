"""Records of the steps that a handle has begun and not ended, so that the next call can end them. Layer: state.

::

    Question   a request to move the branch, whose outcome is not known yet: a commit or a move in doubt
    Move       the live values get another content: repeated, which is idempotent
    Edit       one key changes, or everything that is derived from the tracked keys: undone

Each is recorded by one assignment before the first step that it covers, and cleared by one after the last. An exception
in between, such as the KeyboardInterrupt of Ctrl-C, leaves the record, and the next call finishes the step before it
does anything else.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final, NamedTuple

from versioned_state.objects.store import Staging
from versioned_state.repository.history.commit import Commit
from versioned_state.repository.refs.ref import Ref
from versioned_state.state.worktree.entries import Staged
from versioned_state.values.trees.tree import Tree


class HandlePosition(NamedTuple):
    """The branch of a handle, the last record of the branch that it read, and the head.

    One assignment moves a handle.
    """

    branch: str
    ref: Ref
    head: Commit


class CommitInDoubt:
    """A commit that the store may have: its staged changes, the ref to move, and whether the write may still arrive."""

    __slots__ = ("commit", "ref", "staged", "under_way")

    def __init__(self, staged: Staged, commit: Commit, ref: Ref, *, under_way: bool) -> None:
        self.staged: Staged = staged
        self.commit: Final = commit
        self.ref: Ref = ref
        self.under_way: Final = under_way


class MoveInDoubt:
    """A move of the branch to ``target`` that the store may have made."""

    __slots__ = ("action", "ref", "target")

    def __init__(self, ref: Ref, target: Commit, action: str) -> None:
        self.ref: Ref = ref
        self.target: Final = target
        self.action: Final = action


class Move:
    """The content that the live values are getting.

    Attributes:
        expected: the root with that content.
        staging: has the objects of ``expected`` that are not stored; None if there are none.
        head: the root of the head after the move.
        keep: keys that keep a value that cannot be stored.
        journal: the length to which the journal is undone: values that were replaced later come back. None: the journal
            stays.
        within: only values under root keys that begin with this come back; only with ``journal``.
        commits: whether the move ends a commit, so that the journal is cleared.
        position: the position of the handle after the move, if it changes.
        key: the one key that moves; None for all keys.
    """

    __slots__ = ("commits", "expected", "head", "journal", "keep", "key", "position", "staging", "within")

    def __init__(
        self,
        expected: Tree,
        head: Tree,
        staging: Staging | None = None,
        *,
        keep: Collection[bytes] = (),
        journal: int | None = None,
        within: bytes = b"",
        commits: bool = False,
        position: HandlePosition | None = None,
        key: bytes | None = None,
    ) -> None:
        self.expected: Final = expected
        self.head: Final = head
        self.staging: Final = staging
        self.keep: Final = keep
        self.journal: Final = journal
        self.within: Final = within
        self.commits: Final = commits
        self.position: Final = position
        self.key: Final = key


Edit = tuple[bytes, Any, Any, bytes | None, int]
"""A key, and its entry, list and removed cell before the call that changes it, and the length of the journal."""

DERIVED: Final = ()
"""The record of an edit that changes derived data only: there is nothing to undo."""


class Adoption:
    """An edit that is repeated instead of undone: the staged changes of an earlier call are in the head now."""

    __slots__ = ("staged",)

    def __init__(self, staged: Staged) -> None:
        self.staged: Staged = staged


class Unfinished:
    """The records of one handle. All are None between two calls."""

    __slots__ = ("edit", "move", "question")

    def __init__(self) -> None:
        self.question: Any = None
        self.move: Move | None = None
        self.edit: Edit | Adoption | tuple[()] | None = None
