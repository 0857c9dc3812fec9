"""``Disk`` with ``durability="power"``: who waits for which sync, and what happens if the disk fails one.

Cuts of the power themselves are in ``tests/reliability/test_power_cuts.py``.
"""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from threading import Condition

import pytest

from tests.support.numbered_rounds import DISK, copy_files
from tests.support.processes import fork, join
from tests.support.waiting import eventually
from versioned_state import Disk, Repository, Versioned
from versioned_state.errors import (
    CommitInDoubtError,
    CorruptStoreError,
    ReadOnlyError,
    StorageError,
    StoreClosedError,
    UnknownOutcomeError,
)
from versioned_state.storage.local import log_sync

WAL = "store.sqlite3-wal"


class SlowDisk:
    """The disk beneath the syncs of commits: each of them waits until it may go on, or fails."""

    def __init__(self, sync: Callable[[int], None]) -> None:
        self._sync = sync
        self._changed = Condition()
        self._held = False
        self.failures = 0  # how many of the next syncs fail
        self.begun = 0

    def sync(self, descriptor: int) -> None:
        with self._changed:
            self.begun += 1
            self._changed.wait_for(lambda: not self._held, 30)
            if self.failures:
                self.failures -= 1
                raise OSError(errno.EIO, "Input/output error")
        self._sync(descriptor)

    def hold(self) -> None:
        self._held = True

    def release(self) -> None:
        with self._changed:
            self._held = False
            self._changed.notify_all()


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowDisk]:
    slow = SlowDisk(log_sync._sync)
    monkeypatch.setattr(log_sync, "_sync", slow.sync)
    yield slow
    slow.release()


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as pool:
        yield pool


def put(store: Disk, key: str) -> bool:
    return store.apply({key: None}, {key: b"1"})


def test_writes_that_wait_at_once_share_a_sync(tmp_path: Path, disk: SlowDisk, threads: ThreadPoolExecutor) -> None:
    with Disk(tmp_path / "s", durability="power") as store:
        disk.hold()
        first = threads.submit(put, store, "first")
        assert eventually(lambda: disk.begun == 1)
        # The lock is free, so that others write and see the writes of others, none of which is acknowledged.
        later = [threads.submit(put, store, f"later {number}") for number in range(6)]
        assert eventually(lambda: len(list(store.keys("later"))) == 6)
        assert store._syncs is not None
        calls = store._syncs.open()._syncing._calls
        assert eventually(lambda: len(calls) == 7), "each of them waits for a sync"
        assert store.get("first") == b"1"
        assert not any(future.done() for future in (first, *later))
        disk.release()
        assert all(future.result() for future in (first, *later))
    assert disk.begun == 2, "the sync that was under way did not serve the later six, and another one did"


def test_another_handle_writes_while_one_waits_for_the_disk(
    tmp_path: Path, disk: SlowDisk, threads: ThreadPoolExecutor
) -> None:
    with Disk(tmp_path / "s", durability="power") as store, Disk(tmp_path / "s", timeout=5) as other:
        disk.hold()
        waiting = threads.submit(put, store, "one")
        assert eventually(lambda: disk.begun == 1)
        assert put(other, "two")
        assert other.get("one") == b"1"
        assert not waiting.done()
        disk.release()
        assert waiting.result()


@pytest.mark.parametrize("durability", ["process", "power"])
def test_what_is_synced(tmp_path: Path, disk: SlowDisk, durability: str) -> None:
    with Disk(tmp_path / "s", durability=durability) as store:  # type: ignore[arg-type]
        steps: list[Callable[[], object]] = [
            lambda: put(store, "a"),
            lambda: store.apply({}, {}, ["a"]),
            lambda: store.apply({}, {}, objects={"o/aa": b"A"}),
            lambda: store.apply({}, {}),
            store.compact,
        ]
        for number, step in enumerate(steps, 1):
            step()
            assert disk.begun == (number if durability == "power" else 0)
        assert not store.apply({"a": b"0"}, {"a": b"1"}, objects={"o/bb": b"B"})
        assert list(store.items())
        assert disk.begun == (len(steps) if durability == "power" else 0), "nothing to acknowledge"


