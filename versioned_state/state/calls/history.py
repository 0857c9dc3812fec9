"""``BranchHistory``: the read-only calls of a state on the history of its branch. Layer: state."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Unpack

from versioned_state.errors import InvalidArgumentError
from versioned_state.repository.history.commit import Commit
from versioned_state.repository.repository import Repository
from versioned_state.state.aio.caller import ready
from versioned_state.state.keyspace import KeySpace
from versioned_state.state.state import locked
from versioned_state.values.keys import path_of
from versioned_state.values.paths.path import StatePath
from versioned_state.values.trees.nodes import Nodes

if TYPE_CHECKING:  # loaded by the calls that need them
    from versioned_state.repository.inspect.bisect import Bisection
    from versioned_state.repository.inspect.grep import Match
    from versioned_state.repository.inspect.log_filters import Filters
    from versioned_state.repository.inspect.path_log import PathChange
    from versioned_state.repository.views.diff import Diff
    from versioned_state.repository.views.lists import BlameList, Log
    from versioned_state.repository.views.snapshot import Snapshot
    from versioned_state.state.branch.branch_handle import BranchHandle
    from versioned_state.state.shape.shape import Shape


class BranchHistory(KeySpace):
    """The keys of a branch, and queries about its commits. In revisions, ``HEAD`` is the handle's head."""

    _handle: BranchHandle
    _shape: Shape | None

    @property
    @abstractmethod
    def repository(self) -> Repository:
        """The repository that the branch is in. Raises ``HandleClosedError`` after ``close()``."""

    @property
    @abstractmethod
    def branch(self) -> str:
        """The name of the branch."""

    @property
    @abstractmethod
    def head(self) -> Commit:
        """The commit that the live values are compared with. Another handle may have moved the branch since; see ``refresh``."""

    def _resolve(self, rev: str | Commit) -> Commit:
        return self.repository.commit(rev, head=self.head, branch=self.branch)

    @locked
    def status(self, *, internal: bool = False, explain: bool = False) -> Diff:
        """The changes since the head, by path; false if there are none. Cost: packing the loaded values, and encoding the changed ones.

        A value that cannot be stored is listed in ``unstorable``; it hides no other change.

        Args:
            internal: show the engine's own keys too.
            explain: list in ``objects`` each object in the loaded values, and why it is not data, at the cost of a walk over all of them.
        """
        found = self._changes_since(self.head, internal=internal)
        if explain:
            found.objects = self._worktree.objects(internal=internal)
        return found

    def _changes_since(self, commit: Commit, *, internal: bool, limit: int | None = None) -> Diff:
        """The changes from a commit to the live values."""
        from versioned_state.repository.views.diff import Diff

        staged = self._worktree.stage(lenient=True)
        tree = staged.tree
        if self._handle.hooks.all:
            tree = self._handle.hooks.amend(Nodes(staged.staging, staging=staged.staging), tree)
        unstorable = {}
        for key, error in staged.failed.items():
            if error is not None:
                error.remains = ""
                unstorable[error.path or str(path_of(key))] = error
        return Diff(staged.staging, commit.tree, tree, internal=internal, unstorable=unstorable, limit=limit)

    @locked
    def checkout(self, rev: str | Commit, *, migrated: bool = False) -> Snapshot:
        """A read-only view of any commit in the store. Moves nothing. Cost: reading the commit; values are read when asked for.

        Args:
            migrated: give the state as the migrations of this handle make of it; otherwise as it was committed.

        Raises:
            UnknownRevisionError: there is no such commit; the hint names similar refs and ids.
        """
        commit = self._resolve(rev)
        if self._shape is not None:
            return self._shape.snapshot(self._handle, commit, migrated=migrated)
        if migrated:
            raise InvalidArgumentError("checkout(migrated=True) needs a state with migrations=")
        return self.repository.snapshot(commit)

    @locked
    def diff(self, a: str | Commit, b: str | Commit | None = None, *, internal: bool = False, limit: int | None = None) -> Diff:
        """The changes from ``a`` to ``b``, by path; without ``b``, to the present state, uncommitted changes included.

        Args:
            internal: include the engine's own keys.
            limit: the most changes to find, the first by their paths, at the cost of these. ``Diff.more`` is true if there are others.
        """
        if b is not None:
            return self.repository.diff(self._resolve(a), self._resolve(b), internal=internal, limit=limit)
        return self._changes_since(self._resolve(a), internal=internal, limit=limit)

    @locked
    def log(
        self, rev: str | Commit | None = None, *, limit: int | None = None, first_parent: bool = False, **filters: Unpack[Filters]
    ) -> Log:
        """Commits from a revision (by default the head) back, newest first; for a range ``A..B``, those of B that A does not have.

        Cost: one read for each commit that is looked at. The filters ``author``, ``message``, ``since``, ``until``, ``meta``, ``path``
        and ``changed`` choose among the commits; see ``Repository.log``.
        """
        start, head = self.head if rev is None else rev, self.head
        return self.repository.log(start, limit=limit, first_parent=first_parent, head=head, branch=self.branch, **filters)

    @locked
    def blame(
        self, path: str | StatePath = "", rev: str | Commit = "HEAD", *, start: int | None = None, end: int | None = None
    ) -> BlameList:
        """The commit that each element, entry or line of a committed value comes from; see ``Repository.blame``."""
        return self.repository.blame(path, self._resolve(rev), start=start, end=end)

    @locked
    def history(self, path: str | StatePath, rev: str | Commit = "HEAD") -> Iterator[PathChange]:
        """The commits that changed the value at a path, newest first, with its values before and after; see ``Repository.history``."""
        return self.repository.history(path, self._resolve(rev))

    @locked
    def grep(self, pattern: str | re.Pattern[str], rev: str | Commit = "HEAD", *, path: str | StatePath = "") -> Iterator[Match]:
        """The lines of committed strings that match a regular expression, each with its path; see ``Repository.grep``."""
        return self.repository.grep(pattern, self._resolve(rev), path=path)

    def bisect(self, good: str | Commit, bad: str | Commit, is_bad: Callable[[Snapshot], object]) -> Bisection:
        """The first bad commit between a good one and a bad one, and its changes; see ``Repository.bisect``."""
        with ready(self._lock):
            self._check_open()
            first, last = self._resolve(good), self._resolve(bad)
        return self.repository.bisect(first, last, is_bad)  # without the lock: it takes as long as ``is_bad`` does
