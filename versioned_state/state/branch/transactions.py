"""Transactions on one handle: who may enter one, the order in which they end, and the rollback of a failed one.

Layer: state.

A transaction is open from its savepoint until its block is left. Its owner is a thread and, if an event loop runs, the
current task; or something that runs there, such as the call of an agent's task, which may also commit before its end.
Blocks end last in, first out. Only the ``with`` statement refers to the callable that ends its block. If the callable
is gone and the transaction is still open, an interrupt came between, and the next call on the handle rolls the
transaction back.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from contextlib import ContextDecorator, suppress
from functools import partial
from threading import get_ident
from typing import Any, Final, Generic, Protocol, TypeVar
from weakref import ReferenceType, ref

from versioned_state.errors import STAGED, CommitInDoubtError, MergeConflictError, StateError, TransactionError
from versioned_state.repository.history.commit import Commit
from versioned_state.state.aio.caller import HandleLock, LockedState, current_caller, ready
from versioned_state.state.branch import operations
from versioned_state.state.branch.branch_handle import BranchHandle
from versioned_state.state.branch.commit_options import CommitOptions
from versioned_state.state.branch.hooks import Hook
from versioned_state.state.branch.merging import Resolving
from versioned_state.state.worktree.entries import Savepoint
from versioned_state.values.keys import path_of

T = TypeVar("T")
H = TypeVar("H", bound=Hook)

_ROLLED_BACK: Final = "the transaction was rolled back"
_TAKEN_BACK: Final = (
    "; if the store has its commit, the next one takes that back, and the same block once more keeps it"
)
_END_IT: Final = "run the generator to its end, or close it"


class Owner(Protocol):
    """The owner of a transaction."""

    @property
    def block(self) -> str:
        """A noun for its block, with an article, for errors."""
        ...

    @property
    def hint(self) -> str:
        """The hint for a call within the block that could not be undone."""
        ...

    @property
    def elsewhere(self) -> str:
        """A description of the owner for callers outside of the block."""
        ...

    @property
    def way_out(self) -> str:
        """The hint for a caller outside of the block that tries to enter one."""
        ...

    @property
    def has_ended(self) -> bool:
        """Whether the block can no longer end."""
        ...

    @property
    def is_paused(self) -> bool:
        """Whether the block waits, such as a generator between two steps, so that other code runs meanwhile."""
        ...

    def is_current(self) -> bool:
        """Return whether the caller runs within the block."""
        ...


class _Worker:
    """An owner that is a thread and, if an event loop runs in it, a task."""

    __slots__ = ("task", "thread")
    block = "a transaction"
    hint = "leave the block first: its end commits it"
    has_ended = False
    is_paused = False

    def __init__(self) -> None:
        self.thread, self.task = current_worker()

    def is_current(self) -> bool:
        return (self.thread, self.task) == current_worker()

    @property
    def kind(self) -> str:
        return "thread" if self.thread != current_worker()[0] else "task"

    @property
    def elsewhere(self) -> str:
        return f"another {self.kind} is in a transaction on this handle"

    @property
    def way_out(self) -> str:
        return f"a handle for each {self.kind}: {self.kind}s may commit to one branch side by side"


class OpenTransaction:
    """One open transaction.

    Attributes:
        owner: the owner.
        savepoint: the state to roll back to.
        saved: the hooks' part of the savepoint.
        commits_made: the handle's number of commits at the beginning. A higher number means that a commit was made,
            which contains all earlier changes.
        block: dead as soon as the block can no longer end; None if that is not known.
        has_left: whether the block was left and its end failed.
        has_begun: whether its block was entered. If an interrupt came before, there is nothing to roll back.
        doomed: whether it was rolled back with a transaction that was left too early; later changes of its block are
            rolled back too.
        within: only changes under root keys that begin with this belong to the transaction, and are rolled back with
            it; empty: all.
        is_plain: whether it makes a single commit, at its end.
        worker: the thread and the task that entered it.
        loop: the event loop of that task. If it is closed, the block never ends. None if there is no task, or ``block``
            is None.
    """

    __slots__ = (
        *(
            "block",
            "commits_made",
            "doomed",
            "has_begun",
            "has_left",
            "is_plain",
            "loop",
            "options",
            "owner",
            "saved",
            "savepoint",
        ),
        *("within", "worker"),
    )

    def __init__(
        self,
        owner: Owner,
        options: CommitOptions,
        savepoint: Savepoint,
        commits_made: int,
        block: ReferenceType[Any] | None,
    ) -> None:
        self.owner = owner
        self.options = options
        self.savepoint = savepoint
        self.commits_made = commits_made
        self.block = block
        self.has_left = False
        worker = owner if type(owner) is _Worker else None
        self.is_plain: Final = worker is not None
        self.has_begun: bool = worker is None
        self.doomed = False
        self.saved: list[tuple[Hook, object]] = []
        self.within = b""
        self.worker: Final = current_worker() if worker is None else (worker.thread, worker.task)
        task: Any = self.worker[1]
        self.loop: Any = None if task is None or block is None else task.get_loop()

    def is_apart_from(self, other: OpenTransaction) -> bool:
        """Return whether the two transactions have no changes in common."""
        return bool(self.within and other.within) and not (
            self.within.startswith(other.within) or other.within.startswith(self.within)
        )


class Transactions:
    """The open transactions of a handle, outermost first.

    Args:
        handle: commits and rolls back.
        lock: the lock of the handle's calls.
        state: the state of the handle. A weak reference, because the state refers to its transactions and must not be
            kept alive by them.

    Attributes:
        handle, lock: see above.
        open: the transactions.
    """

    def __init__(self, handle: BranchHandle, lock: HandleLock, state: ReferenceType[LockedState]) -> None:
        self.handle: Final = handle
        self.lock: Final = lock
        self._state = state
        self.open: list[OpenTransaction] = []

    def _check_open(self) -> None:
        state = self._state()
        if state is not None:
            state._check_open()

    def refuse(self, call: str) -> None:
        """Raise ``TransactionError`` if a transaction is open: ``call`` could not be undone with it."""
        if not self.open:
            return
        owner = self.open[-1].owner
        if owner.is_current():
            raise TransactionError(f"{call}() within {owner.block}", hint=owner.hint)
        raise self._foreign(f"{call}() while", owner)

    def check_change(self, key: bytes) -> None:
        """Raise ``TransactionError`` outside of a paused block whose failure rolls back changes under this root key.

        A loaded value that is changed in place cannot be refused.
        """
        for transaction in self.open:
            owner = transaction.owner
            if owner.is_paused and key.startswith(transaction.within) and not owner.is_current():
                what = f"a change of {path_of(key)} while {owner.elsewhere}, which would undo it if it fails"
                raise TransactionError(what, hint=f"{_END_IT}; or make the change in the task")

    def _foreign(self, what: str, owner: Owner) -> TransactionError:
        return TransactionError(f"{what} {owner.elsewhere}", hint=owner.way_out)

    def drop_abandoned(self) -> None:
        """End the transactions whose block is gone and whose end failed or never ran, and all those within them."""
        for transaction in self.open:
            is_gone = transaction.block is not None and transaction.block() is None
            ended = is_gone or transaction.has_left or transaction.owner.has_ended
            lost = not ended and transaction.loop is not None and transaction.loop.is_closed()
            if ended or lost:
                if transaction.has_begun:
                    self._abandon(transaction)
                else:
                    self.forget(transaction)
                self.drop_abandoned()  # the transactions apart from it
                if lost:
                    block, branch = transaction.owner.block, self.handle.branch
                    what = (
                        f"the event loop was closed within {block} on branch {branch!r}: "
                        "its uncommitted changes were rolled back"
                    )
                    warnings.warn(what, RuntimeWarning, stacklevel=2)  # most programs never see a ResourceWarning
                return

    def enter(
        self,
        options: CommitOptions,
        block: ReferenceType[Any] | None,
        owner: Owner | None = None,
        *,
        space: bytes = b"",
        limited: bool = False,
    ) -> OpenTransaction:
        """Open a transaction. The lock must be held. Cost: a detection.

        Args:
            owner: the owner; by default this thread and task.
            space: the beginning of the root keys that the owner works on.
            limited: roll back only changes under these keys, because others use the handle meanwhile. Such a
                transaction may be suspended, like the call of a generator between two steps: then the same thread and
                task may enter another one on other keys.

        Raises:
            TransactionError: another owner is in a transaction; or this one would commit before the end of an enclosing
                one that does not.
            StorageError: a commit is in doubt, and the store does not answer; only if the owner is not this thread and
                task.
        """
        try:
            self._check_open()
            return self._enter(options, block, owner, space=space, limited=limited)
        except StateError:
            raise
        except BaseException:
            with suppress(StateError):
                self._check_open()  # completes the interrupted step
            raise

    def _enter(
        self,
        options: CommitOptions,
        block: ReferenceType[Any] | None,
        owner: Owner | None,
        *,
        space: bytes,
        limited: bool,
    ) -> OpenTransaction:
        entering: Owner = _Worker() if owner is None else owner
        if self.open and not self.open[-1].owner.is_current():
            self._check_beside(entering, space)
        if owner is not None and self.open and self.open[0].is_plain:
            raise TransactionError(f"{owner.block} within a transaction", hint=self.open[0].owner.hint)
        if owner is not None:
            self.handle.resolve_doubt()
        transaction = OpenTransaction(entering, options, self.handle.worktree.save(), self.handle.commits_made, block)
        if limited and space:
            transaction.within = space
        if self.handle.hooks.all:
            transaction.saved = self.handle.hooks.save()
        try:
            self.open.append(transaction)
        except BaseException:
            self.forget(transaction)
            raise
        return transaction

    def _check_beside(self, entering: Owner, space: bytes) -> None:
        """Raise ``TransactionError`` unless only suspended transactions on other keys are open within the caller's."""
        worker = current_worker()
        for transaction in reversed(self.open):
            if transaction.owner.is_current():
                return
            within = transaction.within
            if (
                not within
                or transaction.worker != worker
                or (not isinstance(entering, _Worker) and (within.startswith(space) or space.startswith(within)))
            ):
                raise self._foreign(f"cannot enter {entering.block}:", transaction.owner)
        raise self._foreign(f"cannot enter {entering.block}:", self.open[-1].owner)

    def commit(self, transaction: OpenTransaction, options: CommitOptions, *, ends: bool = False) -> Commit:
        """Commit all changes so far, also those of the enclosing transactions.

        A later failure is rolled back to this point.

        Args:
            ends: whether this is the end of the transaction, which then makes no other commit.

        Raises:
            TransactionError: a transaction within it is open.
            StateError: as ``commit``. The staged changes are still there.
        """
        with ready(self.lock):
            self._check_open()
            if not self.open or transaction is not self.open[-1]:
                if ends:
                    self.check_innermost(transaction)
                raise self._within()
            try:
                commit = operations.commit(self.handle, options, Resolving(options.policies, remains=STAGED))
            except BaseException:
                self.handle.finish()
                raise
            if ends:
                self.forget(transaction)
            if self.handle.hooks.all:
                self.handle.notify_hooks()
            return commit

    def _within(self) -> TransactionError:
        if self.open and not self.open[-1].is_plain:
            what = f"a commit while {self.open[-1].owner.elsewhere}"
            return TransactionError(what, hint=_END_IT)
        return TransactionError("a commit within a transaction", hint=_Worker.hint)

    def hook(self, kind: type[H], make: Callable[[], H]) -> H:
        """Return the hook of a kind, or a new one if the handle has none.

        Open transactions roll it back to its present state.
        """
        found = next((hook for hook in self.handle.hooks.all if isinstance(hook, kind)), None)
        return self._add_hook(make()) if found is None else found

    def _add_hook(self, hook: H) -> H:
        self.handle.hooks.add(hook, self.handle.head)
        for transaction in self.open:
            transaction.saved.append((hook, hook.save()))
        return hook

    def check_innermost(self, transaction: OpenTransaction) -> None:
        """Raise ``TransactionError`` if a transaction within this one is open, such as an unclosed generator's."""
        inner = self._innermost_within(transaction)
        if inner is not None and inner is not transaction:
            raise TransactionError(
                f"{transaction.owner.block} ended within which {self.open[-1].owner.block} has not",
                remains=_ROLLED_BACK,
                hint=f"{_END_IT}, before the call around it returns",
            )

    def _innermost_within(self, transaction: OpenTransaction) -> OpenTransaction | None:
        """Return the innermost transaction within a transaction, perhaps itself, or None if that one has ended."""
        if transaction not in self.open:
            return None
        return next(each for each in reversed(self.open) if each is transaction or not each.is_apart_from(transaction))

    def leave(self, transaction: OpenTransaction, error: object = None) -> None:
        """End a transaction: commit the outermost one, or roll back one that failed with an error.

        Raises:
            TransactionError: it is not the innermost one, or was rolled back already with an enclosing one. All are
                rolled back.
            StateError: as ``commit``. The transaction was rolled back.
        """
        with ready(self.lock):
            try:
                self._leave(transaction, failed=error is not None)
            except BaseException:
                transaction.has_left = True  # if the store fails here too, the next call ends it
                self.handle.finish()  # an interrupt may have stopped it
                if transaction in self.open and (transaction.is_plain or not self.handle.is_in_doubt):
                    self._abandon(transaction)
                raise

    def _leave(self, transaction: OpenTransaction, *, failed: bool) -> None:
        if transaction in self.open and not transaction.is_plain:
            if failed:
                self._roll_back(transaction)
                return
            self.check_innermost(transaction)
        if transaction not in self.open:
            if not failed:
                raise TransactionError(
                    "this transaction was rolled back with one that encloses it", remains=_ROLLED_BACK
                )
        elif transaction.doomed or self._innermost_within(transaction) is not transaction:
            self._roll_back_all(transaction)
            if not failed:
                raise TransactionError(
                    "transactions were left in the wrong order",
                    remains="all of them are rolled back",
                    hint="leave the one that was entered last first, or use a handle for each",
                )
        elif failed:
            self._roll_back(transaction)
        elif len(self.open) > 1:
            self.open.remove(transaction)
        else:
            self._commit(transaction)

    def _commit(self, transaction: OpenTransaction) -> None:
        self._check_open()
        try:
            operations.commit(self.handle, transaction.options, Resolving(transaction.options.policies, remains=STAGED))
        except StateError as error:
            in_doubt = isinstance(error, CommitInDoubtError)
            error.remains = _ROLLED_BACK + (_TAKEN_BACK if in_doubt else "")
            if isinstance(error, MergeConflictError):
                error.hint = "refresh(), and do it again; or give it policies="
            raise
        self.forget(transaction)
        self.handle.notify_hooks()

    def _abandon(self, transaction: OpenTransaction) -> None:
        """Roll back a transaction that failed, unless its commit was made nevertheless."""
        if transaction.is_plain and self.handle.commits_made != transaction.commits_made:
            self.forget(transaction)
        else:
            self._roll_back(transaction)

    def _roll_back(self, transaction: OpenTransaction) -> None:
        if not transaction.is_plain:
            # Resolve a commit in doubt first: adopted after the rollback, its changes would seem to have been undone.
            self.handle.resolve_doubt(discarding=True)
        if self.handle.commits_made != transaction.commits_made:
            self.handle.worktree.restore(within=transaction.within)  # to the last commit within the transaction
        else:
            self.handle.roll_back(transaction.savepoint, within=transaction.within)
        if transaction.saved and not transaction.within:
            self.handle.hooks.roll_back(transaction.saved, to_head=self.handle.commits_made != transaction.commits_made)
        self.forget(transaction)

    def _roll_back_all(self, left: OpenTransaction) -> None:
        """Roll back everything since the outermost transaction began, now and at the end of each other block."""
        savepoint = self.open[0].savepoint
        for transaction in self.open:
            transaction.savepoint, transaction.doomed = savepoint, True
        self.handle.roll_back(savepoint)
        if self.open[0].saved:
            self.handle.hooks.roll_back(self.open[0].saved, to_head=False)
        self.open.remove(left)

    def forget(self, transaction: OpenTransaction) -> None:
        """End a transaction, and those within it, without a commit or a rollback."""
        if self.open and self.open[-1] is transaction:
            self.open.pop()
        elif transaction in self.open:
            start = self.open.index(transaction)
            self.open[start:] = [each for each in self.open[start:] if each.is_apart_from(transaction)]


