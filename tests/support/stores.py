"""Stores that promise little, and a way to put one under an open repository."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from versioned_state import KVStore, Repository
from versioned_state.storage import Memory, SingleProcessStore


class DictStore(SingleProcessStore):
    """The smallest store there can be: a dict behind `SingleProcessStore`."""

    def __init__(self) -> None:
        super().__init__()
        self.values: dict[str, bytes] = {}

    def read_value(self, key: str) -> bytes | None:
        return self.values.get(key)

    def write_value(self, key: str, value: bytes) -> None:
        self.values[key] = value

    def remove_value(self, key: str) -> None:
        self.values.pop(key, None)

    def list_keys(self, prefix: str) -> Iterable[str]:
        return (key for key in self.values if key.startswith(prefix))


class SharedMemory(Memory):
    """A store that others can write to."""

    private = False


class OneCondition(Memory):
    """A store as on HTTP: one condition in a batch."""

    max_expected = 1


class MinimalStore(DictStore):
    """The least that a store can promise: four methods over a dict, and one condition a batch."""

    max_expected = 1


def memory_of(content: Mapping[str, bytes]) -> Memory:
    """Return a store in memory with this content."""
    store = Memory()
    store.set_many(content)
    return store


def swap_store(repository: Repository, store: KVStore) -> None:
    """Put another store, usually a meddling wrapper of the one it has, under an open repository."""
    repository.database.objects.kv = repository.database.fence._store = store
