"""``Round``: the beginning and the end of one call on its state, and its events. Layer: agents.

::

    prepare ── enter ── start event ── body ──┬── success event ── finish
                                              └── failure event, of an exception

``Round`` runs these steps one after the other, and ``AsyncRound`` runs those of a coroutine off the event loop. A round
without commits, on a ``Live`` or without a state, has no other steps; ``commits`` has those of a call on a
``Versioned``.

A round is a block. Its end always runs. If an interrupt keeps it from running, the next call on the state runs it
(``state.branch.transactions``).
"""

from __future__ import annotations

import copy
import sys
import time
from collections.abc import Callable, Coroutine
from contextvars import Token
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final, Literal, Protocol, TypeVar

from versioned_state.agents.call import Call, enter_call, leave_call
from versioned_state.agents.events.classes import ClarifyEvent, ErrorEvent, FailEvent, SuccessEvent, TaskStartEvent
from versioned_state.agents.events.keeping import as_event, keep_live
from versioned_state.agents.events.stamps import Stamp, stamped
from versioned_state.repository.history.commit import Commit
from versioned_state.state.aio.blocks import AsyncBlock
from versioned_state.state.branch import port
from versioned_state.state.branch.transactions import Block
from versioned_state.state.live import Live
from versioned_state.state.versioned import Versioned

T = TypeVar("T")

OnEvent = Callable[[Any], object]

Kept = tuple[type, dict[str, Any], int, Commit | None]
"""A kept event of the call itself: its class and fields, its time, and the commit that the call saw.

A plain tuple, because every call makes two.
"""

Outcome = Literal["success", "failure", "cancelled", "timeout", "interrupted", "closed"]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_TEXT: Final = 2000
"""Characters of an error that an event keeps."""


class TaskFailed(Exception):  # noqa: N818 - the public name
    """Raised by a task that cannot succeed: its call ends with a ``FailEvent``."""


class TaskClarify(Exception):  # noqa: N818 - the public name
    """Raised by a task that needs an answer first: its call ends with a ``ClarifyEvent``."""


class Way(Protocol):
    """A way to run a step of a round."""

    async def __call__(
        self,
        state: Versioned | None,
        step: Callable[[], T],
        *,
        ahead: Callable[[], None] | None = None,
        undo: Callable[[T], object] | None = None,
    ) -> T:
        """Run a step, and return its result.

        Args:
            state: the state whose store the step accesses, or None if it accesses none.
            ahead: the part of the step that needs no store.
            undo: undoes the step if no caller gets the result.
        """
        ...


