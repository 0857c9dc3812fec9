"""``BranchOperations``: git's operations on the history of a handle's branch. Layer: state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from versioned_state.arguments import count
from versioned_state.errors import MissingObjectError
from versioned_state.repository.history.commit import Commit
from versioned_state.state.branch import operations, publisher
from versioned_state.state.branch.commit_options import check_policies
from versioned_state.state.branch.resolving import UNCHANGED, Resolvable, Resolving
from versioned_state.state.calls.history import BranchHistory
from versioned_state.state.state import locked

if TYPE_CHECKING:
    from versioned_state.repository.merging.policies import Policy
    from versioned_state.state.branch.transactions import Transactions


T = TypeVar("T")


class BranchOperations(BranchHistory):
    """Merges, repeated and reverted commits, and moves of the branch. Each is all or nothing, and ``undo()`` takes it back."""

    _transactions: Transactions

    def _resolvable(self, run: Callable[[Resolving], Commit], policies: Mapping[str, Policy] | None, *, remains: str = UNCHANGED) -> Commit:
        """Run a call that may meet conflicts, so that the ``merge`` of the error can run it again with resolutions."""
        checked = check_policies(policies) if policies else {}
        call = Resolvable(self, run, checked, remains)
        try:
            commit = run(Resolving(checked, (), call.again, remains))
        except MissingObjectError as error:
            publisher.raise_if_moved(self._handle, error)
            raise
        self._handle.tell_hooks()
        return commit

    def _taking(self, find: Callable[[], T], run: Callable[[T, Resolving], Commit], policies: Mapping[str, Policy] | None) -> Commit:
        """As ``_resolvable``, for a call on other commits, which ``find`` resolves: again if purge replaced them meanwhile."""
        return publisher.again_if_swept(self._handle, lambda: self._resolvable(partial(run, find()), policies))

    @locked
    def reset(self, rev: str | Commit) -> Commit:
        """Move the branch, and this state with it, to another commit; the commit. Uncommitted changes are dropped.

        The reflog records the move, so ``undo()`` takes it back.

        Raises:
            DirtyWorkspaceError: files of a workspace have changes that no commit has. Nothing was changed.
            UnknownRevisionError: there is no such commit. Nothing was changed.
            BranchMovedError: another handle moved the branch since this one last saw it. Nothing was changed.
        """
        return publisher.again_if_swept(self._handle, lambda: self._move_to(self._resolve(rev), "reset"))

    def _move_to(self, target: Commit, action: str) -> Commit:
        self._transactions.refuse(action)
        self._handle.resolve_doubt()
        self._handle.hooks.refuse(f"{action}()")
        if target != self.head:
            publisher.move_branch(self._handle, target, action, dropping=True)
        else:
            self._worktree.restore()
            self._handle.hooks.discard()
        self._handle.tell_hooks()
        return target

    @locked
    def merge(
        self,
        rev: str | Commit,
        *,
        message: str = "",
        author: str | None = None,
        meta: Mapping[str, Any] | None = None,
        policies: Mapping[str, Policy] | None = None,
        fast_forward: bool = True,
    ) -> Commit:
        """Merge another line of history into this branch, by path, to any depth. Returns the commit, which is the new head.

        Dicts are merged by key, lists by aligned elements, sets by element, texts by line. A revision that is merged already makes no
        commit. If this branch has no commits of its own, it moves there (unless ``fast_forward=False``). Cost: the changes of both sides.

        Args:
            policies: resolve a path that both sides changed: ``{"messages": "append", "users.*.score": "sum"}``, or a function of base,
                ours and theirs. They come before those of ``repository.merge_policies``; see ``PolicyName``.

        Raises:
            MergeConflictError: both sides changed a path, and no policy decides. Nothing was changed. Its ``merge`` resolves the
                conflict: ``merge.resolve(path, value)``, then ``merge.commit()``.
            UncommittedChangesError: commit or discard first.
        """
        self._transactions.refuse("merge")
        self._handle.resolve_doubt()
        description = operations.Description(message, author, meta)
        if not message and isinstance(rev, str):
            description = operations.Description(f"merge {rev} into {self.branch}", author, meta)

        def merge(theirs: Commit, resolving: Resolving) -> Commit:
            return operations.merge(self._handle, theirs, description, resolving, fast_forward=fast_forward)

        return self._taking(lambda: self._resolve(rev), merge, policies)

    @locked
    def cherry_pick(
        self, rev: str | Commit, *, message: str = "", author: str | None = None, policies: Mapping[str, Policy] | None = None
    ) -> Commit:
        """Repeat the changes of a commit, or of each of a range ``A..B``, with its message; the new head. Raises as ``merge``."""
        return self._pick("cherry_pick", rev, operations.Description(message, author), policies, backwards=False)

    @locked
    def revert(
        self, rev: str | Commit, *, message: str = "", author: str | None = None, policies: Mapping[str, Policy] | None = None
    ) -> Commit:
        """Commit the opposite of a commit, or of each of a range ``A..B``, newest first; the new head. Raises as ``merge``."""
        return self._pick("revert", rev, operations.Description(message, author), policies, backwards=True)

    def _pick(
        self,
        call: str,
        rev: str | Commit,
        description: operations.Description,
        policies: Mapping[str, Policy] | None,
        *,
        backwards: bool,
    ) -> Commit:
        self._transactions.refuse(call)
        self._handle.resolve_doubt()

        def find() -> list[Commit]:
            commits = operations.commits_of(self._handle, rev, self._resolve)
            return commits[::-1] if backwards else commits

        def pick(commits: list[Commit], resolving: Resolving) -> Commit:
            return operations.pick(self._handle, commits, description, resolving, backwards=backwards)

        return self._taking(find, pick, policies)

    @locked
    def rebase(self, onto: str | Commit, *, policies: Mapping[str, Policy] | None = None) -> Commit:
        """Repeat the branch's own commits on top of another commit, in one line; the new head. ``undo()`` takes it back.

        A commit whose changes are there already is left out. Merges are left out too, as in git: the commits that they brought in are
        repeated themselves, unless the other line has them. Conflicts that a merge resolved come up again. Raises as ``merge``.
        """
        self._transactions.refuse("rebase")
        self._handle.resolve_doubt()
        return self._taking(lambda: self._resolve(onto), partial(operations.rebase, self._handle), policies)

    @locked
    def squash(self, since: str | Commit, until: str | Commit = "HEAD", *, message: str = "", author: str | None = None) -> Commit:
        """Combine the commits after ``since`` up to ``until`` into one; the new head, with the same state. ``undo()`` takes it back.

        The default message joins theirs, each once. Commits after ``until`` are repeated as they are.
        """
        self._transactions.refuse("squash")
        self._handle.resolve_doubt()
        description = operations.Description(message, author)
        head = publisher.again_if_swept(
            self._handle, lambda: operations.squash(self._handle, self._resolve(since), self._resolve(until), description)
        )
        self._handle.tell_hooks()
        return head

    @locked
    def undo(self, steps: int = 1) -> Commit:
        """Take back the last moves of this branch: commits, merges, resets, rebases; the new head. ``redo`` repeats them.

        Raises:
            UncommittedChangesError: commit or discard first.
            UnknownRevisionError: there is nothing to undo.
        """
        return self._undo("undo", steps)

    @locked
    def redo(self, steps: int = 1) -> Commit:
        """Take back the last ``undo``, if nothing was committed since; the new head. Raises as ``undo``."""
        return self._undo("redo", steps)

    def _undo(self, call: str, steps: int) -> Commit:
        steps = count("steps", steps, least=1)
        self._transactions.refuse(call)
        self._handle.resolve_doubt()
        head = operations.undo(self._handle, steps if call == "undo" else -steps)
        self._handle.tell_hooks()
        return head

    @locked
    def rollback(self, steps: int = 1) -> Commit:
        """Move the branch back by ``steps`` commits, at most to its first one, and drop uncommitted changes; the new head.

        ``undo()`` takes it back. Raises as ``reset``.
        """
        back = min(count("steps", steps), max(self.head.height - 1, 0))
        return publisher.again_if_swept(self._handle, lambda: self._move_to(self._resolve(f"HEAD~{back}"), "rollback"))
