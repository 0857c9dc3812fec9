"""`DiskCache`: its contract, opening and refusing, errors, other processes, and kill -9. Its holes: `test_diskcache_holes.py`."""

from __future__ import annotations

import gc
import os
import random
import select
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from tests.support.counter import count_up
from tests.support.processes import ROOT, fork, join, without_rights
from versioned_state import Versioned
from versioned_state.errors import (
    FormatError,
    InvalidArgumentError,
    LimitExceededError,
    NotAStoreError,
    ReadOnlyError,
    StorageError,
    StorageFullError,
    StoreBusyError,
    StoreClosedError,
    StoreNotFoundError,
)
from versioned_state.storage import DiskCache, KVStore
from versioned_state.storage.testing.contract import KVStoreContract

FILE = "cache.db"


class TestDiskCache(KVStoreContract):
    persistent = True
    shared = True

    def open_store(self, place: Path) -> KVStore:
        return DiskCache(place)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


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


@pytest.mark.parametrize("name", ["a b", "~", "~root", "$HOME", "${HOME}x", "%20", "a?mode=memory", "a#b", "ключ", ":memory:", "a'b"])
def test_any_name_of_a_directory(tmp_path, name, monkeypatch):
    """diskcache itself expands what a shell would expand."""
    monkeypatch.chdir(tmp_path)
    for place in (name, tmp_path / name):
        with DiskCache(place) as store:
            store.set("k", b"1")
    assert names(tmp_path) == [name]
    assert names(tmp_path / name) == [FILE]


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


def test_what_is_no_store_is_refused_and_not_touched(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "notes").write_text("mine")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / FILE).write_bytes(b"SQLite format 3\0" + bytes(5000))
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / FILE).symlink_to(tmp_path / "a" / "notes")
    for name in "abc":
        refuses(tmp_path / name, NotAStoreError)


def test_newer_release_is_refused(tmp_path):
    DiskCache(tmp_path).close()
    with closing(sqlite3.connect(tmp_path / FILE)) as connection:
        connection.execute("PRAGMA user_version = 2")
    refuses(tmp_path, FormatError)


# Errors of the driver


def test_busy_store_says_so_after_the_timeout_and_can_be_read_meanwhile(tmp_path):
    with DiskCache(tmp_path, timeout=0.1) as store:
        store.set("k", b"1")
        with closing(sqlite3.connect(tmp_path / FILE, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreBusyError) as caught:
                store.set("k", b"2")
            assert isinstance(caught.value.__cause__, sqlite3.OperationalError)
            assert store.get("k") == b"1"
            other.execute("ROLLBACK")
        with store._pool.writing, pytest.raises(StoreBusyError):
            store.set("k", b"2")
        store.set("k", b"3")
        assert dict(store.items()) == {"k": b"3"}


def test_full_file_refuses_and_the_store_goes_on(tmp_path):
    with DiskCache(tmp_path) as store:
        (connection,) = store._pool._connections
        connection.execute("PRAGMA max_page_count = 60")
        count = 0

        def fill() -> None:
            nonlocal count
            for count in range(1000):
                store.apply({}, {"ref": b"%d" % count}, objects={f"o/{count:04x}{part:02x}": bytes(2000) for part in range(3)})

        with pytest.raises(StorageFullError) as caught:
            fill()
        assert isinstance(caught.value.__cause__, sqlite3.Error)
        assert count > 5
        assert store.get("ref") == b"%d" % (count - 1)
        assert len(list(store.keys("o/"))) == 3 * count
        connection.execute("PRAGMA max_page_count = 1000")
        assert store.apply({"ref": b"%d" % (count - 1)}, {"ref": b"on"}, objects={"o/ff": bytes(9000)})
    with DiskCache(tmp_path) as store:
        assert (store.get("ref"), store.get("o/ff")) == (b"on", bytes(9000))


def test_value_beyond_what_sqlite_takes(tmp_path):
    with DiskCache(tmp_path) as store:
        store.set("k", b"1")
        (connection,) = store._pool._connections
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 100_000)
        for key in ("k", "o/ab"):
            with pytest.raises(LimitExceededError):
                store.set(key, bytes(200_000))
        assert dict(store.items()) == {"k": b"1"}


def test_place_that_cannot_be_written_is_no_busy_store(open_folder):
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
        # A foreign key that is looked at when the transaction ends makes COMMIT itself fail, and leaves the transaction open.
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


def test_failure_after_which_sqlite_rolled_back_by_itself_is_the_one_that_is_told(tmp_path):
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
    """The first text after those of a prefix is found by raising its last character, which for these is none, or a surrogate."""
    keys = ["a\ud7ff", "a\ud7ffb", "a\ue000", "a\U0010ffff", "a\U0010ffffb", "b", "\U0010ffff", "\U0010ffff\U0010ffff"]
    with DiskCache(tmp_path) as store:
        store.set_many(dict.fromkeys([*keys, "o/ab"], b"v"))
        for prefix in keys:
            assert sorted(store.keys(prefix)) == sorted(key for key in keys if key.startswith(prefix))


