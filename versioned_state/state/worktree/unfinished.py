"""What a handle has begun and not yet ended, so that the next call can end it. Layer: state.

::

    Question   the store was asked to move the branch, and whether it did is not known yet
    Move       the live values are on their way to another content: an idempotent redo
    Edit       one key changes, or all that is derived from the tracked keys: an undo

Each is recorded by one assignment before the first step that it covers, and cleared by one after the last. An exception in between, such as
the KeyboardInterrupt of Ctrl-C, leaves the record, and the handle ends the matter before it does anything else.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from versioned_state.objects.store import Staging
from versioned_state.state.worktree.entries import Staged
from versioned_state.values.trees.tree import Tree


class Move:
    """Where the live values are to arrive.

    Attributes:
        expected: the root that the tracked keys are to hold the content of.
        staging: has the objects of ``expected`` that are not stored; None if there are none.
        head: the root that they are relative to then.
        keep: keys that hold a value that cannot be stored, and are to keep it.
        journal: how many replaced values stay in the journal: the others come back. None: none of them does.
        tails: how many elements appended to lists that are not loaded stay; only with ``journal``.
        commits: whether the changes become those of the head, so that the journal is over.
        position: where the handle stands then, if that changes.
        key: the one key that moves; None: all of them.
    """

    __slots__ = ("commits", "expected", "head", "journal", "keep", "key", "position", "staging", "tails")

    def __init__(
        self,
        expected: Tree,
        head: Tree,
        staging: Staging | None = None,
        *,
        keep: Collection[bytes] = (),
        journal: int | None = None,
        tails: Mapping[bytes, int] | None = None,
        commits: bool = False,
        position: Any = None,
        key: bytes | None = None,
    ) -> None:
        self.expected = expected
        self.head = head
        self.staging = staging
        self.keep = keep
        self.journal = journal
        self.tails = tails
        self.commits = commits
        self.position = position
        self.key = key


Edit = tuple[bytes, Any, Any, bytes | None, int]
"""A key, and its entry, tail and removed cell before the call that changes it, and the length of the journal."""

DERIVED: Final = ()
"""The edit of nothing but what can be derived again."""


class Adoption:
    """An edit that is done again rather than undone: staged changes of an earlier call become those of the head."""

    __slots__ = ("staged",)

    def __init__(self, staged: Staged) -> None:
        self.staged = staged


class Unfinished:
    """The records of one handle; all None between two calls."""

    __slots__ = ("edit", "move", "question")

    def __init__(self) -> None:
        self.question: Any = None
        self.move: Move | None = None
        self.edit: Edit | Adoption | tuple[()] | None = None