class _Exit:
    """``__exit__`` of a block. On an instance it returns a callable that only the ``with`` statement refers to."""

    def __get__(self, block: Block | None, cls: type[Block]) -> Callable[..., None]:
        if block is None:
            return cls.end
        end = partial(_end, block.ends)
        block.reference = ref(end)
        return end


def _end(
    ends: list[Callable[[object], None]], kind: type[BaseException] | None = None, error: object = None, *_: object
) -> None:
    ends.pop()(kind if error is None else error)


class Block:
    """A ``with`` block that notices if an interrupt keeps its end from running.

    Attributes:
        ends: the function that ends the block that was entered last; called with the error, or None.
        reference: dead as soon as the block can no longer end; None if that is not known.
    """

    __exit__: Final = _Exit()

    def __init__(self) -> None:
        self.ends: list[Callable[[object], None]] = []
        self.reference: ReferenceType[Any] | None = None

    def end(self, kind: type[BaseException] | None = None, error: object = None, *_: object) -> None:
        """End the block: ``__exit__`` for callers that look it up on the class, such as ``contextlib.ExitStack``."""
        _end(self.ends, kind, error)


class Transaction(Block, ContextDecorator, Generic[T]):
    """A block whose changes are committed together when it ends, and rolled back if it raises."""

    def __init__(self, transactions: Transactions, options: CommitOptions, state: T) -> None:
        super().__init__()
        self.transactions = transactions
        self.options = options
        self.state = state

    def __enter__(self) -> T:
        with ready(self.transactions.lock):
            entered = self.transactions.enter(self.options, self.reference)
        self.ends.append(partial(self.transactions.leave, entered))
        entered.has_begun = True
        return self.state

    def _recreate_cm(self) -> Transaction[T]:
        return Transaction(self.transactions, self.options, self.state)


def current_worker() -> tuple[int, object]:
    """Return the thread and, if an event loop runs in it, the task.

    In a background call they are those of its caller.
    """
    caller = current_caller()
    if caller is not None:
        return caller.owner
    asyncio = sys.modules.get("asyncio")
    # current_task() would raise then, which takes longer than all of this
    if asyncio is None or asyncio._get_running_loop() is None:
        return get_ident(), None
    return get_ident(), asyncio.current_task()
