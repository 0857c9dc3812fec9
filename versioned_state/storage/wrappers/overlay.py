"""``Overlay``: writes that stay in memory, over a store that is only read. Layer: storage."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from versioned_state.storage.backend import Backend
from versioned_state.storage.base import KVStore
from versioned_state.storage.call_lock import CallLock


class Overlay(Backend):
    """A store that reads what ``store`` has, and keeps its own writes in memory: for a dry run of any call.

    Nothing is ever written to ``store``, and closing this does not close it. Memory: what is written.
    """

    def __init__(self, store: KVStore) -> None:
        self.store = store
        self.private: bool = store.private
        self._lock = CallLock()
        self._written: dict[str, bytes | None] = {}  # None: deleted

    def __repr__(self) -> str:
        return f"<Overlay over {self.store!r}>"

    def _get(self, key: str) -> bytes | None:
        return self._get_many((key,)).get(key)

    def _get_many(self, keys: tuple[str, ...]) -> dict[str, bytes]:
        with self._lock:
            own = {key: self._written[key] for key in keys if key in self._written}
            self._check_open()
            found = self.store.get_many([key for key in keys if key not in own])
        return found | {key: value for key, value in own.items() if value is not None}

    def _sizes(self, keys: tuple[str, ...]) -> dict[str, int]:
        return {key: len(value) for key, value in self._get_many(keys).items()}

    def _keys(self, prefix: str) -> Iterator[str]:
        with self._lock:
            own = {key: value for key, value in self._written.items() if key.startswith(prefix)}
            found = [key for key, value in own.items() if value is not None]
            self._check_open()
        for key in found:
            self._check_open()
            yield key
        for key in self.store.keys(prefix):
            self._check_open()
            if key not in own:
                yield key

    def _apply(
        self,
        expected: Mapping[str, bytes | None],
        puts: Mapping[str, bytes],
        deletes: Collection[str],
        objects: Mapping[str, bytes],
    ) -> bool:
        with self._lock:
            asked = [key for key in (*expected, *objects) if key not in self._written]
            now: dict[str, bytes | None] = dict.fromkeys(asked)
            now.update(self.store.get_many(asked))
            now.update(self._written)
            self._check_open()
            written = dict(self._written)
            written.update((key, value) for key, value in objects.items() if now[key] is None)
            holds = all(now[key] == value for key, value in expected.items())
            if holds:
                written.update(puts)
                written.update(dict.fromkeys(deletes))
            self._written = written  # in one step, whatever interrupts it
        return holds

    def _close(self) -> None:
        self._written = {}
