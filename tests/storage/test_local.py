"""`Disk` and `DiskCache`, each a SQLite file in a folder: folder names, other writers, SQLite's limits, kill -9."""

from __future__ import annotations

import gc
import os
import random
import select
import signal
import sqlite3
import threading
import time
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from tests.support.local_files import change, check_one_file, contents, names
from tests.support.numbered_batches import batch, check_is_prefix, fill
from tests.support.processes import fork
from versioned_state.errors import FormatError, LimitExceededError, StorageFullError, StoreBusyError
from versioned_state.storage import Disk, DiskCache

Kind = type[Disk | DiskCache]

FILES: dict[Kind, str] = {Disk: "store.sqlite3", DiskCache: "cache.db"}

pytestmark = pytest.mark.parametrize("kind", FILES)


@pytest.mark.parametrize(
    "name",
    [
        "a b",
        "a%20b",
        "~",
        "~root",
        "$HOME",
        "${HOME}x",
        "a?mode=memory",
        "a#b",
        "ключ",
        "a:b",
        "file:x",
        ":memory:",
        "a'b",
        "a\nb",
    ],
)
def test_a_directory_may_have_any_name(kind: Kind, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path is taken as it is: SQLite would read some as a URI, and diskcache would expand what a shell expands."""
    monkeypatch.chdir(tmp_path)
    for place in (tmp_path / name, name):
        with kind(place) as store:
            store.set("k", b"1")
    with kind(tmp_path / name, create=False) as store:
        assert store.get("k") == b"1"
    assert names(tmp_path) == [name]
    assert names(tmp_path / name) == [FILES[kind]]


def test_store_of_a_newer_release_is_refused_and_not_touched(kind: Kind, tmp_path: Path) -> None:
    kind(tmp_path).close()
    change(tmp_path / FILES[kind], "PRAGMA user_version = 2")
    before = contents(tmp_path)
    for create in (True, False):
        with pytest.raises(FormatError) as caught:
            kind(tmp_path, create=create)
        assert (caught.value.found, caught.value.supported) == (2, 1)
    assert contents(tmp_path) == before


def test_busy_store_says_so_after_the_timeout_and_can_be_read_meanwhile(kind: Kind, tmp_path: Path) -> None:
    with kind(tmp_path, timeout=0.2) as store:
        store.set("k", b"1")
        with closing(sqlite3.connect(tmp_path / FILES[kind], isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            started = time.monotonic()
            with pytest.raises(StoreBusyError) as caught:
                store.set("k", b"2")
            assert time.monotonic() - started > 0.15
            assert isinstance(caught.value.__cause__, sqlite3.OperationalError)
            assert dict(store.items()) == {"k": b"1"}
            other.execute("ROLLBACK")
        # A thread of the same store waits no longer than another process.
        with store._pool.writing, pytest.raises(StoreBusyError):
            store.set("k", b"2")
        store.set("k", b"3")
        assert store.get("k") == b"3"


def test_value_beyond_the_limit_of_sqlite_is_refused(kind: Kind, tmp_path: Path) -> None:
    with kind(tmp_path) as store:
        store.set("k", b"1")
        (connection,) = store._pool._connections
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 100_000)
        for key in ("k", "o/ab"):
            with pytest.raises(LimitExceededError):
                store.set(key, bytes(200_000))
        assert dict(store.items()) == {"k": b"1"}
        store.set("k", b"2")


def test_full_file_refuses_and_the_store_goes_on(kind: Kind, tmp_path: Path) -> None:
    with kind(tmp_path) as store:
        (connection,) = store._pool._connections
        connection.execute("PRAGMA max_page_count = 60")
        acknowledged = fill(store, StorageFullError)
        assert acknowledged > 5
        assert check_is_prefix(store) == acknowledged
        with pytest.raises(StorageFullError):
            store.set_many({f"o/ff{number:04x}": bytes(10_000) for number in range(100)})
        assert check_is_prefix(store) == acknowledged
        connection.execute("PRAGMA max_page_count = 1000")
        puts, objects = batch(acknowledged + 1)
        store.apply({}, puts, objects=objects)
    with kind(tmp_path) as store:
        assert check_is_prefix(store) == acknowledged + 1


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts descriptors in /proc")
def test_descriptors_do_not_add_up(kind: Kind, tmp_path: Path) -> None:
    def count() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    kind(tmp_path).close()
    gc.collect()  # what earlier tests have left
    before = count()
    for _ in range(20):
        kind(tmp_path).close()
    assert count() <= before
    with kind(tmp_path) as store:
        for number in range(30):
            thread = threading.Thread(target=store.set, args=(f"k{number}", b"1"))
            thread.start()
            thread.join()
            with kind(tmp_path) as second:
                second.get("k1")
        assert count() - before < 8
    assert count() <= before


def write_until_killed(kind: Kind, place: Path, name: str, acknowledgements: int) -> None:
    """Apply one numbered batch after the other, and write the number of each that is done."""
    store = kind(place, timeout=60)
    number = int(store.get(name) or b"0")
    while True:
        number += 1
        objects = {f"o/{name}{number:08x}{part:02x}": bytes([part]) * 3000 for part in range(4)}
        value = b"%d" % number
        assert store.apply(
            {name: b"%d" % (number - 1) if number > 1 else None}, {name: value, name + "/copy": value}, objects=objects
        )
        os.write(acknowledgements, b"%d\n" % number)
        time.sleep(0.001)  # or the other writer would hardly get in


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_nothing_acknowledged_is_lost_by_kill_9(kind: Kind, tmp_path: Path, *, long_run: bool) -> None:
    place = tmp_path / "store"
    last = {"aa": 0, "bb": 0}
    dice = random.Random(20)
    for _ in range(2000 if long_run else 8):
        pipes = {name: os.pipe() for name in last}
        writers = [fork(partial(write_until_killed, kind, place, name, end)) for name, (_, end) in pipes.items()]
        for reads, _ in pipes.values():
            assert select.select([reads], [], [], 60)[0], "a writer does not get to its first batch"
        time.sleep(dice.random() * 0.04)
        for pid in writers:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        with kind(place) as store:
            for name, (reads, writes) in pipes.items():
                os.close(writes)
                log = b""
                while more := os.read(reads, 65536):
                    log += more
                os.close(reads)
                acknowledged = int(log.rpartition(b"\n")[0].rpartition(b"\n")[2])
                found = int(store.get(name) or b"0")
                assert acknowledged > last[name]
                # At most the one that was not acknowledged any more, and that one whole.
                assert acknowledged <= found <= acknowledged + 1
                assert store.get(f"{name}/copy") == store.get(name)
                objects = [f"o/{name}{number:08x}{part:02x}" for number in range(1, found + 1) for part in range(4)]
                assert sorted(store.keys(f"o/{name}")) == objects
                last[name] = found
    check_one_file(place, FILES[kind])
