"""``Cache``, which keeps recently used objects of another store in memory. Layer: storage.

It keeps only objects: an object's value is a function of its key, so a copy is never stale. It never keeps a ref or the
absence of a key, so two caches over one store never show a stale head.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from versioned_state.arguments import count
from versioned_state.errors import StateError
from versioned_state.storage.backend import check_keys
from versioned_state.storage.base import Batch, KVStore, is_object
from versioned_state.storage.call_lock import CallLock
from versioned_state.storage.wrapper import Wrapper

# The memory of an entry beside its key and value: two object headers, a slot and links of the ordered
# dict. If it were not counted, a million tiny objects would take ten times the bound.
_ENTRY_BYTES = 250


CACHE_BYTES: Final = 64 * 1024 * 1024
"""The size of a cache by default."""


class Cache(Wrapper):
    """A cache of the most recently used objects of ``store``, up to ``max_bytes`` in all.

    ``in`` always reads the store, because another process may have collected a cached object. ``hits`` and ``misses``
    count requested objects.
    """

    def __init__(self, store: KVStore, max_bytes: int = CACHE_BYTES) -> None:
        count("max_bytes", max_bytes)
        super().__init__(store)
        self.sends_together: bool = store.sends_together
        self.max_bytes = max_bytes
        self.hits: int = 0
        self.misses: int = 0
        self._lock = CallLock()
        self._kept: OrderedDict[str, bytes] = OrderedDict()
        self._size = 0
        # The number of removals. A read that began before a removal and ends after it must not cache
        # the removed object again.
        self._removals = 0

    @property
    def size(self) -> int:
        """Bytes in the cache, including an estimate of the memory of the entries themselves."""
        return self._size

    def get(self, key: str) -> bytes | None:
        if not is_object(key):
            return self.store.get(key)
        with self._lock:
            value = self._kept.get(key)
            if value is not None:
                self._kept.move_to_end(key)
                self.hits += 1
                return value
            self.misses += 1
            removals = self._removals
        value = self.store.get(key)
        if value is not None:
            self._keep({key: value}, removals)
        return value

    def get_many(self, keys: Iterable[str]) -> dict[str, bytes]:
        wanted = check_keys(keys)
        found: dict[str, bytes] = {}
        with self._lock:
            for key in wanted:
                value = self._kept.get(key)
                if value is not None:
                    self._kept.move_to_end(key)
                    found[key] = value
            rest = [key for key in wanted if key not in found]
            self.hits += len(found)
            self.misses += sum(map(is_object, rest))
            removals = self._removals
        # A call that the cache answers in full costs no round trip. It still fails on a closed store: close() empties
        # the cache.
        if rest or not wanted:
            fetched = self.store.get_many(rest)
            self._keep({key: value for key, value in fetched.items() if is_object(key)}, removals)
            found.update(fetched)
        return found

    def page_items(
        self, prefix: str = "", *, after: str | None = None, limit: int, reverse: bool = False
    ) -> dict[str, bytes | None]:
        return self.store.page_items(prefix, after=after, limit=limit, reverse=reverse)  # none of them is an object

    def apply(
        self,
        expected: Mapping[str, bytes | None],
        puts: Mapping[str, bytes],
        deletes: Collection[str] = (),
        *,
        objects: Mapping[str, bytes] | None = None,
    ) -> bool:
        removals = self._removals
        if deletes:
            self._forget(deletes)
        try:
            applied = self.store.apply(expected, puts, deletes, objects=objects)
        finally:
            if deletes:
                self._forget(deletes)
        if applied and objects:
            self._keep(objects, removals)
        return applied

    def apply_each(self, batches: Sequence[Batch]) -> list[bool | StateError]:
        removals = self._removals
        deletes = [key for batch in batches for key in batch.deletes]
        if deletes:
            self._forget(deletes)
        try:
            outcomes = self.store.apply_each(batches)
        finally:
            if deletes:
                self._forget(deletes)
        kept: dict[str, bytes] = {}
        for batch, outcome in zip(batches, outcomes, strict=True):
            if outcome is True:
                kept.update(batch.objects)
        if kept:
            self._keep(kept, removals)
        return outcomes

    def close(self) -> None:
        with self._lock:
            self._removals += 1
            self._clear()
        super().close()

    def _keep(self, objects: Mapping[str, bytes], removals: int) -> None:
        with self._lock:
            if removals != self._removals:
                return
            try:
                for key, value in objects.items():
                    cost = _cost(key, value)
                    if key in self._kept or cost > self.max_bytes:
                        continue
                    while self._size + cost > self.max_bytes:
                        self._size -= _cost(*self._kept.popitem(last=False))
                    self._kept[key] = value
                    self._size += cost
            except BaseException:
                self._clear()
                raise

    def _forget(self, keys: Iterable[str]) -> None:
        with self._lock:
            self._removals += 1
            try:
                for key in keys:
                    value = self._kept.pop(key, None)
                    if value is not None:
                        self._size -= _cost(key, value)
            except BaseException:
                self._clear()
                raise

    def _clear(self) -> None:
        # An interrupt between two steps may have left the size wrong. A cache may forget its entries.
        self._kept.clear()
        self._size = 0


def _cost(key: str, value: bytes) -> int:
    return len(key) + len(value) + _ENTRY_BYTES


def uncached(store: KVStore) -> KVStore:
    """Return the store beneath the caches.

    A walk over everything reads this one, so that it does not evict the objects that others use.
    """
    return uncached(store.store) if isinstance(store, Cache) else store
