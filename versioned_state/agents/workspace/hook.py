"""The hook of a workspace: its part in the commits and moves of its state. Layer: agents."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple
from weakref import ReferenceType, ref

from versioned_state.agents.workspace.content import Content
from versioned_state.agents.workspace.entries import path_of
from versioned_state.agents.workspace.scan import Ignored
from versioned_state.agents.workspace.working import WorkingFolder
from versioned_state.errors import (
    DirtyWorkspaceError,
    InvalidArgumentError,
    StateError,
)
from versioned_state.repository.history.commit import Commit
from versioned_state.state.branch.hooks import Hook
from versioned_state.values.changes.diff import diff_maps
from versioned_state.values.keys import name_in, path_of as path_of_root_key, user_key
from versioned_state.values.paths.path import Key, StatePath
from versioned_state.values.trees.edit import edit_map
from versioned_state.values.trees.nodes import Nodes
from versioned_state.values.trees.tree import Tree, find

if TYPE_CHECKING:
    from versioned_state.repository.database import Database
    from versioned_state.repository.views.snapshot import Snapshot
    from versioned_state.state.branch.branch_handle import BranchHandle


class Saved(NamedTuple):
    """The files at the start of a transaction: those that no commit has are in ``nodes``, in memory."""

    nodes: Nodes
    content: Content


class WorkspaceHook(Hook):
    """The hook that adds a folder's files to the commits of a handle, and updates the folder when the handle moves."""

    def __init__(self, handle: BranchHandle, path: str, name: str, ignored: Ignored, records: str | None) -> None:
        self._handle = ref(handle)  # which holds the hook
        self.key: Final = user_key(name)
        self.keys: frozenset[bytes] = frozenset({self.key})
        self.folder: Final = WorkingFolder(
            partial(_database_of, self._handle), path, self.key, ignored, handle.head, records
        )
        self._failed: Commit | None = None  # the commit whose files could not be written

    @property
    def handle(self) -> BranchHandle:
        """The handle. It lives as long as anything calls the hook."""
        return _held(self._handle)

    # The part in commits

    def before_commit(self, keys: Collection[bytes] | None) -> None:
        if keys is not None and self.key not in keys:
            return
        handle = self.handle
        worktree = handle.worktree
        if self.key in worktree.touched_keys() or worktree.is_live(self.key):
            staged = worktree.stage(lenient=True, keys=self.keys)
            if self.key in staged.changes or self.key in {
                key for key, error in staged.failed.items() if error is not None
            }:
                name = repr(name_in(self.key).decode("utf-8", "surrogatepass"))
                raise InvalidArgumentError(
                    f"state[{name}] was changed, and is made of the files in {self.folder.path}",
                    remains="the staged changes are still there",
                    hint="write the file in the folder, and undo the change: "
                    f'state[{name}] = state.checkout("HEAD")[{name}]',
                )
        self.folder.follow(handle.head)
        self.folder.check_resolved()

    def amend(self, nodes: Nodes, tree: Tree, keys: Collection[bytes] | None) -> Tree:
        folder = self.folder
        folder.staged = {}
        if keys is not None and self.key not in keys:
            return tree
        folder.staged = changes = folder.scan(nodes)
        cell = folder.base(nodes).edited(changes).cell
        return tree if cell == find(nodes, tree, self.key) else edit_map(nodes, tree, {self.key: cell})

    def check(self, nodes: Nodes, before: Tree, after: Tree) -> None:
        self.folder.taken = self.folder.staged

    # The part in moves

    def uncommitted(self) -> list[str]:
        return self.folder.paths_of(sorted(self.folder.dirty(self.folder.nodes())))

    def refuse(self, call: str, paths: Sequence[str]) -> None:
        self.folder.staged, self.folder.taken = {}, {}  # the next move is not a commit of these files
        files = sorted(self.folder.dirty(self.folder.nodes()))
        if files:
            what = f"{call} would overwrite files whose content no commit has"
            raise DirtyWorkspaceError(what, files, paths=[*paths, *self.folder.paths_of(files)])

    def take_in(self, head: Commit) -> None:
        nodes = self.folder.nodes()
        dirty = self.folder.dirty(nodes)
        theirs = Content.of(nodes, head.tree, self.key)
        changed = (path_of(key) for key, _, _ in diff_maps(nodes, self.folder.base(nodes).tree, theirs.tree))
        files = [path for path in changed if path in dirty and dirty[path][1] != theirs.cell_at(path)]
        if files:
            what = "the commits of others would overwrite files that were changed here, and by one of them"
            hint = "commit() merges both, by line, and discard() drops the changes here"
            raise DirtyWorkspaceError(what, files, paths=self.folder.paths_of(files), hint=hint)

    def moved(self, before: Commit, after: Commit) -> None:
        try:
            self.folder.follow(after)
        except StateError:
            if self._failed == after:
                return  # the error was raised before. Reads continue, and the next commit tries again
            self._failed = after
            raise
        self._failed = None

    def discard(self) -> None:
        head = self.handle.head
        self.folder.follow(head)
        self.folder.bring_to(head)

    def save(self) -> object:
        nodes = self.folder.nodes()
        return Saved(nodes, self.folder.content(nodes))

    def roll_back(self, saved: object) -> None:
        if isinstance(saved, Saved):
            self.folder.bring(saved.nodes, saved.content)
        else:
            self.discard()

    def restore(self, path: StatePath, snapshot: Snapshot) -> bool:
        root = path_of_root_key(self.key)
        if path.steps[:1] != root.steps:
            return False
        rest = path.steps[1:]
        step = rest[0] if len(rest) == 1 else None
        if rest and not (isinstance(step, Key) and type(step.key) is str):
            raise InvalidArgumentError(f"{path}: restore() is for a whole file of a workspace, or all of it")
        assert snapshot.commit is not None
        self.folder.restore(step.key if isinstance(step, Key) else None, snapshot.commit, overwrite=False)
        return True

    def close(self) -> None:
        self.folder.close()


def _held(reference: ReferenceType[BranchHandle]) -> BranchHandle:
    handle = reference()
    assert handle is not None
    return handle


def _database_of(reference: ReferenceType[BranchHandle]) -> Database:
    return _held(reference).repository.database
