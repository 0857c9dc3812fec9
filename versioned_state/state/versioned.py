"""``Versioned``: a dict over a branch. Every commit is a round, and what was mutated in place is always seen. Layer: state."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import Enum
from functools import wraps
from threading import RLock, get_ident
from typing import Any, Concatenate, Final, ParamSpec, Self, TypeVar, cast

from versioned_state.errors import (
    BranchMovedError,
    CommitInDoubtError,
    HandleClosedError,
    InvalidArgumentError,
    MergeConflictError,
    StorageError,
    TransactionError,
    UnknownOutcomeError,
    UnreachableStoreError,
)
from versioned_state.objects.address import Address
from versioned_state.repository import history
from versioned_state.repository.commit import ROOT_ID, Commit
from versioned_state.repository.diff import Diff
from versioned_state.repository.merge import find_conflicts
from versioned_state.repository.refs import Ref, check_name, ref_at
from versioned_state.repository.repository import Repository, backoff
from versioned_state.repository.snapshot import Snapshot
from versioned_state.state.mapping import State
from versioned_state.state.sequence import Sequence
from versioned_state.state.summary import summarize
from versioned_state.state.worktree import Savepoint, Staged, Worktree
from versioned_state.storage import KVStore
from versioned_state.values.diff import diff_maps
from versioned_state.values.keys import USER, namespace_prefix, user_key
from versioned_state.values.nodes import Nodes
from versioned_state.values.pickles import PickleMode
from versioned_state.values.tree import Tree, edit_map

P = ParamSpec("P")
R = TypeVar("R")

_ATTEMPTS: Final = 1000
"""Merges onto a branch that keeps moving, before a commit gives up. With the backoff this is the better part of a minute."""


class OnMoved(Enum):
    """What a commit does where its branch has moved since this handle last saw it."""

    MERGE = "merge"
    """Put our changes on top of the new head; ``MergeConflictError`` where both sides changed the same key."""
    REFUSE = "refuse"
    """Raise ``BranchMovedError``."""
    REPLACE = "replace"
    """Make the new head the parent, and our content, as it is, the state."""


def _locked(method: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[Any, P], R]:
    """One call at a time on a handle, and none after ``close()``."""

    @wraps(method)
    def wrapper(self: Any, *args: P.args, **kwargs: P.kwargs) -> R:
        with self._lock:
            self._check_open()
            return method(self, *args, **kwargs)

    return cast("Callable[Concatenate[Any, P], R]", wrapper)


@dataclass(frozen=True, slots=True)
class _InDoubt:
    """A commit that the store may have or not: what was staged for it, the ref that it was to move, and whether it may still do so."""

    staged: Staged
    commit: Commit
    ref: Ref
    under_way: bool


class Versioned(State):
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
        pickle, pickle_key, clock: as for ``Repository``; not together with one.

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
        clock: Callable[[], int] | None = None,
    ) -> None:
        check_name("branch", branch)
        if isinstance(store, Repository):
            if pickle != "own" or pickle_key is not None or clock is not None:
                raise InvalidArgumentError("pickle, pickle_key and clock are the Repository's, which was given")
            self.repository = store
        else:
            self.repository = Repository(store, pickle=pickle, pickle_key=pickle_key, clock=clock)
        self.branch = branch
        self.author = author
        self._owns = not isinstance(store, Repository)
        self._lock = RLock()
        self._closed = False
        self._savepoints: list[Savepoint] = []
        self._transacting = 0
        self._in_doubt: _InDoubt | None = None
        self._ref = self.repository.ref("branch", branch)
        self._head = self._commit_of(self._ref)
        self._worktree = Worktree(self.repository.objects, self.repository.policy, self._head.tree)

    def _commit_of(self, ref: Ref) -> Commit:
        return self.repository.read(ROOT_ID) if ref.head is None else self.repository.commit_at(ref.head)

    def _theirs(self, ref: Ref) -> Commit:
        """Where others moved the branch. Raises ``BranchMovedError`` where they deleted it, which is no state to merge with."""
        if ref.head is None and self._head.id != ROOT_ID:
            raise BranchMovedError(self.branch, expected=self._head.id, actual=None)
        return self._commit_of(ref)

    # A dict

    @_locked
    def __getitem__(self, key: str) -> Any:
        return self._get(user_key(key), key)

    def _get(self, root_key: bytes, key: str) -> Any:
        try:
            return self._worktree.get(root_key)
        except KeyError:
            raise KeyError(key) from None

    @_locked
    def __setitem__(self, key: str, value: Any) -> None:
        self._worktree.set(user_key(key), value)

    @_locked
    def __delitem__(self, key: str) -> None:
        try:
            self._worktree.delete(user_key(key))
        except KeyError:
            raise KeyError(key) from None

    @_locked
    def __contains__(self, key: object) -> bool:
        return type(key) is str and user_key(key) in self._worktree

    @_locked
    def __iter__(self) -> Iterator[str]:
        return self._keys(USER, "")

    @_locked
    def iter_keys(self, prefix: str = "") -> Iterator[str]:
        """The keys that begin with ``prefix``, in order. Cost: one path, then what it lists."""
        return self._keys(USER, prefix)

    def _keys(self, start: bytes, prefix: str) -> Iterator[str]:
        # A list: the keys as they are now, whatever is done to the state while they are walked.
        first = start + prefix.encode("utf-8", "surrogatepass")
        keys = list(self._worktree.iter_keys(first, first + b"\xff"))
        return iter([key[len(start) :].decode("utf-8", "surrogatepass") for key in keys])

    @_locked
    def __len__(self) -> int:
        return self._worktree.count(USER, USER + b"\xff")

    @_locked
    def clear(self) -> None:
        """Remove every key; namespaces stay."""
        for key in list(self._worktree.iter_keys(USER, USER + b"\xff")):
            self._worktree.delete(key)

    @_locked
    def popitem(self) -> tuple[str, Any]:
        """Remove and return the last key, in their order, and its value. Raises ``KeyError`` if there is none."""
        root_key = self._worktree.last_key(USER, USER + b"\xff")
        if root_key is None:
            raise KeyError("popitem(): the state is empty")
        value = self._worktree.get(root_key)
        self._worktree.delete(root_key)
        return root_key[1:].decode("utf-8", "surrogatepass"), value

    def namespace(self, name: str) -> Namespace:
        """The part of the state under a name: a state of its own, committed together with this one."""
        return Namespace(self, namespace_prefix(name), name)

    @_locked
    def sequence(self, key: str) -> Sequence:
        """The list under a key, to read and append to without loading it: O(log n), whatever its length."""
        return Sequence(self._worktree, user_key(key), self._lock, self._check_open)

    def _check_open(self) -> None:
        if self._closed:
            raise HandleClosedError("this state was closed", hint="open another one over the same store")

    @_locked
    def release(self, key: str) -> bool:
        """Let go of a value that was loaded and has not changed, and of what watching it costs. Returns whether it was let go.

        References to it that somebody holds are no longer seen.
        """
        return self._worktree.release(user_key(key))

    # Rounds

    @property
    def head(self) -> Commit:
        """The commit that this handle stands on. Another handle may have moved the branch since; see ``refresh``."""
        return self._head

    @_locked
    def status(self, *, internal: bool = False) -> Diff:
        """What was changed since the head, by path; empty, and false, if nothing was. Cost: packing what was loaded, and what changed.

        Raises:
            UnserializableValueError: a value that cannot be committed either.
        """
        staged = self._worktree.stage()
        return Diff(staged.staging, self._head.tree, staged.tree, internal=internal)

    @_locked
    def commit(
        self,
        message: str = "",
        *,
        author: str | None = None,
        meta: Mapping[str, Any] | None = None,
        allow_empty: bool = False,
        skip_unserializable: bool = False,
        on_moved: OnMoved = OnMoved.MERGE,
    ) -> Commit:
        """Commit what was changed since the head; the commit, which is then the head. All or nothing.

        With nothing changed it makes no commit and returns the head. Where the branch has moved, our changes go on top of its new
        head, and live values take in what others changed; where they made the very change that we would make, it is their
        commit that is returned. Cost: packing what was loaded, and writing what changed.

        Args:
            message: what the round was; without one, a summary of the change.
            author: who made it; without one, the handle's.
            meta: data to keep with the commit: task, session, step.
            allow_empty: commit also where nothing changed.
            skip_unserializable: leave keys whose value cannot be stored as they were; the result's ``skipped`` lists the paths. Their
                values stay staged.
            on_moved: what to do where the branch has moved.

        Raises:
            UnserializableValueError, PickleRefusedError, LimitExceededError: a value that cannot be stored, by path.
            MergeConflictError: others changed a key that we changed too.
            TransactionError: within a transaction.
            BranchMovedError: with ``OnMoved.REFUSE``, or because it would not stop moving.
            CommitInDoubtError: the store failed, and whether it has the commit could not be found out. The next call does.
            StorageError: the store failed, and nothing was committed.

            After any of them, what was staged still is.
        """
        self._outside_transactions("commit")
        for name, text in (("message", message), ("author", author)):
            if text is not None and type(text) is not str:
                raise TypeError(f"{name} is a string, not {type(text).__name__}")
        if not isinstance(on_moved, OnMoved):
            raise TypeError(f"on_moved is an OnMoved, not {on_moved!r}")
        landed = self._settle()
        staged = self._worktree.stage(lenient=skip_unserializable, flush=True)
        skipped = tuple(error.path for error in staged.failed.values())
        if not staged.changes and (landed or not allow_empty):
            self._worktree.adopt(staged, self._worktree.tree)
            return replace(self._head, skipped=skipped) if skipped else self._head
        text = message or summarize(self._worktree, staged)
        who = self.author if author is None else author

        def write(tree: Tree, parent: Commit) -> Commit:
            return self.repository.write_commit(tree, (parent,), staging=staged.staging, message=text, author=who, meta=meta)

        commit = self._land(staged, write, on_moved, allow_empty=allow_empty)
        return replace(commit, skipped=skipped) if skipped else commit

    def _land(self, staged: Staged, write: Callable[[Tree, Commit], Commit], on_moved: OnMoved, *, allow_empty: bool) -> Commit:
        """Publish a commit of what was staged, on the head or, where the branch has moved, on its new one."""
        ref, parent, tree = self._ref, self._head, staged.tree
        for attempt in range(_ATTEMPTS):
            if tree is parent.tree and parent != self._head and not allow_empty:
                # The others made the very change that we would make.
                self._stand_on(parent, ref, staged, parent)
                return parent
            commit = write(tree, parent)
            moved = self._publish(ref, commit, staged)
            if moved is not None:
                self._stand_on(commit, moved, staged, parent if on_moved is OnMoved.MERGE else self._head)
                return commit
            if attempt:
                backoff(attempt)
            ref = self.repository.ref("branch", self.branch)
            found = self._theirs(ref)
            if found == parent:
                # Only its record changed: it was created where it was, or reset to there and back.
                continue
            if on_moved is OnMoved.REFUSE:
                break
            parent = found
            if on_moved is OnMoved.MERGE:
                tree = self._merge(staged, parent)
        actual = self._commit_of(self.repository.ref("branch", self.branch))
        raise BranchMovedError(self.branch, expected=self._head.id, actual=actual.id)

    def _publish(self, ref: Ref, commit: Commit, staged: Staged) -> Ref | None:
        """Move the branch to a commit; None where it had moved. An outcome that is not known is looked up at once, or kept in doubt."""
        try:
            return self.repository.publish(ref, commit, staged.staging)
        except StorageError as error:
            # The store may have done it all the same, and only the reply was lost.
            self._in_doubt = _InDoubt(staged, commit, ref, isinstance(error, UnknownOutcomeError))
            try:
                moved = self._find(self._in_doubt)
            except StorageError:
                raise CommitInDoubtError(commit.id) from error
            self._in_doubt = None
            if moved is not None:
                return moved
            if isinstance(error, UnknownOutcomeError):  # by now it is known
                raise UnreachableStoreError("the store failed; nothing was committed, and the staged changes are still there") from error
            raise

    def _stand_on(self, commit: Commit, ref: Ref, staged: Staged, theirs: Commit) -> None:
        """Make a commit that holds what we staged, on top of theirs, the head."""
        self._worktree.adopt(staged, commit.tree)
        if theirs != self._head:
            # What is ours is the head's now, so that what remains is to take in what the others committed.
            tree = commit.tree
            self._worktree.retarget(self._head.tree, theirs.tree, head=tree, expected=tree, except_keys=staged.changes)
        self._ref, self._head = ref, commit

    def _find(self, doubt: _InDoubt) -> Ref | None:
        """The ref as of a commit in doubt, if the branch has it, be it below what others committed since; None if it never will.

        Raises ``StorageError``: the doubt remains.
        """
        while True:
            ref = self.repository.ref("branch", self.branch)
            if ref.head is not None and history.is_ancestor(doubt.commit, self._commit_of(ref), self.repository.read):
                return ref_at(doubt.ref, Address(bytes.fromhex(doubt.commit.id)))
            if not doubt.under_way or ref.stored != doubt.ref.stored:
                return None
            # The write may still be on its way, in the buffers of a server or waiting for a lock there. A record that is not the one
            # that it expects, though for the same commit, bars it for good.
            head = self._commit_of(ref)
            if self.repository.move(ref, None if ref.head is None else head, action="commit given up", author=self.author):
                found = self.repository.ref("branch", self.branch)
                if self._commit_of(found) == self._head:
                    self._ref = found
                return None

    def _settle(self, *, discarding: bool = False) -> bool:
        """Find out what became of a commit whose outcome was not known when it failed, before anything is repeated: whether it landed.

        Raises ``MergeConflictError`` where it landed on top of what others committed, and a key of theirs was changed here since. The
        commit is then still in doubt, and nothing was changed; ``discard`` settles it.
        """
        doubt = self._in_doubt
        if doubt is None:
            return False
        ref = self._find(doubt)
        if ref is not None:
            base, commit = doubt.staged.tree, doubt.commit
            if discarding:
                self._worktree.adopt_late(doubt.staged)
                self._worktree.retarget(base, commit.tree, head=commit.tree, expected=commit.tree)
                self._head = commit
            else:
                since = self._worktree.stage(lenient=True)
                touched: dict[bytes, bytes | None] = {key: update.cell for key, update in since.changes.items()}
                touched.update(dict.fromkeys(since.failed, b""))
                for key in doubt.staged.changes:
                    touched.pop(key, None)
                self._check_conflicts(Nodes(since.staging), self._head.tree, touched, commit)
                self._worktree.adopt_late(doubt.staged)
                self._take_in(base, commit)
            self._ref = ref
        self._in_doubt = None
        return ref is not None

    def _check_conflicts(self, nodes: Nodes, base: Tree, ours: Mapping[bytes, bytes | None], theirs: Commit) -> None:
        conflicts = find_conflicts(nodes, base, ours, theirs.tree)
        if conflicts:
            raise MergeConflictError(self.branch, conflicts)

    def _merge(self, staged: Staged, theirs: Commit) -> Tree:
        """The root with our changes on top of theirs. Raises ``MergeConflictError`` where both changed a key."""
        nodes = Nodes(staged.staging, staging=staged.staging)
        ours = {key: update.cell for key, update in staged.changes.items()}
        self._check_conflicts(nodes, self._head.tree, {**ours, **dict.fromkeys(staged.failed, b"")}, theirs)
        return edit_map(nodes, theirs.tree, ours)

    @_locked
    def refresh(self) -> Commit:
        """Take in what others committed to the branch; the new head. Changes of ours that are not committed stay, on top of it.

        Raises:
            MergeConflictError: others changed a key that we changed too. Nothing was changed.
        """
        self._outside_transactions("refresh")
        self._settle()
        ref = self.repository.ref("branch", self.branch)
        theirs = self._theirs(ref)
        if theirs != self._head:
            self._take_in(self._head.tree, theirs)
        self._ref = ref
        return self._head

    def _take_in(self, base: Tree, theirs: Commit) -> None:
        """Stand on another commit, with our changes since ``base`` on top. Raises ``MergeConflictError``, and then changes nothing."""
        staged = self._worktree.stage(lenient=True)
        nodes = Nodes(staged.staging, staging=staged.staging)
        ours = {key: update.cell for key, update in staged.changes.items()}
        self._check_conflicts(nodes, base, {**ours, **dict.fromkeys(staged.failed, b"")}, theirs)
        expected = edit_map(nodes, theirs.tree, ours)
        # Without a conflict, what both changed is the same on both sides, and is taken in as theirs.
        both = {key for key, _, _ in diff_maps(nodes, base, theirs.tree)}
        self._worktree.retarget(base, theirs.tree, head=theirs.tree, expected=expected, except_keys=ours.keys() - both)
        self._head = theirs

    @_locked
    def discard(self) -> None:
        """Drop everything that was changed since the head. Live values are mended in place; replaced ones come back."""
        self._outside_transactions("discard")
        self._settle(discarding=True)
        self._worktree.restore()

    @_locked
    def reset(self, rev: str | Commit) -> Commit:
        """Move the branch, and this state with it, to another commit; the commit. What was not committed is dropped.

        The move is written down in the reflog, so ``reset("main@{1}")`` takes it back.

        Raises:
            UnknownRevisionError: nothing was changed.
            BranchMovedError: another handle moved the branch since this one last saw it. Nothing was changed.
        """
        self._outside_transactions("reset")
        self._settle()
        target = self._resolve(rev)
        if target != self._head:
            self._point_to(target)
        self._worktree.restore()
        self._worktree.retarget(self._head.tree, target.tree, head=target.tree, expected=target.tree)
        self._head = target
        return target

    def _point_to(self, target: Commit) -> None:
        """Move the branch from our head to another commit. Raises ``BranchMovedError`` where it is neither at the one nor at the other."""
        ref = self._ref
        for _ in range(2):
            moved = self.repository.move(ref, target, action="reset", author=self.author)
            ref = self.repository.ref("branch", self.branch)
            stands = self._commit_of(ref)
            if moved or stands == target:  # it may be there already, by an earlier reset whose reply was lost
                self._ref = ref
                return
            if stands != self._head:
                break
        raise BranchMovedError(self.branch, expected=self._head.id, actual=stands.id)

    @contextmanager
    def transaction(self, message: str = "", **commit_options: Any) -> Iterator[Versioned]:
        """All of a block, or nothing of it: it is committed when it ends, and undone when it raises.

        What was changed before it is part of the commit, and is still there after a failure. A transaction within another one is undone
        by itself, and committed with the outer one. Takes the options of ``commit``. Within it, ``commit``, ``refresh``, ``reset`` and
        ``discard`` are refused, since they could not be undone.
        """
        savepoint = self._save()
        try:
            yield self
            self._savepoints.remove(savepoint)
            if not self._savepoints:
                self.commit(message, **commit_options)
        except BaseException:
            if savepoint in self._savepoints:
                self._savepoints.remove(savepoint)
            with self._lock:
                self._worktree.restore(savepoint)
            raise

    def _outside_transactions(self, call: str) -> None:
        if self._savepoints:
            raise TransactionError(f"{call}() within a transaction; nothing was changed", hint="leave the block first: its end commits it")

    @_locked
    def _save(self) -> Savepoint:
        thread = get_ident()
        if self._savepoints and self._transacting != thread:
            raise TransactionError("another thread is in a transaction on this handle; nothing was changed", hint="use a handle a thread")
        self._transacting = thread
        savepoint = self._worktree.save()
        self._savepoints.append(savepoint)
        return savepoint

    # History

    def _resolve(self, rev: str | Commit) -> Commit:
        return self.repository.commit(rev, head=self._head, branch=self.branch)

    @_locked
    def checkout(self, rev: str | Commit) -> Snapshot:
        """A read-only view of any commit in the store. Moves nothing. Cost: reading the commit; values are read when asked for.

        Raises:
            UnknownRevisionError: with refs and ids that come close.
        """
        return self.repository.snapshot(self._resolve(rev))

    @_locked
    def diff(self, a: str | Commit, b: str | Commit | None = None, *, internal: bool = False) -> Diff:
        """What changed from ``a`` to ``b``, by path; without ``b``, to what the state is now, committed or not."""
        if b is not None:
            return self.repository.diff(self._resolve(a), self._resolve(b), internal=internal)
        staged = self._worktree.stage()
        return Diff(staged.staging, self._resolve(a).tree, staged.tree, internal=internal)

    @_locked
    def log(self, rev: str | Commit | None = None, *, limit: int | None = None, first_parent: bool = False) -> Iterator[Commit]:
        """Commits from a revision back, newest first; without one, from the head. Cost: one read for each that is taken."""
        return self.repository.log(self._head if rev is None else self._resolve(rev), limit=limit, first_parent=first_parent)

    def close(self) -> None:
        """Let go of everything. Closes the store too, unless a ``Repository`` was given. What was not committed is dropped."""
        with self._lock:
            self._closed = True
            if self._owns:
                self.repository.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Versioned {self.branch} at {self._head.short}{' (closed)' if self._closed else ''}>"


class Namespace(State):
    """The keys of a ``Versioned`` state under a name. It shares the state's handle: its changes are committed with the state's."""

    def __init__(self, state: Versioned, prefix: bytes, name: str) -> None:
        self.state = state
        self.name = name
        self._prefix = prefix
        self._lock = state._lock
        self._start = prefix + USER

    def _check_open(self) -> None:
        self.state._check_open()

    @property
    def _worktree(self) -> Worktree:
        return self.state._worktree

    @_locked
    def __getitem__(self, key: str) -> Any:
        return self.state._get(self._prefix + user_key(key), key)

    @_locked
    def __setitem__(self, key: str, value: Any) -> None:
        self._worktree.set(self._prefix + user_key(key), value)

    @_locked
    def __delitem__(self, key: str) -> None:
        try:
            self._worktree.delete(self._prefix + user_key(key))
        except KeyError:
            raise KeyError(key) from None

    @_locked
    def __contains__(self, key: object) -> bool:
        return type(key) is str and self._prefix + user_key(key) in self._worktree

    @_locked
    def __iter__(self) -> Iterator[str]:
        return self.state._keys(self._start, "")

    @_locked
    def iter_keys(self, prefix: str = "") -> Iterator[str]:
        """As ``Versioned.iter_keys``."""
        return self.state._keys(self._start, prefix)

    @_locked
    def __len__(self) -> int:
        return self._worktree.count(self._start, self._start + b"\xff")

    @_locked
    def sequence(self, key: str) -> Sequence:
        """As ``Versioned.sequence``."""
        return Sequence(self._worktree, self._prefix + user_key(key), self._lock, self.state._check_open)

    def namespace(self, name: str) -> Namespace:
        return Namespace(self.state, self._prefix + namespace_prefix(name), f"{self.name}/{name}")

    def __repr__(self) -> str:
        return f"<Namespace {self.name} of {self.state!r}>"
