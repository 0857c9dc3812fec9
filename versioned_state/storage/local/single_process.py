"""``SingleProcessStore``, an adapter for a store that can only read, write, remove and list. Layer: storage.

Batches and conditions hold among the threads of one process that share one adapter. A second process over the same data
is not seen and can overwrite; a crash within a batch can leave part of it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping

from versioned_state.storage.backend import Backend
from versioned_state.storage.call_lock import CallLock


class SingleProcessStore(Backend):
    """A full store made of four methods, which are called under one lock and never after ``close()``.

    ::

        class Files(SingleProcessStore):
            def read_value(self, key): ...          # bytes, or None if there is none
            def write_value(self, key, value): ...  # store it, whole, over the old value
            def remove_value(self, key): ...        # not an error if there is none
            def list_keys(self, prefix): ...        # those that start with it, once each

    A batch is written objects first, then puts, then deletes. If a write fails, the puts and deletes done before it are
    taken back and its error is raised; if that fails too, part of the batch stays.
    """

    def __init__(self) -> None:
        self._lock = CallLock()
        self._released = False

    @abstractmethod
    def read_value(self, key: str) -> bytes | None:
        """Return the value of ``key``, or None."""

    @abstractmethod
    def write_value(self, key: str, value: bytes) -> None:
        """Store ``value``, over the old one. After an error the old value must still be there."""

    @abstractmethod
    def remove_value(self, key: str) -> None:
        """Remove ``key`` if it exists."""

    @abstractmethod
    def list_keys(self, prefix: str) -> Iterable[str]:
        """Return the keys that start with ``prefix``. It is read to the end before the next call."""

    def release(self) -> None:
        """Close files and connections. Called once, by ``close()``."""

    def _get(self, key: str) -> bytes | None:
        with self._lock:
            self._check_open()
            return self.read_value(key)

    def _get_many(self, keys: tuple[str, ...]) -> dict[str, bytes]:
        with self._lock:
            self._check_open()
            found = {key: self.read_value(key) for key in keys}
        return {key: value for key, value in found.items() if value is not None}

    def _keys(self, prefix: str) -> Iterator[str]:
        with self._lock:
            self._check_open()
            found = tuple(self.list_keys(prefix))
        return iter(found)

    def _apply(
        self,
        expected: Mapping[str, bytes | None],
        puts: Mapping[str, bytes],
        deletes: Collection[str],
        objects: Mapping[str, bytes],
    ) -> bool:
        with self._lock:
            self._check_open()
            for key, value in objects.items():
                if self.read_value(key) is None:
                    self.write_value(key, value)
            for key, wanted in expected.items():
                if self.read_value(key) != wanted:
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

    def _close(self) -> None:
        with self._lock:
            if not self._released:
                self._released = True
                self.release()

    def _take_back(self, before: Mapping[str, bytes | None]) -> None:
        for key, value in before.items():
            if value is None:
                self.remove_value(key)
            else:
                self.write_value(key, value)
