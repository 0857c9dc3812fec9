"""`Disk` among processes and threads, beyond its contract: writers, waits, closing, and readers without rights."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.processes import run, without_rights
from versioned_state.errors import ReadOnlyError, StorageError
from versioned_state.storage import Disk
from versioned_state.storage.local import sqlite_file
from versioned_state.storage.local.pool import Pool

FILE = "store.sqlite3"


# Other processes

COUNT_UP = """
    import sys
    from versioned_state.storage import Disk
    from versioned_state.storage.testing.writers import count_up
    with Disk(sys.argv[1]) as store:
        count_up(store, int(sys.argv[2]))
"""


def test_writer_in_another_process_is_seen(tmp_path: Path) -> None:
    with Disk(tmp_path) as store, Disk(tmp_path, read_only=True) as reader:
        store.set("counter", b"5")
        assert reader.get("counter") == b"5"
        run(COUNT_UP, tmp_path, 10)
        assert store.get("counter") == reader.get("counter") == b"15"
        assert store.compare_and_set("counter", b"15", b"16")
        assert reader.get("counter") == b"16"


def test_writer_waits_for_another_one(tmp_path: Path) -> None:
    with (
        Disk(tmp_path) as store,
        closing(sqlite3.connect(tmp_path / FILE, isolation_level=None, check_same_thread=False)) as other,
    ):
        other.execute("BEGIN IMMEDIATE")
        timer = threading.Timer(0.3, other.execute, ("ROLLBACK",))
        timer.start()
        store.set("k", b"1")
        timer.join()
        assert store.get("k") == b"1"


def test_reads_do_not_wait_for_a_write_of_another_thread(tmp_path: Path) -> None:
    with Disk(tmp_path) as store:
        store.set("k", b"1")
        within, done = threading.Event(), threading.Event()

        def hold(connection: sqlite3.Connection) -> None:
            connection.execute("UPDATE entries SET value = x'32'")
            within.set()
            done.wait(30)

        writer = threading.Thread(target=store._write, args=(hold,))
        writer.start()
        assert within.wait(30)
        assert store.get("k") == b"1"
        assert store.get_many(["k"]) == {"k": b"1"}
        assert list(store.keys()) == ["k"]
        done.set()
        writer.join()
        assert store.get("k") == b"2"


def test_connections_that_close_at_once_leave_one_file(tmp_path: Path) -> None:
    for _ in range(50):
        store = Disk(tmp_path)
        taken = threading.Barrier(5)
        closed = threading.Event()
        together = threading.Barrier(4)

        def use(
            store: Disk = store,
            taken: threading.Barrier = taken,
            closed: threading.Event = closed,
            together: threading.Barrier = together,
        ) -> None:
            connection = store._pool.take()
            taken.wait()
            closed.wait()
            together.wait()
            store._pool.give(connection)

        threads = [threading.Thread(target=use) for _ in range(4)]
        for thread in threads:
            thread.start()
        taken.wait()
        store.close()
        closed.set()
        for thread in threads:
            thread.join()
        assert [path.name for path in tmp_path.iterdir()] == [FILE]


# Forks


def test_a_fork_that_begins_as_another_thread_opens_a_connection(tmp_path: Path) -> None:
    """That thread has its turn to open one, and finds that a fork has begun, which waits for its turn."""
    Disk(tmp_path).close()
    pool = Pool(lambda: sqlite_file.connect(tmp_path / FILE, durability="process", timeout=10))

    def begin_fork() -> None:
        pool.before_fork()
        pool.after_fork_in_parent()

    opener, forker = threading.Thread(target=pool.take, daemon=True), threading.Thread(target=begin_fork, daemon=True)
    with pool._opening:
        for number, thread in enumerate([opener, forker], 2):
            thread.start()
            while len(pool._opening._calls) < number:
                time.sleep(0.001)
    for thread in (opener, forker):
        thread.join(20)
        assert not thread.is_alive()
    pool.close()
    assert [each.name for each in tmp_path.iterdir()] == [FILE]


# Read-only


def writable_by_nobody_else(place: Path) -> None:
    place.chmod(0o555)
    for path in place.iterdir():
        path.chmod(0o444)


def test_read_only_writes_nothing_at_all(tmp_path: Path) -> None:
    with Disk(tmp_path) as store:
        store.set_many({"k": b"1", "o/ab": b"2"})
    before = [(path.name, path.stat().st_mtime_ns) for path in (tmp_path, *tmp_path.iterdir())]
    with Disk(tmp_path, read_only=True) as store:
        assert dict(store.items()) == {"k": b"1", "o/ab": b"2"}
        assert [path.name for path in tmp_path.iterdir()] == [FILE]
    assert [(path.name, path.stat().st_mtime_ns) for path in (tmp_path, *tmp_path.iterdir())] == before


def test_read_only_needs_no_right_to_write(open_folder: Path) -> None:
    place = open_folder / "store"
    with Disk(place) as store:
        store.set_many({"k": b"1", "o/ab": b"2"})
    writable_by_nobody_else(place)

    def look() -> None:
        with Disk(place, read_only=True) as store:
            assert dict(store.items()) == {"k": b"1", "o/ab": b"2"}
            assert [path.name for path in place.iterdir()] == [FILE]
        with pytest.raises((StorageError, ReadOnlyError)), Disk(place) as store:
            store.set("k", b"2")

    without_rights(look)
    place.chmod(0o755)


def test_read_only_sees_writers_come_and_go(tmp_path: Path) -> None:
    Disk(tmp_path).close()
    with Disk(tmp_path, read_only=True) as reader:
        for number in range(5):
            with Disk(tmp_path) as writer:
                writer.set("k", b"%d" % number)
                assert reader.get("k") == b"%d" % number
                writer.set_many({f"o/{number:02x}{part:04x}": b"v" * 500 for part in range(100)})
                assert len(list(reader.keys("o/"))) == 100 * (number + 1)
            assert reader.get("k") == b"%d" % number


SET_K = """
    import sys
    from versioned_state.storage import Disk
    with Disk(sys.argv[1]) as store:
        store.set("k", sys.argv[2].encode())
