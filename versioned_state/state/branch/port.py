"""The port for what is built on states: the parts of a state that are not for its users. Layer: state.

Tasks, events, workspaces and services work on a state as its users do, and need its handle, its lock or its
transactions besides. They get them here and nowhere else::

    with ready(port.lock(state)):
        port.check_open(state)
        head = port.handle(state).head

Everything that a function returns belongs to the state. Use it under the lock, and not after ``close()``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

from versioned_state.repository.history.commit import Commit
from versioned_state.state.aio.caller import HandleLock, LockedState
from versioned_state.state.branch.branch_handle import BranchHandle
from versioned_state.state.branch.transactions import Transactions

if TYPE_CHECKING:
    from versioned_state.repository.ledger import LiveLedger
    from versioned_state.state.shape.shape import Shape

L = TypeVar("L", bound="LiveState")


class OpenHandle(Protocol):
    """A handle on a branch, which may stay open: ``Versioned``, or a builder's own class over a ``BranchHandle``."""

    _handle: BranchHandle

    def _close(self, *, warning: bool) -> None: ...

    @property
    def _held_bytes(self) -> int: ...


class BranchState(LockedState, OpenHandle, Protocol):
    """A state over a branch: ``Versioned``."""

    _transactions: Transactions
    _shape: Shape | None
    _closed: bool

    def _resolve(self, rev: str | Commit) -> Commit: ...

    def _is_at_rest(self) -> bool: ...

    @property
    def branch(self) -> str: ...

    @property
    def head(self) -> Commit: ...

    def refresh(self) -> Commit: ...


class LiveState(LockedState, Protocol):
    """A state in memory: ``Live``."""

    _names: tuple[str, ...]
    _events: dict[str, Any]
    _last_event: int

    @property
    def _root(self) -> Self: ...

    def _effect_ledger(self) -> LiveLedger: ...


class _Prefixed(Protocol):
    @property
    def _prefix(self) -> bytes: ...


# Calls


def lock(state: LockedState) -> HandleLock:
    """Return the lock of the state's calls: ``with ready(port.lock(state))``."""
    return state._lock


def check_open(state: LockedState) -> None:
    """Complete what an exception interrupted in an earlier call.

    The lock must be held. Raises ``HandleClosedError``.
    """
    state._check_open()


def is_closed(state: BranchState) -> bool:
    """Return whether the state was closed."""
    return state._closed


def close(state: OpenHandle, *, warning: bool) -> None:
    """Close the state, with or without a warning about uncommitted changes."""
    state._close(warning=warning)


# The parts of a state over a branch


def handle(state: OpenHandle) -> BranchHandle:
    """Return the handle on the branch: its head, live values, pending entries and hooks."""
    return state._handle


def transactions(state: BranchState) -> Transactions:
    """Return the open transactions of the handle."""
    return state._transactions


def shape(state: BranchState) -> Shape | None:
    """Return the schema and migrations of the state, or None if it has neither."""
    return state._shape


def resolve(state: BranchState, rev: str | Commit) -> Commit:
    """Return the commit of a revision, in which ``HEAD`` is the state's head. Raises ``UnknownRevisionError``."""
    return state._resolve(rev)


def held_bytes(state: OpenHandle) -> int:
    """Return the approximate bytes of memory of the handle, without live values and its fixed size. Cost: O(keys)."""
    return state._held_bytes


def prefix(state: _Prefixed) -> bytes:
    """Return the beginning of the root keys of a state, a namespace or a snapshot.

    It is empty unless it is that of a namespace.
    """
    return state._prefix


# The parts of a state in memory


def names(state: LiveState) -> tuple[str, ...]:
    """Return the names of the namespaces that lead to one of a state in memory, or none for the state itself."""
    return state._names


def root(state: L) -> L:
    """Return the state in memory that this is a namespace of, or this one."""
    return state._root


def live_events(state: LiveState) -> dict[str, Any]:
    """Return the events of a state in memory, by name, to read and to add to."""
    return state._events


def next_event_time(state: LiveState, now: int) -> int:
    """Return a time for the next event of a state in memory, in microseconds, later than the last event's.

    The lock must be held.
    """
    state._last_event = time = max(now, state._last_event + 1)
    return time


def live_ledger(state: LiveState) -> LiveLedger:
    """Return the ledger of the effects of a state in memory and its namespaces."""
    return state._effect_ledger()
