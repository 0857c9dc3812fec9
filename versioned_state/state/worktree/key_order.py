"""Sets and dicts that also know the order of their keys, for states whose keys iterate in sorted order. Layer: state.

Keys come and go in O(1). The order is brought up to date when somebody asks for it: a few keys are moved one by one, many are sorted.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Container
from typing import Any, Final, Generic, TypeVar

K = TypeVar("K", str, bytes)
V = TypeVar("V")

_FEW: Final = 32
"""Keys that are inserted one by one: each moves the pointers behind it, so beyond some dozens one sort is cheaper."""


class KeyOrder(Generic[K]):
    """The keys of a set or dict in order, which tells it by ``touch`` of each key that may have come or gone, before it does."""

    def __init__(self, members: Container[K]) -> None:
        self._members: Container[K] = members
        self._keys: list[K] = []
        self._touched: set[K] = set()

    def touch(self, key: K) -> None:
        """Look at this key again."""
        self._touched.add(key)

    def keys(self) -> list[K]:
        """All keys in order. The list is this object's own."""
        members = self._members
        if len(self._touched) > _FEW:
            # Two sorted runs: the keys that stay, and those that came. An interrupt between the assignments only does work twice.
            keys = [key for key in self._keys if key not in self._touched]
            keys += sorted(key for key in self._touched if key in members)
            keys.sort()
            self._keys = keys
            self._touched = set()
        while self._touched:
            key = next(iter(self._touched))
            at = bisect_left(self._keys, key)
            found = at < len(self._keys) and self._keys[at] == key
            if found and key not in members:
                del self._keys[at]
            elif not found and key in members:
                self._keys.insert(at, key)
            self._touched.discard(key)
        return self._keys

    def clear(self) -> None:
        """There are no keys any more."""
        self._keys = []
        self._touched = set()

    def between(self, start: K, end: K) -> list[K]:
        """The keys in [start, end), in order."""
        keys = self.keys()
        return keys[bisect_left(keys, start) : bisect_left(keys, end)]

    def count(self, start: K, end: K) -> int:
        """How many keys there are in [start, end)."""
        keys = self.keys()
        return bisect_left(keys, end) - bisect_left(keys, start) if keys else 0

    def last(self, start: K, end: K) -> K | None:
        """The last key in [start, end), or None."""
        keys = self.keys()
        at = bisect_left(keys, end) - 1
        return keys[at] if at >= 0 and keys[at] >= start else None


class OrderedKeySet(set[bytes]):
    """A set of root keys with their ``order``, which ``add`` and ``discard`` keep."""

    def __init__(self) -> None:
        super().__init__()
        self.order: KeyOrder[bytes] = KeyOrder(self)

    def add(self, key: bytes) -> None:
        self.order.touch(key)
        super().add(key)

    def discard(self, key: Any) -> None:
        if key in self:
            self.order.touch(key)
            super().discard(key)
            if not self:
                self.order.clear()


class OrderedKeyDict(dict[bytes, V]):
    """A dict under root keys with their ``order``, which assignments, ``del`` and ``pop`` keep."""

    def __init__(self) -> None:
        super().__init__()
        self.order: KeyOrder[bytes] = KeyOrder(self)

    def __setitem__(self, key: bytes, value: V) -> None:
        self.order.touch(key)
        super().__setitem__(key, value)

    def __delitem__(self, key: bytes) -> None:
        self.order.touch(key)
        super().__delitem__(key)
        if not self:
            self.order.clear()

    def pop(self, key: bytes, default: Any = None) -> Any:
        """The value, or the default if there is none."""
        value = self.get(key, default)
        if key in self:
            del self[key]
        return value
