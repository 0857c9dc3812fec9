"""``StateSequence``: a list of a state that is read and appended to without being loaded. Layer: state."""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, overload

from versioned_state.state.aio.caller import ready

if TYPE_CHECKING:
    from versioned_state.state.aio.twins import SequenceAio
    from versioned_state.state.keyspace import KeySpace
    from versioned_state.state.live import Live
    from versioned_state.state.worktree.worktree import Worktree

_BATCH: Final = 256
"""Elements that an iteration reads at once: one path down the tree for all of them."""


class StateSequence(Sequence[Any]):
    """A list under a key of a state: append, extend, length, items, slices and iteration.

    The cost is O(log n) and the elements that are read, whatever the length. Reads give copies: the state does not see changes to
    them. An appended value is stored as it is at the next commit; until then, reads give deep copies of it. While the list is loaded as
    well (``state[key]``), this is a view of the loaded list.

    Raises:
        TypeError: the key holds something else than a list.
    """

    def __init__(self, space: KeySpace, key: bytes) -> None:
        self._space = space
        self._key = key
        self._lock = space._lock
        self._stored()

    @property
    def _worktree(self) -> Worktree:
        self._space._check_open()
        return self._space._worktree

    def _live(self) -> list[Any] | None:
        """The list itself if it is loaded."""
        if not self._worktree.is_live(self._key):
            return None
        return _as_list(self._worktree.get(self._key))

    def _stored(self) -> int:
        return 0 if self._live() is not None else self._worktree.stored_length(self._key)

    @property
    def aio(self) -> SequenceAio:
        """The calls, as coroutines that run them off the event loop; ``async for`` reads the elements."""
        from versioned_state.state.aio.twins import SequenceAio

        return SequenceAio(self, self._lock)

    def append(self, value: Any) -> None:
        """Put a value at the end. A key that is not there becomes a list."""
        self.extend([value])

    def extend(self, values: Iterable[Any]) -> None:
        """Put values at the end. A key that is not there becomes a list."""
        added = list(values)
        with ready(self._lock):
            self._stored()  # raises if the key holds something else by now
            self._worktree.extend(self._key, added)

    def __len__(self) -> int:
        with ready(self._lock):
            live = self._live()
            return len(live) if live is not None else self._stored() + len(self._worktree.tail(self._key))

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> list[Any]: ...
    def __getitem__(self, index: int | slice) -> Any:
        with ready(self._lock):
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

    def __reversed__(self) -> Iterator[Any]:
        end = len(self)
        while end > 0:
            start = max(end - _BATCH, 0)
            yield from reversed(self[start:end])
            end = start

    def index(self, value: Any, start: int = 0, stop: int = sys.maxsize) -> int:
        """The first index at which an element equals ``value``. Raises ``ValueError`` if there is none. Cost: the elements before it."""
        first, end, _ = slice(start, stop).indices(len(self))
        while first < end:
            batch = self[first : min(first + _BATCH, end)]
            if value in batch:
                return first + batch.index(value)
            if not batch:
                break
            first += len(batch)
        raise ValueError("no element of the sequence equals the value")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self)}>"


class LiveSequence(StateSequence):
    """The same over a ``Live`` state, whose lists are always loaded."""

    def __init__(self, state: Live, key: str) -> None:
        self._state = state
        self._name = key
        self._lock = state._lock
        self._live()

    def _live(self) -> list[Any]:
        return _as_list(self._state.get(self._name, []))

    def extend(self, values: Iterable[Any]) -> None:
        added = list(values)
        with ready(self._lock):
            _as_list(self._state.setdefault(self._name, [])).extend(added)


def _as_list(value: Any) -> list[Any]:
    if type(value) is not list:
        raise TypeError(f"sequence() takes the key of a list, not of {type(value).__name__}")
    return value


def _copy(value: Any) -> Any:
    try:
        return copy.deepcopy(value)
    except Exception:  # noqa: BLE001 - its type's own code; the next commit tells whether it can be stored
        return value