"""


def test_read_only_never_reads_a_file_that_changes_under_it(tmp_path: Path) -> None:
    """Without a log the reader holds no lock, so a writer that comes and goes may overtake it."""
    with Disk(tmp_path) as store:
        store.set_many({"k": b"0", **{f"o/{number:048x}": b"v" * 900 for number in range(300)}})
    with Disk(tmp_path, read_only=True) as reader:
        seen: list[int] = []

        def overtake(connection: sqlite3.Connection) -> int:
            (row,) = connection.execute("SELECT value FROM entries").fetchall()
            seen.append(int(row[0]))
            if len(seen) < 3:
                run(SET_K, tmp_path, len(seen))
            return seen[-1]

        assert reader._read(overtake) == 2
        assert seen == [0, 1, 2]


def test_read_only_with_a_live_writer_of_another_user(open_folder: Path) -> None:
    place = open_folder / "store"
    Disk(place).close()
    place.chmod(0o755)
    (place / FILE).chmod(0o644)  # the log takes its mode from the file
    with Disk(place) as writer:
        writer.set("k", b"1")

        def look() -> None:
            with Disk(place, read_only=True) as reader:
                assert reader.get("k") == b"1"

        without_rights(look)
        writer.set("k", b"2")


def test_read_only_and_a_log_left_behind(open_folder: Path) -> None:
    place, copy = open_folder / "store", open_folder / "copy"
    with Disk(place) as store:
        store.set("k", b"in the log")
        copy.mkdir()
        # By another process: to close a descriptor of the file here would drop the locks on it.
        subprocess.run(["cp", place / FILE, place / f"{FILE}-wal", copy], check=True)
    writable_by_nobody_else(copy)

    def look() -> None:
        # Without its log the file would be an older state, silently.
        with pytest.raises(StorageError, match="has an unfinished log") as caught:
            Disk(copy, read_only=True)
        assert caught.value.hint

    without_rights(look)
    copy.chmod(0o755)
    with Disk(copy, read_only=True) as store:
        assert store.get("k") == b"in the log"
    shutil.rmtree(copy)


def test_a_store_that_another_process_makes_in_between(tmp_path, monkeypatch):
    """The folder was empty when it was looked at first, and is listed when the store is there."""
    listing = Path.iterdir

    def late(self: Path) -> Iterator[Path]:
        monkeypatch.undo()
        with Disk(tmp_path) as store:
            store.set("key", b"value")
        return listing(self)

    monkeypatch.setattr(Path, "iterdir", late)
    with Disk(tmp_path) as store:
        assert store.get("key") == b"value"
