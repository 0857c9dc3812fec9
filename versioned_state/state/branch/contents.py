"""``ContentHandle``: a handle on a branch that commits whole contents, each in place of the last one. Layer: state.

For builders whose every commit replaces all: they have the new content in hand, and nobody changes it in place. So it
is neither assigned key by key nor watched between two commits. It is compared with the last one by cells, and large
values by their baselines.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from versioned_state.repository.committing import OnMoved
from versioned_state.repository.history.commit import Commit
from versioned_state.repository.repository import Repository
from versioned_state.state.branch import port
from versioned_state.state.branch.branch_handle import BranchHandle
from versioned_state.state.branch.merging import Resolving
from versioned_state.state.branch.publisher import Proposal, publish
from versioned_state.state.worktree.entries import Repacking, Staged
from versioned_state.values.detection.baselines import Baseline
from versioned_state.values.keys import USER
from versioned_state.values.trees.edit import edit_map
from versioned_state.values.trees.tree import Tree, iter_items, rank

_CELL_BYTES: Final = 300
"""Approximate bytes of memory for each key of the last content, besides its cell."""

_NO_PACKS: Final = Repacking((), [])

_RESOLVING: Final = Resolving()


class ContentHandle(port.OpenHandle):
    """A handle on a branch, for one call at a time. After an exception it must be closed.

    Args:
        repository: has the branch, which need not exist yet.
        branch: its name.
        prefixes: the content is all root keys that begin with one of these: by default those of the user.
    """

    def __init__(self, repository: Repository, branch: str, prefixes: tuple[bytes, ...] = (USER,)) -> None:
        self._handle = BranchHandle(repository, branch, None)
        self._prefixes = prefixes
        # of the content that was committed last through this handle
        self._cells: dict[bytes, tuple[bytes, Baseline | None]] = {}
        self._content_of: Commit | None = None

    def turn_to(self, branch: str) -> None:
        """Work on another branch from now on, as a new handle would, at less cost."""
        self._cells, self._content_of = {}, None
        self._handle.turn_to(branch)

    def _close(self, *, warning: bool) -> None:
        self._handle.close()

    @property
    def _held_bytes(self) -> int:
        cells = sum(
            _CELL_BYTES + len(cell) + (0 if base is None else base.held_bytes) for cell, base in self._cells.values()
        )
        return self._handle.worktree.held_bytes + cells

    @property
    def head(self) -> Commit:
        """The head of the branch, as this handle read or made it."""
        return self._handle.head

    def commit(
        self,
        content: Mapping[bytes, Any],
        *,
        message: str,
        author: str | None = None,
        meta: Mapping[str, Any] | None = None,
        parent: Commit | None = None,
    ) -> Commit:
        """Commit a content, by root key, also if it is that of the head. Returns the commit, which is the new head.

        Keys of the head that it does not have are removed. Cost: packing the content, and writing the changed parts.

        Args:
            message, author, meta: of the commit.
            parent: the parent of the commit, if it is not the head: the branch moves there, and the reflog says so.

        Raises:
            BranchMovedError: the branch is no longer at ``head``. Nothing was changed.
            UnserializableValueError, PickleRefusedError, LimitExceededError: a value, or the meta, cannot be stored.
                Nothing was changed.
            MissingObjectError: gc or purge has deleted a part of the last content. A new handle does not rely on it.
            CommitInDoubtError: the store failed, and whether it has the commit is not known.
            StorageError: the store failed, and nothing was committed.
        """
        handle = self._handle
        cells, staged = self._encoded(content)
        onto = handle.head if parent is None else parent
        staged.tree = tree = self._tree(cells, onto)

        def write(tree: Tree, _: Commit) -> Commit:
            return handle.repository.database.write_commit(
                tree, (onto,), staging=staged.staging, message=message, author=author, meta=handle.stamped(meta)
            )

        proposal = Proposal(handle, staged, write, handle.ref, handle.head, tree, tree, allow_empty=True, parent=parent)
        commit = publish((proposal,), OnMoved.REFUSE, _RESOLVING)
        self._cells, self._content_of = cells, commit
        return commit

    def _encoded(self, content: Mapping[bytes, Any]) -> tuple[dict[bytes, tuple[bytes, Baseline | None]], Staged]:
        """Return the cells and baselines of a content, and a staging of the new objects."""
        worktree = self._handle.worktree
        encoder, before = worktree.encoder, self._cells
        cells: dict[bytes, tuple[bytes, Baseline | None]] = {}
        staging = worktree.new_staging(flush=True)
        for key, value in content.items():
            old, base = before.get(key) or (None, None)
            if base is None:
                small = encoder.encode_small(value)
                if small is not None:
                    cells[key] = small, None
                    continue
            if base is None and old is not None:
                # a value without a baseline is encoded anew: if it has not changed, the store has its objects
                own = worktree.new_staging()
                cells[key] = encoder.encode(value, base, key)
                if cells[key][0] != old:
                    staging.take(own)
                encoder.nodes.bind(staging)
            else:
                cells[key] = encoder.encode(value, base, key)
        return cells, Staged(worktree.tree, staging, {}, {}, [], repacking=_NO_PACKS)

    def _tree(self, cells: Mapping[bytes, tuple[bytes, Baseline | None]], onto: Commit) -> Tree:
        """Return the root of a commit with this content."""
        nodes = self._handle.worktree.encoder.nodes
        if onto is self._content_of:
            before = {key: cell for key, (cell, _) in self._cells.items()}
        else:
            before = self._stored(onto.tree)
        changes: dict[bytes, bytes | None] = {key: cell for key, (cell, _) in cells.items() if before.get(key) != cell}
        changes.update((key, None) for key in before.keys() - cells.keys())
        return edit_map(nodes, onto.tree, changes) if changes else onto.tree

    def _stored(self, tree: Tree) -> dict[bytes, bytes]:
        """Read the content in the root of a commit: by root key, the cell of its value."""
        nodes = self._handle.worktree.encoder.nodes
        found: dict[bytes, bytes] = {}
        for prefix in self._prefixes if tree.count else ():
            found.update(iter_items(nodes, tree, rank(nodes, tree, prefix), rank(nodes, tree, prefix + b"\xff")))
        return found