class Round(Block):
    """The round of a call without commits.

    Args:
        call: the call, whose ``state`` is a ``Live``.
        on_event: gets each event of the call and of its nested calls.
        is_kept: whether the state keeps events. False if the caller passed no state.
        closes: a state to close at the end, because it was opened for this call.

    Attributes:
        result: the result of the call, set before the block ends.
        is_kept: see above.
        is_repeat: whether an earlier call has committed under its key. The body does not run, and ``result`` is set
            already.
    """

    result: Any = None
    is_repeat: bool = False
    listeners: tuple[OnEvent, ...] = ()
    _token: Token[Call | None] | None = None
    _start: Kept | None = None

    def __init__(self, call: Call, on_event: OnEvent | None, *, is_kept: bool, closes: Versioned | None = None) -> None:
        super().__init__()
        self.call = call
        self.is_kept = is_kept
        self._closes = closes
        self._started = time.perf_counter()
        if call.parent is not None and isinstance(call.parent.steps, Round):
            self.listeners = call.parent.steps.listeners
        if on_event is not None:
            self.listeners = (on_event, *self.listeners)
        call.steps = self

    # The order of the steps: here without waiting, and below for a coroutine

    def __enter__(self) -> Call:
        try:
            self._prepare()
            self._enter()
            if self.listeners:
                self._deliver_start()
        except BaseException as error:
            try:
                self._cancel(error)
            finally:
                self._leave()
            raise
        self._token = enter_call(self.call)
        self.ends.append(self._end)
        return self.call

    def _end(self, error: Any) -> None:
        try:
            if error is not None:
                # An exit stack may pass the class of the error.
                at_once(self._fail(error() if isinstance(error, type) else error, directly))
            elif not self.is_repeat:
                try:
                    kept = self._keep_success()
                    self._finish()
                except BaseException as failure:
                    if not at_once(self._settle(failure, directly)):
                        raise
                else:
                    if self.listeners:
                        self._deliver_own(kept)
        finally:
            self._leave()

    async def begin(self, way: Way) -> None:
        """Begin the round of a coroutine, and make the call the current one."""
        try:
            self._prepare()
            await way(self.call.versioned, self._enter, undo=lambda _: self._cancel(_ABANDONED))
            if self.listeners:
                self._deliver_start()
        except BaseException as error:
            try:
                if self._is_open():
                    await way(self.call.versioned, partial(self._cancel, error))
            finally:
                self._leave()
            raise
        self._token = enter_call(self.call)

    async def finish(self, error: BaseException | None, way: Way) -> None:
        """End the round of a coroutine, which ended with an exception or with None."""
        try:
            if error is not None:
                await self._fail(error, way)
            elif not self.is_repeat:
                try:
                    kept = self._keep_success()
                    await way(self.call.versioned, self._finish, ahead=self._stage_ahead)
                except BaseException as failure:
                    if not await self._settle(failure, way):
                        raise
                else:
                    self._deliver_own(kept)
        finally:
            self._leave()

    def leave_context(self) -> None:
        """Unset the current call: the body runs step by step, in other contexts than the round begins and ends in."""
        token, self._token = self._token, None
        if token is not None:
            leave_call(token)

    def _leave(self) -> None:
        self.call.end()
        token, self._token = self._token, None
        if token is not None:
            leave_call(token)
        if self._closes is not None:
            self._closes.close()

    # The steps

    def _prepare(self) -> None:
        """Do the part of the beginning that needs no store."""

    def _enter(self) -> None:
        """Begin, and keep the start event."""
        self._start = self._keep_own(TaskStartEvent, self._start_fields())

    def _is_open(self) -> bool:
        """Return whether the call has begun, and there is something to cancel."""
        return False

    def _cancel(self, error: object) -> None:
        """End a call that could not begin."""

    def _keep_success(self) -> Kept:
        return self._keep_own(SuccessEvent, {"result": self.result})

    def _stage_ahead(self) -> None:
        """Do the part of ``_finish`` that needs no store."""

    def _finish(self) -> None:
        """End a call whose body has returned."""

    async def _settle(self, _error: BaseException, _way: Way) -> bool:
        """Settle a call whose end raised an error.

        Returns whether another call has committed under the same key, and ``result`` is set.
        """
        return False

    async def _fail(self, error: BaseException, _way: Way) -> None:
        """End a call whose body raised an exception."""
        self._deliver_own(self._keep_own(*event_of(error)))

    # Events

    def emit(self, event: Any) -> None:
        """Keep an event, and notify the listeners. Raises as ``emit``."""
        event = as_event(event)
        self._deliver(event, *self._keep(event))

    def checkpoint(self, message: str) -> Commit | None:
        """Do nothing: there are no commits."""
        return None

    def _start_fields(self) -> dict[str, Any]:
        call = self.call
        message = "" if call.task is None else call.task.summary
        return {"inputs": call.inputs, "message": message, "task_name": call.name}

    def _keep_own(self, cls: type, fields: dict[str, Any]) -> Kept:
        """Keep an event of the call itself, of a class in ``events.classes``, with ``fields`` sorted by name."""
        return (cls, fields, *self._keep(cls(**fields)))

    def _keep(self, event: Any) -> tuple[int, Commit | None]:
        """Keep an event with the state. Returns its time, and the commit that the call saw."""
        state = self.call.state
        assert isinstance(state, Live)
        return keep_live(state, event, self.call).time, None

    def _stamp(self, now: int, commit: Commit | None) -> Stamp:
        id = None if commit is None else commit.id
        return Stamp(_EPOCH + timedelta(microseconds=now), self.call.agent, self.call.namespace, id)

    def _deliver_start(self) -> None:
        if self._start is not None:
            self._deliver_own(self._start)

    def _deliver_own(self, kept: Kept) -> None:
        if self.listeners:
            cls, fields, now, commit = kept
            self._deliver(cls(**fields), now, commit)

    def _deliver(self, event: Any, now: int, commit: Commit | None) -> None:
        """Notify the listeners of an event."""
        if self.listeners:
            stamp = self._stamp(now, commit)
            for listener in self.listeners:
                listener(stamped(copy.copy(event), stamp))


