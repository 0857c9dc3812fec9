"""The part of a commit that is done before its task waits: the changes are staged as they are when it is called. Layer: state."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from versioned_state.errors import StateError
from versioned_state.state.aio.caller import StoreNeeded, current_caller

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
    if not lock.acquire(blocking=False):
        return
    try:
        if state._is_at_rest():
            try:
                with suppress(StateError), caller.sealed():
                    state._worktree.stage_ahead(lenient=lenient, pending=state._handle.pending.taken())
            except StoreNeeded:
                caller.is_cold = True
    finally:
        lock.release()
