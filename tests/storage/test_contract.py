"""Every store of this package keeps the promises of `KVStore`."""

from __future__ import annotations

from pathlib import Path

from tests.support.local_files import check_one_file
from tests.support.stores import DictStore, OneCondition
from versioned_state.storage import Cache, Counting, Disk, Faulty, KVStore, Memory
from versioned_state.storage.testing.contract import KVStoreContract
from versioned_state.storage.wrappers.overlay import Overlay


class TestMemory(KVStoreContract):
    tells_sizes = True

    def open_store(self, place: Path) -> KVStore:
        return Memory()


class TestDisk(KVStoreContract):
    tells_sizes = True
    persistent = True
    shared = True
    forks = True

    def open_store(self, place: Path) -> KVStore:
        return Disk(place)

    def check_closed(self, place: Path) -> None:
        check_one_file(place, "store.sqlite3")


class TestDiskWithSizeLimitAndPower(KVStoreContract):
    tells_sizes = True
    persistent = True
    shared = True
    forks = True

    def open_store(self, place: Path) -> KVStore:
        return Disk(place, size_limit=200_000_000, durability="power")


class TestCacheOverMemory(KVStoreContract):
    tells_sizes = True

    def open_store(self, place: Path) -> KVStore:
        return Cache(Memory())


class TestCacheOverDisk(KVStoreContract):
    tells_sizes = True
    persistent = True

    def open_store(self, place: Path) -> KVStore:
        return Cache(Disk(place))


class TestSmallCache(KVStoreContract):
    tells_sizes = True

    def open_store(self, place: Path) -> KVStore:
        return Cache(Memory(), max_bytes=2_000)


class TestCounting(KVStoreContract):
    tells_sizes = True

    def open_store(self, place: Path) -> KVStore:
        return Counting(Memory())


class TestOverlay(KVStoreContract):
    tells_sizes = True

    def open_store(self, place: Path) -> KVStore:
        return Overlay(Memory())


class TestFaultyWithoutFault(KVStoreContract):
    tells_sizes = True

    def open_store(self, place: Path) -> KVStore:
        return Faulty(Memory())


class TestSingleProcessStore(KVStoreContract):
    def open_store(self, place: Path) -> KVStore:
        return DictStore()


class TestStoreWithOneCondition(KVStoreContract):
    tells_sizes = True

    def open_store(self, place: Path) -> KVStore:
        return OneCondition()
