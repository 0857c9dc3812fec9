"""Fingerprints over the parts of a large list or dict, in groups. Layer: values.

A *fingerprint* is the hash of a run of values packed in one call; it is kept in memory only. A changed run always has
another fingerprint. An unchanged run may have another one too, or none: then the run is encoded again.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from xxhash import xxh3_64_intdigest

from versioned_state.records import dataclass
from versioned_state.values import accelerator
from versioned_state.values.accelerator import Marks

GROUP_SIZE: Final = 64
"""Elements under one fingerprint: comparing costs 16 ns an element, and a change encodes at most 64 elements again."""

GROUP_BYTES: Final = 1 << 15
"""The packed bytes at which a group is full, for the same reason."""

_HELD_BYTES: Final = 200
"""Approximate bytes of memory of a group: its fingerprint and its numbers."""

_MARKED_BYTES: Final = 24
"""Approximate bytes of memory of an element's marks before they are made, besides half a byte for each packed one.

From lists of two numbers to messages with calls of tools, the marks take about that.
"""

Fingerprint = int | tuple[bytes, ...] | None
"""Not negative: of JSON types. Negative: of other types, packed by an ``ExactPacker``.

A tuple: the leaves that the run was read from, which give way to a hash at the first comparison, so that loading a list
hashes nothing. None: the run cannot be packed, and is always encoded again.
"""

UNKNOWN: Final[Fingerprint] = ()
"""No run has this fingerprint. It stands for one that could not be taken where None says that none is needed."""

# A person who supplies values, such as a user of the agent, must not be able to craft two with one fingerprint.
_SEED: Final = int.from_bytes(os.urandom(8), "big")


hash_bytes: Final[Callable[[bytes | memoryview], int]] = partial(xxh3_64_intdigest, seed=_SEED)
"""A hash of bytes, at about 10 GB/s. It has no meaning in another process."""


def is_plain_fingerprint(fingerprint: Fingerprint) -> bool:
    """Return whether the values under a fingerprint are of JSON types."""
    return fingerprint is not None and (type(fingerprint) is tuple or fingerprint >= 0)  # type: ignore[operator]


@dataclass(slots=True)
class Run:
    """Groups [first, last) that may have changed: elements [old_start, old_end) became [new_start, new_end)."""

    first: int
    last: int
    old_start: int
    old_end: int
    new_start: int
    new_end: int


class Group:
    """List elements, or dict values, under one fingerprint, or one large element, which is compared with its baseline.

    Attributes:
        size: the number of elements.
        weight: their packed bytes; 0 if the group has a child.
        child: the baseline of the large element; else None.
        least: the least number of bytes that the cells of the elements have together; 0 if the group has a child.
        packed: such a number again, from the fingerprint if it has one.
        marks: the accelerator's marks of values that the fingerprint is of, or None.
        held_bytes: approximate bytes of memory that the group and its child take.
    """

    __slots__ = ("child", "fingerprint", "held_bytes", "least", "marks", "packed", "size", "weight")

    def __init__(
        self,
        size: int,
        fingerprint: Fingerprint,
        weight: int,
        child: Any = None,
        *,
        least: int = 0,
        marks: Marks | None = None,
    ) -> None:
        self.size: Final = size
        self.fingerprint: Fingerprint = fingerprint
        self.weight: int = weight
        self.child: Final = child
        self.least: Final = least
        self.marks: Marks | None = marks
        self.held_bytes: int = _HELD_BYTES if child is None else _HELD_BYTES + int(child.held_bytes)
        if marks is not None:
            self.held_bytes += sys.getsizeof(marks)
        # Each leaf that serves as a fingerprint has a kind and a header, six bytes at most.
        if type(fingerprint) is tuple:
            headers = 6 * len(fingerprint)
            if accelerator.fast is not None:
                # of the marks that come with the first comparison
                self.held_bytes += _MARKED_BYTES * size + weight // 2
        elif fingerprint is None or fingerprint < 0:  # type: ignore[operator]
            self.packed: int = least
            return
        else:
            headers = 5
        self.packed = weight - headers if weight > headers else 0


class Groups:
    """Groups over the elements of a list, or the values of a dict.

    Once built, only fingerprints that are leaves, and marks, change.

    Attributes:
        all: in the order of the elements.
        total: elements in all groups.
        packed: the least number of bytes that the cells of all groups have together.
        held_bytes: approximate bytes of memory that the groups and their children take.
    """

    __slots__ = ("all", "held_bytes", "packed", "total")

    def __init__(self) -> None:
        self.all: list[Group] = []
        self.total: int = 0
        self.packed: int = 0
        self.held_bytes: int = 0

    def add(self, group: Group) -> None:
        self.all.append(group)
        self.total += group.size
        self.packed += group.packed
        self.held_bytes += group.held_bytes

    def extend(self, other: Groups) -> None:
        self.all += other.all
        self.total += other.total
        self.packed += other.packed
        self.held_bytes += other.held_bytes

    def replaced(self, first: int, last: int, others: list[Group]) -> Groups:
        """Return a copy in which the groups [first, last) are replaced by others."""
        new = Groups()
        new.all = [*self.all[:first], *others, *self.all[last:]]
        new.total, new.packed, new.held_bytes = self.total, self.packed, self.held_bytes
        for group in others:
            new.total += group.size
            new.packed += group.packed
            new.held_bytes += group.held_bytes
        for group in self.all[first:last]:
            new.total -= group.size
            new.packed -= group.packed
            new.held_bytes -= group.held_bytes
        return new

    def firsts(self, values: list[Any]) -> list[int]:
        """Return the identity of the first of each group's values."""
        firsts = []
        start = 0
        for group in self.all:
            firsts.append(id(values[start]))
            start += group.size
        return firsts

    def packed_without(self, runs: list[Run]) -> int:
        """Return ``packed`` without the groups in these runs.

        A value that holds the other groups is at least that long.
        """
        packed = self.packed
        for run in runs:
            for group in self.all[run.first : run.last]:
                packed -= group.packed
        return packed
