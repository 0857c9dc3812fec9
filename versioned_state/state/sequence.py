"""``StateSequence``: a list of a state that is read and edited without being loaded. Layer: state."""

from __future__ import annotations

import operator
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, MutableSequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, overload

from versioned_state.repository.views.sequence import BATCH, PartialSequence, pick, position
from versioned_state.state.aio.caller import LockedState, locked
from versioned_state.state.aio.twins import HandleAio
from versioned_state.twins import awaitable

if TYPE_CHECKING:
    from versioned_state.state.worktree.worktree import Worktree


class Space(LockedState, Protocol):
    """The state that has a list: a ``Versioned`` one, or a namespace of it."""

    @property
    def _worktree(self) -> Worktree: ...

    def _check_change(self, key: bytes) -> None: ...


class StateSequence(PartialSequence, MutableSequence[Any]):
    """A list under a key of a state, with all methods of a list.

    A call costs O(log n) and the elements that it touches, whatever the length; only ``sort`` and ``reverse`` load the
    list. Elements that were read or inserted are live values of the state: changes to them are detected while any
    caller refers to them. If the list is loaded too (``state[key]``), this is a view of the loaded list. A missing key
    is an empty list.

    Raises:
        TypeError: the value of the key is not a list.
    """

    def __init__(self, space: Space, key: bytes) -> None:
        self._space = space
        self._key = key
        self._lock = space._lock
        self._check()

    def _check_open(self) -> None:
        self._space._check_open()

    @locked
    def _check(self) -> None:
        self._live()

    @property
    def _worktree(self) -> Worktree:
        return self._space._worktree

    def _live(self) -> list[Any] | None:
        """Return the loaded list, or None if it is not loaded."""
        worktree = self._worktree
        found = worktree.loaded_list(self._key)
        return None if found is None and not worktree.is_live(self._key) else as_list(found)

    @property
    def aio(self) -> SequenceAio:
        """The calls as coroutines that run off the event loop. ``async for`` reads the elements."""
        return SequenceAio(self, self._lock)

    # Reading

    @locked
    def __len__(self) -> int:
        live = self._live()
        return self._worktree.lists.length(self._key) if live is None else len(live)

    @locked
    def __getitem__(self, index: Any) -> Any:
        live = self._live()
        return pick(index, self._worktree.lists.length(self._key), self._read_stored) if live is None else live[index]

    @locked
    def _read(self, picked: range) -> list[Any]:
        live = self._live()
        if live is not None:
            return live[picked.start : picked.stop : picked.step]
        return self._read_stored(picked)

    def _read_stored(self, picked: range) -> list[Any]:
        values = self._worktree.lists.read(self._key, picked)
        if self._worktree.read_check is not None:
            self._worktree.read_check.check_elements(self._key, picked, values)
        return values

    @locked
    def _compare(self, start: int, end: int) -> list[Any]:
        live = self._live()
        return self._worktree.lists.peek(self._key, start, end) if live is None else live[start:end]

    def __iter__(self) -> Iterator[Any]:
        index = 0
        while True:
            batch, version = self._batch(index, index + BATCH)
            if not batch:
                return
            for value in batch:
                yield value
                index += 1
                if self._version() != version:
                    break  # elements were inserted or removed: continue by index, as the iterator of a list does

    def __reversed__(self) -> Iterator[Any]:
        index = len(self)
        while index > 0:
            batch, version = self._batch(max(index - BATCH, 0), index)
            index = min(index, len(self))
            for value in reversed(batch):
                yield value
                index -= 1
                if self._version() != version:
                    break

    @locked
    def _batch(self, start: int, end: int) -> tuple[list[Any], object]:
        """Return the elements [start, end), as far as they exist, and the version of the list."""
        return self._read(range(start, min(end, len(self)))), self._version()

    @locked
    def _version(self) -> object:
        """Return a value that changes if elements may have been inserted or removed."""
        return self._worktree.lists.version(self._key) if self._live() is None else object()

    # Writing

    @overload
    def __setitem__(self, index: int, value: Any) -> None: ...
    @overload
    def __setitem__(self, index: slice, value: Iterable[Any]) -> None: ...
    def __setitem__(self, index: int | slice, value: Any) -> None:
        """Replace an element, or the elements of a slice by those of an iterable."""
        if isinstance(index, slice):
            try:
                value = list(value)
            except TypeError:
                raise TypeError(
                    "can only assign an iterable" if index.step is None else "must assign iterable to extended slice"
                ) from None
        self._set(index, value)

    @locked
    def _set(self, index: int | slice, value: Any) -> None:
        live = self._live()
        if live is not None:
            self._on_loaded(live, list.__setitem__, index, value)
            return
        length = len(self)
        if not isinstance(index, slice):
            at = position(index, length, "list assignment index out of range")
            self._replace([(at, at + 1, [value])])
            return
        start, stop, step = index.indices(length)
        if step == 1:
            self._replace([(start, max(start, stop), value)])
            return
        picked = range(start, stop, step)
        if len(picked) != len(value):
            raise ValueError(f"attempt to assign sequence of size {len(value)} to extended slice of size {len(picked)}")
        pairs = zip(picked, value, strict=True)
        self._replace([(at, at + 1, [each]) for at, each in (pairs if step > 0 else reversed(list(pairs)))])

    @locked
    def __delitem__(self, index: int | slice) -> None:
        """Remove an element, or those of a slice."""
        live = self._live()
        if live is not None:
            self._on_loaded(live, list.__delitem__, index)
            return
        length = len(self)
        if not isinstance(index, slice):
            at = position(index, length, "list assignment index out of range")
            self._replace([(at, at + 1, [])])
            return
        picked = range(length)[index]
        if picked.step == 1:
            self._replace([(picked.start, picked.stop, [])] if picked else [])
        else:
            self._replace([(at, at + 1, []) for at in (picked if picked.step > 0 else picked[::-1])])

    def _on_loaded(self, live: list[Any], change: Callable[..., Any], *arguments: Any) -> Any:
        """Change the loaded list."""
        self._check_change()
        return change(live, *arguments)

    def _check_change(self) -> None:
        self._space._check_change(self._key)

    def _replace(self, replacements: list[tuple[int, int, list[Any]]]) -> None:
        replacements = [each for each in replacements if each[0] < each[1] or each[2]]
        if replacements:
            self._check_change()
            self._worktree.lists.replace(self._key, replacements)

    @locked
    def insert(self, index: int, value: Any) -> None:
        """Insert a value before the element at an index. A missing key becomes a list."""
        live = self._live()
        if live is not None:
            self._on_loaded(live, list.insert, index, value)
            return
        at, length = operator.index(index), len(self)
        at = min(max(at + length, 0) if at < 0 else at, length)
        self._replace([(at, at, [value])])

    def append(self, value: Any) -> None:
        """Append a value. A missing key becomes a list."""
        self._extend([value])

    def extend(self, values: Iterable[Any]) -> None:
        """Append values, all of them or none. A missing key becomes a list."""
        self._extend(list(values))

    @locked
    def _extend(self, values: list[Any]) -> None:
        live = self._live()
        if live is not None:
            self._on_loaded(live, list.extend, values)
            return
        if values:
            self._check_change()
            self._worktree.lists.extend(self._key, values)

    @locked
    def pop(self, index: int = -1) -> Any:
        """Remove the element at an index and return it."""
        live = self._live()
        if live is not None:
            return self._on_loaded(live, list.pop, index)
        index, length = operator.index(index), len(self)
        if not length:
            raise IndexError("pop from empty list")
        at = position(index, length, "pop index out of range")
        (value,) = self._read(range(at, at + 1))
        self._replace([(at, at + 1, [])])
        return value

    @locked
    def remove(self, value: Any) -> None:
        """Remove the first element that equals ``value``.

        Raises ``ValueError`` if there is none. Cost: the elements before it.
        """
        try:
            at = self.index(value)
        except ValueError:
            raise ValueError("list.remove(x): x not in list") from None
        del self[at]

    @locked
    def clear(self) -> None:
        """Remove all elements. The key keeps an empty list. Reads none of them."""
        del self[:]

    @locked
    def reverse(self) -> None:
        """Reverse the order of the elements. Loads the list."""
        loaded = self._load()
        if loaded is not None:
            self._on_loaded(loaded, list.reverse)

    @locked
    def sort(self, *, key: Any = None, reverse: bool = False) -> None:
        """Sort the elements, as ``list.sort``. Loads the list."""
        loaded = self._load()
        if loaded is not None:
            self._on_loaded(loaded, partial(list.sort, key=key, reverse=reverse))

    def _load(self) -> list[Any] | None:
        """Load the list. Returns None if the key does not exist."""
        self._live()
        return as_list(self._worktree.get(self._key)) if self._key in self._worktree else None

    @locked
    def __imul__(self, times: int) -> Self:
        """Repeat the elements. Reads them all."""
        times = operator.index(times)
        if times < 1:
            self.clear()
        elif times > 1:
            self._extend(list(self) * (times - 1))
        return self