async def test_commits_of_tasks_of_one_loop_share_syncs(tmp_path: Path, disk: SlowDisk) -> None:
    with Repository(Disk(tmp_path / "s", durability="power")) as repository:
        states = [Versioned(repository, branch=f"b{number}") for number in range(6)]
        for state in states:
            state["x"] = 1
        before = disk.begun
        disk.hold()
        commits = [asyncio.ensure_future(state.aio.commit()) for state in states]
        assert await asyncio.to_thread(
            eventually, lambda: len(repository.branches) == len(states) and disk.begun > before
        )
        # A task that is cancelled does not take the others along.
        commits[3].cancel()
        disk.release()
        done = await asyncio.gather(*commits, return_exceptions=True)
        assert sum(isinstance(each, BaseException) for each in done) <= 1
        assert disk.begun - before < len(states)
        assert {repository.snapshot(f"b{number}")["x"] for number in range(6)} == {1}


def test_a_store_that_is_closed_meanwhile_acknowledges_what_it_synced(
    tmp_path: Path, disk: SlowDisk, threads: ThreadPoolExecutor
) -> None:
    store = Disk(tmp_path / "s", durability="power")
    disk.hold()
    waiting = threads.submit(put, store, "one")
    assert eventually(lambda: disk.begun == 1)
    store.close()
    with pytest.raises(StoreClosedError):
        put(store, "two")
    disk.release()
    assert waiting.result()
    assert not (tmp_path / "s" / WAL).exists()
    with Disk(tmp_path / "s") as again:
        assert dict(again.items()) == {"one": b"1"}


def test_a_store_that_is_closed_meanwhile_acknowledges_nothing_that_failed(
    tmp_path: Path, disk: SlowDisk, threads: ThreadPoolExecutor
) -> None:
    with Disk(tmp_path / "s") as other:  # keeps the log from being folded in
        assert put(other, "zero")
        store = Disk(tmp_path / "s", durability="power")
        disk.hold()
        waiting = threads.submit(put, store, "one")
        assert eventually(lambda: disk.begun == 1)
        store.close()
        disk.failures = 1
        disk.release()
        with pytest.raises(UnknownOutcomeError):
            waiting.result()
        assert (tmp_path / "s" / "store.sqlite3-unsynced").exists()


def test_the_descriptor_is_that_of_the_present_log(tmp_path: Path) -> None:
    """A fork closes all connections, which removes the log: the next write begins another file."""
    with Disk(tmp_path / "s", durability="power") as store:
        assert put(store, "before")
        assert store._syncs is not None
        old = store._syncs.open()

        def child() -> None:
            assert put(store, "child")
            assert store._syncs is not None
            assert store._syncs.open().process == os.getpid()

        join(fork(child))
        assert put(store, "after")
        new = store._syncs.open()
        found = (tmp_path / "s" / WAL).stat()
        assert new.identity == (found.st_dev, found.st_ino)
        assert new.identity != old.identity
        assert sorted(store.keys()) == ["after", "before", "child"]


def test_a_fork_while_a_call_waits_for_the_disk(tmp_path: Path, disk: SlowDisk, threads: ThreadPoolExecutor) -> None:
    with Disk(tmp_path / "s", durability="power") as store:
        disk.hold()
        waiting = threads.submit(put, store, "one")
        assert eventually(lambda: disk.begun == 1)

        def child() -> None:
            disk.release()
            assert store.get("one") == b"1"
            assert put(store, "two")

        join(fork(child))
        assert not waiting.done()
        disk.release()
        assert waiting.result()
        assert sorted(store.keys()) == ["one", "two"]


