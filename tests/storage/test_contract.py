"""Every store of this package keeps the promises of `KVStore`."""

from __future__ import annotations

from pathlib import Path

from tests.support.stores import DictStore, OneCondition
from versioned_state.storage import Cache, Counting, Disk, Faulty, KVStore, Memory
from versioned_state.storage.testing.contract import KVStoreContract


class TestMemory(KVStoreContract):
    def open_store(self, place: Path) -> KVStore:
        return Memory()


class TestDisk(KVStoreContract):
    persistent = True
    shared = True

    def open_store(self, place: Path) -> KVStore:
        return Disk(place)


class TestDiskWithSizeLimitAndPower(KVStoreContract):
    persistent = True
    shared = True

    def open_store(self, place: Path) -> KVStore:
        return Disk(place, size_limit=200_000_000, durability="power")


class TestCacheOverMemory(KVStoreContract):
    def open_store(self, place: Path) -> KVStore:
        return Cache(Memory())


class TestCacheOverDisk(KVStoreContract):
    persistent = True

    def open_store(self, place: Path) -> KVStore:
        return Cache(Disk(place))


class TestSmallCache(KVStoreContract):
    def open_store(self, place: Path) -> KVStore:
        return Cache(Memory(), max_bytes=2_000)


class TestCounting(KVStoreContract):
    def open_store(self, place: Path) -> KVStore:
        return Counting(Memory())


class TestFaultyWithoutFault(KVStoreContract):
    def open_store(self, place: Path) -> KVStore:
        return Faulty(Memory())


class TestSingleProcessStore(KVStoreContract):
    def open_store(self, place: Path) -> KVStore:
        return DictStore()


class TestStoreWithOneCondition(KVStoreContract):
    def open_store(self, place: Path) -> KVStore:
        return OneCondition()
