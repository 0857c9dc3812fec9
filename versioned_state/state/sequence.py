"""``StateSequence``: a list of a state that is read and appended to without being loaded. Layer: state."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence as AbstractSequence
from threading import RLock
from typing import Any, overload

from versioned_state.state.worktree.worktree import Worktree

_BATCH = 256


class StateSequence(AbstractSequence[Any]):
    """A list under a key of a state, as it lies in the store: append, extend, length, items, slices and iteration.

    Its cost is O(log n) and what is read, whatever the length. Reads give values of your own; what you do to them is not seen. What was
    appended is stored as it is at the next commit; until then a read gives a deep copy. While the list is loaded as well
    (``state[key]``), this is a view of that.
    """

    def __init__(self, worktree: Worktree, key: bytes, lock: RLock, check_open: Callable[[], None]) -> None:
        self._worktree = worktree
        self._check_open = check_open
        self._key = key
        self._lock = lock
        self._stored()

    def _live(self) -> list[Any] | None:
        self._check_open()
        if not self._worktree.is_live(self._key):
            return None
        value = self._worktree.get(self._key)
        if type(value) is not list:
            raise TypeError(f"sequence() takes the key of a list, not of {type(value).__name__}")
        return value

    def _stored(self) -> int:
        return 0 if self._live() is not None else self._worktree.stored_length(self._key)

    def append(self, value: Any) -> None:
        """Put a value at the end; the key becomes a list if there is nothing under it."""
        self.extend([value])

    def extend(self, values: Iterable[Any]) -> None:
        """Put values at the end."""
        added = list(values)
        with self._lock:
            self._stored()  # raises where the key holds no list by now
            self._worktree.extend(self._key, added)

    def __len__(self) -> int:
        with self._lock:
            live = self._live()
            return len(live) if live is not None else self._stored() + len(self._worktree.tail(self._key))

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> list[Any]: ...
    def __getitem__(self, index: int | slice) -> Any:
        with self._lock:
            live = self._live()
            if live is not None:
                return live[index]
            if isinstance(index, slice):
                start, stop, step = index.indices(len(self))
                if step < 0:
                    picked = range(start, stop, step)
                    if not picked:
                        return []
                    span = self._range(picked[-1], picked[0] + 1)
                    return span[::-1][::-step]
                return self._range(start, stop)[::step]
            position = index + len(self) if index < 0 else index
            if not 0 <= position < len(self):
                raise IndexError("sequence index out of range")
            return self._range(position, position + 1)[0]

    def _range(self, start: int, stop: int) -> list[Any]:
        stored = self._stored()
        values = self._worktree.stored_elements(self._key, start, min(stop, stored)) if start < stored else []
        if stop > stored:
            values += map(_copy, self._worktree.tail(self._key)[max(start - stored, 0) : stop - stored])
        return values

    def __iter__(self) -> Iterator[Any]:
        start = 0
        while batch := self[start : start + _BATCH]:
            yield from batch
            start += len(batch)

    def __repr__(self) -> str:
        return f"<StateSequence of {len(self)}>"


def _copy(value: Any) -> Any:
    try:
        return copy.deepcopy(value)
    except Exception:  # noqa: BLE001 - its type's own code; the next commit tells whether it can be stored
        return value
