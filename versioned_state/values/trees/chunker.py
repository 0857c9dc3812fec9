"""Where the nodes of a tree end: by content alone, so that equal content has equal nodes whatever its history.

Layer: values.

All rules have one form: the hash of an item decides whether a *boundary* may follow it. A node ends at the first
boundary after its least weight, or at its greatest weight. The least weight keeps nodes from shrinking to a single item
if an item is repeated many times. The numbers are part of the format.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from itertools import accumulate
from typing import Final

from xxhash import xxh3_64_intdigest

from versioned_state.values.cells import weights_of

LEAF_LEAST: Final = 12_288
LEAF_SCALE: Final = 8192
LEAF_GREATEST: Final = 36_864
"""Bytes of a leaf of a sequence, without the heads of typed values.

A boundary follows an element with a probability of its size over the scale, so leaves of large and of small elements
weigh the same: 20 KB in the mean. A large leaf makes the whole list cheap to read, and a change in the middle of it
dear to write; an append writes a segment, whatever the size of the last leaf (docs/design/034). A least weight near the
mean makes the leaves even (docs/design/002). The greatest one is as large as the number of segments allows that an open
leaf may have, if each of its elements weighs a quarter of its bytes.
"""

NODE_LEAST: Final = 6
NODE_SCALE: Final = 6
NODE_GREATEST: Final = 44
"""Entries of a leaf of a map, and children of an inner node: 11 in the mean.

A boundary follows one in ``NODE_SCALE``: by the key of a map's entry, so that a changed value moves no boundary; by the
address of a child, which is uniform already.
"""

_PER_BYTE: Final = (1 << 64) // LEAF_SCALE
_KEYS_BELOW: Final = (1 << 64) // NODE_SCALE
_CHILDREN_BELOW: Final = 256 // NODE_SCALE


class Chunker(ABC):
    """The boundaries of one level of a tree, fed from left to right.

    ``feed`` returns the number of items in each node that it completed; the first number includes the items that were
    pending. ``pending`` is the number of items since the last boundary; ``weight`` their weight, if that is more than a
    count.
    """

    __slots__ = ("pending", "weight")

    def __init__(self) -> None:
        self.pending: int = 0
        self.weight: int = 0

    @abstractmethod
    def resume(self, items: list[bytes], keys: list[bytes] | None, weight: int) -> bool:
        """Begin after the items of the last node of a level, which has no boundary before its end.

        Returns whether that node is open.

        A node whose only item was replaced comes without items, and is open.

        Args:
            weight: see ``Node.weight``.
        """

    @abstractmethod
    def feed(self, items: list[bytes], keys: list[bytes] | None) -> list[int]:
        """Feed the next items.

        Cost: a hash for each item at which a node may end, of which most states and values have none.
        """


class SequenceLeafChunker(Chunker):
    """Leaves of a sequence: a boundary follows from an element's bytes and size."""

    __slots__ = ()

    def resume(self, items: list[bytes], keys: list[bytes] | None, weight: int) -> bool:
        if not weight:
            weight = sum(weights_of(items))
            if weight >= LEAF_GREATEST or (
                weight >= LEAF_LEAST and xxh3_64_intdigest(items[-1]) < sum(weights_of(items[-1:])) * _PER_BYTE
            ):
                return False
        self.pending, self.weight = len(items), weight
        return True

    def feed(self, items: list[bytes], keys: list[bytes] | None) -> list[int]:
        ends = list(accumulate(weights_of(items), initial=self.weight))
        boundaries: list[int] = []
        start = first = 0  # the weight and the index at which the open node begins
        while True:
            index = bisect_left(ends, start + LEAF_LEAST, first or 1)
            while index < len(ends):
                cell = items[index - 1]
                if (
                    ends[index] - start >= LEAF_GREATEST
                    or xxh3_64_intdigest(cell) < (ends[index] - ends[index - 1]) * _PER_BYTE
                ):
                    break
                index += 1
            else:
                break
            boundaries.append(index - first + (0 if boundaries else self.pending))
            start, first = ends[index], index
        self.weight = ends[-1] - start
        self.pending = len(items) - first + (0 if boundaries else self.pending)
        return boundaries


class _CountingChunker(Chunker):
    """Nodes that are weighed by the number of their items."""

    __slots__ = ()

    @abstractmethod
    def ends(self, item: bytes) -> bool:
        """Return whether a node may end with the item that has these bytes."""

    def resume(self, items: list[bytes], keys: list[bytes] | None, weight: int) -> bool:
        count = len(items)
        if count >= NODE_GREATEST or (count >= NODE_LEAST and self.ends((items if keys is None else keys)[-1])):
            return False
        self.pending = count
        return True

    def feed(self, items: list[bytes], keys: list[bytes] | None) -> list[int]:
        pending = self.pending
        if pending + len(items) < NODE_LEAST:
            self.pending = pending + len(items)
            return []
        boundaries = []
        ends = self.ends
        for item in items if keys is None else keys:
            pending += 1
            if pending >= NODE_LEAST and (pending >= NODE_GREATEST or ends(item)):
                boundaries.append(pending)
                pending = 0
        self.pending = pending
        return boundaries


class MapLeafChunker(_CountingChunker):
    """Leaves of a map: a boundary follows from an entry's key."""

    __slots__ = ()

    def ends(self, item: bytes) -> bool:
        return xxh3_64_intdigest(item) < _KEYS_BELOW

    def feed(self, items: list[bytes], keys: list[bytes] | None) -> list[int]:
        # The loop of the base with ``ends`` written out: every key of a large state comes here.
        assert keys is not None
        pending, boundaries = self.pending, []
        for key in keys:
            pending += 1
            if pending >= NODE_LEAST and (pending >= NODE_GREATEST or xxh3_64_intdigest(key) < _KEYS_BELOW):
                boundaries.append(pending)
                pending = 0
        self.pending = pending
        return boundaries


class InnerChunker(_CountingChunker):
    """Inner nodes: a boundary follows from a child's address."""

    __slots__ = ()

    def resume(self, items: list[bytes], keys: list[bytes] | None, weight: int) -> bool:
        if not is_open(items):
            return False
        self.pending = len(items)
        return True

    def feed(self, items: list[bytes], keys: list[bytes] | None) -> list[int]:
        return super().feed(items, None)

    def ends(self, item: bytes) -> bool:
        return item[0] < _CHILDREN_BELOW


def is_open(children: list[bytes]) -> bool:
    """Return whether an inner node of these children, the last node of its level, has no boundary at its end."""
    count = len(children)
    return count < NODE_LEAST or (count < NODE_GREATEST and children[-1][0] >= _CHILDREN_BELOW)
