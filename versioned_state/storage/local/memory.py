"""`Memory`, the store of this process: gone when it is. The default of `Versioned()`, and of tests."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Iterable, Iterator, Mapping
from threading import RLock

from versioned_state.errors import StoreClosedError
from versioned_state.storage.base import KVStore, check_batch, check_key, check_keys, check_value, is_object


class Memory(KVStore):
    """A dict under a lock. Only this process reaches it, so it is `private`."""

    private = True

    def __init__(self) -> None:
        self._lock = RLock()
        self._objects: dict[str, bytes] = {}
        self._mutable: dict[str, bytes] = {}
        # The mutable keys in order, so that listing a prefix costs what it lists.
        self._ordered: list[str] = []
        self._closed = False

    def __repr__(self) -> str:
        return f"<Memory {len(self._objects)} objects, {len(self._mutable)} other keys>"

    def get(self, key: str) -> bytes | None:
        self._check_open()
        check_key(key)
        return (self._objects if is_object(key) else self._mutable).get(key)

    def set(self, key: str, value: bytes) -> None:
        check_value(value)
        self.set_many({key: value})

    def get_many(self, keys: Iterable[str]) -> dict[str, bytes]:
        wanted = check_keys(keys)
        found = {}
        with self._lock:
            self._check_open()
            for key in wanted:
                value = (self._objects if is_object(key) else self._mutable).get(key)
                if value is not None:
                    found[key] = value
        return found

    def sizes(self, keys: Iterable[str]) -> dict[str, int]:
        return {key: len(value) for key, value in self.get_many(keys).items()}

    def keys(self, prefix: str = "") -> Iterator[str]:
        check_key(prefix)
        with self._lock:
            self._check_open()
            start = bisect_left(self._ordered, prefix)
            end = start
            while end < len(self._ordered) and self._ordered[end].startswith(prefix):
                end += 1
            found = self._ordered[start:end]
            if prefix.startswith("o/") or "o/".startswith(prefix):
                found += [key for key in self._objects if key.startswith(prefix)]
        return self._while_open(found)

    def _while_open(self, found: list[str]) -> Iterator[str]:
        for key in found:
            self._check_open()
            yield key

    def apply(
        self,
        expected: Mapping[str, bytes | None],
        puts: Mapping[str, bytes],
        deletes: Collection[str] = (),
        *,
        objects: Mapping[str, bytes] | None = None,
    ) -> bool:
        check_batch(self, expected, puts, deletes, objects or {})
        with self._lock:
            self._check_open()
            for key, value in (objects or {}).items():
                self._objects.setdefault(key, value)
            if any(self._mutable.get(key) != value for key, value in expected.items()):
                return False
            for key, value in puts.items():
                if key not in self._mutable:
                    insort(self._ordered, key)
                self._mutable[key] = value
            for key in deletes:
                if is_object(key):
                    self._objects.pop(key, None)
                elif self._mutable.pop(key, None) is not None:
                    del self._ordered[bisect_left(self._ordered, key)]
        return True

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._objects, self._mutable, self._ordered = {}, {}, []

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosedError("the store is closed")
