"""``Round``: the start and the end of one call on its state, and its events. Layer: agents.

This module has the rounds without commits, on a ``Live`` or without a state; ``commits`` has the others.

A round is a block. Its end always runs; if an interrupt keeps it from running, the next call on the state runs it
(``state.branch.transactions``).
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from contextvars import Token
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from versioned_state.agents.call import Call, enter_call, leave_call
from versioned_state.agents.events.classes import SuccessEvent, TaskStartEvent
from versioned_state.agents.events.entries import Entry, name_of
from versioned_state.agents.events.stamps import Stamp, stamped, unstamped
from versioned_state.agents.tasks.outcome import event_of
from versioned_state.agents.tasks.ways import Way, at_once, directly
from versioned_state.errors import InvalidArgumentError
from versioned_state.repository.history.commit import Commit
from versioned_state.state.aio.caller import ready
from versioned_state.state.branch import port
from versioned_state.state.branch.transactions import Block
from versioned_state.state.live import Live

OnEvent = Callable[[Any], object]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_BUILT_IN: Final = (str, bytes, bytearray, int, float, complex, list, dict, set, frozenset, type(None), type)


class Round(Block):
    """The round of a call without commits.

    Args:
        call: the call; its ``state`` is a ``Live``.
        on_event: gets each event of the call and of its nested calls.
        is_kept: whether the state keeps events; False if the caller passed no state.

    Attributes:
        result: the result of the call, set before the block ends.
        is_kept: see above.
        is_repeat: whether an earlier call has committed under its key. The body does not run, and ``result`` is set already.
    """

    def __init__(self, call: Call, on_event: OnEvent | None, *, is_kept: bool) -> None:
        super().__init__()
        self.call = call
        self.result: Any = None
        self.is_repeat = False
        self.is_kept = is_kept
        self._started = time.perf_counter()
        self.listeners: tuple[OnEvent, ...] = ()
        if call.parent is not None and isinstance(call.parent.steps, Round):
            self.listeners = call.parent.steps.listeners
        if on_event is not None:
            self.listeners = (on_event, *self.listeners)
        call.steps = self
        self._token: Token[Call | None] | None = None

    def __enter__(self) -> Call:
        try:
            self._begin()
        except BaseException:
            self._leave()
            raise
        self._token = enter_call(self.call)
        self.ends.append(self._end)
        return self.call

    def _end(self, error: Any) -> None:
        try:
            if error is not None:
                at_once(
                    self._fail(error() if isinstance(error, type) else error, directly)
                )  # an exit stack may pass the class of the error
            elif not self.is_repeat:
                self._succeed()
        finally:
            self._leave()

    async def begin(self, way: Way) -> None:
        """Begin the round of a coroutine, and make the call the current one."""
        try:
            await self._begin_by(way)
        except BaseException:
            self._leave()
            raise
        self._token = enter_call(self.call)

    async def finish(self, error: BaseException | None, way: Way) -> None:
        """End the round of a coroutine, which ended with an exception or with None."""
        try:
            if error is not None:
                await self._fail(error, way)
            elif not self.is_repeat:
                await self._succeed_by(way)
        finally:
            self._leave()

    def _begin(self) -> None:
        self._start_event()

    async def _begin_by(self, way: Way) -> None:
        self._start_event()

    def _succeed(self) -> None:
        self._emit_own(SuccessEvent, {"result": self.result})

    async def _succeed_by(self, way: Way) -> None:
        self._succeed()

    async def _fail(self, error: BaseException, way: Way) -> None:
        self._emit_own(*event_of(error))

    def _start_event(self) -> None:
        call = self.call
        self._emit_own(TaskStartEvent, {"inputs": call.inputs, "message": call.summary, "task_name": call.name})

    def leave_context(self) -> None:
        """Unset the current call: the body runs step by step, in other contexts than the round begins and ends in."""
        token, self._token = self._token, None
        if token is not None:
            leave_call(token)

    def _leave(self) -> None:
        self.call.has_ended = True
        self.leave_context()

    # Events

    def _emit_own(self, cls: type, fields: dict[str, Any]) -> None:
        """Emit an event of the call itself, of a class in ``events.classes``; ``fields`` in the order of their names."""
        event = cls(**fields)
        self._deliver(event, *self._keep(event))

    def emit(self, event: Any) -> None:
        """Keep an event, and notify the listeners. Raises as ``emit``."""
        if isinstance(event, _BUILT_IN):
            raise InvalidArgumentError(
                f"an event must be an instance of a class of yours, not {type(event).__name__}", hint="a dataclass or a pydantic model"
            )
        event = unstamped(event)
        self._deliver(event, *self._keep(event))

    def checkpoint(self, message: str) -> Commit | None:
        """Do nothing: there are no commits."""
        return None

    def _keep(self, event: Any) -> tuple[int, Commit | None]:
        """Keep an event with the state. Returns its time, and the commit that the call saw."""
        state = self.call.state
        assert isinstance(state, Live)
        root = port.root(state)
        with ready(port.lock(root)):
            now = port.next_event_time(root, time.time_ns() // 1000)
            if self.is_kept:
                stamp = self._stamp(now, None)
                entry = Entry(stamped(copy.copy(event), stamp), stamp, "\0".join(port.names(state)))
                port.live_events(root)[name_of(now, self.call.id)] = entry
        return now, None

    def _stamp(self, now: int, commit: Commit | None) -> Stamp:
        id = None if commit is None else commit.id
        return Stamp(_EPOCH + timedelta(microseconds=now), self.call.agent, self.call.namespace, id)

    def _deliver(self, event: Any, now: int, commit: Commit | None) -> None:
        """Notify the listeners of an event."""
        if self.listeners:
            stamp = self._stamp(now, commit)
            for listener in self.listeners:
                listener(stamped(copy.copy(event), stamp))
