"""`Disk` and its size: the limit, the reserve, what counts, and giving back what deletes left."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from versioned_state.errors import (
    InvalidArgumentError,
    ReadOnlyError,
    StorageFullError,
    StoreBusyError,
    StoreClosedError,
)
from versioned_state.storage import Disk

FILE = "store.sqlite3"


def random_objects(count: int, size: int = 1000) -> dict[str, bytes]:
    return {f"o/{os.urandom(24).hex()}": os.urandom(size) for _ in range(count)}


def fill(store: Disk) -> int:
    """Write objects until the store is full, and return how many it took."""
    held = dict(store.items())
    count = 0
    for _ in range(10_000):
        ref, batch = b"%d" % count, random_objects(3, 2000)
        try:
            store.apply({}, {"ref": ref}, objects=batch)
        except StorageFullError as error:
            full = error
            break
        held |= {"ref": ref, **batch}
        count += len(batch)
    assert full.limit == store.size_limit
    assert dict(store.items()) == held
    return count


def test_size_limit_refuses_and_changes_nothing(tmp_path: Path) -> None:
    with Disk(tmp_path, size_limit=400_000) as store:
        taken = fill(store)
        assert taken * 2000 > 200_000
        assert store.size() <= 400_000
        # Refs can still be moved and made, garbage deleted; then there is room again.
        store.set("ref", b"moved")
        store.set("another", b"x" * 1000)
        garbage = list(store.keys("o/"))
        assert store.apply({"ref": b"moved"}, {"ref": b"after gc"}, garbage[: len(garbage) // 2])
        assert fill(store) > 0
        store.delete_many(list(store.keys()))
        assert store.size() < 50_000
        assert fill(store) == taken
    assert (tmp_path / FILE).stat().st_size <= 400_000


def _fill_with_refs(store: Disk) -> None:
    for number in range(1000):
        try:
            store.set(f"k/{number}", b"x" * 3000)
        except StorageFullError:
            return
    pytest.fail("it never fills up")


def test_mutable_keys_leave_room_for_deletes(tmp_path: Path) -> None:
    with Disk(tmp_path, size_limit=400_000) as store:
        fill(store)
        _fill_with_refs(store)
        assert store.apply({}, {"lease": b"x" * 3000}, list(store.keys("o/"))[:5])
        for key in list(store.keys()):
            store.delete(key)
        assert list(store.keys()) == []
        assert store.size() <= 400_000


def test_size_limit_binds_every_opener(tmp_path: Path) -> None:
    with Disk(tmp_path) as first:
        limits = [first.size_limit]
        with Disk(tmp_path, size_limit=300_000) as second:
            limits += [first.size_limit, second.size_limit]
        assert limits == [None, 300_000, 300_000]
        fill(first)
        assert first.size() <= 300_000
    with Disk(tmp_path) as store:
        assert store.size_limit == 300_000
        with pytest.raises(StorageFullError):
            store.set_many(random_objects(10))
    with Disk(tmp_path, size_limit=600_000) as store:
        store.set_many(random_objects(100))
        used = store.size()
    with Disk(tmp_path, size_limit=300_000) as store, Disk(tmp_path) as other:
        # Below what is there: it can only shrink, and a ref in place can be moved.
        assert store.size() == used
        with pytest.raises(StorageFullError):
            other.set_many(random_objects(10))
        other.set("ref", b"moved")
        other.delete_many(list(other.keys("o/"))[:5])
    with Disk(tmp_path, size_limit=0) as store:
        assert store.size_limit is None
        store.set_many(random_objects(1000))
    with Disk(tmp_path, read_only=True) as store:
        assert store.size_limit is None


@pytest.mark.parametrize(
    ("name", "value"),
    [("size_limit", -1), ("size_limit", 1000), ("durability", "none")],
)
def test_bad_option_is_refused_before_anything_is_made(tmp_path: Path, name: str, value: object) -> None:
    options: dict[str, object] = {name: value}
    with pytest.raises(InvalidArgumentError):
        Disk(tmp_path / "store", **options)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError):
        Disk(tmp_path / "store", size_limit=300_000, read_only=True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("timeout", [0, 0.5, 10**9, float("inf")])
def test_any_timeout(tmp_path: Path, timeout: float) -> None:
    with Disk(tmp_path, timeout=timeout) as store:
        store.set("k", b"1")


def test_size_counts_pages_in_use(tmp_path: Path) -> None:
    with Disk(tmp_path) as store:
        empty = store.size()
        store.set_many(random_objects(100, 4000))
        assert 400_000 < store.size() - empty < 900_000
        store.delete_many(list(store.keys()))
        assert store.size() - empty < 50_000
    with pytest.raises(StoreClosedError):
        store.size()


def test_compact_gives_back_what_deletes_left(tmp_path: Path) -> None:
    with Disk(tmp_path, size_limit=2_000_000) as store:
        taken = fill(store)
        garbage = [key for number, key in enumerate(store.keys("o/")) if number % 2]
        store.delete_many(garbage)
        kept, used = dict(store.items()), store.size()
        assert store.compact() == used - store.size() > 300_000
        assert dict(store.items()) == kept
        assert (tmp_path / FILE).stat().st_size == store.size()
        assert fill(store) > taken // 3
        with Disk(tmp_path) as other:
            other.set("k", b"1")
    with Disk(tmp_path, read_only=True) as store, pytest.raises(ReadOnlyError):
        store.compact()


def test_compact_of_a_busy_store_changes_nothing(tmp_path: Path) -> None:
    with Disk(tmp_path, timeout=0.1) as store:
        store.set_many(random_objects(100))
        kept = dict(store.items())
        with closing(sqlite3.connect(tmp_path / FILE, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreBusyError):
                store.compact()
            other.execute("ROLLBACK")
        assert dict(store.items()) == kept
        store.set("k", b"1")
