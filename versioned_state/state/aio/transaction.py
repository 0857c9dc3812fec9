"""``AsyncTransaction``: a transaction of a task, as an ``async with`` block. Layer: state."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from weakref import ref

from versioned_state.off_loop import Named, Twin, to_the_end
from versioned_state.state.aio.ahead import stage_ahead
from versioned_state.state.aio.block import AsyncBlock
from versioned_state.state.aio.caller import HandleLock
from versioned_state.state.aio.gate import run_on_handle
from versioned_state.state.aio.twin import HandleAio, P
from versioned_state.state.branch.transactions import OpenTransaction, Transaction

if TYPE_CHECKING:
    from versioned_state.state.versioned import Versioned


_CANCELLED: Final = asyncio.CancelledError("the task was cancelled as it entered the transaction")


class AsyncTransaction(AsyncBlock):
    """A block whose changes are committed together when it ends, and rolled back if it raises or is cancelled.

    The block belongs to the task that enters it. If it is cancelled while it begins, it counts as not entered. If it is cancelled while it
    ends, its commit or rollback is complete when ``CancelledError`` is raised.
    """

    def __init__(self, lock: HandleLock, transaction: Transaction[Versioned]) -> None:
        super().__init__()
        self._lock = lock
        self._state = transaction.state
        self._transactions = transaction.transactions
        self._options = transaction.options

    async def __aenter__(self) -> Versioned:
        # An exit stack gives no reference. Its block may end at any time until its event loop is closed.
        transactions, block = self._transactions, self.reference or ref(AsyncTransaction)
        entered = await run_on_handle(
            self._lock,
            lambda: transactions.enter(self._options, block),
            undo=lambda transaction: transactions.leave(transaction, _CANCELLED),
        )
        self.ends.append(partial(self._leave, entered))
        entered.has_begun = True
        return self._state

    async def _leave(self, transaction: OpenTransaction, kind: type[BaseException] | None, error: BaseException | None) -> None:
        if kind is GeneratorExit:  # the coroutine is closed, and cannot wait
            self._transactions.leave(transaction, error)
            return
        ahead: Callable[[], None] | None = (
            None if error is not None else partial(stage_ahead, self._state, self._options.skip_unserializable)
        )
        end = partial(self._transactions.leave, transaction, error)
        await to_the_end(run_on_handle(self._lock, end, owner=asyncio.current_task(), ahead=ahead))


def transaction(method: Named[P, Transaction[Versioned]]) -> Twin[P, AsyncTransaction]:  # noqa: ARG001 - for type checkers
    """The twin of the method that gives a transaction."""

    def wrap(aio: HandleAio[Any], method: Callable[P, Transaction[Versioned]]) -> Callable[P, AsyncTransaction]:
        def call(*args: P.args, **kwargs: P.kwargs) -> AsyncTransaction:
            return AsyncTransaction(aio.handle_lock, method(*args, **kwargs))

        return call

    return Twin(wrap)
