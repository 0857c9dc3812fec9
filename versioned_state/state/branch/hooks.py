"""``Hook``: a part of a handle, such as a schema, a lock or a workspace, that joins its commits and moves.

Layer: state.

::

    commit   before_commit ── stage ── amend ── settle ── check ──┬─ publish, with ``batch_part`` ── moved
                                                                  └─ the branch had moved: merge, settle, check, publish
    move     refuse ── the branch moves ── the live values follow ── moved
    refresh  take_in ── the live values follow ── moved
    block    save ──┬── the block ends: commit
                    └── it fails: the live values are rolled back ── roll_back

Every method runs under the handle's lock, and by default does nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from versioned_state.errors import UncommittedChangesError
from versioned_state.repository.refs.ref import NOTHING, BatchPart
from versioned_state.values.trees.nodes import Nodes
from versioned_state.values.trees.tree import Tree

if TYPE_CHECKING:
    from versioned_state.repository.history.commit import Commit
    from versioned_state.repository.merging.policies import Policy
    from versioned_state.repository.views.snapshot import Snapshot
    from versioned_state.values.paths.path import StatePath


class Hook:
    """A part that the handle calls before it commits or moves, and after its head has moved.

    Attributes:
        keys: the root keys whose values ``amend`` sets; ``commit(keys=)`` may name them.
        policies: merge policies for the hook's values by path pattern, applied after those of the repository and before
            those of a call.
    """

    keys: frozenset[bytes] = frozenset()
    policies: Mapping[str, Policy] = MappingProxyType({})

    def before_commit(self, keys: Collection[bytes] | None) -> None:
        """Prepare for a commit of the changes of these root keys, or of all.

        It may change live values, which are staged next.
        """

    def amend(self, nodes: Nodes, tree: Tree, keys: Collection[bytes] | None) -> Tree:
        """Return the root to commit, or to show in ``status``. New nodes are staged in ``nodes``.

        Args:
            tree: the root with the staged changes.
            keys: the root keys whose changes are committed, or None for all.
        """
        return tree

    def settle(self, nodes: Nodes, before: Tree, after: Tree) -> tuple[Tree, ...]:
        """Return the roots to commit instead of ``after``, in which changes are merged already. Also called for merges.

        ``before`` is the root of the first parent. Each root is committed, in this order, and the live values follow.
        Called again if the branch moves meanwhile.
        """
        return (after,)

    def check(self, nodes: Nodes, before: Tree, after: Tree) -> None:
        """Raise if a new commit must not have the root ``after``. Also called for merges.

        ``before`` is the root of its first parent.
        """

    def batch_part(self) -> BatchPart:
        """Return the conditions and records that the hook adds to the batch of a new commit or of a move."""
        return NOTHING

    def batch_refused(self) -> None:
        """Raise if the store refused a batch because of a condition of ``batch_part``, so that a retry is pointless."""

    def uncommitted(self) -> Iterable[str]:
        """Return the paths of changes outside of the live values that a move would overwrite."""
        return ()

    def refuse(self, call: str, paths: Sequence[str]) -> None:
        """Raise ``UncommittedChangesError`` if a move would overwrite changes outside of the live values.

        Args:
            paths: the changed live values that the call refuses to overwrite; the error names them too.
        """
        beside = list(self.uncommitted())
        if beside:
            raise UncommittedChangesError(call, [*paths, *beside])

    def take_in(self, head: Commit) -> None:
        """Raise if the handle cannot adopt a head of others with its uncommitted changes."""

    def restore(self, path: StatePath, snapshot: Snapshot) -> bool:
        """Restore a path to the value in a snapshot, if the path belongs to the hook. Returns whether it does."""
        return False

    def forked(self, fork: Any) -> None:
        """Add a hook to a new fork of the state, a ``Versioned``, if the fork needs one."""

    def moved(self, before: Commit, after: Commit) -> None:
        """Follow a move of the head. After an interrupt, the next call on the handle calls this method."""

    def discard(self) -> None:
        """Drop the uncommitted changes."""

    def save(self) -> object:
        """Return the argument for ``roll_back``, at the start of a transaction or a task's call."""
        return None

    def roll_back(self, saved: object) -> None:
        """Restore the result of ``save``, or the head if it is None: then a commit was made within the block."""

    def close(self) -> None:
        """Release everything, since the handle is closed."""


class Hooks:
    """The hooks of one handle, in the order in which they were added."""

    __slots__ = ("_is_notifying", "all", "notified_of")

    def __init__(self) -> None:
        self.all: list[Hook] = []
        self.notified_of: Commit | None = None  # the head
        self._is_notifying = False

    def __bool__(self) -> bool:
        return bool(self.all)

    def add(self, hook: Hook, head: Commit) -> None:
        """Add a hook to a handle that is at ``head``."""
        if not self.all:
            self.notified_of = head
        self.all.append(hook)

    def remove(self, hook: Hook) -> None:
        """Remove a hook, if the handle has it."""
        if hook in self.all:
            self.all.remove(hook)

    def before_commit(self, keys: Collection[bytes] | None) -> None:
        for hook in self.all:
            hook.before_commit(keys)

    def amend(self, nodes: Nodes, tree: Tree, keys: Collection[bytes] | None = None) -> Tree:
        for hook in self.all:
            tree = hook.amend(nodes, tree, keys)
        return tree

    def settle(self, nodes: Nodes, before: Tree, after: Tree) -> tuple[Tree, ...]:
        roots: tuple[Tree, ...] = (after,)
        for hook in self.all:
            roots = roots[:-1] + hook.settle(nodes, before, roots[-1])
        return roots

    def check(self, nodes: Nodes, before: Tree, after: Tree) -> None:
        for hook in self.all:
            hook.check(nodes, before, after)

    def policies(self) -> list[Mapping[str, Policy]]:
        """Return the merge policies of all hooks."""
        return [hook.policies for hook in self.all]

    def batch_part(self) -> BatchPart:
        part = NOTHING
        for hook in self.all:
            part = part.joined(hook.batch_part())
        return part

    def batch_refused(self) -> None:
        for hook in self.all:
            hook.batch_refused()

    def makes(self, key: bytes) -> bool:
        """Return whether a hook sets the value of a root key."""
        return any(key in hook.keys for hook in self.all)

    def refuse(self, call: str, paths: Sequence[str] = ()) -> None:
        for hook in self.all:
            hook.refuse(call, paths)

    def take_in(self, head: Commit) -> None:
        for hook in self.all:
            hook.take_in(head)

    def restore(self, path: StatePath, snapshot: Snapshot) -> bool:
        return any(hook.restore(path, snapshot) for hook in self.all)

    def notify(self, head: Commit) -> None:
        """Notify the hooks of a head that they have not been notified of."""
        before = self.notified_of
        if before is None or before == head or self._is_notifying:
            return
        try:
            self._is_notifying = True  # a hook may call the state
            for hook in self.all:
                hook.moved(before, head)
            self.notified_of = head
        finally:
            self._is_notifying = False

    def discard(self) -> None:
        for hook in self.all:
            hook.discard()

    def save(self) -> list[tuple[Hook, object]]:
        return [(hook, hook.save()) for hook in self.all]

    def roll_back(self, saved: list[tuple[Hook, object]], *, to_head: bool) -> None:
        for hook, state in saved:
            hook.roll_back(None if to_head else state)

    def close(self) -> None:
        for hook in self.all:
            hook.close()