_ABANDONED: Final = "the call was cancelled as it began"


class AsyncRound(AsyncBlock):
    """A ``Round`` for a call that is a coroutine: the event loop never waits for the store.

    If a call is cancelled while it ends, its commit or its failure is recorded when ``CancelledError`` is raised.
    """

    def __init__(self, this: Round) -> None:
        super().__init__()
        self._round = this

    async def __aenter__(self) -> Call:
        self._round.reference = self.reference
        await self._round.begin(off_loop())
        self.ends.append(self._leave)
        return self._round.call

    async def _leave(self, kind: type[BaseException] | None, error: BaseException | None) -> None:
        from versioned_state.off_loop import to_the_end  # loads asyncio

        if kind is GeneratorExit:  # the coroutine is closed, and cannot wait
            at_once(self._round.finish(error, directly))
            return
        try:
            await to_the_end(self._round.finish(error, off_loop()))
        finally:
            self._round.call.end()  # unless a signal handler raised: then the next call on the state ends it
            self._round.leave_context()


async def directly(
    state: Versioned | None,  # noqa: ARG001 - a Way
    step: Callable[[], T],
    *,
    ahead: Callable[[], None] | None = None,  # noqa: ARG001
    undo: Callable[[T], object] | None = None,  # noqa: ARG001
) -> T:
    """Run a step here and now."""
    return step()


def off_loop() -> Way:
    """Return a way that runs steps off the event loop, for the current task.

    A step that has begun ends before a cancellation propagates.
    """
    from asyncio import current_task

    from versioned_state.state.aio.gate import run_on_handle

    task = current_task()

    async def run(
        state: Versioned | None,
        step: Callable[[], T],
        *,
        ahead: Callable[[], None] | None = None,
        undo: Callable[[T], object] | None = None,
    ) -> T:
        if state is None:
            return step()
        return await run_on_handle(port.lock(state), step, owner=task, ahead=ahead, undo=undo)

    return run


def at_once(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine whose steps are all run directly."""
    try:
        work.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    raise AssertionError("a step that was run directly waited")


# The outcome of a call


def outcome_of(error: BaseException) -> Outcome:
    """Return the outcome of a call that ended with an exception."""
    if isinstance(error, GeneratorExit):
        return "closed"
    if isinstance(error, KeyboardInterrupt | SystemExit):
        return "interrupted"
    if isinstance(error, TimeoutError):
        return "timeout"
    asyncio = sys.modules.get("asyncio")
    if asyncio is not None and isinstance(error, asyncio.CancelledError):
        return "cancelled"
    return "failure"


def event_of(error: BaseException) -> tuple[type, dict[str, Any]]:
    """Return the class and the fields, sorted by name, of the event of a call that ended with an exception."""
    if isinstance(error, TaskFailed):
        return FailEvent, {"message": str(error)}
    if isinstance(error, TaskClarify):
        return ClarifyEvent, {"message": str(error)}
    return ErrorEvent, {"error": shown(error), "recoverable": False}


def shown(value: Any) -> str:
    """Return the ``repr`` of a value of any class, shortened, or its type if that fails."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - code of the class, and the event must be kept even so
        text = f"<{type(value).__name__}>"
    return text if len(text) <= _TEXT else text[:_TEXT] + "…"
