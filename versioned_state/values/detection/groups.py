"""Fingerprints over the parts of a large list or dict, in groups. Layer: values.

A *fingerprint* is the hash of a run of values packed in one call; it is kept in memory only. A changed run always has another fingerprint.
An unchanged run may have another one too, or none: then the run is encoded again.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Any, Final

from xxhash import xxh3_64_intdigest

GROUP_SIZE: Final = 64
"""Elements under one fingerprint: comparing costs 16 ns an element, and a change encodes at most 64 elements again."""

GROUP_BYTES: Final = 1 << 15
"""Packed bytes from which a group takes no more elements, for the same reason."""

_HELD_BYTES: Final = 200
"""Of memory that a group takes, about: its fingerprint and its numbers."""

Fingerprint = int | tuple[bytes, ...] | None
"""Not negative: of JSON types. Negative: of other types, packed by an ``ExactPacker``. A tuple: the leaves that the run was read
from, which give way to a hash at the first comparison, so that loading a list hashes nothing. None: the run cannot be packed, and is
always encoded again."""

UNKNOWN: Final[Fingerprint] = ()
"""No run has this fingerprint. It stands for one that could not be taken where None says that none is needed."""

# A person who supplies values, such as a user of the agent, must not be able to craft two with one fingerprint.
_SEED: Final = int.from_bytes(os.urandom(8), "big")


hash_bytes: Final[Callable[[bytes | memoryview], int]] = partial(xxh3_64_intdigest, seed=_SEED)
"""A hash of bytes, at about 10 GB/s. It has no meaning in another process."""


def is_plain_fingerprint(fingerprint: Fingerprint) -> bool:
    """Whether the values under a fingerprint are of JSON types."""
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


class Groups:
    """Fingerprints over the elements of a list, or the values of a dict. Once built, only fingerprints that are leaves change.

    Attributes:
        sizes: elements in each group.
        weights: packed bytes of each group; 0 if the group has a child.
        children: the baseline of a group that is one large element, for comparing it; else None.
        least: the least number of bytes that the cells of each group have together; 0 if the group has a child.
        total: elements in all groups.
        packed: the least number of bytes that the cells of all groups have together.
        held_bytes: approximate bytes of memory that the groups and their children take.
    """

    __slots__ = ("children", "fingerprints", "held_bytes", "least", "packed", "sizes", "total", "weights")

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.fingerprints: list[Fingerprint] = []
        self.weights: list[int] = []
        self.least: list[int] = []
        self.children: list[Any] = []
        self.total = 0
        self.packed = 0
        self.held_bytes = 0

    @classmethod
    def of_child(cls, child: Any) -> Groups:
        """The one group of a large element with this baseline."""
        groups = cls()
        groups.add(1, None, 0, child)
        return groups

    def add(self, size: int, fingerprint: Fingerprint, weight: int, child: Any = None, *, least: int = 0) -> None:
        self.sizes.append(size)
        self.least.append(least)
        self.fingerprints.append(fingerprint)
        self.weights.append(weight)
        self.children.append(child)
        self.total += size
        self.packed += self._packed_of(len(self.sizes) - 1)
        self.held_bytes += _HELD_BYTES if child is None else _held_by(child)

    def extend(self, other: Groups) -> None:
        self.sizes += other.sizes
        self.fingerprints += other.fingerprints
        self.weights += other.weights
        self.least += other.least
        self.children += other.children
        self.total += other.total
        self.packed += other.packed
        self.held_bytes += other.held_bytes

    def replaced(self, first: int, last: int, other: Groups) -> Groups:
        """A copy in which the groups [first, last) are replaced by others."""
        new = Groups()
        new.sizes = [*self.sizes[:first], *other.sizes, *self.sizes[last:]]
        new.fingerprints = [*self.fingerprints[:first], *other.fingerprints, *self.fingerprints[last:]]
        new.weights = [*self.weights[:first], *other.weights, *self.weights[last:]]
        new.least = [*self.least[:first], *other.least, *self.least[last:]]
        new.children = [*self.children[:first], *other.children, *self.children[last:]]
        new.total = self.total + other.total - sum(self.sizes[first:last])
        new.packed = self.packed + other.packed - sum(map(self._packed_of, range(first, last)))
        new.held_bytes = self.held_bytes + other.held_bytes - sum(map(_held_by, self.children[first:last]))
        return new

    def hashed(self, group: int, fingerprint: int, weight: int) -> None:
        """Replace the leaves that serve as the fingerprint of a group by a hash. The group was just found equal to them."""
        self.packed -= self._packed_of(group)
        self.fingerprints[group] = fingerprint
        self.weights[group] = weight
        self.packed += self._packed_of(group)

    def firsts(self, values: list[Any]) -> list[int]:
        """The identity of the first of each group's values."""
        starts = accumulate(self.sizes, initial=0)
        return [id(values[start]) for start, _ in zip(starts, self.sizes, strict=False)]

    def packed_without(self, runs: list[Run]) -> int:
        """``packed`` without the groups in these runs. A value that holds the other groups is at least that long."""
        return self.packed - sum(self._packed_of(group) for run in runs for group in range(run.first, run.last))

    def _packed_of(self, group: int) -> int:
        # Each leaf that serves as a fingerprint has a kind and a header, six bytes at most.
        fingerprint = self.fingerprints[group]
        if type(fingerprint) is tuple:
            headers = 6 * len(fingerprint)
        elif fingerprint is None or fingerprint < 0:  # type: ignore[operator]
            return self.least[group]
        else:
            headers = 5
        weight = self.weights[group]
        return weight - headers if weight > headers else 0


def _held_by(child: Any) -> int:
    return _HELD_BYTES if child is None else _HELD_BYTES + int(child.held_bytes)
