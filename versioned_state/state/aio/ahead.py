"""The first part of an awaited commit: its changes are staged when it is called, before its task waits.

Layer: state.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from versioned_state.errors import StateError
from versioned_state.state.aio.caller import Caller, HandleLock, StoreNeeded, current_caller

if TYPE_CHECKING:
    from versioned_state.state.branch.port import BranchState


def stage_ahead(state: BranchState, lenient: bool) -> None:  # noqa: FBT001 - for functools.partial
    """Stage the changes of a state for its next commit, on the thread of its caller.

    Does nothing if this would have to wait for the store, for another thread or for an interrupted call, or if a value
    cannot be stored. The commit then stages the changes itself, and holds its caller meanwhile.
    """
    caller = current_caller()
    assert caller is not None, "a background call is about to begin"
    lock = state._lock
    if not lock.is_free:
        return
    try:
        try:
            # Another thread may hold the lock by now, and wait until this thread's event loop is held: waiting for it
            # could last forever.
            lock.acquire(blocking=False)
            if lock.is_mine:  # not the result of acquire(): an interrupt may come before it is known
                _stage_ahead(state, caller, lenient=lenient)
        finally:
            _leave(lock)
    finally:
        _leave(lock)  # if an interrupt came in the line above


def _leave(lock: HandleLock) -> None:
    if lock.is_mine:
        lock.release()


def _stage_ahead(state: BranchState, caller: Caller, *, lenient: bool) -> None:
    if not state._is_at_rest():
        return
    try:
        with suppress(StateError), caller.sealed():
            state._handle.worktree.stage_ahead(lenient=lenient, pending=state._handle.pending.taken())
    except StoreNeeded:
        caller.is_cold = True
