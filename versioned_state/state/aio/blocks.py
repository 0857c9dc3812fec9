"""The ``async with`` blocks of a state: ``AsyncBlock``, ``AsyncTransaction`` and ``AsyncLock``. Layer: state.

An ``AsyncBlock`` notices if an interrupt keeps its end from running: as with ``Block``, only the statement refers to
the callable that ends the block, and the frames in a traceback do not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeVar
from weakref import ReferenceType, ref

from versioned_state.off_loop import off_loop, to_the_end
from versioned_state.state.aio.ahead import stage_ahead
from versioned_state.state.aio.caller import ready
from versioned_state.state.aio.gate import run_on_handle
from versioned_state.state.branch.lock import leave
from versioned_state.state.branch.port import BranchState

if TYPE_CHECKING:
    from types import TracebackType

    from versioned_state.state.aio.caller import HandleLock
    from versioned_state.state.branch.lock import Holding, Lock
    from versioned_state.state.branch.transactions import OpenTransaction, Transaction

S = TypeVar("S", bound=BranchState)

End = Callable[[type[BaseException] | None, BaseException | None], Coroutine[Any, Any, None]]
"""Ends a block, given the type of its error and the error, or None for both."""


class _Held:
    """An object that the callable that ends a block keeps alive."""


class _Exit:
    """``__aexit__`` of a block. On an instance it is a callable that only the ``async with`` statement refers to."""

    def __get__(self, block: AsyncBlock | None, cls: type[AsyncBlock]) -> Callable[..., Coroutine[Any, Any, None]]:
        if block is None:
            return cls.end
        held = [_Held()]
        block.reference = ref(held[0])
        return partial(_end, block.ends, held)


async def _end(
    ends: list[End],
    held: list[_Held],
    kind: type[BaseException] | None = None,
    error: BaseException | None = None,
    *_: object,
) -> None:
    try:
        await ends.pop()(kind, error)
    finally:
        held.clear()  # a traceback may keep this frame


class AsyncBlock:
    """An ``async with`` block.

    Attributes:
        ends: the function that ends the block that was entered last.
        reference: dead as soon as the block can no longer end; None if that is not known.
    """

    __aexit__: Final = _Exit()

    def __init__(self) -> None:
        self.ends: list[End] = []
        self.reference: ReferenceType[Any] | None = None

    async def end(
        self, kind: type[BaseException] | None = None, error: BaseException | None = None, *_: object
    ) -> None:
        """End the block: ``__aexit__`` for callers that look it up on the class, like ``contextlib.AsyncExitStack``."""
        await _end(self.ends, [], kind, error)


# Transactions

_CANCELLED: Final = asyncio.CancelledError("the task was cancelled as it entered the transaction")


class AsyncTransaction(AsyncBlock, Generic[S]):
    """A block whose changes are committed together when it ends, and rolled back if it raises or is cancelled.

    The block belongs to the task that enters it. If it is cancelled while it begins, it counts as not entered. If it is
    cancelled while it ends, its commit or rollback is complete when ``CancelledError`` is raised.
    """

    def __init__(self, lock: HandleLock, transaction: Transaction[S]) -> None:
        super().__init__()
        self._lock = lock
        self._state = transaction.state
        self._transactions = transaction.transactions
        self._options = transaction.options

    async def __aenter__(self) -> S:
        # An exit stack gives no reference. Its block may end at any time until its event loop is closed.
        transactions, block = self._transactions, self.reference or ref(AsyncTransaction)

        def enter() -> OpenTransaction:
            with ready(self._lock):
                return transactions.enter(self._options, block)

        entered = await run_on_handle(
            self._lock,
            enter,
            undo=lambda transaction: transactions.leave(transaction, _CANCELLED),
        )
        self.ends.append(partial(self._leave, entered))
        entered.has_begun = True
        return self._state

    async def _leave(
        self, transaction: OpenTransaction, kind: type[BaseException] | None, error: BaseException | None
    ) -> None:
        if kind is GeneratorExit:  # the coroutine is closed, and cannot wait
            self._transactions.leave(transaction, error)
            return
        ahead: Callable[[], None] | None = (
            None if error is not None else partial(stage_ahead, self._state, self._options.skip_unserializable)
        )
        end = partial(self._transactions.leave, transaction, error)
        await to_the_end(run_on_handle(self._lock, end, owner=asyncio.current_task(), ahead=ahead))


# Locks


class AsyncLock:
    """The lock of a branch.

    It belongs to the task that enters it. Other tasks can use the handle while that task waits.

    A task that is cancelled while it enters does not have the lock; a task that is cancelled while it leaves has
    released it.
    """

    def __init__(self, handle: HandleLock, lock: Lock) -> None:
        self._handle = handle
        self._lock = lock
        self._held: list[Holding | None] = []

    @property
    def token(self) -> int:
        """See ``Lock.token``."""
        return self._lock.token

    async def renew(self) -> None:
        """See ``Lock.renew``."""
        await off_loop(self._lock.renew)

    async def __aenter__(self) -> Self:
        lock, block = self._lock, ref(self)
        try:
            holding = None
            if await run_on_handle(self._handle, lambda: lock.begin(block)):
                while (pause := await off_loop(lock.attempt)) is not None:  # noqa: ASYNC110 - another process may have it
                    await asyncio.sleep(pause)
                holding = await run_on_handle(self._handle, lock.attach)
            self._held.append(holding)
            lock.done()
        except GeneratorExit:  # the coroutine is closed, and cannot wait
            lock.give_up()
            raise
        except BaseException:
            await self._end(lock.give_up)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        holding = self._held.pop()
        if kind is GeneratorExit:
            leave(self._lock.state, holding)
            return
        await self._end(lambda: leave(self._lock.state, holding))

    def _end(self, step: Callable[[], None]) -> Awaitable[None]:
        return to_the_end(run_on_handle(self._handle, step, owner=asyncio.current_task()))
