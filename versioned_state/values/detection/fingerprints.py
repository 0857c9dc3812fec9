"""Fingerprints of live values, in memory only: whether a value is still what it was, at packing speed. Layer: values.

A *mark* is the hash of a run of values packed in one call. Runs of JSON types are packed by MessagePack; all others by ``marking``,
which tells bytes from bytearray, 1 from True and a tuple from a list. What a mark says to be the same is the same; where it says
changed, or cannot say, the value is encoded again, and that settles it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import msgpack
from xxhash import xxh3_64_intdigest

from versioned_state.values.detection.exact import pack_exactly
from versioned_state.values.trees.nodes import array_header

GROUP_SIZE: Final = 64
"""Elements under one mark: a call then costs 16 ns an element, and a change encodes at most 64 again."""

GROUP_BYTES: Final = 1 << 15
"""Packed bytes from which a group takes no more elements, for the same reason."""

Mark = int | tuple[bytes, ...] | None
"""An int that is not negative: by MessagePack; negative: by pickle. A tuple: the very leaves that the run was read from, which give
way to a hash once they were compared, so that loading a list marks nothing. None: cannot be packed, and is always encoded again."""

# Whoever shapes the values (a user of the agent) must not be able to shape two of one fingerprint.
_SEED: Final = int.from_bytes(os.urandom(8), "big")


def is_plain_mark(mark: Mark) -> bool:
    """Whether the values under a mark are of JSON types."""
    return isinstance(mark, tuple) or (mark is not None and mark >= 0)


def fingerprint(data: bytes | memoryview) -> int:
    """The fingerprint of bytes, at some 10 GB/s. It means nothing in another process."""
    return xxh3_64_intdigest(data, _SEED)


class Marker:
    """Makes and compares marks. Not for two threads at once."""

    def __init__(self) -> None:
        # strict_types: a subclass must not pass as its base. No default: whatever is not a JSON type raises.
        self._pack = msgpack.Packer(strict_types=True).pack
        self._known: dict[bytes, bytes] = {}  # see pack_exactly

    def mark(self, run: list[Any], *, plain: bool) -> tuple[Mark, int]:
        """The mark of a run, and its packed size. ``plain`` says that ``is_plain`` holds for each of its values."""
        if plain:
            try:
                packed = self._pack(run)
            except (OverflowError, ValueError):  # an int beyond 64 bits, a lone surrogate
                pass
            else:
                return fingerprint(packed), len(packed)
        pickled = pack_exactly(run, self._known)
        if pickled is None:
            return None, 0
        return ~fingerprint(pickled), len(pickled)

    def same(self, mark: Mark, run: list[Any]) -> bool:
        """Whether the run is surely what it was when it got this mark."""
        if mark is None:
            return False
        if isinstance(mark, tuple):
            return self.pack_leaves(mark, run) is not None
        if mark >= 0:
            try:
                return fingerprint(self._pack(run)) == mark
            except (TypeError, OverflowError, ValueError):
                return False
        pickled = pack_exactly(run, self._known)
        return pickled is not None and ~fingerprint(pickled) == mark

    def pack_leaves(self, leaves: tuple[bytes, ...], run: list[Any]) -> bytes | None:
        """The packed run if it is still what these leaves hold, else None."""
        try:
            packed: bytes = self._pack(run)
        except (TypeError, OverflowError, ValueError):
            return None
        return packed if packed == array_header(len(run)) + b"".join(map(_elements_of, leaves)) else None


def _elements_of(leaf: bytes) -> bytes:
    """The cells of a leaf, behind its kind and the header of its array."""
    return leaf[{0xDC: 4, 0xDD: 6}.get(leaf[1], 2) :]


@dataclass(frozen=True, slots=True)
class Run:
    """Groups [first, last) that may have changed: elements [old_start, old_end) became [new_start, new_end)."""

    first: int
    last: int
    old_start: int
    old_end: int
    new_start: int
    new_end: int


class Groups:
    """Marks over the elements of a list, or the values of a dict, in groups. Immutable once built.

    A group whose ``children`` entry is not None holds one element, which is compared by that instead of a mark.
    """

    __slots__ = ("children", "marks", "sizes", "total", "weights")

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.marks: list[Mark] = []
        self.weights: list[int] = []
        self.children: list[Any] = []
        self.total = 0

    def add(self, size: int, mark: Mark, weight: int, child: Any = None) -> None:
        self.sizes.append(size)
        self.marks.append(mark)
        self.weights.append(weight)
        self.children.append(child)
        self.total += size

    def extend(self, other: Groups) -> None:
        self.sizes += other.sizes
        self.marks += other.marks
        self.weights += other.weights
        self.children += other.children
        self.total += other.total

    def replaced(self, first: int, last: int, other: Groups) -> Groups:
        """A copy in which the groups [first, last) are replaced by others."""
        new = Groups()
        for name in ("sizes", "marks", "weights", "children"):
            mine = getattr(self, name)
            setattr(new, name, mine[:first] + getattr(other, name) + mine[last:])
        new.total = sum(new.sizes)
        return new


def find_runs(
    groups: Groups,
    elements: list[Any],
    unchanged: Callable[[Groups, int, list[Any], int], bool],
    *,
    prefix: int | None = None,
    suffix: int | None = None,
) -> list[Run]:
    """What may have changed: nothing, or runs in order. Where the length changed, all between the first and the last is one run.

    Args:
        unchanged: whether a group is what it was, at a place in the elements.
        prefix, suffix: how many elements from either end may count as the same; without them, all.
    """
    sizes, count, length = groups.sizes, len(groups.sizes), len(elements)
    shift = length - groups.total
    first = position = 0
    most = length if prefix is None else prefix
    while first < count and position + sizes[first] <= most and unchanged(groups, first, elements, position):
        position += sizes[first]
        first += 1
    if first == count and shift == 0:
        return []
    last, old_end = count, groups.total
    least = max(position, 0 if suffix is None else length - suffix)
    while last > first:
        start = old_end - sizes[last - 1]
        if start + shift < least or not unchanged(groups, last - 1, elements, start + shift):
            break
        old_end = start
        last -= 1
    if prefix is not None or shift:
        return [Run(first, last, position, old_end, position, old_end + shift)]
    runs = []
    for group in range(first, last):
        end = position + sizes[group]
        if group in (first, last - 1) or not unchanged(groups, group, elements, position):
            runs.append(Run(group, group + 1, position, end, position, end))
        position = end
    return runs
