"""`Disk` with a damaged file, or a disk that fails. `tests/reliability` has torn logs and a full disk."""

from __future__ import annotations

import resource
import signal
import sqlite3
from pathlib import Path

import pytest

from tests.support.processes import fork, join
from versioned_state.errors import CorruptStoreError, NotAStoreError, StateError, StorageError
from versioned_state.storage import Disk, DiskCache, KVStore

FILE = "store.sqlite3"


# Batches that are made from their numbers


def batch(number: int) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """Return puts and objects of the `number`-th write: several pages, so that one can be torn."""
    value = b"%d" % number
    return {"ref": value, f"k/{number}": value}, {f"o/{number:04x}{part:02x}": value * 400 for part in range(3)}


def check_is_prefix(store: KVStore) -> int:
    """Check that the store holds the first n batches, each of them whole, and nothing else, and return n."""
    count = int(store.get("ref") or b"0")
    wanted: dict[str, bytes] = {}
    for number in range(1, count + 1):
        puts, objects = batch(number)
        wanted |= puts | objects
    assert dict(store.items()) == wanted
    return count


def fill(store: KVStore, kind: type[StorageError]) -> int:
    """Write batches until one fails, and return the number of those that were acknowledged."""
    start = check_is_prefix(store) + 1
    for number in range(start, 100_000):
        puts, objects = batch(number)
        try:
            assert store.apply({}, puts, objects=objects)
        except kind as error:
            failure = error
            break
    assert isinstance(failure.__cause__, sqlite3.Error)
    return number - 1


# A damaged file


def make(place: Path, count: int = 8) -> bytes:
    with Disk(place) as store:
        for number in range(1, count + 1):
            puts, objects = batch(number)
            store.apply({}, puts, objects=objects)
    return (place / FILE).read_bytes()


def use(place: Path) -> None:
    """Every kind of call, none of which may raise anything but an error of ours."""
    for read_only in (True, False):
        with Disk(place, read_only=read_only) as store:
            list(store.items())
            for number in (1, 5, 8):
                puts, objects = batch(number)
                store.get_many([*puts, *objects])
            store.get("ref")
            list(store.keys("o/00"))
            if not read_only:
                puts, objects = batch(9)
                store.apply({"ref": b"8"}, puts, ["k/1", "o/000100"], objects=objects)


def test_damage_anywhere_raises_an_error_of_ours_or_none(tmp_path: Path, *, long_run: bool) -> None:
    whole = make(tmp_path)
    outcomes = {"fine": 0, "raised": 0}
    for position in [*range(0, 4096, 31), *range(4096, len(whole), 331)][:: 1 if long_run else 3]:
        (tmp_path / FILE).write_bytes(whole[:position] + bytes([whole[position] ^ 0x55]) + whole[position + 1 :])
        try:
            use(tmp_path)
            outcomes["fine"] += 1
        except StateError:
            outcomes["raised"] += 1
    assert outcomes["raised"] > (10 if long_run else 3)
    (tmp_path / FILE).write_bytes(whole)
    use(tmp_path)


def test_page_of_rubbish_is_a_damaged_store(tmp_path: Path) -> None:
    whole = make(tmp_path)
    (tmp_path / FILE).write_bytes(whole[:4096] + b"\xa5" * (len(whole) - 4096))
    with pytest.raises(CorruptStoreError) as caught:
        use(tmp_path)
    assert isinstance(caught.value.__cause__, sqlite3.DatabaseError)
    assert caught.value.hint


def test_truncated_file_is_a_damaged_store(tmp_path: Path) -> None:
    whole = make(tmp_path)
    for length in (100, 512, 4096, 4096 * 3, len(whole) // 2):
        (tmp_path / FILE).write_bytes(whole[:length])
        with pytest.raises((CorruptStoreError, NotAStoreError)):
            use(tmp_path)


def test_damaged_first_page_is_not_taken_for_an_empty_store(tmp_path: Path) -> None:
    whole = make(tmp_path)
    (tmp_path / FILE).write_bytes(bytes(100) + whole[100:])
    with pytest.raises(NotAStoreError):
        use(tmp_path)
    assert (tmp_path / FILE).read_bytes() == bytes(100) + whole[100:]


# Writes that fail


def test_failing_writes_of_the_system_change_nothing(tmp_path: Path) -> None:
    """A limit on the size of files makes the log's writes fail half-way, as a bad disk does."""

    def work() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        store = Disk(tmp_path)
        # Not at the border of a page, so that the last write is a short one.
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000 + 123, hard))
        acknowledged = fill(store, StorageError)
        assert acknowledged > 5
        for _ in range(5):
            assert fill(store, StorageError) >= acknowledged
        acknowledged = check_is_prefix(store)
        with Disk(tmp_path) as other:
            assert check_is_prefix(other) == acknowledged
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        for number in range(acknowledged + 1, acknowledged + 100):
            puts, objects = batch(number)
            assert store.apply({}, puts, objects=objects)
        store.close()
        with Disk(tmp_path) as again:
            assert check_is_prefix(again) == acknowledged + 99

    join(fork(work))


@pytest.mark.parametrize("kind", [Disk, DiskCache])
def test_the_error_names_the_call_of_the_system_that_failed(tmp_path: Path, kind: type[Disk | DiskCache]) -> None:
    def work() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        with kind(tmp_path) as store:
            resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
            with pytest.raises(StorageError, match="disk I/O error, SQLITE_IOERR_WRITE"):
                store.set("k", bytes(200_000))

    join(fork(work))
