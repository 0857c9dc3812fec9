"""Where trees are cut, by content alone, so that equal content has equal nodes whatever its history. Layer: values.

Every rule has the same form: an item may be *marked* by its own hash; a node ends after a marked item once it holds its
least weight, or where it reaches its greatest. The least weight keeps nodes from shrinking to one item, and the tree
finite, where one item is repeated endlessly. These numbers are part of the format.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from itertools import repeat
from typing import Final

from xxhash import xxh3_64_intdigest

LEAF_LEAST: Final = 3072
LEAF_SCALE: Final = 2048
LEAF_GREATEST: Final = 16384
"""Bytes of a leaf of a sequence. An element is marked with a probability of its size over the scale, so leaves of large and of
small elements weigh the same: 4.5 KB in the mean. A least weight near the mean makes them even, which is what an append pays for:
it writes the last leaf again, 4.1 KB of it in the mean; with cuts by chance alone it would be 5.1 KB (docs/design/002)."""

NODE_LEAST: Final = 6
NODE_SCALE: Final = 6
NODE_GREATEST: Final = 44
"""Entries of a leaf of a map, and children of an inner node: 11 in the mean. One in ``NODE_SCALE`` is marked: of a map's entries by
the key, so that a changed value moves no cut; of children by the address, which is uniform already."""

_BYTE_MARK: Final = (1 << 64) // LEAF_SCALE
_KEY_MARK: Final = (1 << 64) // NODE_SCALE
_CHILD_MARK: Final = 256 // NODE_SCALE


class Chunker(ABC):
    """Cuts one level of a tree, fed from left to right.

    ``feed`` returns how many items belong to each node that it completed, the first of them counting the items that
    were pending; ``pending`` is how many wait for their cut.
    """

    __slots__ = ("_weight", "pending")

    least: int
    greatest: int

    def __init__(self) -> None:
        self._weight = 0
        self.pending = 0

    @abstractmethod
    def marks(self, items: list[bytes], keys: list[bytes] | None) -> list[bool]:
        """For each item, whether it is marked."""

    def weights(self, items: list[bytes]) -> Iterable[int]:
        """For each item, its weight."""
        return repeat(1)

    def feed(self, items: list[bytes], keys: list[bytes] | None) -> list[int]:
        """Cost: one hash an item."""
        cuts = []
        least, greatest, weight, pending = self.least, self.greatest, self._weight, self.pending
        for marked, item_weight in zip(self.marks(items, keys), self.weights(items), strict=False):
            pending += 1
            weight += item_weight
            if weight >= least and (marked or weight >= greatest):
                cuts.append(pending)
                weight = pending = 0
        self._weight, self.pending = weight, pending
        return cuts


class SequenceLeafChunker(Chunker):
    """Leaves of a sequence: marked by their bytes and size."""

    __slots__ = ()

    least = LEAF_LEAST
    greatest = LEAF_GREATEST

    def marks(self, items: list[bytes], keys: list[bytes] | None) -> list[bool]:
        return [xxh3_64_intdigest(cell) < len(cell) * _BYTE_MARK for cell in items]

    def weights(self, items: list[bytes]) -> Iterable[int]:
        return map(len, items)


class MapLeafChunker(Chunker):
    """Leaves of a map: marked by their keys."""

    __slots__ = ()

    least = NODE_LEAST
    greatest = NODE_GREATEST

    def marks(self, items: list[bytes], keys: list[bytes] | None) -> list[bool]:
        assert keys is not None
        return [xxh3_64_intdigest(key) < _KEY_MARK for key in keys]


class InnerChunker(Chunker):
    """Inner nodes: marked by the addresses of the children."""

    __slots__ = ()

    least = NODE_LEAST
    greatest = NODE_GREATEST

    def marks(self, items: list[bytes], keys: list[bytes] | None) -> list[bool]:
        return [address[0] < _CHILD_MARK for address in items]
