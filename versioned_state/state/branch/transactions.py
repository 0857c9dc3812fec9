"""Transactions on one handle: who may enter one, in which order they end, and the rollback of those that fail. Layer: state.

A transaction is open from its savepoint until its block is left. Its owner is a thread and, if an event loop runs, the current task.
Blocks end last in, first out. The ``with`` statement alone holds the callable that ends its block: once that is gone and the transaction
is still open, an interrupt came between, and the next call on the handle rolls the transaction back.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ContextDecorator
from functools import partial
from threading import RLock, get_ident
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar
from weakref import ReferenceType, ref

from versioned_state.errors import STAGED, MergeConflictError, StateError, TransactionError
from versioned_state.state.branch import operations
from versioned_state.state.branch.branch_handle import BranchHandle
from versioned_state.state.branch.commit_options import CommitOptions
from versioned_state.state.branch.resolving import Resolving
from versioned_state.state.worktree.entries import Savepoint

if TYPE_CHECKING:
    from versioned_state.state.versioned import Versioned

T = TypeVar("T")

_ROLLED_BACK: Final = "the transaction was rolled back"


class _OpenTransaction:
    """One open transaction.

    Attributes:
        savepoint: the state to roll back to.
        commits_made: the handle's number of commits at the beginning. A higher number says that the transaction's commit was made.
        block: dead once the block can no longer end; None if that is not known.
        has_left: the block was left, and its end failed.
        doomed: it was rolled back with one that was left too early; later changes of its block are rolled back too.
    """

    __slots__ = ("block", "commits_made", "doomed", "has_left", "options", "savepoint")

    def __init__(self, options: CommitOptions, savepoint: Savepoint, commits_made: int, block: ReferenceType[Any] | None) -> None:
        self.options = options
        self.savepoint = savepoint
        self.commits_made = commits_made
        self.block = block
        self.has_left = False
        self.doomed = False

    @property
    def is_abandoned(self) -> bool:
        return self.has_left or (self.block is not None and self.block() is None)


class Transactions:
    """The open transactions of a handle, outermost first.

    Args:
        handle: commits and rolls back.
        lock: the lock of the handle's calls.
        state: the state of the handle. It holds its transactions, and must be freed once nobody else holds it.
    """

    def __init__(self, handle: BranchHandle, lock: RLock, state: ReferenceType[Versioned]) -> None:
        self._handle = handle
        self._lock = lock
        self._state = state
        self.open: list[_OpenTransaction] = []
        self._owner: tuple[int, object] | None = None

    def _check_open(self) -> None:
        state = self._state()
        if state is not None:
            state._check_open()

    def refuse(self, call: str) -> None:
        """Raise ``TransactionError`` if a transaction is open: ``call`` could not be undone with it."""
        if not self.open:
            return
        if self._owner == _current_owner():
            raise TransactionError(
                f"{call}() within a transaction", remains="nothing was changed", hint="leave the block first: its end commits it"
            )
        raise self._foreign(f"{call}() while")

    def _foreign(self, what: str) -> TransactionError:
        one, other = ("thread", "threads") if self._owner is None or self._owner[0] != get_ident() else ("task", "tasks")
        return TransactionError(
            f"{what} another {one} is in a transaction on this handle",
            remains="nothing was changed",
            hint=f"a handle for each {one}: {other} may commit to one branch side by side",
        )

    def drop_abandoned(self) -> None:
        """End the transactions whose block is gone, but whose end failed or never ran, with all that they enclose."""
        for transaction in self.open:
            if transaction.is_abandoned:
                self._abandon(transaction)
                return

    def enter(self, options: CommitOptions, block: ReferenceType[Any] | None) -> _OpenTransaction:
        """Open a transaction. Raises ``TransactionError`` if another thread or task is in one. Cost: a detection."""
        with self._lock:
            self._check_open()
            self.drop_abandoned()
            owner = _current_owner()
            if self.open and self._owner != owner:
                raise self._foreign("cannot enter a transaction:")
            transaction = _OpenTransaction(options, self._handle.worktree.save(), self._handle.commits_made, block)
            try:
                self._owner = owner
                self.open.append(transaction)
            except BaseException:
                self._forget(transaction)
                raise
            return transaction

    def leave(self, transaction: _OpenTransaction, failed: bool) -> None:  # noqa: FBT001 - of Transaction alone
        """End a transaction: commit the outermost one, or roll back one that failed.

        Raises:
            TransactionError: it is not the innermost one, or was rolled back already with one that encloses it. All are rolled back.
            StateError: as ``commit``. The transaction was rolled back.
        """
        with self._lock:
            try:
                self._leave(transaction, failed=failed)
            except BaseException:
                transaction.has_left = True  # if the store fails here too, the next call does the rest
                self._handle.finish()  # an interrupt may have come into it
                if transaction in self.open:
                    self._abandon(transaction)
                raise

    def _leave(self, transaction: _OpenTransaction, *, failed: bool) -> None:
        if transaction not in self.open:
            if not failed:
                raise TransactionError("this transaction was rolled back with one that encloses it", remains=_ROLLED_BACK)
        elif transaction.doomed or transaction is not self.open[-1]:
            self._doom(transaction)
            if not failed:
                raise TransactionError(
                    "transactions were left in the wrong order",
                    remains="all of them are rolled back",
                    hint="leave the one that was entered last first, or use a handle for each",
                )
        elif failed:
            self._roll_back(transaction)
        elif len(self.open) > 1:
            self.open.pop()
        else:
            self._commit(transaction)

    def _commit(self, transaction: _OpenTransaction) -> None:
        self._check_open()
        try:
            operations.commit(self._handle, transaction.options, Resolving(transaction.options.policies, remains=STAGED))
        except StateError as error:
            error.remains = _ROLLED_BACK
            if isinstance(error, MergeConflictError):
                error.hint = "refresh(), and do it again; or give it policies="
            raise
        self._forget(transaction)

    def _abandon(self, transaction: _OpenTransaction) -> None:
        """Roll back a transaction that did not end well, unless its commit was made all the same."""
        if self._handle.commits_made != transaction.commits_made:
            self._forget(transaction)
        else:
            self._roll_back(transaction)

    def _roll_back(self, transaction: _OpenTransaction) -> None:
        self._handle.roll_back(transaction.savepoint)
        self._forget(transaction)

    def _doom(self, left: _OpenTransaction) -> None:
        """Roll back everything since the outermost transaction began, now and again as the other blocks end."""
        savepoint = self.open[0].savepoint
        for transaction in self.open:
            transaction.savepoint, transaction.doomed = savepoint, True
        self._handle.roll_back(savepoint)
        self.open.remove(left)

    def _forget(self, transaction: _OpenTransaction) -> None:
        if transaction in self.open:
            del self.open[self.open.index(transaction) :]


class _Exit:
    """``__exit__`` of a transaction. For an instance it gives a callable that only the ``with`` statement holds."""

    def __get__(self, transaction: Transaction[Any] | None, _cls: type | None = None) -> Callable[..., None]:
        if transaction is None:
            return Transaction.end
        end = partial(_end, transaction.ends)
        transaction.block = ref(end)
        return end


def _end(ends: list[Callable[[bool], None]], kind: type[BaseException] | None = None, *_: object) -> None:
    ends.pop()(kind is not None)


class Transaction(ContextDecorator, Generic[T]):
    """A block whose changes are committed together when it ends, and rolled back if it raises."""

    __exit__ = _Exit()

    def __init__(self, transactions: Transactions, options: CommitOptions, state: T) -> None:
        self._transactions = transactions
        self._options = options
        self._state = state
        self.ends: list[Callable[[bool], None]] = []
        self.block: ReferenceType[Any] | None = None

    def __enter__(self) -> T:
        entered = self._transactions.enter(self._options, self.block)
        self.ends.append(partial(self._transactions.leave, entered))
        return self._state

    def end(self, kind: type[BaseException] | None = None, *_: object) -> None:
        """``__exit__`` for callers that look it up on the class, such as ``contextlib.ExitStack``."""
        _end(self.ends, kind)

    def _recreate_cm(self) -> Transaction[T]:
        return Transaction(self._transactions, self._options, self._state)


def _current_owner() -> tuple[int, object]:
    """The thread and, if an event loop runs in it, the task."""
    asyncio = sys.modules.get("asyncio")
    task = None
    if asyncio is not None:
        try:
            task = asyncio.current_task()
        except RuntimeError:  # no loop runs in this thread
            task = None
    return get_ident(), task