def test_descriptors_do_not_add_up(tmp_path):
    def count() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    DiskCache(tmp_path).close()
    gc.collect()  # what earlier tests have left
    before = count()
    for _ in range(20):
        DiskCache(tmp_path).close()
    assert count() == before
    with DiskCache(tmp_path) as store:
        for number in range(30):
            thread = threading.Thread(target=store.set, args=(f"k{number}", b"1"))
            thread.start()
            thread.join()
        assert count() - before < 8
    assert count() == before


# Cost


def test_listing_a_prefix_costs_what_it_lists(tmp_path):
    with DiskCache(tmp_path) as store:
        store.set_many(
            {f"o/{number:048x}": b"v" for number in range(20_000)} | {f"ref/{number}": b"v" for number in range(5)} | {"z": b"v"}
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


# Threads, processes, forks


def check_counter(place: Path, wanted: int) -> None:
    with DiskCache(place) as store:
        assert store.get("counter") == b"%d" % wanted
        assert len(list(store.keys("o/"))) >= wanted
    assert names(place) == [FILE]
    with closing(sqlite3.connect(place / FILE)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_processes_that_make_one_store_and_count_in_it(tmp_path):
    def work() -> None:
        with DiskCache(tmp_path / "store", timeout=60) as store:
            count_up(store, 50)

    join(*(fork(work) for _ in range(4)))
    check_counter(tmp_path / "store", 200)


def test_parent_and_child_go_on_with_one_store(tmp_path):
    store = DiskCache(tmp_path, timeout=60)
    count_up(store, 5)

    def work() -> None:
        count_up(store, 40)
        store.close()

    children = [fork(work) for _ in range(2)]
    count_up(store, 40)
    # The parent closes first: a child must not lose its log by that.
    store.close()
    join(*children)
    check_counter(tmp_path, 125)


def test_fork_while_other_threads_write(tmp_path):
    store = DiskCache(tmp_path, timeout=60)
    threads = [threading.Thread(target=count_up, args=(store, 50)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(5):
        join(fork(lambda: count_up(store, 2)))
    for thread in threads:
        thread.join()
    store.close()
    check_counter(tmp_path, 110)


def test_close_while_threads_are_at_work(tmp_path):
    def until_closed(store: DiskCache) -> None:
        try:
            while True:
                count_up(store, 1)
                list(store.keys("c"))
        except StoreClosedError:
            pass

    for _ in range(5):
        store = DiskCache(tmp_path)
        threads = [threading.Thread(target=until_closed, args=(store,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        time.sleep(0.01)
        store.close()
        for thread in threads:
            thread.join()
        assert names(tmp_path) == [FILE]


def test_nothing_acknowledged_is_lost_by_kill_9(tmp_path, long_run):
    place = tmp_path / "store"
    last = {"aa": 0, "bb": 0}
    dice = random.Random(20)

    def write(name: str, acknowledgements: int) -> None:
        store = DiskCache(place, timeout=60)
        number = int(store.get(name) or b"0")
        while True:
            number += 1
            objects = {f"o/{name}{number:08x}{part:02x}": bytes([part]) * 3000 for part in range(4)}
            value = b"%d" % number
            assert store.apply({name: b"%d" % (number - 1) if number > 1 else None}, {name: value, name + "/copy": value}, objects=objects)
            os.write(acknowledgements, b"%d\n" % number)
            time.sleep(0.001)  # or the other one would hardly get in

    for _ in range(2000 if long_run else 20):
        pipes = {name: os.pipe() for name in last}
        writers = [fork(partial(write, name, end)) for name, (_, end) in pipes.items()]
        for reads, _ in pipes.values():
            assert select.select([reads], [], [], 60)[0], "a writer does not get to its first batch"
        acknowledged = dict.fromkeys(pipes, b"")
        time.sleep(dice.random() * 0.04)
        for pid in writers:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        with DiskCache(place) as store:
            for name, (reads, writes) in pipes.items():
                os.close(writes)
                while more := os.read(reads, 65536):
                    acknowledged[name] += more
                os.close(reads)
                told = int(acknowledged[name].rpartition(b"\n")[0].rpartition(b"\n")[2])
                found = int(store.get(name) or b"0")
                assert told > last[name]
                # At most the one that was not acknowledged any more, and that one whole.
                assert told <= found <= told + 1
                assert store.get(f"{name}/copy") == store.get(name)
                assert len(list(store.keys(f"o/{name}"))) == 4 * found
                last[name] = found
    with closing(sqlite3.connect(place / FILE)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


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


def test_missing_library_is_named_with_its_extra(tmp_path):
    program = """
import sys
sys.modules["diskcache"] = None
from versioned_state.errors import MissingDependencyError
from versioned_state.storage import DiskCache
try:
    DiskCache(sys.argv[1])
except MissingDependencyError as error:
    print(error.extra, "|", error.hint)
"""
    ended = subprocess.run([sys.executable, "-c", program, tmp_path / "store"], cwd=ROOT, capture_output=True, text=True)
    assert ended.stdout == "diskcache | pip install 'versioned-state[diskcache]'\n", ended.stderr
    assert names(tmp_path) == []
