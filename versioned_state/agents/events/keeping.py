"""Events kept with a state, within a task or outside of one. Layer: agents.

Not those of a task on a ``Versioned``, which ``tasks.commits`` adds in the middle of a call.
"""

from __future__ import annotations

import copy
import time
from os import urandom
from typing import Any, Final, NamedTuple

from versioned_state.agents.call import Call, current_call
from versioned_state.agents.events.entries import EVENTS, Entry, entry_cell, name_of, space_of, time_of
from versioned_state.agents.events.stamps import Stamp, stamped, unstamped
from versioned_state.errors import InvalidArgumentError
from versioned_state.state.aio.caller import ready
from versioned_state.state.branch import port
from versioned_state.state.live import Live
from versioned_state.state.versioned import Namespace, Versioned

_BUILT_IN: Final = (str, bytes, bytearray, int, float, complex, list, dict, set, frozenset, type(None), type)


class Kept(NamedTuple):
    """A kept event: the name of its entry, its time, the call of the task that runs on the state, and its stamp."""

    name: str
    time: int
    call: Call | None
    stamp: Stamp

    def deliver(self, event: Any) -> None:
        """Notify the listeners of the call of the event."""
        if self.call is not None and self.call.steps is not None:
            for listener in self.call.steps.listeners:
                listener(stamped(copy.copy(event), self.stamp))


def as_event(event: Any) -> Any:
    """Return an event as it was before it was stamped. Raises ``InvalidArgumentError`` for a value that is built in."""
    if isinstance(event, _BUILT_IN):
        raise InvalidArgumentError(
            f"an event must be an instance of a class of yours, not {type(event).__name__}",
            hint="a dataclass or a pydantic model",
        )
    return unstamped(event)


def keep_event(state: Versioned | Namespace | Live, event: Any, *, of: bytes | None = None) -> Kept:
    """Keep an event with a state, on behalf of the task that runs on the state here, if there is one.

    Does not notify listeners.

    Args:
        of: the root key whose change the event describes, for a state with commits, as in ``PendingEntries``.

    Raises:
        UnserializableValueError, PickleRefusedError, LimitExceededError: it cannot be stored. Nothing was changed.
    """
    if isinstance(state, Live):
        return keep_live(state, event, _call_on(port.root(state)))
    versioned = state.state if isinstance(state, Namespace) else state
    with ready(port.lock(versioned)):
        port.check_open(versioned)
        handle = port.handle(versioned)
        head = handle.head
        cell = handle.worktree.encode_inline(event, f"{type(event).__name__} (an event)")
        kept = _kept(_call_on(versioned), handle.pending.next_time(handle.repository.database.now()), head.id)
        entry = entry_cell(
            cell, head.address, kept.stamp.full_namespace, kept.stamp.agent_name, space_of(port.prefix(state))
        )
        handle.pending.add(EVENTS, kept.name, entry, of=of)
    return kept


def keep_live(state: Live, event: Any, call: Call | None) -> Kept:
    """Keep an event with a state in memory, unless the call that works on the state keeps none.

    Returns its time and stamp in any case.
    """
    root = port.root(state)
    with ready(port.lock(root)):
        kept = _kept(call, port.next_event_time(root, time.time_ns() // 1000), None)
        if call is None or call.steps is None or call.steps.is_kept:
            port.live_events(root)[kept.name] = Entry(
                stamped(copy.copy(event), kept.stamp), kept.stamp, "\0".join(port.names(state))
            )
    return kept


def _kept(call: Call | None, now: int, commit: str | None) -> Kept:
    namespace, agent = ("", "") if call is None else (call.namespace, call.agent)
    name = name_of(now, urandom(4).hex() if call is None else call.id)
    return Kept(name, now, call, Stamp(time_of(name), agent, namespace, commit))


def _call_on(state: Versioned | Live) -> Call | None:
    """Return the innermost call that runs here and works on a state, or on a part of it."""
    call = current_call()
    while (
        call is not None
        and call.versioned is not state
        and not (isinstance(call.state, Live) and port.root(call.state) is state)
    ):
        call = call.parent
    return call
