"""What diskcache does by itself that loses data or runs code, and that `DiskCache` does not.

Each attack is first shown to work on diskcache, so that the test would notice if it were no attack.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import diskcache
import pytest

from tests.support.local_files import change, check_refused
from versioned_state import Versioned
from versioned_state.errors import (
    CorruptRefError,
    CorruptStoreError,
    StorageError,
    StoreBusyError,
    UnsafeStoreError,
)
from versioned_state.storage import DiskCache
from versioned_state.storage.local import guarded_cache

FILE = "cache.db"


def plant(
    place: Path, key: object, *, raw: int = 1, mode: int = 1, filename: str | None = None, value: object = None
) -> None:
    row = "INSERT INTO Cache(key, raw, mode, filename, value, store_time, access_time) VALUES(?, ?, ?, ?, ?, 0, 0)"
    with closing(sqlite3.connect(place / FILE, isolation_level=None)) as connection:
        connection.execute(row, (key, raw, mode, filename, value))


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    """A directory of diskcache's own."""
    diskcache.Cache(tmp_path / "plain").close()
    return tmp_path / "plain"


@pytest.fixture
def ours(tmp_path: Path) -> Path:
    with DiskCache(tmp_path / "ours") as store:
        store.set_many({"ref": b"1", "o/ab": b"2"})
    return tmp_path / "ours"


