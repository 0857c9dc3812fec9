"""The part of a commit that is done before its task waits: the changes are staged as they are when it is called. Layer: state."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from versioned_state.errors import StateError
from versioned_state.state.aio.caller import Caller, StoreNeeded, current_caller

if TYPE_CHECKING:
    from versioned_state.state.versioned import Versioned


def stage_ahead(state: Versioned, lenient: bool) -> None:  # noqa: FBT001 - for functools.partial
    """Stage the changes of a state for its next commit, on the thread of its caller.

    If that takes the store, another thread, or the end of an interrupted call, or a value cannot be stored, nothing is done here: the
    commit does it, and holds its caller meanwhile.
    """
    caller = current_caller()
    assert caller is not None, "a background call is about to begin"
    lock = state._lock
    if lock.is_free:  # a statement that enters it without waiting could be interrupted before it knows that it has
        with lock:
            return _stage_ahead(state, caller, lenient=lenient)
    return None


def _stage_ahead(state: Versioned, caller: Caller, *, lenient: bool) -> None:
    if not state._is_at_rest():
        return
    try:
        with suppress(StateError), caller.sealed():
            state._worktree.stage_ahead(lenient=lenient, pending=state._handle.pending.taken())
    except StoreNeeded:
        caller.is_cold = True
