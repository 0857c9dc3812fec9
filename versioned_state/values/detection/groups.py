"""Fingerprints over the parts of a large list or dict, in groups. Layer: values.

A *fingerprint* is the hash of a run of values packed in one call, in memory only. It never calls a changed run unchanged; if it calls one
changed, or cannot tell, the run is encoded again.
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

# Whoever shapes the values (a user of the agent) must not be able to shape two with one fingerprint.
_SEED: Final = int.from_bytes(os.urandom(8), "big")


hash_bytes: Final[Callable[[bytes | memoryview], int]] = partial(xxh3_64_intdigest, seed=_SEED)
"""A hash of bytes, at some 10 GB/s. It means nothing in another process."""


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
        weights: packed bytes of each group; 0 if it has a child.
        children: the baseline of a group that is one large element, which is compared by that; else None.
        least: bytes that the cells of each group have together, at least; 0 if it has a child.
        total: elements in all groups.
        packed: bytes that the cells of all groups have together, at least: a value that holds them is that long.
        held_bytes: of memory that the groups and their children take, about.
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
        """Let a hash take the place of the leaves that stood for a group, which was just compared with them."""
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
        # Six bytes are the longest header and a kind, which leaves that stand for a fingerprint have each.
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
