"""Sets and dicts that keep their keys sorted, because states iterate over keys in order. Layer: state.

Adding or removing a key takes O(1). The next read updates the order: a few changed keys are inserted one by one, many
are sorted.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Container
from typing import Any, Final, Generic, TypeVar

K = TypeVar("K", str, bytes)
V = TypeVar("V")

_FEW: Final = 32
"""The most keys to insert one by one. Each insertion moves all later pointers, so for more keys one sort is cheaper."""


class KeyOrder(Generic[K]):
    """The sorted keys of a set or dict. The owner calls ``touch`` before it adds or removes a key."""

    def __init__(self, members: Container[K]) -> None:
        self._members: Container[K] = members
        self._keys: list[K] = []
        self._touched: set[K] = set()

    def touch(self, key: K) -> None:
        """Note that a key may be added or removed."""
        self._touched.add(key)

    def keys(self) -> list[K]:
        """Return all keys in order. The caller must not change the list."""
        members = self._members
        if len(self._touched) > _FEW:
            # Sorting is cheap for two sorted runs. An interrupt between the assignments only repeats work.
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
        """Forget all keys."""
        self._keys = []
        self._touched = set()

    def between(self, start: K, end: K) -> list[K]:
        """Return the keys in [start, end), in order."""
        keys = self.keys()
        return keys[bisect_left(keys, start) : bisect_left(keys, end)]

    def count(self, start: K, end: K) -> int:
        """Return the number of keys in [start, end)."""
        keys = self.keys()
        return bisect_left(keys, end) - bisect_left(keys, start) if keys else 0

    def last(self, start: K, end: K) -> K | None:
        """Return the last key in [start, end), or None if there is none."""
        keys = self.keys()
        at = bisect_left(keys, end) - 1
        return keys[at] if at >= 0 and keys[at] >= start else None


class _Ordered(Container[bytes]):
    """A set or dict of root keys, with their order."""

    _order: KeyOrder[bytes] | None = None

    @property
    def order(self) -> KeyOrder[bytes]:
        """The order, made at the first use: it refers to the set or dict, and most handles never add a key."""
        order = self._order
        if order is None:
            order = self._order = KeyOrder(self)
        return order


class OrderedKeySet(set[bytes], _Ordered):
    """A set of root keys with their ``order``. Change it only by ``add`` and ``discard``."""

    def add(self, key: bytes) -> None:
        self.order.touch(key)
        super().add(key)

    def discard(self, key: Any) -> None:
        if key in self:
            self.order.touch(key)
            super().discard(key)
            if not self:
                self.order.clear()


class OrderedKeyDict(dict[bytes, V], _Ordered):
    """A dict by root key with the ``order`` of its keys. Change it only by assignment, ``del`` and ``pop``."""

    def __setitem__(self, key: bytes, value: V) -> None:
        self.order.touch(key)
        super().__setitem__(key, value)

    def __delitem__(self, key: bytes) -> None:
        self.order.touch(key)
        super().__delitem__(key)
        if not self:
            self.order.clear()

    def pop(self, key: bytes, default: Any = None) -> Any:
        """Remove a key, and return its value, or the default if there is none."""
        value = self.get(key, default)
        if key in self:
            del self[key]
        return value
