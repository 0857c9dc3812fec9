"""`SingleProcessStore`, an adapter for a store that can do no more than read, write, remove and list.

It is worth what its name says: batches and conditions hold among the threads of one process that
share one adapter. A second process over the same data is not seen and can overwrite; a crash within
a batch can leave part of it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping
from threading import RLock

from versioned_state.errors import StoreClosedError
from versioned_state.storage.base import KVStore, check_batch, check_key, check_keys, check_value


class SingleProcessStore(KVStore):
    """A full store out of four methods, which are called under one lock and never after `close()`.

    ::

        class Files(SingleProcessStore):
            def read_value(self, key): ...          # bytes, or None where there is none
            def write_value(self, key, value): ...  # store it, whole, over what was there
            def remove_value(self, key): ...        # no error where there is none
            def list_keys(self, prefix): ...        # those that start with it, once each

    A batch is written objects first, then puts, then deletes. If a write fails, the puts and deletes
    done before it are taken back and its error goes on; if that fails too, part of the batch stays.
    """

    def __init__(self) -> None:
        self._lock = RLock()
        self._closed = False

    @abstractmethod
    def read_value(self, key: str) -> bytes | None:
        """The value of `key`, or None."""

    @abstractmethod
    def write_value(self, key: str, value: bytes) -> None:
        """Store `value`, over what was there. After an error the old value must still be there."""

    @abstractmethod
    def remove_value(self, key: str) -> None:
        """Remove `key` if it is there."""

    @abstractmethod
    def list_keys(self, prefix: str) -> Iterable[str]:
        """The keys that start with `prefix`. Taken to the end before anything else is asked."""

    def release(self) -> None:
        """Let go of what the store holds; called once, by `close()`."""

    def get(self, key: str) -> bytes | None:
        check_key(key)
        with self._lock:
            self._check_open()
            return self.read_value(key)

    def set(self, key: str, value: bytes) -> None:
        check_value(value)
        self.set_many({key: value})

    def get_many(self, keys: Iterable[str]) -> dict[str, bytes]:
        wanted = check_keys(keys)
        with self._lock:
            self._check_open()
            found = {key: self.read_value(key) for key in wanted}
        return {key: value for key, value in found.items() if value is not None}

    def keys(self, prefix: str = "") -> Iterator[str]:
        check_key(prefix)
        with self._lock:
            self._check_open()
            found = tuple(self.list_keys(prefix))
        return iter(found)

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
                if self.read_value(key) is None:
                    self.write_value(key, value)
            if any(self.read_value(key) != value for key, value in expected.items()):
                return False
            before: dict[str, bytes | None] = {}
            try:
                for key, value in puts.items():
                    before[key] = self.read_value(key)
                    self.write_value(key, value)
                for key in deletes:
                    before[key] = self.read_value(key)
                    self.remove_value(key)
            except BaseException:
                self._take_back(before)
                raise
        return True

    def close(self) -> None:
        with self._lock:
            if not self._closed:
                self._closed = True
                self.release()

    def _take_back(self, before: Mapping[str, bytes | None]) -> None:
        for key, value in before.items():
            if value is None:
                self.remove_value(key)
            else:
                self.write_value(key, value)

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosedError("the store is closed")
