"""Lists that are read in part: ``PartialSequence``, the base of all of them, and ``SnapshotSequence``.

Layer: repository.
"""

from __future__ import annotations

import operator
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar, Final, overload

BATCH: Final = 256
"""Elements that an iteration reads at once: one path down the tree for all of them."""


class PartialSequence(Sequence[Any]):
    """A list that reads only the requested elements. It equals a list with the same elements."""

    @abstractmethod
    def _read(self, picked: range) -> list[Any]:
        """Return the elements at the indices of a rising range, to be given to a caller."""

    def _compare(self, start: int, end: int) -> list[Any]:
        """Return the elements [start, end), to be compared."""
        return self._read(range(start, end))

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> list[Any]: ...
    def __getitem__(self, index: int | slice) -> Any:
        return pick(index, len(self), self._read)

    def __iter__(self) -> Iterator[Any]:
        start = 0
        while batch := self._read(range(start, min(start + BATCH, len(self)))):
            start += len(batch)
            yield from batch

    def __reversed__(self) -> Iterator[Any]:
        end = len(self)
        while end > 0:
            start = max(end - BATCH, 0)
            yield from reversed(self._read(range(start, end)))
            end = start

    def _batches(self, start: int = 0, end: int | None = None) -> Iterator[tuple[int, list[Any]]]:
        """Yield the elements [start, end) in batches to be compared, each with its first index."""
        end = len(self) if end is None else end
        while start < end and (batch := self._compare(start, min(start + BATCH, end))):
            yield start, batch
            start += len(batch)

    def index(self, value: Any, start: int = 0, stop: int | None = None) -> int:
        """Return the first index at which an element equals ``value``.

        Raises ``ValueError`` if there is none. Cost: the elements before it.
        """
        first, end, _ = slice(start, stop).indices(len(self))
        for begin, batch in self._batches(first, end):
            if value in batch:
                return begin + batch.index(value)
        raise ValueError("no element of the sequence equals the value")

    def count(self, value: Any) -> int:
        """Return the number of elements that equal ``value``. Cost: all elements."""
        return sum(batch.count(value) for _, batch in self._batches())

    def __contains__(self, value: object) -> bool:
        return any(value in batch for _, batch in self._batches())

    def __eq__(self, other: object) -> bool:
        """Return whether the other one is a list, or a sequence like this one, of equal elements.

        Cost: those before a difference.
        """
        if not isinstance(other, list | PartialSequence):
            return NotImplemented
        if len(self) != len(other):
            return False
        compare = other._compare if isinstance(other, PartialSequence) else lambda start, end: other[start:end]
        return all(batch == compare(start, start + len(batch)) for start, batch in self._batches())

    __hash__: ClassVar[None] = None  # type: ignore[assignment]

    def copy(self) -> list[Any]:
        """Return all elements as a plain list."""
        return self[:]

    def __add__(self, other: Iterable[Any]) -> list[Any]:
        if not isinstance(other, list | PartialSequence):
            return NotImplemented
        return [*self, *other]

    def __radd__(self, other: list[Any]) -> list[Any]:
        if not isinstance(other, list):
            return NotImplemented
        return [*other, *self]

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self)}>"


def pick(index: Any, length: int, read: Callable[[range], list[Any]]) -> Any:
    """Return ``sequence[index]``, by a reader of rising ranges. Raises as ``list``."""
    if isinstance(index, slice):
        picked = range(length)[index]
        return read(picked) if picked.step > 0 else read(picked[::-1])[::-1]
    at = position(index, length, "list index out of range")
    return read(range(at, at + 1))[0]


def position(index: Any, length: int, error: str) -> int:
    """Return an index as a list takes it. Raises ``IndexError`` with this text, and ``TypeError``."""
    try:
        at = operator.index(index)
    except TypeError:
        raise TypeError(f"list indices must be integers or slices, not {type(index).__name__}") from None
    at = at + length if at < 0 else at
    if not 0 <= at < length:
        raise IndexError(error)
    return at


class SnapshotSequence(PartialSequence):
    """A list of a snapshot.

    Every read decodes again. Cost: O(log n) and the elements that are read. Safe for many threads.
    """

    def __init__(self, read: Callable[[range], list[Any]], length: int) -> None:
        self._read_elements = read
        self._length = length

    def __len__(self) -> int:
        return self._length

    def _read(self, picked: range) -> list[Any]:
        return self._read_elements(picked)
