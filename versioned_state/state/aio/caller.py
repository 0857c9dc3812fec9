"""The caller of a background thread, and the lock of a handle's calls. Layer: state.

A call of ``state.aio`` runs on a background thread while the tasks of its event loop continue. Before it compares or
changes live values, it *holds* its caller: the event loop stops until the call releases it. A synchronous call need not
hold its caller, which waits for it anyway. This module does not load asyncio.
"""

from __future__ import annotations

from _thread import RLock
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import wraps
from threading import get_ident, local
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, cast

from versioned_state.errors import StateError, StorageError

if TYPE_CHECKING:
    from versioned_state.objects.address import Address

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

_TRIES: Final = 3
"""Attempts at a step while the event loop stands still and the store must not be read, before one that may read it."""


class StoreNeeded(BaseException):
    """A step that must not wait for the store needs an object that is not in memory.

    Only the code that seals a step catches this.
    """


class Caller:
    """The task for which a thread works. A caller of this class is on the thread itself, so it is always held.

    Attributes:
        owner: the thread and the task of the caller, which count as those of the work here.
        objects: the objects that the call has read through its handle, until the call ends.
        is_sealed: whether reading another object is forbidden now.
        is_cold: whether the next step that holds the caller is known to need objects that are not in memory.
    """

    def __init__(self, owner: tuple[int, object]) -> None:
        self.owner = owner
        self.objects: dict[Address, bytes] = {}
        self.is_sealed: bool = False
        self.is_cold = False

    @property
    def is_held(self) -> bool:
        return True

    def hold(self) -> AbstractContextManager[None]:
        """Open a block during which the tasks of the caller's event loop stand still."""
        return nullcontext()

    @contextmanager
    def sealed(self) -> Iterator[None]:
        """Open a block in which reading an object from the store raises ``StoreNeeded``."""
        before, self.is_sealed = self.is_sealed, True
        try:
            yield
        finally:
            self.is_sealed = before


class _Thread(local):
    caller: Caller | None = None


_this_thread: Final = _Thread()


def current_caller() -> Caller | None:
    """Return the caller that this thread works for, or None in a synchronous call."""
    return _this_thread.caller


@contextmanager
def working_for(caller: Caller) -> Iterator[None]:
    """Open a block in which this thread works for a caller."""
    _this_thread.caller = caller
    try:
        yield
    finally:
        _this_thread.caller = None


def hold_still() -> AbstractContextManager[None]:
    """Open a block during which no task of the caller's event loop runs, so that no live value is read or changed."""
    caller = _this_thread.caller
    return nullcontext() if caller is None else caller.hold()


def run_still(function: Callable[[], T]) -> T:
    """Run a step that compares live values and changes nothing, while no task can change them.

    The event loop does not wait for the store: the step is first run without holding the caller, to read the objects
    that it needs. The results of these runs are ignored.
    """
    caller = _this_thread.caller
    if caller is None or caller.is_held:
        return function()
    for _ in range(_TRIES):
        if not caller.is_cold:
            with suppress(StoreNeeded), caller.hold(), caller.sealed():
                return function()
        caller.is_cold = False
        try:
            function()
        except StorageError:
            raise
        except Exception:  # noqa: BLE001, S110 - values changed meanwhile; the run that counts raises the true error
            pass
    with caller.hold():
        return function()


class Lease(Protocol):
    """A call of ``state.aio`` that is under way on a handle."""

    def wait(self) -> None:
        """Wait on the thread of the event loop until the call has ended. Meanwhile the call may hold the thread."""
        ...


class HandleLock(RLock):  # type: ignore[misc] # typeshed has it final; it is not
    """The lock of a handle's calls.

    Attributes:
        leases: by the thread of their event loop, the calls of ``state.aio`` that are under way or begin next.
    """

    __slots__ = ("leases",)

    def __init__(self) -> None:
        self.leases: dict[int, Lease] = {}

    @property
    def is_free(self) -> bool:
        """Whether no thread holds the lock at this moment."""
        return repr(self).startswith("<unlocked")

    @property
    def is_mine(self) -> bool:
        """Whether this thread holds the lock."""
        return bool(self._is_owned())  # type: ignore[attr-defined] # of every RLock; typeshed has it not

    @property
    def is_leased_here(self) -> bool:
        """Whether a call of ``state.aio`` that this thread's event loop made is under way."""
        return bool(self.leases) and get_ident() in self.leases


def ready(lock: HandleLock) -> HandleLock:
    """Return the lock once no call of ``state.aio`` from this thread's event loop is under way.

    Such a call may need the thread in order to end. This function does not enter the lock: an interrupt between
    entering and the ``with`` statement would leave the lock held.
    """
    if lock.leases:
        lease = lock.leases.get(get_ident())
        if lease is not None:
            lease.wait()
    return lock


class LockedState(Protocol):
    """A state whose calls are locked: ``Versioned``, ``Live``, a namespace of either, or a sequence of one."""

    _lock: HandleLock

    def _check_open(self) -> None: ...


def locked(method: F) -> F:
    """Make a method of a state run one call at a time, and raise after ``close()``."""

    @wraps(method)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        lock = self._lock
        if lock.leases:
            ready(lock)
        with lock:
            is_open = False
            try:
                self._check_open()
                is_open = True
                return method(self, *args, **kwargs)
            except BaseException as error:
                # Complete the interrupted call before its exception propagates. The next call could not distinguish the
                # changes that the caller makes until then from those that this call was about to make. If the check
                # itself failed, it is not repeated.
                if is_open or not isinstance(error, StateError):
                    with suppress(StateError):
                        self._check_open()
                raise

    return cast("F", wrapper)