def test_no_descriptor_stays_open(tmp_path: Path) -> None:
    def logs() -> int:
        links = [link for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
        return sum(str(link.readlink()).startswith(str(tmp_path / "s" / WAL)) for link in links)

    with Disk(tmp_path / "s") as plain:
        put(plain, "plain")
        usual = logs()
        for number in range(5):
            with Disk(tmp_path / "s", durability="power") as store:
                put(store, f"{number}")
                assert logs() > usual
            assert logs() == usual


def test_a_reader_waits_for_nothing_and_writes_nothing(tmp_path: Path, disk: SlowDisk) -> None:
    with Disk(tmp_path / "s", durability="power") as store:
        put(store, "a")
        with Disk(tmp_path / "s", durability="power", read_only=True) as reader:
            before = disk.begun
            assert reader.get("a") == b"1"
            with pytest.raises(ReadOnlyError):
                put(reader, "b")
            assert disk.begun == before


# A disk that fails


def test_a_sync_that_fails_once_is_made_good(tmp_path: Path, disk: SlowDisk, threads: ThreadPoolExecutor) -> None:
    """Nobody learns of it: the log is written again, and synced."""
    with Disk(tmp_path / "s", durability="power") as store:
        disk.hold()
        disk.failures = 1
        futures: list[Future[bool]] = []
        for number in range(4):
            futures.append(threads.submit(put, store, f"{number}"))
            assert eventually(lambda: disk.begun >= 1)
        assert eventually(lambda: len(list(store.keys())) == 4)
        disk.release()
        assert all(future.result() for future in futures)
        assert disk.begun >= 2
        assert put(store, "after")


def test_a_disk_that_goes_on_failing_is_not_believed(tmp_path: Path, disk: SlowDisk) -> None:
    with Disk(tmp_path / "s", durability="power") as store:
        assert put(store, "before")
        disk.failures = 1000
        with pytest.raises(UnknownOutcomeError, match="failed to sync the log") as caught:
            put(store, "doubted")
        assert caught.value.remains == "the write was done, and a loss of power may undo it"
        # No call builds on what may be lost, and none says that it is there.
        for call, remains in (
            (lambda: store.get("doubted"), "nothing was read"),
            (lambda: list(store.keys()), "nothing was read"),
            (lambda: put(store, "another"), "nothing was written"),
            (store.compact, "nothing was written"),
        ):
            with pytest.raises(StorageError, match="fails again") as refused:
                call()
            assert refused.value.remains == remains
            assert not isinstance(refused.value, UnknownOutcomeError)
        disk.failures = 0
        assert store.get("doubted") == b"1"
        assert put(store, "another")
        before = disk.begun
        assert put(store, "more")
        assert disk.begun == before + 1
    with Disk(tmp_path / "s") as again:
        assert sorted(again.keys()) == ["another", "before", "doubted", "more"]


def test_a_commit_whose_sync_failed_is_in_doubt_until_the_disk_works_again(tmp_path: Path, disk: SlowDisk) -> None:
    with Versioned(Disk(tmp_path / "s", durability="power")) as state:
        state["messages"] = ["one"]
        state.commit()
        disk.failures = 1000
        state["messages"].append("two")
        with pytest.raises(CommitInDoubtError) as caught:
            state.commit()
        with pytest.raises(StorageError):
            state.refresh()
        disk.failures = 0
        state.refresh()
        assert state.head.id == caught.value.commit
        state["messages"].append("three")
        state.commit()
        assert state["messages"] == ["one", "two", "three"]
        assert len(list(state.log())) == 3


def test_a_log_of_which_the_disk_lost_a_part_is_not_written_again(tmp_path: Path, disk: SlowDisk) -> None:
    """The system dropped pages that it took for written, and read them from the disk again."""
    with Disk(tmp_path / "s", durability="power") as store:
        for number in range(20):
            assert put(store, f"{number}")
        disk.failures = 2
        with pytest.raises(UnknownOutcomeError):
            put(store, "doubted")
        log = tmp_path / "s" / WAL
        with log.open("r+b") as file:
            file.seek(log.stat().st_size // 2)
            file.write(bytes(512))
        for _ in range(2):
            with pytest.raises(CorruptStoreError, match="lost a part of the log"):
                put(store, "another")


def test_the_log_is_repaired_only_once(tmp_path: Path, disk: SlowDisk, threads: ThreadPoolExecutor) -> None:
    with Disk(tmp_path / "s", durability="power") as store:
        disk.failures = 1000
        with pytest.raises(UnknownOutcomeError):
            put(store, "doubted")
        disk.failures = 0
        before = disk.begun
        assert {future.result() for future in [threads.submit(store.get, "doubted") for _ in range(8)]} == {b"1"}
        assert disk.begun == before + 1


@pytest.mark.parametrize("durability", ["process", "power"])
def test_a_store_that_is_opened_after_a_failure_writes_the_log_again(
    tmp_path: Path, disk: SlowDisk, durability: str
) -> None:
    """The process that saw the failure may be dead by then."""
    mark = tmp_path / "s" / "store.sqlite3-unsynced"
    with Disk(tmp_path / "s", durability="power") as store:
        disk.failures = 1000
        with pytest.raises(UnknownOutcomeError):
            put(store, "doubted")
        assert mark.exists()
        with pytest.raises(StorageError, match="fails again"):
            Disk(tmp_path / "s", durability=durability)  # type: ignore[arg-type]
        with Disk(tmp_path / "s", read_only=True) as reader:
            assert reader.get("doubted") == b"1"
        assert mark.exists()
        disk.failures = 0
        before = disk.begun
        with Disk(tmp_path / "s", durability=durability) as other:  # type: ignore[arg-type]
            assert disk.begun == before + 1
            assert not mark.exists()
            assert put(other, "more")
        assert put(store, "yet more")
    with Disk(tmp_path / "s") as again:
        assert sorted(again.keys()) == ["doubted", "more", "yet more"]
    assert [path.name for path in (tmp_path / "s").iterdir()] == ["store.sqlite3"]


def test_the_log_is_written_again_where_a_frame_was_lost_that_comes_back(tmp_path: Path, disk: SlowDisk) -> None:
    """A repair may append the same frame as an earlier, lost repair, which makes the frames after it valid again."""
    with Disk(tmp_path / "s", durability="power") as store:
        for number in range(5):
            assert put(store, f"{number}")
        size = (tmp_path / "s" / WAL).stat().st_size
        place, base = tmp_path / "copy", tmp_path / "base"
        copy_files(tmp_path / "s", place, DISK)
        copy_files(tmp_path / "s", base, DISK)
    frame = 4096 + 24
    (place / "store.sqlite3-unsynced").touch()
    with Disk(place, durability="power") as store:
        assert put(store, "lost with the frame")
        log = bytearray((place / WAL).read_bytes())
    for lost in (
        range(size, size + frame),
        range(size + 512, size + 1024),
        range(size + frame - 100, size + frame),
        range(0),
    ):
        again = tmp_path / f"after {lost}"
        shutil.copytree(base, again)
        cut = bytes(0 if at in lost else byte for at, byte in enumerate(log))
        (again / WAL).write_bytes(cut)
        (again / "store.sqlite3-unsynced").touch()
        with Disk(again, durability="power") as store:
            assert not (again / "store.sqlite3-unsynced").exists()
            assert put(store, "new")
            found = sorted(store.keys())
        assert found in ([*"01234", "new"], [*"01234", "lost with the frame", "new"])
        with Disk(again) as store:
            assert sorted(store.keys()) == found


@pytest.mark.parametrize("page", [512, 4096, 65536])
def test_the_valid_part_of_a_log_ends_with_a_transaction(tmp_path: Path, page: int) -> None:
    """As SQLite itself finds when it reads a log that was cut."""
    place = tmp_path / "db"
    with closing(sqlite3.connect(place, isolation_level=None)) as connection:
        connection.execute(f"PRAGMA page_size = {page}")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE t (n)")
        ends = []
        for number in range(5):
            connection.execute("INSERT INTO t VALUES (?)", (str(number) * page,))
            ends.append(place.with_name("db-wal").stat().st_size)
        log = place.with_name("db-wal").read_bytes()
        empty = place.read_bytes()
    for length in (*ends, ends[-1] - 1, ends[2] + 10, 40, 10, 0):
        end, frame = log_sync.valid_end(log[:length])
        assert end <= length
        if length in ends:
            assert (end, frame) == (length, page + 24)
        counts = [_count(tmp_path, empty, part) for part in (log[:length], log[:end])]
        assert counts[0] == counts[1]
    changed = bytearray(log)
    changed[ends[1] + 30] ^= 1
    assert log_sync.valid_end(bytes(changed)) == (ends[1], page + 24)


def _count(folder: Path, content: bytes, log: bytes) -> int:
    """Return the number of rows that SQLite finds, or -1 if it does not even find the table."""
    (folder / "copy").write_bytes(content)
    (folder / "copy-wal").write_bytes(log)
    with closing(sqlite3.connect(folder / "copy")) as connection:
        tables = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
        return int(connection.execute("SELECT count(*) FROM t").fetchone()[0]) if tables else -1
