"""`DiskCache`: its contract, opening and refusing, errors. `test_local.py` has the tests that it shares with `Disk`."""

from __future__ import annotations

import sqlite3
import stat
import threading
from pathlib import Path

import pytest

from tests.support.local_files import check_one_file, contents, names
from tests.support.processes import without_rights
from versioned_state import Versioned
from versioned_state.errors import (
    InvalidArgumentError,
    NotAStoreError,
    ReadOnlyError,
    StorageError,
    StoreNotFoundError,
)
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


# Opening


def test_directory_is_made_for_this_user_alone_and_close_leaves_one_file(tmp_path):
    place = tmp_path / "a" / "store"
    with DiskCache(place) as store:
        store.set("k", bytes(5_000_000))
        assert store.private
        for path in (place, place.parent):
            assert stat.S_IMODE(path.stat().st_mode) == 0o700
        assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in place.iterdir())
        assert names(place) == [FILE, f"{FILE}-shm", f"{FILE}-wal"]
    assert names(place) == [FILE]
    assert repr(store) == f"<DiskCache {str(place)!r}>"
    place.chmod(0o770)
    with DiskCache(place) as store:
        assert not store.private


@pytest.mark.parametrize("options", [{"timeout": -1}, {"timeout": float("nan")}])
def test_bad_option_is_refused_before_anything_is_made(tmp_path, options):
    with pytest.raises(InvalidArgumentError):
        DiskCache(tmp_path / "store", **options)
    for path in ("", "a\0b", b"bytes"):
        with pytest.raises(InvalidArgumentError):
            DiskCache(path)  # type: ignore[arg-type]
    with pytest.raises(StoreNotFoundError):
        DiskCache(tmp_path / "store", create=False)
    assert names(tmp_path) == []


def refuses(folder: Path, kind: type[Exception]) -> None:
    before = contents(folder)
    for create in (True, False):
        with pytest.raises(kind):
            DiskCache(folder, create=create)
    assert contents(folder) == before


def test_directory_that_is_not_a_store_is_refused_and_not_touched(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "notes").write_text("mine")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / FILE).write_bytes(b"SQLite format 3\0" + bytes(5000))
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / FILE).symlink_to(tmp_path / "a" / "notes")
    for name in "abc":
        refuses(tmp_path / name, NotAStoreError)


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


# Keys


def test_prefixes_at_the_ends_of_unicode(tmp_path):
    """The text after those of a prefix is found by raising its last character: here there is none, or a surrogate."""
    keys = ["a\ud7ff", "a\ud7ffb", "a\ue000", "a\U0010ffff", "a\U0010ffffb", "b", "\U0010ffff", "\U0010ffff\U0010ffff"]
    with DiskCache(tmp_path) as store:
        store.set_many(dict.fromkeys([*keys, "o/ab"], b"v"))
        for prefix in keys:
            assert sorted(store.keys(prefix)) == sorted(key for key in keys if key.startswith(prefix))


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


# As a store of states


def test_state_in_a_disk_cache(tmp_path):
    with Versioned(DiskCache(tmp_path)) as state:
        state["messages"] = [{"n": n, "text": "x" * n} for n in range(500)]
        state["object"] = threading.Event  # a pickle: the directory is this user's own
        first = state.commit("one")
        state["messages"].append("more")
        state.commit("two")
    with Versioned(DiskCache(tmp_path)) as state:
        assert state["messages"][-1] == "more"
        assert state["object"] is threading.Event
        assert len(state.checkout(first)["messages"]) == 500
