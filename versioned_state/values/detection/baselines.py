"""Baselines: a live value as it was last committed: its cell, and fingerprints that show whether it has changed since.

Layer: values.

A baseline mirrors the tree: a large list or dict has fingerprints over its small elements and baselines of its large
ones, so a change deep inside is found and encoded again at the cost of its surroundings. A small value has no baseline
of its own; it shares a fingerprint
with its neighbours. A baseline never changes: an update returns a new one.
"""

from __future__ import annotations

import sys
from typing import Any, Final

from versioned_state.records import dataclass
from versioned_state.values.detection.groups import Fingerprint, Groups
from versioned_state.values.trees.blob import Blob
from versioned_state.values.trees.tree import Tree

_BYTES: Final = 300
"""Approximate bytes of memory of a baseline besides its parts."""

_KEY_BYTES: Final = 80
_HASH_BYTES: Final = 40


@dataclass(slots=True)
class Baseline:
    """The type that the value had, and its cell."""

    type: type
    cell: bytes

    @property
    def held_bytes(self) -> int:
        """Approximate bytes of memory of the baseline and those beneath it. Cost: O(1)."""
        return _BYTES + len(self.cell)


@dataclass(slots=True)
class Pinned(Baseline):
    """A large immutable value, recognised by identity, and its chunks, which a value that replaces it may share."""

    value: Any
    blob: Blob

    @property
    def held_bytes(self) -> int:
        return _BYTES + len(self.cell) + sys.getsizeof(self.value)


@dataclass(slots=True)
class Whole(Baseline):
    """A large value that is encoded as a whole: a set, a tuple, an object. Objects have fingerprints of their own."""

    fingerprint: Fingerprint
    is_object: bool = False


@dataclass(slots=True)
class Typed(Baseline):
    """A large typed value: the baseline of its data, or a fingerprint if that has none, and a fingerprint of its notes.

    ``quick`` is the fingerprint of ``Layout.quick``, or None.
    """

    inner: Baseline | None
    fingerprint: Fingerprint
    notes_fingerprint: Fingerprint
    quick: Any = None

    @property
    def held_bytes(self) -> int:
        return _BYTES + len(self.cell) + (0 if self.inner is None else self.inner.held_bytes)


@dataclass(slots=True)
class Elements(Baseline):
    """A list that is a tree.

    ``firsts`` has the identity of the first element of each group: a hint to the present position of the group, which
    is then compared.
    """

    tree: Tree
    groups: Groups
    firsts: list[int]

    @property
    def held_bytes(self) -> int:
        return _BYTES + len(self.cell) + self.groups.held_bytes


@dataclass(slots=True)
class Entries(Baseline):
    """A dict that is a tree: its keys in their order, and groups over its values in the same order.

    ``order`` is the tree of the keys in their order if that is not the sorted one.
    """

    tree: Tree
    order: Tree | None
    keys: list[Any]
    keys_fingerprint: Fingerprint
    groups: Groups

    @property
    def held_bytes(self) -> int:
        return _BYTES + len(self.cell) + _KEY_BYTES * len(self.keys) + self.groups.held_bytes


@dataclass(slots=True)
class Buffer(Baseline):
    """A bytearray or an array: its chunks, and a hash of each. ``form`` is dtype and shape, or None."""

    form: Any
    size: int
    hashes: list[int]
    blob: Blob

    @property
    def held_bytes(self) -> int:
        return _BYTES + len(self.cell) + _HASH_BYTES * len(self.hashes)
