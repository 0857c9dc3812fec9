"""``Versioned``: a dict over a branch. Every commit is a round, and what was mutated in place is always seen. Layer: state."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from threading import RLock
from typing import TYPE_CHECKING, Any, Self, Unpack

from versioned_state.errors import (
    STAGED,
    HandleClosedError,
    InvalidArgumentError,
    StorageError,
)
from versioned_state.repository.arguments import check_text, count
from versioned_state.repository.history.commit import Commit
from versioned_state.repository.refs.ref import check_name
from versioned_state.repository.repository import Repository
from versioned_state.state import operations
from versioned_state.state.branch_handle import UNCHANGED, Settling, Standing
from versioned_state.state.commit_options import CommitOptions, OnMoved, OnMovedOption, check_policies
from versioned_state.state.keyspace import KeySpace
from versioned_state.state.locking import locked
from versioned_state.state.namespace import Namespace
from versioned_state.state.transactions import Transaction, Transactions
from versioned_state.state.worktree.worktree import Worktree
from versioned_state.values.keys import namespace_prefix, path_of
from versioned_state.values.paths.path import StatePath, as_path

if TYPE_CHECKING:
    from versioned_state.repository.history.signing import Signer
    from versioned_state.repository.inspect.bisect import Bisection
    from versioned_state.repository.inspect.grep import Match
    from versioned_state.repository.inspect.log_filters import Filters
    from versioned_state.repository.inspect.path_log import PathChange
    from versioned_state.repository.merging.merge import Resolutions
    from versioned_state.repository.merging.policies import Policy
    from versioned_state.repository.views.diff import Diff
    from versioned_state.repository.views.lists import BlameList, Log
    from versioned_state.repository.views.snapshot import Snapshot
    from versioned_state.storage import KVStore
    from versioned_state.values.codec.pickles import PickleMode


class Versioned(KeySpace):
    """A state over one branch of a repository: a dict of plain Python values whose every round is a commit.

    Values are live: what a key returns is the object that the state watches, so it may be mutated in place, by whoever holds it, and
    ``status()`` and ``commit()`` see that. A live value keeps its identity for the life of the handle, also when a merge, ``refresh``,
    ``discard`` or ``reset`` changes its content. Keys are strings and iterate in sorted order.

    A handle's calls are locked, so threads may share it; a value must not be mutated by one thread while another commits. Workers
    that go their own way use a handle each: any number of handles, processes and machines may commit to one branch.

    Args:
        store: a ``KVStore``, or a ``Repository`` to share; memory if there is none.
        branch: it begins at the empty state where there is none of that name.
        author: who commits, unless a call says otherwise.
        pickle, pickle_key, signer, clock: as for ``Repository``; not together with one.

    Raises:
        StorageError: the store cannot be opened, or is none of ours; see ``errors``.
    """

    def __init__(
        self,
        store: KVStore | Repository | None = None,
        *,
        branch: str = "main",
        author: str | None = None,
        pickle: PickleMode = "own",
        pickle_key: bytes | None = None,
        signer: Signer | None = None,
        clock: Callable[[], int] | None = None,
    ) -> None:
        check_name("branch", branch)
        check_text("author", author)
        if isinstance(store, Repository):
            if pickle != "own" or pickle_key is not None or signer is not None or clock is not None:
                raise InvalidArgumentError("pickle, pickle_key, signer and clock are the Repository's, which was given")
            repository = store
        else:
            repository = Repository(store, pickle=pickle, pickle_key=pickle_key, signer=signer, clock=clock)
        super().__init__(b"", RLock())
        self._standing = Standing(repository, branch, author or None)
        self._unfinished = self._standing.unfinished
        self._transactions = Transactions(self._standing, self._lock, self._check_open)
        self._own_store: KVStore | None = None  # closed with the handle; see open()
        self._is_kept = store is not None  # a Memory of the handle's own ends with it, committed or not
        self._closed = False

    @property
    def repository(self) -> Repository:
        """The repository that the branch is in. Raises ``HandleClosedError`` after ``close()``."""
        if self._closed:
            self._check_open()
        return self._standing.repository

    @property
    def branch(self) -> str:
        """The name of the branch."""
        return self._standing.branch

    @property
    def author(self) -> str | None:
        """Who commits, unless a call says otherwise."""
        return self._standing.author

    @property
    def _worktree(self) -> Worktree:
        return self._standing.worktree

    def namespace(self, name: str) -> Namespace:
        return Namespace(self, namespace_prefix(name), name)

    def _check_open(self) -> None:
        if self._closed:
            raise HandleClosedError("this state was closed", hint="open another one over the same store")
        unfinished = self._unfinished
        if unfinished.question is not None or unfinished.move is not None or unfinished.edit is not None:
            self._standing.finish()
        if self._transactions.open:
            self._transactions.drop_abandoned()

    # Rounds

    @property
    def head(self) -> Commit:
        """The commit that this handle stands on. Another handle may have moved the branch since; see ``refresh``."""
        return self._standing.head

    @locked
    def status(self, *, internal: bool = False) -> Diff:
        """What was changed since the head, by path; empty, and false, if nothing was. Cost: packing what was loaded, and what changed.

        Raises:
            UnserializableValueError: a value that cannot be committed either.
        """
        from versioned_state.repository.views.diff import Diff

        staged = self._worktree.stage()
        return Diff(staged.staging, self.head.tree, staged.tree, internal=internal)

    @locked
    def commit(
        self,
        message: str = "",
        *,
        author: str | None = None,
        meta: Mapping[str, Any] | None = None,
        allow_empty: bool = False,
        skip_unserializable: bool = False,
        on_moved: OnMovedOption = OnMoved.MERGE,
        policies: Mapping[str, Policy] | None = None,
        keys: Collection[str] | None = None,
    ) -> Commit:
        """Commit what was changed since the head; the commit, which is then the head. All or nothing.

        With nothing changed it makes no commit and returns the head. Where the branch has moved, our changes are merged by path onto
        its new head, and live values take in what others changed; where they made the very change that we would make, it is their
        commit that is returned. Cost: packing what was loaded, and writing what changed.

        Args:
            message: what the round was; without one, a summary of the change.
            author: who made it; without one, the handle's.
            meta: data to keep with the commit: task, session, step.
            allow_empty: commit also where nothing changed.
            skip_unserializable: leave keys whose value cannot be stored as they were; the result's ``skipped`` lists the paths. Their
                values stay staged.
            on_moved: what to do if the branch has moved: an ``OnMoved``, or "merge", "refuse" or "replace".
            policies: how a merge settles what both sides changed, by path pattern, over those that the repository keeps; see ``merge``.
            keys: commit only the changes of these keys, of the state itself; the others stay staged. On a moved branch all changes are
                merged onto the new head first. A key that was removed may be named; one that was never there is an ``UnknownPathError``.

        Raises:
            UnserializableValueError, PickleRefusedError, LimitExceededError: a value that cannot be stored, by path.
            MergeConflictError: others changed a path that we changed too. Its ``merge`` settles it.
            TransactionError: within a transaction.
            BranchMovedError: with ``on_moved="refuse"``, or because it would not stop moving.
            CommitInDoubtError: the store failed, and whether it has the commit could not be found out. The next call does.
            StorageError: the store failed, and nothing was committed.

            After any of them, what was staged still is.
        """
        options = CommitOptions(message, author, meta, allow_empty, skip_unserializable, OnMoved(on_moved), check_policies(policies), keys)
        self._transactions.refuse("commit")
        return self._resolvable(lambda settling: operations.commit(self._standing, options, settling), options.policies, remains=STAGED)

    def _resolvable(self, run: Callable[[Settling], Commit], policies: Mapping[str, Policy] | None, *, remains: str = UNCHANGED) -> Commit:
        """Run a call that may meet conflicts, so that the ``merge`` of the error can run it again with resolutions."""
        given = check_policies(policies)
        branch = self.branch

        def again(resolutions: Resolutions) -> Commit:
            with self._lock:
                self._check_open()
                self._transactions.refuse("merge.commit")
                if self.branch != branch:
                    raise InvalidArgumentError(f"the merge was on {branch!r}, and the state stands on {self.branch!r} now")
                self._standing.settle()
                return run(Settling(given, resolutions, again, remains))

        return run(Settling(given, (), again, remains))

    @locked
    def refresh(self, *, policies: Mapping[str, Policy] | None = None) -> Commit:
        """Take in what others committed to the branch; the new head. Changes of ours that are not committed stay, merged on top of it.

        Raises:
            MergeConflictError: others changed a path that we changed too. Nothing was changed.
        """
        self._transactions.refuse("refresh")
        return self._resolvable(self._standing.refresh, policies)

    @locked
    def discard(self) -> None:
        """Drop everything that was changed since the head. Live values are mended in place; replaced ones come back."""
        self._transactions.refuse("discard")
        self._standing.settle(discarding=True)
        self._worktree.restore()

    @locked
    def reset(self, rev: str | Commit) -> Commit:
        """Move the branch, and this state with it, to another commit; the commit. What was not committed is dropped.

        The move is written down in the reflog, so ``undo()`` takes it back.

        Raises:
            UnknownRevisionError: nothing was changed.
            BranchMovedError: another handle moved the branch since this one last saw it. Nothing was changed.
        """
        return self._move_to(self._resolve(rev), "reset")

    def _move_to(self, target: Commit, action: str) -> Commit:
        self._transactions.refuse(action)
        self._standing.settle()
        if target != self.head:
            self._standing.point_to(target, action)
        else:
            self._worktree.restore()
        return target

    def transaction(
        self,
        message: str = "",
        *,
        author: str | None = None,
        meta: Mapping[str, Any] | None = None,
        allow_empty: bool = False,
        skip_unserializable: bool = False,
        on_moved: OnMovedOption = OnMoved.MERGE,
        policies: Mapping[str, Policy] | None = None,
        keys: Collection[str] | None = None,
    ) -> Transaction[Versioned]:
        """All of a block, or nothing of it: it is committed when it ends, and undone when it raises.

        What was changed before it is part of the commit, and is still there after a failure. A transaction within another one is undone
        by itself, and committed with the outer one. Takes the options of ``commit``. Within it, ``commit``, ``refresh``, ``reset`` and
        ``discard`` are refused, since they could not be undone.
        """
        options = CommitOptions(message, author, meta, allow_empty, skip_unserializable, OnMoved(on_moved), check_policies(policies), keys)
        return Transaction(self._transactions, options, self)

    # Branches, and moves between commits

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
        """Merge another line of history into this branch, by path, to any depth; the commit, which is then the head.

        Dicts are merged by key, lists by aligned elements, sets by element, texts by line. What is merged already makes no commit, and
        where nothing was committed here since, the branch moves there (unless ``fast_forward=False``). Cost: what they changed.

        Args:
            policies: what settles a path that both sides changed: ``{"messages": "append", "users.*.score": "sum"}``, or a function of
                base, ours and theirs. They go before those that ``repository.merge_policies`` keeps; see ``PolicyName``.

        Raises:
            MergeConflictError: both sides changed a path, and no policy says what is right. Nothing was changed. Its ``merge`` settles
                it: ``merge.resolve(path, value)``, then ``merge.commit()``.
            UncommittedChangesError: commit or discard first.
        """
        self._transactions.refuse("merge")
        self._standing.settle()
        theirs, description = self._resolve(rev), operations.Description(message, author, meta)
        if not message and isinstance(rev, str):
            description = operations.Description(f"merge {rev} into {self.branch}", author, meta)
        return self._resolvable(
            lambda settling: operations.merge(self._standing, theirs, description, settling, fast_forward=fast_forward), policies
        )

    @locked
    def cherry_pick(
        self, rev: str | Commit, *, message: str = "", author: str | None = None, policies: Mapping[str, Policy] | None = None
    ) -> Commit:
        """Make again on this branch what a commit changed, or each of a range ``A..B``, with its message; the head. Raises as ``merge``."""
        return self._pick("cherry_pick", rev, operations.Description(message, author), policies, backwards=False)

    @locked
    def revert(
        self, rev: str | Commit, *, message: str = "", author: str | None = None, policies: Mapping[str, Policy] | None = None
    ) -> Commit:
        """Commit the opposite of what a commit changed, or of each of a range ``A..B``, newest first; the head. Raises as ``merge``."""
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
        self._standing.settle()
        commits = operations.commits_of(self._standing, rev, self._resolve)
        commits = commits[::-1] if backwards else commits
        return self._resolvable(
            lambda settling: operations.pick(self._standing, commits, description, settling, backwards=backwards), policies
        )

    @locked
    def rebase(self, onto: str | Commit, *, policies: Mapping[str, Policy] | None = None) -> Commit:
        """Make the commits that this branch has over another again on top of that, in one line; the head. ``undo()`` takes it back.

        What is there already, and comes out as no change, is left out. So are merges, as in git: the commits that they brought in are made
        again themselves, unless the other has them. How a merge settled a conflict is not remembered, and is asked again. Raises as
        ``merge``.
        """
        self._transactions.refuse("rebase")
        self._standing.settle()
        target = self._resolve(onto)
        return self._resolvable(lambda settling: operations.rebase(self._standing, target, settling), policies)

    @locked
    def squash(self, since: str | Commit, until: str | Commit = "HEAD", *, message: str = "", author: str | None = None) -> Commit:
        """Make one commit of those after ``since`` up to ``until``; the head, whose state is what it was. ``undo()`` takes it back.

        Without a message it gets those of the commits, each once. Commits after ``until`` are made again as they are.
        """
        self._transactions.refuse("squash")
        self._standing.settle()
        description = operations.Description(message, author)
        return operations.squash(self._standing, self._resolve(since), self._resolve(until), description)

    @locked
    def undo(self, steps: int = 1) -> Commit:
        """Take back the last move of this branch, whatever it was: a commit, a merge, a reset, a rebase; the head. ``redo`` brings it back.

        Raises:
            UncommittedChangesError: commit or discard first.
            UnknownRevisionError: there is nothing to undo.
        """
        return self._undo("undo", steps)

    @locked
    def redo(self, steps: int = 1) -> Commit:
        """Take back the last ``undo``, if nothing was committed since; the head. Raises as ``undo``."""
        return self._undo("redo", steps)

    def _undo(self, call: str, steps: int) -> Commit:
        steps = count("steps", steps, least=1)
        self._transactions.refuse(call)
        self._standing.settle()
        return operations.undo(self._standing, steps if call == "undo" else -steps)

    @locked
    def rollback(self, steps: int = 1) -> Commit:
        """Move the branch back by so many commits, dropping what was not committed; the head. ``undo()`` takes it back."""
        return self._move_to(self._resolve(f"HEAD~{count('steps', steps)}"), "rollback")

    @locked
    def restore(self, path: str | StatePath, at: str | Commit = "HEAD") -> None:
        """Bring one key, or what is at a path, back to what it was at a revision. It is a change like any other, to be committed.

        Where there was nothing, what is there is removed. Raises ``UnknownPathError`` where there is nothing to put it into.
        """
        from versioned_state.state.restore import restore_path

        restore_path(self, self.repository.snapshot(self._resolve(at)), as_path(path))

    @locked
    def apply(self, patch: Diff | list[dict[str, Any]]) -> None:
        """Make the changes of a diff here: of one taken from any store, or of its ``to_patch()``, by way of JSON. All of it or nothing.

        They are changes like any other, to be committed. What a change says was there must be there.

        Raises:
            PatchConflictError: it does not fit; ``paths`` says where. Nothing was changed.
            InvalidArgumentError: it is no patch.
            PickleRefusedError: it has an object in it; a patch carries data.
        """
        from versioned_state.repository.views.diff import Diff
        from versioned_state.repository.views.patch import read_patch
        from versioned_state.state.patch import apply_patch

        entries = read_patch(patch.to_patch() if isinstance(patch, Diff) else patch)
        savepoint = self._worktree.save()
        try:
            apply_patch(self, entries, self._worktree.are_same)
        except BaseException:
            self._worktree.restore(savepoint)
            raise

    @locked
    def switch(self, branch: str, *, create: bool = False) -> Commit:
        """Stand on another branch; its head. Live values take on its content, in place.

        Args:
            create: make it, at the head, where there is none. Where nothing was committed yet, it is there with the first commit.

        Raises:
            UncommittedChangesError: commit or discard first.
            UnknownRevisionError: there is no such branch. Nothing was changed.
        """
        check_name("branch", branch)
        self._transactions.refuse("switch")
        self._standing.settle()
        self._standing.clean("switch()")
        self._standing.switch(branch, create=create)
        return self.head

    @locked
    def fork(self, branch: str, *, at: str | Commit = "HEAD") -> Versioned:
        """A new branch at a revision, and a state of its own on it: a what-if, to be merged or deleted.

        It shares this one's store, which must stay open. Raises ``RefExistsError`` where there is a branch of that name.
        """
        target = self._resolve(at)
        state = Versioned(self.repository, branch=branch, author=self.author)  # first: once there is a branch, nothing can fail
        state._standing.begin(target)
        return state

    # History

    def _resolve(self, rev: str | Commit) -> Commit:
        return self.repository.commit(rev, head=self.head, branch=self.branch)

    @locked
    def checkout(self, rev: str | Commit) -> Snapshot:
        """A read-only view of any commit in the store. Moves nothing. Cost: reading the commit; values are read when asked for.

        Raises:
            UnknownRevisionError: with refs and ids that come close.
        """
        return self.repository.snapshot(self._resolve(rev))

    @locked
    def diff(self, a: str | Commit, b: str | Commit | None = None, *, internal: bool = False) -> Diff:
        """What changed from ``a`` to ``b``, by path; without ``b``, to what the state is now, committed or not."""
        from versioned_state.repository.views.diff import Diff

        if b is not None:
            return self.repository.diff(self._resolve(a), self._resolve(b), internal=internal)
        staged = self._worktree.stage()
        return Diff(staged.staging, self._resolve(a).tree, staged.tree, internal=internal)

    @locked
    def log(
        self, rev: str | Commit | None = None, *, limit: int | None = None, first_parent: bool = False, **filters: Unpack[Filters]
    ) -> Log:
        """Commits from a revision back, newest first; without one, from the head; of a range ``A..B``, those that lead to B and not to A.

        Cost: one read for each that is looked at.

        Filters choose among them: ``author``, ``message``, ``since``, ``until``, ``meta``, ``path``, ``changed``; see ``Repository.log``.
        """
        start, head = self.head if rev is None else rev, self.head
        return self.repository.log(start, limit=limit, first_parent=first_parent, head=head, branch=self.branch, **filters)

    @locked
    def blame(
        self, path: str | StatePath = "", rev: str | Commit = "HEAD", *, start: int | None = None, end: int | None = None
    ) -> BlameList:
        """Which commit each element, entry or line of the value at a path comes from, as committed; see ``Repository.blame``."""
        return self.repository.blame(path, self._resolve(rev), start=start, end=end)

    @locked
    def history(self, path: str | StatePath, rev: str | Commit = "HEAD") -> Iterator[PathChange]:
        """The commits that touched a path, newest first, with what was there before and after; see ``Repository.history``."""
        return self.repository.history(path, self._resolve(rev))

    @locked
    def grep(self, pattern: str | re.Pattern[str], rev: str | Commit = "HEAD", *, path: str | StatePath = "") -> Iterator[Match]:
        """The lines of strings, as committed, in which a regular expression is found, each with its path; see ``Repository.grep``."""
        return self.repository.grep(pattern, self._resolve(rev), path=path)

    def bisect(self, good: str | Commit, bad: str | Commit, is_bad: Callable[[Snapshot], object]) -> Bisection:
        """The first bad round between a good one and a bad one, and what it changed; see ``Repository.bisect``."""
        with self._lock:
            self._check_open()
            first, last = self._resolve(good), self._resolve(bad)
        return self.repository.bisect(first, last, is_bad)  # without the lock, for as long as it takes

    def close(self) -> None:
        """Let go of the store and the live values; changes that are not committed are dropped, with a ``ResourceWarning``. Idempotent.

        Who opens a store closes it: a state from ``versioned_state.open()`` closes its store. A store that the caller opened stays open
        for others, and closes by itself once nobody refers to it.
        """
        self._close(warning=True)

    def _close(self, *, warning: bool) -> None:
        with self._lock:
            if self._closed:
                return
            keys = self._changed_keys() if warning and self._is_kept else []
            self._closed = True
            self._standing.let_go()
            if self._own_store is not None:
                self._own_store.close()
            self._own_store = None
        if keys:
            self._warn("closed", keys)

    def _changed_keys(self) -> list[bytes]:
        """The keys with changes that are not committed. Compares them if the store can still be asked."""
        try:
            staged = self._worktree.stage(lenient=True)
        except StorageError:
            return self._worktree.touched_keys()
        return sorted({*staged.changes, *staged.failed})

    def _warn(self, happened: str, keys: list[bytes]) -> None:
        shown = ", ".join(str(path_of(key)) for key in keys[:5]) + (f" and {len(keys) - 5} more" if len(keys) > 5 else "")
        warnings.warn(
            f"a state on branch {self.branch!r} was {happened} with changes that are not committed: {shown}; "
            "commit() keeps them, discard() drops them",
            ResourceWarning,
            stacklevel=4,
            source=self,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._close(warning=kind is None)  # the exception says already that the block did not end

    def __del__(self) -> None:
        # No call on the store: this may run in any thread, at any time. Values that changed in place are not compared.
        if not getattr(self, "_closed", True) and self._is_kept and (keys := self._worktree.touched_keys()):
            self._warn("dropped", keys)

    def __repr__(self) -> str:
        return f"<Versioned {self.branch} at {self.head.short}{' (closed)' if self._closed else ''}>"
