"""``Versioned``: a dict over a branch, with git's operations. Layer: state."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, Unpack
from weakref import ref

from versioned_state.arguments import as_ttl, check_text, count
from versioned_state.errors import (
    STAGED,
    HandleClosedError,
    InvalidArgumentError,
    MissingObjectError,
    StateError,
    StorageError,
)
from versioned_state.errors.base import UNCHANGED
from versioned_state.lazy import LazyModule
from versioned_state.repository.committing import OnMoved, OnMovedOption
from versioned_state.state.aio.caller import HandleLock, hold_still, locked, ready
from versioned_state.state.aio.twins import converted, stream
from versioned_state.state.branch.commit_options import CommitOptions, as_note, check_policies
from versioned_state.state.keyspace import KeySpace, KeySpaceAio
from versioned_state.twins import awaitable
from versioned_state.values.keys import namespace_prefix, path_of, root_key_of
from versioned_state.values.paths.path import Namespace as NamespaceStep, StatePath, as_path

if TYPE_CHECKING:
    from versioned_state.repository.database import Database
    from versioned_state.repository.history.commit import Commit
    from versioned_state.repository.history.signing import Signer
    from versioned_state.repository.inspect.bisect import Bisection
    from versioned_state.repository.inspect.log_filters import Filters
    from versioned_state.repository.ledger import EffectRecord
    from versioned_state.repository.merging.merge import Resolutions
    from versioned_state.repository.merging.policies import Policy
    from versioned_state.repository.refs.ref import Ref
    from versioned_state.repository.refs.stamps import StampSource
    from versioned_state.repository.repository import Repository
    from versioned_state.repository.views.diff import Diff
    from versioned_state.repository.views.lists import BlameList, History, Log, Matches
    from versioned_state.repository.views.snapshot import Snapshot
    from versioned_state.state.aio.blocks import AsyncLock, AsyncTransaction
    from versioned_state.state.branch import merging, operations, publisher
    from versioned_state.state.branch.branch_handle import BranchHandle
    from versioned_state.state.branch.hooks import Hook
    from versioned_state.state.branch.lock import Lock
    from versioned_state.state.branch.merging import Resolving
    from versioned_state.state.branch.transactions import Transaction, Transactions
    from versioned_state.state.shape.migrations import Migrations
    from versioned_state.state.shape.shape import Shape
    from versioned_state.state.worktree.unfinished import Unfinished
    from versioned_state.state.worktree.worktree import Worktree
    from versioned_state.storage import KVStore
    from versioned_state.values.codec.pickles import PickleMode
    from versioned_state.values.codec.trust import TrustedModules
else:
    merging = LazyModule(globals(), "merging", "versioned_state.state.branch.merging")
    operations = LazyModule(globals(), "operations", "versioned_state.state.branch.operations")
    publisher = LazyModule(globals(), "publisher", "versioned_state.state.branch.publisher")

T = TypeVar("T")


class Versioned(KeySpace):
    """A state over one branch of a repository: a dict of plain Python values, each round of which is a commit.

    Values are live: a key returns the same object that the state compares at ``status()`` and ``commit()``, so whoever
    holds the object may mutate it in place. A live value keeps its identity for the life of the handle, even if a
    merge, ``refresh``, ``discard`` or ``reset`` changes its content. Keys are strings and iterate in sorted order.

    A handle's calls are locked, so threads may share it; no thread may mutate a value while another commits. Any number
    of handles, processes and machines may commit to one branch.

    Args:
        store: a ``KVStore``, or a ``Repository`` to share. By default a ``Memory`` of its own. The handle does not
            close it.
        branch: begins at the empty state if it does not exist.
        author: the author of commits, unless a call names another. ``""`` is none.
        pickle, pickle_key, classes, signer, clock: as for ``Repository``, unless one is given.
        schema: the shape of the state, which each commit and merge is checked against: a ``Schema``, or its argument.
            Forks have it too.
        check_reads: check committed values when they are read too, here and by ``checkout``. Raises ``SchemaError`` for
            an invalid one.
        migrations: read every state as the newest version. The first commit writes their changes, as a commit of its
            own.
        ttl_seconds: the branch expires that long after its last change, and ``repository.expire()`` then deletes it.
            The time is kept with the branch from the next commit on. 0 removes it, and None leaves it as it is. A fork
            has it too; ``switch`` drops it.
        stamp: what makes the commits, such as ``{"code": "3f9c2a1", "model": "large-2"}``: a dict of data, or a
            function that returns one and is called for each commit (it must not call this state). Each commit refers to
            it by an id in its meta, and the store keeps it once. ``repository.stamp(rev)`` returns it, and
            ``log(stamp={…})`` finds it. A fork has it too.

    Raises:
        StorageError: the store cannot be opened, or is not a store of this library; see ``errors``.
        NewerVersionError, MigrationError: the state is newer than the migrations, or one of them raised. Nothing was
            changed.
    """

    _handle: BranchHandle
    _shape: Shape | None
    _unfinished: Unfinished
    _hooks: list[Hook]
    _transactions: Transactions
    _own_store: KVStore | None  # a store that is closed with the handle; see open()
    _is_kept: bool  # a default Memory ends with the handle, with all commits
    _closed: bool

    def __init__(  # noqa: PLR0913 - each is an option of its own
        self,
        store: KVStore | Repository | None = None,
        *,
        branch: str = "main",
        author: str | None = None,
        pickle: PickleMode = "own",
        pickle_key: bytes | None = None,
        classes: TrustedModules = (),
        signer: Signer | None = None,
        clock: Callable[[], int] | None = None,
        ttl_seconds: float | None = None,
        schema: Any = None,
        check_reads: bool = False,
        migrations: Migrations | None = None,
        stamp: StampSource | None = None,
    ) -> None:
        # The engine is loaded by the first state, not by the import of this class.
        from versioned_state.repository.refs.ref import check_name
        from versioned_state.repository.repository import Repository
        from versioned_state.state.branch.branch_handle import BranchHandle
        from versioned_state.state.branch.transactions import Transactions

        check_name("branch", branch)
        check_text("author", author)
        if isinstance(store, Repository):
            if pickle != "own" or pickle_key is not None or classes != () or signer is not None or clock is not None:
                raise InvalidArgumentError(
                    "pickle, pickle_key, classes, signer and clock must be given to the Repository, "
                    "not to a state over it"
                )
            repository = store
        else:
            repository = Repository(
                store, pickle=pickle, pickle_key=pickle_key, classes=classes, signer=signer, clock=clock
            )
        lock = HandleLock()
        super().__init__(b"", lock)
        handle = BranchHandle(repository, branch, author or None)
        vars(self).update(
            _handle=handle,
            _shape=None,
            _unfinished=handle.unfinished,
            _hooks=handle.hooks.all,
            _transactions=Transactions(handle, lock, ref(self)),
            _own_store=None,
            _is_kept=store is not None,
            _closed=False,
        )
        if ttl_seconds is not None:
            handle.ttl = as_ttl(ttl_seconds)
        if stamp is not None:
            handle.use_stamp(stamp)
        if schema is not None or check_reads or migrations is not None:
            from versioned_state.state.shape.shape import Shape

            self._shape = Shape(schema, check_reads=check_reads, migrations=migrations)
            self._shape.attach(handle)

    @property
    def repository(self) -> Repository:
        """The repository that the branch is in. Raises ``HandleClosedError`` after ``close()``."""
        if self._closed:
            self._check_open()
        return self._handle.repository

    @property
    def branch(self) -> str:
        """The name of the branch."""
        return self._handle.branch

    @property
    def author(self) -> str | None:
        """The author of commits, unless a call names another."""
        return self._handle.author

    @property
    def _worktree(self) -> Worktree:
        return self._handle.worktree

    @property
    def _held_bytes(self) -> int:
        """Approximate bytes of memory of the handle, without live values and its fixed size."""
        return self._worktree.held_bytes

    @property
    def aio(self) -> VersionedAio:
        """Coroutines that run the calls on the store off the event loop: ``await state.aio.commit("round 1")``."""
        return VersionedAio(self, self._lock)

    def namespace(self, name: str) -> Namespace:
        return Namespace(self, namespace_prefix(name), name)

    def _check_open(self) -> None:
        if self._closed:
            raise HandleClosedError("this state was closed", hint="open another one over the same store")
        unfinished = self._unfinished
        if unfinished.question is not None or unfinished.move is not None or unfinished.edit is not None:
            self._handle.finish()
        if self._hooks:
            self._handle.notify_hooks()
        if self._transactions.open:
            self._transactions.drop_abandoned()

    def _check_change(self, key: bytes) -> None:
        if self._transactions.open:
            self._transactions.check_change(key)

    def _is_at_rest(self) -> bool:
        """Return whether the handle is open, and no interrupted call needs to be completed first."""
        return not self._closed and self._handle.is_at_rest

    # Commits

    @property
    def head(self) -> Commit:
        """The commit that the live values are compared with.

        Another handle may have moved the branch since: see ``refresh``.
        """
        return self._handle.head

    @locked
    def commit(  # noqa: PLR0913 - each is an option of its own
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
        tag: str | None = None,
        parent: str | Commit | None = None,
        note: Mapping[str, Any] | None = None,
    ) -> Commit:
        """Commit the changes since the head: all of them or none. Returns the commit, which is the new head.

        Without changes it makes no commit and returns the head. If the branch has moved, our changes are merged by path
        onto its new head, and the live values get the changes of others. If those equal ours, their commit is returned.
        Cost: packing the loaded values, and writing the changed parts.

        Args:
            message: describes the commit; a summary of the changes by default.
            author: the author; by default the handle's.
            meta: data to keep with the commit: task, session, step.
            allow_empty: commit even without changes.
            skip_unserializable: leave out keys with a value that cannot be stored. They stay staged, and the result's
                ``skipped`` lists the paths.
            on_moved: what to do if the branch has moved: an ``OnMoved``, or "merge", "refuse" or "replace".
            policies: resolve conflicts by path pattern, before the policies that the repository keeps; see ``merge``.
            keys: commit only the changes of these keys of the state. The others stay staged. If the branch has moved,
                all changes are merged onto its new head first. A removed key may be named.
            tag: make a tag of this name for the commit, in the same batch: both are made, or neither. Without changes,
                for the head.
            parent: commit the difference to this commit, and move the branch there in the same step, from wherever it
                stands: nothing is merged. The reflog keeps the commits that the branch leaves, and ``undo()`` reverses
                the move. With ``on_moved="refuse"`` a branch that is not at ``head`` stays. Without a difference no
                commit is made, and the branch moves to the parent.
            note: data to attach to the commit in the same batch, as ``repository.notes`` does afterwards. Without
                changes, to the head.

        Raises:
            UnserializableValueError, PickleRefusedError, LimitExceededError: a value cannot be stored; the error names
                its path.
            UnknownPathError: one of ``keys`` is neither in the state nor in the head.
            UnknownRevisionError: there is no such ``parent``.
            SchemaError: a value breaks the schema; the error names its path and the rule.
            MergeConflictError: both sides changed a path. Its ``merge`` resolves the conflict.
            RefExistsError: there is a tag of that name.
            UnsupportedByStoreError: the store allows too few conditions in a batch for a commit with a tag (S3).
            TransactionError: a transaction is open.
            BranchMovedError: the branch moved and ``on_moved="refuse"``, or it moved again at every attempt.
            InvalidArgumentError: an option is invalid, or ``keys`` and ``parent`` are both given.
            CommitInDoubtError: the store failed, and whether it has the commit is not known. The next call finds out.
            StorageError: the store failed, and nothing was committed.

            After any of them, the staged changes are still there.
        """
        # The policies are checked by _resolvable.
        choice = on_moved if type(on_moved) is OnMoved else OnMoved(on_moved)
        options = CommitOptions(
            message, author, meta, allow_empty, skip_unserializable, choice, policies or {}, keys, tag
        )
        if note is not None:
            options.note = as_note(note)
        if self._transactions.open:
            self._transactions.refuse("commit")
        if parent is not None:
            return self._commit_onto(parent, options)
        return self._resolvable(partial(operations.commit, self._handle, options), options.policies, remains=STAGED)

    def _commit_onto(self, rev: str | Commit, options: CommitOptions) -> Commit:
        if options.keys is not None:
            raise InvalidArgumentError(
                "keys and parent were both given", remains=STAGED, hint="a commit onto a parent has the whole state"
            )
        if options.on_moved is OnMoved.MERGE:
            options.on_moved = OnMoved.REPLACE  # the caller has chosen the parent, so there is nothing to merge

        def run(parent: Commit, resolving: Resolving) -> Commit:
            options.parent = parent
            resolving.remains = STAGED
            return operations.commit(self._handle, options, resolving)

        return self._taking(lambda: self._resolve(rev), run, options.policies)

    def __commit_together__(
        self,
        states: Sequence[Versioned],
        message: str,
        author: str | None,
        meta: Mapping[str, Any] | None,
        on_moved: OnMovedOption,
        policies: Mapping[str, Policy],
        tags: Sequence[str | None],
    ) -> list[Commit]:
        """Commit for ``Repository.commit_together``, which is a layer below."""
        from versioned_state.state.branch.together import commit_together

        options = CommitOptions(message, author, meta, on_moved=OnMoved(on_moved), policies=check_policies(policies))
        return commit_together(states, options, tags)

    async def __run_together__(self, states: Sequence[Versioned], call: Callable[[], list[Commit]]) -> list[Commit]:
        """Run ``commit_together`` of these states off the event loop, for ``repository.aio``, one layer below."""
        from versioned_state.state.aio.ahead import stage_ahead
        from versioned_state.state.aio.gate import run_on_handles

        def ahead() -> None:
            for state in states:
                stage_ahead(state, lenient=False)

        locks = sorted({state._lock for state in states}, key=id)  # the order of _locked
        return await run_on_handles(locks, call, ahead=ahead)

    @locked
    def refresh(self, *, policies: Mapping[str, Policy] | None = None) -> Commit:
        """Move to the head of the branch, which others may have moved, and return it.

        Uncommitted changes stay, merged on top.

        Raises:
            MergeConflictError: both sides changed a path. Nothing was changed.
        """
        self._transactions.refuse("refresh")
        return self._resolvable(self._handle.refresh, policies)

    @locked
    def discard(self) -> None:
        """Drop all uncommitted changes.

        Mutated live values get their committed content in place, and replaced ones come back.
        """
        self._transactions.refuse("discard")
        self._handle.resolve_doubt(discarding=True)
        self._worktree.restore()
        self._handle.hooks.discard()

    def transaction(  # noqa: PLR0913 - each is an option of its own
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
        tag: str | None = None,
        note: Mapping[str, Any] | None = None,
    ) -> Transaction[Versioned]:
        """Return a ``with`` block that is committed at its end, and rolled back if it raises.

        Changes made before the block are part of the commit, and are still there after a failure. An inner transaction
        is rolled back by itself and committed with the outer one. The options are those of ``commit``, without
        ``parent``. Calls that cannot be rolled back, such as ``commit``, ``refresh``, ``reset`` and ``discard``, raise
        ``TransactionError`` within the block.
        """
        options = CommitOptions(
            message,
            author,
            meta,
            allow_empty,
            skip_unserializable,
            OnMoved(on_moved),
            check_policies(policies),
            keys,
            tag,
        )
        options.note = as_note(note)
        from versioned_state.state.branch.transactions import Transaction

        return Transaction(self._transactions, options, self)

    def lock(self, *, ttl: float = 30.0, wait: float = 10.0) -> Lock:
        """Return a ``with`` block for one holder of this branch at a time, among all threads, processes and machines.

        ::

            with state.lock(ttl=30, wait=5) as lock:
                state["balance"] -= 10          # the state is at the branch's head, as after refresh()
                state.commit("pay")             # refused if somebody else has the lock by now

        Writers without a lock are not kept out: their commits are merged as usual. The lock of a holder that died ends
        after ``ttl`` seconds, or at once on the same machine. A holder that is merely slow may lose it too: then each
        commit and each move of the branch through this handle raises ``FencedError`` until the block is left, whatever
        keys it touches. Commits and ``lock.renew()`` restart the time. A nested block of the same thread and task
        changes nothing. If the store fails at the end, the lock ends after ``ttl`` seconds.
        Cost: three round trips to take the lock and to refresh, one to release it, and none for a commit.

        Args:
            ttl: the seconds without a renewal after which others may take the lock.
            wait: the seconds to wait for it, or ``math.inf`` to wait for ever.

        Raises:
            LockTimeoutError: the lock was not free in that time. It is a ``TimeoutError`` too.
            UnsupportedByStoreError: the store cannot carry the condition (S3).
            TransactionError: a transaction or a task is open on this handle; take the lock around it.
            MergeConflictError: as ``refresh``. Nothing was changed, and the lock is free.
            InvalidArgumentError, StorageError: nothing was changed.
        """
        from versioned_state.state.branch.lock import Lock

        return Lock(self, ttl=ttl, wait=wait)

    # History

    def _resolve(self, rev: str | Commit) -> Commit:
        return self.repository.commit(rev, head=self.head, branch=self.branch)

    @locked
    def status(self, *, internal: bool = False, explain: bool = False) -> Diff:
        """Return the changes since the head, by path. Cost: packing the loaded values, and encoding the changed ones.

        The result is false if there are no changes. Its ``effects`` lie behind the head: they were carried out by
        rounds that were taken back since, or that a fork left out. They are found when they are asked for, or printed.

        A value that cannot be stored is listed in ``unstorable``, and hides no other change.

        Args:
            internal: show the engine's own keys too.
            explain: list in ``objects`` each object in the loaded values, and why it is not data, at the cost of a walk
                over all of them.
        """
        found = self._changes_since(self.head, internal=internal)
        if explain:
            found.objects = self._worktree.objects(internal=internal)
        if self._handle.ref.log is not None:  # the branch was forked or moved back
            found.find_effects = partial(_effects_behind, self._handle.repository.database, self._handle.ref, self.head)
        return found

    def _changes_since(
        self, commit: Commit, *, internal: bool, limit: int | None = None, deadline: float | None = None
    ) -> Diff:
        """Return the changes from a commit to the live values."""
        from versioned_state.repository.views.diff import Diff

        staged = self._worktree.stage(lenient=True)
        tree = staged.tree
        if self._handle.hooks.all:
            from versioned_state.values.trees.nodes import Nodes

            tree = self._handle.hooks.amend(Nodes(staged.staging, staging=staged.staging), tree)
        unstorable = {}
        for key, error in staged.failed.items():
            if error is not None:
                error.remains = ""
                unstorable[error.path or str(path_of(key))] = error
        return Diff(
            staged.staging, commit.tree, tree, internal=internal, unstorable=unstorable, limit=limit, deadline=deadline
        )

    @locked
    def checkout(self, rev: str | Commit, *, migrated: bool = False) -> Snapshot:
        """Return a read-only view of any commit in the store.

        Moves nothing. A value is read when it is used. Cost: reading the commit.

        Args:
            migrated: show the state after the migrations of this handle; otherwise as it was committed.

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
    def diff(
        self,
        a: str | Commit,
        b: str | Commit | None = None,
        *,
        internal: bool = False,
        limit: int | None = None,
        deadline: float | None = None,
    ) -> Diff:
        """Return the changes by path from ``a`` to ``b``, or without ``b`` to the state with its uncommitted changes.

        Args:
            internal: include the engine's own keys.
            limit: the most changes to find, the first by their paths, at the cost of these. ``Diff.more`` is true if
                there are more.
            deadline: stop looking for changes after this many seconds; see ``Repository.diff``.
        """
        if b is not None:
            return self.repository.diff(
                self._resolve(a), self._resolve(b), internal=internal, limit=limit, deadline=deadline
            )
        return self._changes_since(self._resolve(a), internal=internal, limit=limit, deadline=deadline)

    @locked
    def log(
        self,
        rev: str | Commit | None = None,
        *,
        limit: int | None = None,
        deadline: float | None = None,
        first_parent: bool = False,
        **filters: Unpack[Filters],
    ) -> Log:
        """Return the commits back from a revision, by default the head, or for ``A..B`` those of B that A lacks.

        The newest commits come first. Cost: one read for each commit that is examined. The filters ``author``,
        ``message``, ``since``, ``until``, ``meta``, ``path`` and ``changed`` choose among the commits, and ``deadline``
        ends the search; see ``Repository.log``.
        """
        start, head = self.head if rev is None else rev, self.head
        return self.repository.log(
            start, limit=limit, deadline=deadline, first_parent=first_parent, head=head, branch=self.branch, **filters
        )

    @locked
    def blame(
        self,
        path: str | StatePath = "",
        rev: str | Commit = "HEAD",
        *,
        start: int | None = None,
        end: int | None = None,
        deadline: float | None = None,
    ) -> BlameList:
        """Return the commit that each element, entry or line of a committed value comes from.

        See ``Repository.blame``.
        """
        return self.repository.blame(path, self._resolve(rev), start=start, end=end, deadline=deadline)

    @locked
    def history(self, path: str | StatePath, rev: str | Commit = "HEAD", *, deadline: float | None = None) -> History:
        """Iterate over the commits that changed the value at a path, newest first. See ``Repository.history``."""
        return self.repository.history(path, self._resolve(rev), deadline=deadline)

    @locked
    def grep(
        self, pattern: str | re.Pattern[str], rev: str | Commit = "HEAD", *, path: str | StatePath = ""
    ) -> Matches:
        """Iterate over the lines of committed strings that match a regular expression. See ``Repository.grep``."""
        return self.repository.grep(pattern, self._resolve(rev), path=path)

    def bisect(self, good: str | Commit, bad: str | Commit, is_bad: Callable[[Snapshot], object]) -> Bisection:
        """Find the first bad commit between a good one and a bad one, and its changes. See ``Repository.bisect``."""
        with ready(self._lock):
            self._check_open()
            first, last = self._resolve(good), self._resolve(bad)
        # without the lock: it lasts as long as the calls of ``is_bad``
        return self.repository.bisect(first, last, is_bad)

    # Merges, repeated and reverted commits, and moves of the branch: each is all or nothing, and ``undo()`` reverses it

    def _resolvable(
        self, run: Callable[[Resolving], Commit], policies: Mapping[str, Policy] | None, *, remains: str = UNCHANGED
    ) -> Commit:
        """Run a call that may meet conflicts, so that the ``merge`` of the error can run it again with resolutions."""
        checked = check_policies(policies) if policies else {}
        call = _Resolvable(self, run, checked, remains)
        try:
            commit = run(merging.Resolving(checked, (), call.again, remains))
        except MissingObjectError as error:
            publisher.raise_if_moved(self._handle, error)
            raise
        if self._hooks:
            self._handle.notify_hooks()
        return commit

    def _taking(
        self, find: Callable[[], T], run: Callable[[T, Resolving], Commit], policies: Mapping[str, Policy] | None
    ) -> Commit:
        """Do as ``_resolvable`` for a call on the commits that ``find`` resolves, again if purge replaced them."""
        return publisher.again_if_swept(self._handle, lambda: self._resolvable(partial(run, find()), policies))

    @locked
    def reset(self, rev: str | Commit) -> Commit:
        """Move the branch, and this state with it, to another commit, and return that. Uncommitted changes are dropped.

        The reflog records the move, so ``undo()`` reverses it.

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
        self._handle.notify_hooks()
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
        """Merge another line of history into this branch, by path, to any depth.

        Returns the commit, which is the new head.

        Dicts are merged by key, lists by aligned elements, sets by element, texts by line. A revision that is merged
        already makes no commit. If this branch has no commits of its own, it moves there (unless
        ``fast_forward=False``). Cost: the changes of both sides.

        Args:
            policies: resolve a path that both sides changed: ``{"messages": "append", "users.*.score": "sum"}``, or a
                function of base, ours and theirs. They come before those of ``repository.merge_policies``; see
                ``PolicyName``.

        Raises:
            MergeConflictError: both sides changed a path, and no policy decides. Nothing was changed. Its ``merge``
                resolves the conflict: ``merge.resolve(path, value)``, then ``merge.commit()``.
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
        self,
        rev: str | Commit | Sequence[str | Commit],
        *,
        message: str = "",
        author: str | None = None,
        policies: Mapping[str, Policy] | None = None,
    ) -> Commit:
        """Repeat the changes of a commit, or of each of a range ``A..B`` or a list, with its message: of all or none.

        Returns the new head. Raises as ``merge``.
        """
        return self._pick("cherry_pick", rev, operations.Description(message, author), policies, backwards=False)

    @locked
    def revert(
        self,
        rev: str | Commit | Sequence[str | Commit],
        *,
        message: str = "",
        author: str | None = None,
        policies: Mapping[str, Policy] | None = None,
    ) -> Commit:
        """Commit the opposite of a commit, or of each of a range ``A..B`` or of a list, newest first: of all or none.

        Returns the new head. Raises as ``merge``.
        """
        return self._pick("revert", rev, operations.Description(message, author), policies, backwards=True)

    def _pick(
        self,
        call: str,
        rev: str | Commit | Sequence[str | Commit],
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
        """Repeat the branch's own commits on top of another commit, in one line.

        Returns the new head. ``undo()`` reverses it.

        A commit whose changes are there already is left out. Merges are left out too, as in git: the commits that they
        brought in are repeated themselves, unless the other line has them. Conflicts that a merge resolved come up
        again. Raises as ``merge``.
        """
        self._transactions.refuse("rebase")
        self._handle.resolve_doubt()
        return self._taking(lambda: self._resolve(onto), partial(operations.rebase, self._handle), policies)

    @locked
    def squash(
        self, since: str | Commit, until: str | Commit = "HEAD", *, message: str = "", author: str | None = None
    ) -> Commit:
        """Combine the commits after ``since`` up to ``until`` into one.

        Returns the new head, with the same state. ``undo()`` reverses it.

        The default message joins theirs, each once. Commits after ``until`` are repeated as they are.
        """
        self._transactions.refuse("squash")
        self._handle.resolve_doubt()
        description = operations.Description(message, author)
        head = publisher.again_if_swept(
            self._handle,
            lambda: operations.squash(self._handle, self._resolve(since), self._resolve(until), description),
        )
        self._handle.notify_hooks()
        return head

    @locked
    def undo(self, steps: int = 1) -> Commit:
        """Reverse the last moves of this branch: commits, merges, resets, rebases.

        Returns the new head. ``redo`` repeats them.

        Raises:
            UncommittedChangesError: commit or discard first.
            UnknownRevisionError: there is nothing to undo.
        """
        return self._undo("undo", steps)

    @locked
    def redo(self, steps: int = 1) -> Commit:
        """Reverse the last ``undo``, if nothing was committed since. Returns the new head. Raises as ``undo``."""
        return self._undo("redo", steps)

    def _undo(self, call: str, steps: int) -> Commit:
        steps = count("steps", steps, least=1)
        self._transactions.refuse(call)
        self._handle.resolve_doubt()
        head = operations.undo(self._handle, steps if call == "undo" else -steps)
        self._handle.notify_hooks()
        return head

    @locked
    def rollback(self, steps: int = 1) -> Commit:
        """Move the branch back by ``steps`` commits, at most to its first one, and drop uncommitted changes.

        Returns the new head.

        ``undo()`` reverses it. Raises as ``reset``.
        """
        back = min(count("steps", steps), max(self.head.height - 1, 0))
        return publisher.again_if_swept(self._handle, lambda: self._move_to(self._resolve(f"HEAD~{back}"), "rollback"))

    # Values, branches, and closing

    @locked
    def restore(self, path: str | StatePath, at: str | Commit = "HEAD") -> None:
        """Assign to a path its value at a revision, or remove the value if there was none: a change to commit.

        Raises:
            UnknownPathError: the path has no container in this state, or neither side has a value there.
        """
        from versioned_state.state.edits.restore import restore_path

        snapshot, path = self.repository.snapshot(self._resolve(at)), as_path(path)
        if self._transactions.open:
            self._check_change(root_key_of(path)[0])
        if not self._handle.hooks.restore(path, snapshot):
            restore_path(self, snapshot, path)

    @locked
    def apply(self, patch: Diff | list[dict[str, Any]]) -> None:
        """Apply a diff of any store, or its ``to_patch()``, perhaps by way of JSON: all changes or none.

        They are changes to commit.

        Raises:
            PatchConflictError: the old values of the patch are not there. ``paths`` names the places. Nothing was
                changed.
            InvalidArgumentError: it is not a patch.
            PickleRefusedError: the diff has an object in it, and a patch has data only.
        """
        from versioned_state.repository.views.diff import Diff
        from versioned_state.repository.views.patch import read_patch
        from versioned_state.state.edits.patch import apply_patch

        entries = read_patch(patch.to_patch() if isinstance(patch, Diff) else patch)
        for entry in entries if self._transactions.open else ():
            self._check_change(root_key_of(entry.path)[0])
        savepoint = self._worktree.save()
        try:
            apply_patch(self, entries, self._worktree.are_same)
        except BaseException:
            self._worktree.restore(savepoint)
            raise

    @locked
    def switch(self, branch: str, *, create: bool = False) -> Commit:
        """Move this handle to another branch, and return its head. Live values get the branch's content, in place.

        Args:
            create: create the branch at the head if it does not exist; if nothing was committed yet, with the first
                commit.

        Raises:
            UncommittedChangesError: commit or discard first.
            UnknownRevisionError: there is no such branch. Nothing was changed.
        """
        from versioned_state.repository.refs.ref import check_name

        check_name("branch", branch)
        self._transactions.refuse("switch")
        self._handle.resolve_doubt()
        self._handle.clean("switch()")
        operations.switch(self._handle, branch, create=create)
        self._handle.notify_hooks()
        return self.head

    @locked
    def fork(self, branch: str, *, at: str | Commit = "HEAD", ttl_seconds: float | None = None) -> Versioned:
        """Create a branch at a revision, and return a state on it: a what-if, to be merged or deleted.

        It shares this state's store.

        Args:
            ttl_seconds: as that of ``Versioned``. By default the one that this state was opened with.

        Raises:
            RefExistsError: the branch exists.
            BranchMovedError: the branch was moved away from the head of this state, and gc collected that. Nothing was
                changed.
        """
        ttl = self._handle.ttl if ttl_seconds is None else as_ttl(ttl_seconds)
        shape = {} if self._shape is None else self._shape.options
        # first: once there is a branch, nothing can fail
        state = Versioned(self.repository, branch=branch, author=self.author, **shape)
        state._handle.ttl = ttl
        if self._handle.stamp is not None:
            state._handle.use_stamp(self._handle.stamp.source)
        try:
            state._handle.begin(self._resolve(at), origin=self.branch)
        except MissingObjectError as error:
            publisher.raise_if_moved(self._handle, error)
            raise
        for hook in self._hooks:
            hook.forked(state)
        return state

    def close(self) -> None:
        """Release the store and the live values.

        Idempotent. A ``ResourceWarning`` names the uncommitted changes, which are dropped.

        The opener of a store closes it: a state from ``versioned_state.open()`` closes its store. A store that the
        caller opened stays open, and is closed when nothing refers to it. A store that fails, or was closed before,
        does not keep the state from closing; the warning then names the keys that may have changed.
        """
        self._close(warning=True)

    def _close(self, *, warning: bool) -> None:
        with ready(self._lock):
            if self._closed:
                return
            keys = self._changed_keys() if warning and self._is_kept else []
            self._closed = True
            store, self._own_store = self._own_store, None
            self._handle.close()
            failure = None
            try:
                if store is not None:
                    store.close()
            except StorageError as error:  # the store has every commit already, so this failure loses nothing
                failure = error
        if keys:
            self._warn("closed", keys)
        if failure is not None:
            warnings.warn(
                f"the store of a closed state could not be closed: {failure}",
                ResourceWarning,
                stacklevel=3,
                source=self,
            )

    def _changed_keys(self) -> list[bytes]:
        with suppress(StateError):
            self._check_open()  # completes an interrupted call, if the store works
        return self._worktree.changed_keys()

    def _warn(self, happened: str, keys: list[bytes]) -> None:
        shown = ", ".join(str(path_of(key)) for key in keys[:5]) + (
            f" and {len(keys) - 5} more" if len(keys) > 5 else ""
        )
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
        self._close(warning=kind is None)  # the exception makes a warning unnecessary

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        await self.aio.run(partial(self._close, warning=kind is None))

    def __del__(self) -> None:
        # Does not call the store, because this may run in any thread, at any time. Does not compare values that may
        # have changed in place.
        if not getattr(self, "_closed", True) and self._is_kept and (keys := self._worktree.touched_keys()):
            self._warn("dropped", keys)

    def __repr__(self) -> str:
        return f"<Versioned {self.branch} at {self.head.short}{' (closed)' if self._closed else ''}>"


class Namespace(KeySpace):
    """A state within a ``Versioned`` one, whose handle it shares: its changes are committed with the state's."""

    def __init__(self, state: Versioned, prefix: bytes, name: str) -> None:
        super().__init__(prefix, state._lock)
        self._state = state
        self._name = name

    @property
    def state(self) -> Versioned:
        """The state that this is a namespace of."""
        return self._state

    @property
    def name(self) -> str:
        """The name, after those of the namespaces around it: ``outer/inner``."""
        return self._name

    def _check_open(self) -> None:
        self._state._check_open()

    def _check_change(self, key: bytes) -> None:
        self._state._check_change(key)

    @property
    def _worktree(self) -> Worktree:
        return self._state._worktree

    @property
    def aio(self) -> KeySpaceAio[Namespace]:
        """The calls that use the store, as coroutines that run them off the event loop."""
        return KeySpaceAio(self, self._lock)

    def namespace(self, name: str) -> Namespace:
        return Namespace(self._state, self._prefix + namespace_prefix(name), f"{self._name}/{name}")

    def __repr__(self) -> str:
        return f"<Namespace {self.name} of {self.state!r}>"


class _Resolvable:
    """A call on a state that may have conflicts.

    Not a closure, because a closure that refers to itself would keep the state alive.
    """

    __slots__ = ("_branch", "_remains", "_run", "_state", "policies")

    def __init__(
        self, state: Versioned, run: Callable[[Resolving], Commit], policies: dict[str, Policy], remains: str
    ) -> None:
        self.policies = policies
        self._state = state
        self._branch = state._handle.position.branch
        self._run = run
        self._remains = remains

    def again(self, resolutions: Resolutions) -> Commit:
        state = self._state
        with ready(state._lock):
            state._check_open()
            state._transactions.refuse("merge.commit")
            if state.branch != self._branch:
                raise InvalidArgumentError(
                    f"the merge was on {self._branch!r}, and the state is on {state.branch!r} now"
                )
            state._handle.resolve_doubt()
            commit = self._run(merging.Resolving(self.policies, resolutions, self.again, self._remains))
            state._handle.notify_hooks()
            return commit


def _async_lock(handle_lock: HandleLock, call: Callable[[], Lock]) -> AsyncLock:
    """Return the lock of ``state.aio.lock()``."""
    from versioned_state.state.aio.blocks import AsyncLock

    return AsyncLock(handle_lock, call())


def _async_transaction(
    handle_lock: HandleLock, call: Callable[[], Transaction[Versioned]]
) -> AsyncTransaction[Versioned]:
    """Return the transaction of ``state.aio.transaction()``."""
    from versioned_state.state.aio.blocks import AsyncTransaction

    return AsyncTransaction(handle_lock, call())


def _stage_ahead(state: Versioned, options: Mapping[str, Any]) -> None:
    """Stage the changes for ``await state.aio.commit(**options)``."""
    from versioned_state.state.aio.ahead import stage_ahead

    if not options.get("keys"):
        stage_ahead(state, bool(options.get("skip_unserializable")))


def _effects_behind(database: Database, ref: Ref, head: Commit) -> list[EffectRecord]:
    from versioned_state.repository.inspect.effects_behind import effects_behind
    from versioned_state.repository.ledger import Ledger

    return list(map(Ledger(database).shown, effects_behind(database, ref, head)))


def _read_all(diff: Diff) -> None:
    diff.read_all()


class VersionedAio(KeySpaceAio["Versioned"]):
    """The awaitable twins of the calls of a state.

    A commit has the values as they are when it is called, or when its turn comes.
    """

    blame: Final = awaitable(lambda: Versioned.blame)
    checkout: Final = awaitable(lambda: Versioned.checkout)
    cherry_pick: Final = awaitable(lambda: Versioned.cherry_pick)
    close: Final = awaitable(lambda: Versioned.close)
    commit: Final = awaitable(lambda: Versioned.commit, ahead=_stage_ahead)
    diff: Final = awaitable(lambda: Versioned.diff, after=_read_all)
    discard: Final = awaitable(lambda: Versioned.discard)
    fork: Final = awaitable(lambda: Versioned.fork)
    grep: Final = stream(lambda: Versioned.grep)
    history: Final = stream(lambda: Versioned.history)
    lock: Final = converted(lambda: Versioned.lock, _async_lock)
    log: Final = stream(lambda: Versioned.log)
    merge: Final = awaitable(lambda: Versioned.merge)
    rebase: Final = awaitable(lambda: Versioned.rebase)
    redo: Final = awaitable(lambda: Versioned.redo)
    refresh: Final = awaitable(lambda: Versioned.refresh)
    reset: Final = awaitable(lambda: Versioned.reset)
    restore: Final = awaitable(lambda: Versioned.restore)
    revert: Final = awaitable(lambda: Versioned.revert)
    rollback: Final = awaitable(lambda: Versioned.rollback)
    squash: Final = awaitable(lambda: Versioned.squash)
    status: Final = awaitable(lambda: Versioned.status, after=_read_all)
    switch: Final = awaitable(lambda: Versioned.switch)
    transaction: Final = converted(lambda: Versioned.transaction, _async_transaction)
    undo: Final = awaitable(lambda: Versioned.undo)

    async def apply(self, patch: Diff | list[dict[str, Any]]) -> None:
        """Do as ``Versioned.apply``."""
        from versioned_state.repository.views.diff import Diff
        from versioned_state.repository.views.patch import read_patch

        def run() -> None:
            entries = patch.to_patch() if isinstance(patch, Diff) else patch
            for entry in read_patch(entries):
                self._load_key(entry.path)
            self.of.status()  # before the loop is stopped, read the objects that a rollback needs, and the values
            with hold_still():
                self.of.apply(entries)

        await self.run(run)

    def _load_key(self, path: StatePath) -> None:
        """Load the key that a path begins with, if there is one."""
        for end, step in enumerate(path.steps, 1):
            if not isinstance(step, NamespaceStep):
                with suppress(StateError):
                    self.of.at(StatePath(path.steps[:end]))
                return

    async def bisect(self, good: str | Commit, bad: str | Commit, is_bad: Callable[[Snapshot], object]) -> Bisection:
        """Do as ``Versioned.bisect``.

        ``is_bad`` is called on a background thread, and other calls on the state do not wait for it.
        """
        from versioned_state.off_loop import off_loop

        first, last = await self.run(lambda: (self.of.checkout(good), self.of.checkout(bad)))
        assert first.commit is not None, "it is a view of a commit"
        assert last.commit is not None, "it is a view of a commit"
        return await off_loop(partial(self.of.repository.bisect, first.commit, last.commit, is_bad))
