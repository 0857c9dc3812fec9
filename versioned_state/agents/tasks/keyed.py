"""Calls with ``key=``, and the results of committed ones in a series of the state. Layer: agents.

An entry is a list: the fingerprint of the arguments, the id of the call, and the result.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from blake3 import blake3

from versioned_state.errors import CorruptObjectError, IdempotencyConflictError
from versioned_state.state.branch import port
from versioned_state.state.versioned import Versioned
from versioned_state.values.cells import Code, array, extension
from versioned_state.values.keys import ENGINE

RESULTS: Final = ENGINE + b"results"
"""The engine key of the series."""


class Recorded(NamedTuple):
    """The result of an earlier call."""

    result: Any


class KeyedCall:
    """One call with a key.

    Raises:
        UnserializableValueError, PickleRefusedError, LimitExceededError: an argument cannot be stored.
    """

    def __init__(self, state: Versioned, *, agent: str, task: str, key: str, inputs: Mapping[str, Any]) -> None:
        self._state = state
        self.name: Final = f"{agent}\0{task}\0{key}"
        self._shown = f"{task}(key={key!r})"
        packed = port.handle(state).worktree.encode_inline(in_order(dict(inputs)), f"the arguments of {self._shown}")
        self._fingerprint = blake3(packed).digest(16)

    def find(self, *, committed: bool = False) -> Recorded | None:
        """Return the result of the call that has committed under this key, on the branch's present head in the store.

        Args:
            committed: ignore nested calls of the running call, which will commit with it.

        Raises:
            IdempotencyConflictError: that call had other arguments.
        """
        handle = port.handle(self._state)
        pending = None if committed else handle.pending.of(RESULTS).get(self.name)
        ref = handle.read_ref()
        head = handle.head if ref == handle.ref else handle.commit_of(ref)
        series = self._state.repository.snapshot(head).series(RESULTS)
        cell = series.find(self.name) if pending is None else pending
        if cell is None:
            return None
        entry = series.decode(cell)
        if type(entry) is not list or len(entry) != 3:
            raise CorruptObjectError("(a result)", "the entry of a call with a key cannot be read")
        fingerprint, _, result = entry
        if fingerprint != self._fingerprint:
            raise IdempotencyConflictError(
                f"{self._shown} was called with other arguments before",
                remains="the task did not run",
                hint="use another key",
            )
        return Recorded(result)

    def entry(self, call: str, result: Any) -> bytes:
        """Return the cell of the entry for a result. Raises as the constructor does."""
        packed = port.handle(self._state).worktree.encode_inline(result, f"the result of {self._shown}")
        return array([extension(Code.BYTES, self._fingerprint), extension(Code.BYTES, bytes.fromhex(call)), packed])


def in_order(value: Any) -> Any:
    """Return a value whose dicts have sorted keys, so that equal arguments have equal fingerprints."""
    if type(value) is dict:
        return {key: in_order(value[key]) for key in sorted(value, key=lambda key: (type(key).__name__, repr(key)))}
    if type(value) in (list, tuple):
        return type(value)(map(in_order, value))
    return value
