"""`Disk` with a torn log, a damaged file, or a full disk."""

from __future__ import annotations

import bisect
import os
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.numbered_batches import batch, check_is_prefix, fill
from tests.support.processes import ROOT, fork, join
from versioned_state.errors import CorruptStoreError, NotAStoreError, StateError, StorageError
from versioned_state.storage import Disk, DiskCache

FILE = "store.sqlite3"
WAL = f"{FILE}-wal"


# A torn log


@pytest.fixture(scope="module")
def torn(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[int]]:
    """A copy of a store with 20 writes in its log, taken as by a power cut, and where in the log each ended."""
    place, copy = tmp_path_factory.mktemp("live"), tmp_path_factory.mktemp("copy")
    ends = []
    with Disk(place) as store:
        for number in range(1, 21):
            puts, objects = batch(number)
            assert store.apply({"ref": b"%d" % (number - 1) if number > 1 else None}, puts, objects=objects)
            ends.append((place / WAL).stat().st_size)
        # By another process: to close a descriptor of the file here would drop the locks on it.
        subprocess.run(["cp", place / FILE, place / WAL, copy], check=True)
    return copy, ends


def reopened(source: Path, place: Path, log: bytes, *, read_only: bool = False) -> int:
    place.mkdir()
    shutil.copy(source / FILE, place)
    (place / WAL).write_bytes(log)
    with Disk(place, read_only=read_only) as store:
        found = check_is_prefix(store)
    if not read_only:
        with Disk(place) as store:
            assert check_is_prefix(store) == found
            puts, objects = batch(found + 1)
            store.apply({}, puts, objects=objects)
            assert check_is_prefix(store) == found + 1
    shutil.rmtree(place)
    return found


def test_log_cut_at_any_sector_leaves_a_prefix(torn: tuple[Path, list[int]], tmp_path: Path, *, long_run: bool) -> None:
    source, ends = torn
    log = (source / WAL).read_bytes()
    assert len(log) == ends[-1] > 200_000
    for cut in range(0, len(log) + 1, 512 if long_run else 512 * 7):
        assert reopened(source, tmp_path / "store", log[:cut]) == bisect.bisect_right(ends, cut), cut


def test_lost_sector_of_the_log_leaves_a_prefix(
    torn: tuple[Path, list[int]], tmp_path: Path, *, long_run: bool
) -> None:
    source, ends = torn
    log = (source / WAL).read_bytes()
    for start in range(512, len(log), 512 * (9 if long_run else 23)):
        lost = log[:start] + b"\xa5" * 512 + log[start + 512 :]
        assert reopened(source, tmp_path / "store", lost) <= bisect.bisect_right(ends, start + 512), start


def test_read_only_takes_a_torn_log_as_it_is(torn: tuple[Path, list[int]], tmp_path: Path) -> None:
    source, ends = torn
    log = (source / WAL).read_bytes()
    for cut in range(0, len(log) + 1, 512 * 37):
        assert reopened(source, tmp_path / "store", log[:cut], read_only=True) == bisect.bisect_right(ends, cut), cut


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


# A full disk


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


FULL_DISK = """
import os, sys
from pathlib import Path
from tests.support.numbered_batches import batch, check_is_prefix, fill
from versioned_state.errors import StorageFullError
from versioned_state.storage import Disk
place = Path(sys.argv[1])
ballast = place / "ballast"
ballast.write_bytes(bytes(500_000))
store = Disk(place / "store")
acknowledged = fill(store, StorageFullError)
assert acknowledged > 20
for _ in range(3):
    acknowledged = fill(store, StorageFullError)
    assert check_is_prefix(store) == acknowledged
ballast.unlink()
assert fill(store, StorageFullError) > acknowledged
acknowledged = check_is_prefix(store)
store.close()
with Disk(place / "store", read_only=True) as store:
    assert check_is_prefix(store) == acknowledged
print("acknowledged", acknowledged)
"""


def test_really_full_disk(tmp_path: Path) -> None:
    """On a file system of 2 MB in memory, mounted in a name space of its own."""
    mount = f"mount -t tmpfs -o size=2m none '{tmp_path}'"
    if subprocess.run(["unshare", "-rm", "sh", "-c", mount], capture_output=True).returncode:
        pytest.skip("may not mount a tmpfs here; the two tests above stand for this one")
    command = f"{mount} && exec {sys.executable} -c '{FULL_DISK}' '{tmp_path}'"
    ended = subprocess.run(
        ["unshare", "-rm", "sh", "-c", command],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=60,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith("acknowledged")
