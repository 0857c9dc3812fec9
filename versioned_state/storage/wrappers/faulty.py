"""``Faulty``, a store that fails on purpose, for tests of code that uses a store. Layer: storage.

Such a test fails at the first call, then at the second, and so on, until the work ends without a fault::

    for k in itertools.count(1):
        store = Memory()
        faulty = Faulty(store, at=k, fault=Fault.AFTER)
        try:
            work(faulty)
        except InjectedFaultError:
            ...                     # assert what must hold after a failure
        ...                         # assert what must hold of ``store`` in any case
        if not faulty.fired:
            break
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from enum import Enum
from typing import TypeVar

from versioned_state.errors import UnknownOutcomeError
from versioned_state.storage.base import KVStore
from versioned_state.storage.call_lock import CallLock
from versioned_state.storage.wrapper import Wrapper

T = TypeVar("T")


class Fault(Enum):
    """The point at which a failing call fails."""

    BEFORE = "before"
    """The call did nothing."""

    AFTER = "after"
    """The call did everything, and its answer was lost: the caller cannot know the outcome."""

    PARTIAL = "partial"
    """``apply`` stored its objects and did no put and no delete. A call without objects fails as with ``BEFORE``."""


class InjectedFaultError(UnknownOutcomeError):
    """The failure that ``Faulty`` raises. As after a lost connection, the caller cannot know how far the call got."""


class InjectedCrash(BaseException):
    """A simulated death of the process, which ``except Exception`` does not catch."""


class Faulty(Wrapper):
    """A store that fails at call number ``at``, counted from 1, or with None only counts.

    ``get``, ``set``, ``get_many``, ``sizes``, ``keys``, ``apply``, ``in`` and the methods built on them count as calls;
    ``close()`` does not, and never fails. Without ``crash`` that one call raises ``InjectedFaultError`` and later calls
    work. With ``crash`` that call and every later one raise ``InjectedCrash``, because a dead process cannot clean up;
    ``store`` holds what it left.

    ``calls`` is the number of calls so far. ``fired`` is whether the fault has happened.
    """

    calls: int
    fired: bool

    def __init__(
        self, store: KVStore, *, at: int | None = None, fault: Fault = Fault.BEFORE, crash: bool = False
    ) -> None:
        super().__init__(store)
        self._lock = CallLock()
        self.arm(at, fault=fault, crash=crash)

    def arm(self, at: int | None, *, fault: Fault = Fault.BEFORE, crash: bool = False) -> None:
        """Start counting from zero again, for another fault."""
        with self._lock:
            self.at = at
            self.fault = fault
            self.crash = crash
            self.calls = 0
            self.fired = False

    def get(self, key: str) -> bytes | None:
        return self._call(lambda: self.store.get(key))

    def set(self, key: str, value: bytes) -> None:
        self._call(lambda: self.store.set(key, value))

    def get_many(self, keys: Iterable[str]) -> dict[str, bytes]:
        return self._call(lambda: self.store.get_many(keys))

    def sizes(self, keys: Iterable[str]) -> dict[str, int] | None:
        return self._call(lambda: self.store.sizes(keys))

    def keys(self, prefix: str = "") -> Iterator[str]:
        """List the keys. With ``Fault.AFTER`` the listing yields half of them before it fails."""
        if not self._is_due():
            return self.store.keys(prefix)
        if self.fault is not Fault.AFTER:
            raise self._error()
        return self._yield_half(list(self.store.keys(prefix)))

    def page(self, prefix: str = "", *, after: str | None = None, limit: int, reverse: bool = False) -> list[str]:
        return self._call(lambda: self.store.page(prefix, after=after, limit=limit, reverse=reverse))

    def apply(
        self,
        expected: Mapping[str, bytes | None],
        puts: Mapping[str, bytes],
        deletes: Collection[str] = (),
        *,
        objects: Mapping[str, bytes] | None = None,
    ) -> bool:
        return self._call(
            lambda: self.store.apply(expected, puts, deletes, objects=objects),
            partly=lambda: self.store.apply({}, {}, objects=objects),
        )

    def __contains__(self, key: str) -> bool:
        return self._call(lambda: key in self.store)

    def _call(self, whole: Callable[[], T], *, partly: Callable[[], object] | None = None) -> T:
        if not self._is_due():
            return whole()
        if self.fault is Fault.AFTER:
            whole()
        elif self.fault is Fault.PARTIAL and partly is not None:
            partly()
        raise self._error()

    def _yield_half(self, keys: list[str]) -> Iterator[str]:
        yield from keys[: len(keys) // 2]
        raise self._error()

    def _is_due(self) -> bool:
        with self._lock:
            if self.fired and self.crash:
                raise self._error()
            self.calls += 1
            if self.calls != self.at:
                return False
            self.fired = True
            return True

    def _error(self) -> BaseException:
        if self.crash:
            return InjectedCrash(f"crashed at store call {self.at}, {self.fault.value} it was done")
        return InjectedFaultError(f"store call {self.at} failed on purpose, {self.fault.value} it was done")