def as_list(value: Any) -> list[Any]:
    """Return a value that is a list. Raises ``TypeError`` for any other."""
    if type(value) is not list:
        raise TypeError(f"the value of a sequence() must be a list, not {type(value).__name__}")
    return value


class SequenceAio(HandleAio["StateSequence"]):
    """The awaitable twins of a ``StateSequence``."""

    append: Final = awaitable(lambda: StateSequence.append)
    clear: Final = awaitable(lambda: StateSequence.clear)
    count: Final = awaitable(lambda: StateSequence.count)
    extend: Final = awaitable(lambda: StateSequence.extend)
    index: Final = awaitable(lambda: StateSequence.index)
    insert: Final = awaitable(lambda: StateSequence.insert)
    pop: Final = awaitable(lambda: StateSequence.pop)
    remove: Final = awaitable(lambda: StateSequence.remove)
    reverse: Final = awaitable(lambda: StateSequence.reverse)
    sort: Final = awaitable(lambda: StateSequence.sort)

    async def length(self) -> int:
        """Return the number of elements."""
        return await self.run(self.of.__len__)

    async def get(self, index: int | slice) -> Any:
        """Return the element at an index, or those of a slice."""
        return await self.run(partial(self.of.__getitem__, index))

    async def set(self, index: int | slice, value: Any) -> None:
        """Replace an element, or the elements of a slice by those of an iterable."""
        await self.run(lambda: self.of.__setitem__(index, value))

    async def delete(self, index: int | slice) -> None:
        """Remove an element, or those of a slice."""
        await self.run(partial(self.of.__delitem__, index))

    def __aiter__(self) -> AsyncIterator[Any]:
        """Iterate over the elements, which are read in batches."""
        return self._stream(iter)

    def reversed(self) -> AsyncIterator[Any]:
        """Iterate over the elements from the last one back, which are read in batches."""
        return self._stream(reversed)

    def _stream(self, walk: Callable[[StateSequence], Iterator[Any]]) -> AsyncIterator[Any]:
        async def begin() -> Iterator[Any]:
            return walk(self.of)

        from versioned_state.streams import Stream

        return Stream(begin, self.run)
