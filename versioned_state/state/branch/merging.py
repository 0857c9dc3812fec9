"""Merges of roots for a handle, by the policies and resolutions of the call and the policies of the repository.

Layer: state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol
from weakref import ReferenceType

from versioned_state.errors import MergeConflictError, UnserializableValueError
from versioned_state.errors.base import UNCHANGED
from versioned_state.records import dataclass, field
from versioned_state.repository.history.commit import Commit
from versioned_state.state.worktree.entries import Staged
from versioned_state.values.keys import OF_A_LINE
from versioned_state.values.trees.edit import edit_map
from versioned_state.values.trees.nodes import Nodes
from versioned_state.values.trees.tree import Tree, find

if TYPE_CHECKING:
    from versioned_state.repository.merging.merge import Resolutions
    from versioned_state.repository.merging.policies import Policies, Policy
    from versioned_state.repository.repository import Repository
    from versioned_state.state.branch.hooks import Hooks


class Merger(Protocol):
    """The parts of a ``BranchHandle`` that a merge needs: names and policies."""

    repository: Repository
    hooks: Hooks

    @property
    def branch(self) -> str: ...


@dataclass(slots=True)
class Resolving:
    """The policies and resolutions of one call, and a function that runs the call again with more resolutions.

    ``remains`` is for the errors of the call.
    """

    policies: Mapping[str, Policy] = field(default_factory=dict)
    resolutions: Resolutions = ()
    again: Callable[[Resolutions], Commit] | None = None
    remains: str = UNCHANGED


def merge_roots(  # noqa: PLR0913 - each says how to decide
    handle: Merger,
    staged: Staged,
    base: Tree,
    ours: Tree,
    theirs: Tree,
    resolving: Resolving,
    *,
    theirs_first: bool = True,
    counting: bool = True,
    virtual: bool = False,
    on_top: bool = True,
) -> Tree:
    """Merge three roots and stage the new objects. If it raises ``MergeConflictError``, nothing was changed.

    See ``merge_trees``. By default, ours are changes on top of theirs, to which the branch has moved.
    """
    from versioned_state.repository.merging.merge import Merge, merge_trees

    policies = policies_of(handle, resolving)
    try:
        merged = merge_trees(
            Nodes(staged.staging, staging=staged.staging),
            (base, ours, theirs),
            pickles=handle.repository.database.policy,
            policies=policies,
            resolutions=resolving.resolutions,
            theirs_first=theirs_first,
            counting=counting,
            virtual=virtual,
            on_top=on_top,
            unstorable=staged.failed,
        )
    except UnserializableValueError as error:  # a value from a policy or the caller
        error.remains = resolving.remains
        raise
    if merged.conflicts:
        merge = None if resolving.again is None else Merge(merged.conflicts, resolving.resolutions, resolving.again)
        raise MergeConflictError(handle.branch, merged.conflicts, merge=merge, remains=resolving.remains)
    staged.replaced.clear()
    staged.replaced.update(merged.replaced)
    return merged.tree


def replacing_root(staged: Staged, ours: Tree, theirs: Tree) -> Tree:
    """Return our root for a commit on theirs, which replaces their content.

    The keys that name places on the branch's line stay theirs.
    """
    nodes = Nodes(staged.staging, staging=staged.staging)
    cells = {key: (find(nodes, ours, key), find(nodes, theirs, key)) for key in OF_A_LINE}
    changes = {key: cell for key, (before, cell) in cells.items() if before != cell}
    return edit_map(nodes, ours, changes) if changes else ours


class LateMerge:
    """The merge of three roots for stale values that were changed here.

    It has a weak reference to the handle, so that the worktree, which calls it, does not keep the handle alive.
    """

    def __init__(self, handle: ReferenceType[Merger]) -> None:
        self._handle = handle

    def __call__(self, nodes: Nodes, base: Tree, ours: Tree, theirs: Tree) -> Tree:
        """Return the merged root. Raises ``MergeConflictError``."""
        from versioned_state.repository.merging.merge import merge_trees

        handle = self._handle()
        assert handle is not None, "the handle owns the worktree that calls"
        policies = policies_of(handle, Resolving())
        merged = merge_trees(
            nodes,
            (base, ours, theirs),
            pickles=handle.repository.database.policy,
            policies=policies,
            resolutions=(),
            theirs_first=True,
            on_top=True,
        )
        if merged.conflicts:
            error = MergeConflictError(handle.branch, merged.conflicts)
            error.hint = (
                "the store failed when our head moved, and you changed the value before its update: "
                "assign the key, or discard()"
            )
            raise error
        return merged.tree


def policies_of(handle: Merger, resolving: Resolving) -> Policies:
    """Return the policies of the call, then those of hooks, then those of the repository."""
    from versioned_state.repository.merging.policies import Policies, read_policies

    return Policies(read_policies(handle.repository.store), *handle.hooks.policies(), resolving.policies)