class Trap:
    """Whoever unpickles it makes the file."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> Any:
        return Path.touch, (self.trace,)


def call_everything(store: DiskCache, key: str) -> None:
    """Make every kind of call on `key`. Each may raise an error of the library."""
    calls: list[Callable[[], object]] = [
        lambda: store.get(key),
        lambda: key in store,
        lambda: store.get_many([key]),
        lambda: list(store.keys()),
        lambda: list(store.items()),
        lambda: store.compare_and_set("k", b"x", b"y"),
        lambda: store.apply({"k": b"x"}, {}),
        lambda: store.set(key, b"new"),
        lambda: store.delete(key),
    ]
    for call in calls:
        with suppress(StorageError):
            call()


# Planted rows


@pytest.mark.parametrize("inside", [True, False], ids=["in the row", "in a file"])
def test_planted_pickle_for_a_value_is_not_loaded(plain, ours, tmp_path, inside):
    trace, data = tmp_path / "trace", tmp_path / "data"
    payload = pickle.dumps(Trap(trace))
    data.write_bytes(payload)
    for place in (plain, ours):
        for key in ("k", b"\xcd"):
            plant(place, key, mode=4, filename=None if inside else "../data", value=payload if inside else None)
    with diskcache.Cache(plain) as cache:
        cache.get("k")
        assert trace.exists(), "the trap does work"
    trace.unlink()
    with DiskCache(ours) as store:
        for call in (
            lambda: store.get("k"),
            lambda: store.get("o/cd"),
            lambda: store.get_many(["ref", "k"]),
            lambda: list(store.items()),
            lambda: store.compare_and_set("k", b"x", b"y"),
        ):
            with pytest.raises(UnsafeStoreError, match="pickle"):
                call()
        call_everything(store, "k")
        call_everything(store, "o/cd")
        assert dict(store.get_many(["ref", "o/ab"])) == {"ref": b"1", "o/ab": b"2"}
    assert not trace.exists()
    assert data.exists()


def test_planted_pickle_for_a_key_is_not_loaded(plain, ours, tmp_path):
    trace = tmp_path / "trace"
    for place in (plain, ours):
        plant(place, pickle.dumps(Trap(trace)), raw=0, value=b"v")
        plant(place, "k", raw=0, value=b"v")
    with diskcache.Cache(plain) as cache:
        with suppress(Exception):
            list(cache)
        assert trace.exists(), "the trap does work"
    trace.unlink()
    with DiskCache(ours) as store:
        for prefix in ("", "k", "o/"):
            with pytest.raises(UnsafeStoreError, match="pickle"):
                list(store.keys(prefix))
        assert list(store.keys("ref")) == ["ref"]
        assert store.get("k") is None, "a row that is a pickle is no value of that key"
        call_everything(store, "k")
    assert not trace.exists()


@pytest.mark.parametrize("mode", [2, 3])
def test_planted_name_of_a_file_is_neither_read_nor_removed(plain, ours, tmp_path, mode):
    secret = tmp_path / "secret"
    secret.write_bytes(b"secret")
    for place in (plain, ours):
        plant(place, "k", mode=mode, filename="../secret")
        plant(place, "l", mode=mode, filename=str(secret))
    with diskcache.Cache(plain) as cache:
        assert cache.get("k") in (b"secret", "secret"), "the trap does work"
        del cache["k"]
        assert not secret.exists(), "this one too"
    secret.write_bytes(b"secret")
    with DiskCache(ours) as store:
        for key in ("k", "l"):
            with pytest.raises(UnsafeStoreError, match="file"):
                store.get(key)
        store.set("k", b"mended")
        store.delete("l")
        assert store.get("k") == b"mended"
        call_everything(store, "l")
    assert secret.read_bytes() == b"secret"


@pytest.mark.parametrize("value", ["text", 1, 1.5, None])
def test_planted_value_of_another_type_is_damage(ours, value):
    plant(ours, "k", value=value)
    plant(ours, b"\xcd", value=value)
    with DiskCache(ours) as store:
        for call in (
            lambda: store.get("k"),
            lambda: store.get("o/cd"),
            lambda: store.get_many(["k"]),
            lambda: list(store.items()),
        ):
            with pytest.raises(CorruptStoreError):
                call()


@pytest.mark.parametrize("key", [1, 1.5, None])
def test_planted_key_of_another_type_is_not_seen(ours, key):
    plant(ours, key, value=b"v")
    with DiskCache(ours) as store:
        assert dict(store.items()) == {"ref": b"1", "o/ab": b"2"}


def test_row_that_was_made_to_expire_is_an_error_of_the_engine(tmp_path):
    with Versioned(DiskCache(tmp_path)) as state:
        state["a"] = 1
        state.commit()
    change(tmp_path / FILE, "UPDATE Cache SET expire_time = 1 WHERE key = 'ref/branch/main'")
    with DiskCache(tmp_path) as store, pytest.raises(CorruptRefError):
        Versioned(store)


# Planted settings


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("eviction_policy", "least-recently-stored"),
        ("cull_limit", 10),
        ("size_limit", 100_000),
        ("sqlite_synchronous", 0),
        ("sqlite_mmap_size", 2**26),
        ("disk_min_file_size", 2**15),
        ("statistics", 1),
        ("count", "many"),
        ("get", "an attribute of the cache"),
        ("sqlite_user_version = 7; --", 0),
        ("disk__directory", "/"),
    ],
)
def test_planted_setting_is_refused(ours, key, value):
    change(ours / FILE, f"INSERT OR REPLACE INTO Settings VALUES({key!r}, {value!r})")
    before = (ours / FILE).read_bytes()
    with pytest.raises(UnsafeStoreError, match="settings of diskcache"):
        DiskCache(ours)
    assert (ours / FILE).read_bytes() == before


def test_missing_setting_is_refused(ours):
    change(ours / FILE, "DELETE FROM Settings WHERE key = 'eviction_policy'")
    with pytest.raises(UnsafeStoreError, match="eviction_policy"):
        DiskCache(ours)


def test_settings_run_code_of_sqlite_and_set_attributes_in_diskcache(plain):
    """What the test above is about."""
    change(plain / FILE, "INSERT INTO Settings VALUES('hello', 'planted'), ('sqlite_user_version = 7; --', 0)")
    with suppress(sqlite3.Error), diskcache.Cache(plain) as cache:
        assert cache.hello == "planted"
    with closing(sqlite3.connect(plain / FILE)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (7,)


def test_setting_that_is_planted_while_the_store_is_open(ours):
    """Each thread of diskcache reads the settings as it connects, and so each connection of ours is checked."""
    with DiskCache(ours) as store:
        change(ours / FILE, "INSERT INTO Settings VALUES('sqlite_user_version = 7; --', 0)")
        outcome: list[object] = []

        def look() -> None:
            held = store._pool.take()  # so that the thread has to open one of its own
            try:
                outcome.append(store.get("ref"))
            except UnsafeStoreError:
                outcome.append("refused")
            store._pool.give(held)

        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
        assert outcome == ["refused"]
    with closing(sqlite3.connect(ours / FILE)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (1,)


def test_the_library_itself_may_not_change_a_setting(ours):
    with DiskCache(ours) as store:
        for key, value in (
            ("cull_limit", 10),
            ("eviction_policy", "least-recently-used"),
            ("count", 5),
            ("_disk", None),
        ):
            with pytest.raises(UnsafeStoreError):
                store._cache.reset(key, value)
        assert store._cache.eviction_policy == "none"


# Planted tables


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE more(x)",
        "CREATE VIEW more AS SELECT 1",
        "CREATE TRIGGER more AFTER INSERT ON Cache BEGIN DELETE FROM Cache; END",
        (
            "DROP TRIGGER Settings_count_insert; "
            "CREATE TRIGGER Settings_count_insert AFTER INSERT ON Cache BEGIN DELETE FROM Cache; END"
        ),
        "CREATE INDEX Cache_store_time ON Cache(store_time)",
        "ALTER TABLE Cache ADD COLUMN more",
        "DROP TABLE Settings; CREATE VIEW Settings AS SELECT 'hello' AS key, 1 AS value",
    ],
)
def test_planted_schema_is_refused_before_anything_runs(ours, statement):
    change(ours / FILE, statement)
    check_refused(DiskCache, ours)


def test_directory_of_diskcache_itself_is_not_taken_over(plain):
    check_refused(DiskCache, plain)


def test_text_in_another_encoding_is_refused(tmp_path):
    """Keys would be listed in another order, and some not at all."""
    place = tmp_path / "store"
    place.mkdir()
    with closing(sqlite3.connect(place / FILE, isolation_level=None)) as connection:
        connection.execute("PRAGMA encoding = 'UTF-16le'")
        guarded_cache.LAYOUT.make_tables(connection)
        connection.execute(f"PRAGMA application_id = {guarded_cache.LAYOUT.application_id}")
        connection.execute("PRAGMA user_version = 1")
    with pytest.raises(UnsafeStoreError, match="UTF-16le"):
        DiskCache(place)


# Losing what was stored


def test_nothing_is_ever_evicted(plain, ours):
    values = {f"k{number}": os.urandom(4000) for number in range(100)}
    with diskcache.Cache(plain, size_limit=100_000) as cache:
        for key, value in values.items():
            cache[key] = value
        assert len(list(cache)) < 100, "diskcache does evict"
    with DiskCache(ours) as store:
        for key, value in values.items():
            store.set(key, value)
    # By what stands in the file, diskcache itself evicts nothing either. Its constructor writes the settings that it
    # finds.
    with diskcache.Cache(ours) as cache:
        assert (cache.eviction_policy, cache.cull_limit, cache.size_limit) == ("none", 0, 2**62)
        cache.cull()
        assert cache["k0"] == values["k0"]
        cache["large"] = bytes(200_000)
    assert [path.name for path in ours.iterdir()] == [FILE], "and values of any size stay in the database"
    with DiskCache(ours) as store:
        assert store.get_many(values) == values
        assert store.get("large") == bytes(200_000)


def test_rolled_back_transaction_leaves_the_old_value(plain, ours):
    old, new = b"old" * 20_000, b"new" * 20_000
    with diskcache.Cache(plain) as cache:
        cache["k"] = old
        with suppress(ZeroDivisionError), cache.transact():
            cache["k"] = new
            raise ZeroDivisionError
        assert cache.get("k") is None, "diskcache does lose it"
    with DiskCache(ours) as store:
        store.set("k", old)

        def work() -> None:
            store._cache.set("k", new)
            store._cache.delete("ref")
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            store._write(work)
        assert store.get("k") == old
        assert store.get("ref") == b"1"


def test_object_that_is_there_is_not_written_again(ours):
    """To replace a value of diskcache by an equal one is, for a moment and at a crash, to lose it."""
    with DiskCache(ours) as store, closing(sqlite3.connect(ours / FILE)) as other:
        row = "SELECT rowid, store_time, access_time FROM Cache WHERE key = x'ab'"
        before = other.execute(row).fetchone()
        assert store.apply({"ref": b"1"}, {"ref": b"2"}, objects={"o/ab": b"2"})
        store.set("o/ab", b"2")
        assert other.execute(row).fetchone() == before


def test_two_tasks_on_one_thread_do_not_share_a_transaction(plain, ours):
    with diskcache.Cache(plain) as cache:

        async def fails() -> None:
            with suppress(ZeroDivisionError), cache.transact():
                await asyncio.sleep(0.01)
                raise ZeroDivisionError

        async def writes() -> None:
            cache["acknowledged"] = 1

        async def both() -> None:
            await asyncio.gather(fails(), writes())

        asyncio.run(both())
        assert cache.get("acknowledged") is None, "diskcache does share it"

    with DiskCache(ours, timeout=0.05) as store:

        def work() -> None:
            # What another task does while this one is within its batch; a batch of ours cannot be left half-way, but by
            # a call within it.
            with pytest.raises(StoreBusyError):
                store.set("other", b"1")
            assert store.get("ref") == b"1"
            store._cache.set("ref", b"2")
            assert store.get("ref") == b"1", "nor does a read see what is not committed"
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            store._write(work)
        assert store.get("ref") == b"1"


def test_transaction_of_a_thread_that_is_no_more_is_not_joined(ours):
    """After a fork, a thread may have the number of one that was writing in the parent."""
    with DiskCache(ours) as store:
        store._cache._txn_id = threading.get_ident()

        def work() -> None:
            store._cache.set("ref", b"2")
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            store._write(work)
        assert store.get("ref") == b"1"


def test_journal_beside_the_store_is_not_played_back(ours):
    (ours / f"{FILE}-journal").write_bytes(b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7" + bytes(2000))
    before = (ours / FILE).read_bytes()
    with pytest.raises(UnsafeStoreError, match="journal"):
        DiskCache(ours)
    assert (ours / FILE).read_bytes() == before
    assert (ours / f"{FILE}-journal").exists()
