"""`DiskCache`: its contract, errors of the driver, cost. `test_local.py` has the tests that it shares with `Disk`."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from tests.support.local_files import check_one_file
from tests.support.processes import without_rights
from versioned_state.errors import ReadOnlyError, StorageError
from versioned_state.storage import DiskCache, KVStore
from versioned_state.storage.testing.contract import KVStoreContract

FILE = "cache.db"


class TestDiskCache(KVStoreContract):
    persistent = True
    shared = True
    forks = True

    def open_store(self, place: Path) -> KVStore:
        return DiskCache(place, timeout=60)

    def check_closed(self, place: Path) -> None:
        check_one_file(place, FILE)


# Errors of the driver


def test_place_that_cannot_be_written_is_not_a_busy_store(open_folder):
    """diskcache takes every failure to begin a transaction for a timeout."""
    place = open_folder / "store"
    DiskCache(place).close()
    place.chmod(0o555)
    (place / FILE).chmod(0o444)

    def look() -> None:
        with pytest.raises(ReadOnlyError) as caught, DiskCache(place) as store:
            store.set("k", b"1")
        assert isinstance(caught.value.__cause__, sqlite3.Error)

    without_rights(look)
    place.chmod(0o755)


def test_commit_that_fails_leaves_no_transaction_open(tmp_path):
    with DiskCache(tmp_path) as store:
        store.set("k", b"1")
        (connection,) = store._pool._connections
        # A foreign key that is looked at when the transaction ends makes COMMIT itself fail, and leaves the transaction
        # open.
        connection.executescript(
            "PRAGMA foreign_keys = ON; CREATE TEMP TABLE p(x PRIMARY KEY);"
            "CREATE TEMP TABLE c(x REFERENCES p DEFERRABLE INITIALLY DEFERRED);"
        )

        def work() -> None:
            store._cache.set("k", b"2")
            connection.execute("INSERT INTO c VALUES(1)")

        with pytest.raises(StorageError):
            store._write(work)
        assert not connection.in_transaction
        assert store.get("k") == b"1"
        store.set("k", b"3")
        assert store.get("k") == b"3"


def test_failure_after_which_sqlite_rolled_back_by_itself_is_the_one_that_is_raised(tmp_path):
    """diskcache then asks for a rollback of its own, for which there is an error of its own."""
    with DiskCache(tmp_path) as store:
        store.set("k", b"1")
        (connection,) = store._pool._connections

        def work() -> None:
            store._cache.set("k", b"2")
            connection.rollback()  # as SQLite does when a write of its log fails
            raise sqlite3.OperationalError("disk I/O error")

        with pytest.raises(StorageError, match="disk I/O error"):
            store._write(work)
        assert store.get("k") == b"1"


# Cost


def test_listing_a_prefix_costs_what_it_lists(tmp_path):
    with DiskCache(tmp_path) as store:
        store.set_many(
            {f"o/{number:048x}": b"v" for number in range(20_000)}
            | {f"ref/{number}": b"v" for number in range(5)}
            | {"z": b"v"}
        )
        (connection,) = store._pool._connections
        steps = []
        connection.set_progress_handler(lambda: steps.append(1), 100)  # once in 100 instructions of SQLite's machine
        assert len(list(store.keys("ref/"))) == 5
        assert len(list(store.keys("o/" + "0" * 45))) == 4096
        few = len(steps)
        assert len(list(store.keys("born/"))) == 0
        assert len(steps) - few < 10
        assert len(list(store.keys())) == 20_006
        assert len(steps) > 3 * few
        connection.set_progress_handler(None, 0)
