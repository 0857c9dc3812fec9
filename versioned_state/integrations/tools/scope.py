"""The scope of a model: the branches under one prefix, and the commits that lead to their heads.

Layer: integrations.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from versioned_state.errors import InvalidPathError, StateError
from versioned_state.integrations.tools.text import ToolError
from versioned_state.repository.history import graph
from versioned_state.repository.history.commit import ROOT_ID, Commit
from versioned_state.repository.names.branches import BranchInfo
from versioned_state.repository.names.syntax import parse_revision
from versioned_state.repository.repository import Repository
from versioned_state.values.paths.path import Namespace, StatePath

_HEADS: Final = 100
"""Branches of the scope whose lines are searched for a commit that is named by its id."""


class Scope:
    """The part of a repository that the tools show.

    A revision or a branch outside of it is not found, as if it did not exist.

    Attributes:
        branch: the branch that ``HEAD`` means.
        prefix: the branches whose names begin with it belong to it too.
        home: the branch on which the tools began.
    """

    def __init__(self, repository: Repository, branch: str, prefix: str, home: str | None = None) -> None:
        self.repository = repository
        self.branch = branch
        self.prefix = prefix
        self.home: Final = branch if home is None else home

    def on(self, branch: str) -> Scope:
        """Return the scope with another branch as ``HEAD``."""
        return Scope(self.repository, branch, self.prefix, self.home)

    def has(self, name: str) -> bool:
        """Return whether a branch of this name would be in the scope."""
        return name in (self.branch, self.home) or name.startswith(self.prefix)

    def head(self, name: str | None = None) -> Commit:
        """Return the head of a branch in the scope."""
        name = self.branch if name is None else name
        head = self.repository.branches.get(name) if self.has(name) else None
        if head is None and name == self.home:
            head = self.repository.commit(ROOT_ID)  # nothing was committed yet
        if head is None:
            raise ToolError(f"there is no branch {name!r}; state_branches lists them")
        return head

    def commit(self, rev: str) -> Commit:
        """Return the commit of a revision.

        It must be the head of a branch in the scope, or lead to one by first parents. Cost: O(log n) reads for each
        branch that is asked.
        """
        head = self.head()
        missing = ToolError(f"there is no revision {rev!r}; state_log lists the commits, state_branches the branches")
        try:
            base = parse_revision(rev).base
            if base in self.repository.branches and not self.has(base):
                raise missing
            commit = self.repository.commit(rev, head=head, branch=self.branch)
        except StateError:
            raise missing from None
        if commit.id == ROOT_ID or any(self._leads(commit, other) for other in self._heads(head, base)):
            return commit
        raise missing

    def _heads(self, head: Commit, base: str) -> Iterator[Commit]:
        yield head
        for name in dict.fromkeys((base, self.home)):
            other = self.repository.branches.get(name) if name != self.branch and self.has(name) else None
            if other is not None:
                yield other
        for info in self.branches(limit=_HEADS):
            yield info.head

    def _leads(self, commit: Commit, head: Commit) -> bool:
        read = self.repository.database.commits.read
        return commit.height <= head.height and graph.descend(head, commit.height, read) == commit

    def branches(self, prefix: str = "", *, after: str | None = None, limit: int) -> Iterator[BranchInfo]:
        """Yield the branches of the scope whose names begin with a prefix, in order."""
        infos = self.repository.branches.iter_info(
            prefix=prefix if prefix.startswith(self.prefix) else self.prefix, after=after, limit=limit
        )
        return (info for info in infos if info.name.startswith(prefix))

    @staticmethod
    def path(text: str) -> StatePath:
        """Return a path within the state. Namespaces, which belong to other agents, are not found."""
        try:
            path = StatePath.parse(text) if text else StatePath()
        except InvalidPathError as error:
            raise ToolError(f"{error.what}; a path is written like messages[3].content") from None
        if not in_state(path):
            raise ToolError(f"there is nothing at {text}")
        return path


def in_state(path: StatePath) -> bool:
    """Return whether a path leads into the state itself, and not into a namespace."""
    return not any(isinstance(step, Namespace) for step in path.steps)
