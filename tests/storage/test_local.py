"""`Disk` and `DiskCache`, each a SQLite file in a folder: what they make and refuse, other writers, limits."""

from __future__ import annotations

import gc
import sqlite3
import stat
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.local_files import WAYS, Kind, change, check_refused, names
from versioned_state.errors import (
    CorruptStoreError,
    FormatError,
    InvalidArgumentError,
    LimitExceededError,
    NotAStoreError,
    StoreBusyError,
    StoreNotFoundError,
)
from versioned_state.storage import Disk, DiskCache

FILES: dict[Kind, str] = {Disk: "store.sqlite3", DiskCache: "cache.db"}

pytestmark = pytest.mark.parametrize("kind", FILES)


# Opening


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
        "file:x?mode=memory",
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


def test_directory_is_made_for_this_user_alone_and_close_leaves_one_file(kind: Kind, tmp_path: Path) -> None:
    place, file = tmp_path / "a" / "b" / "store", FILES[kind]
    with kind(place) as store:
        assert store.path == place
        assert store.private
        store.set("k", bytes(5_000_000))
        assert [stat.S_IMODE(path.stat().st_mode) for path in (place.parent.parent, place.parent, place)] == [0o700] * 3
        assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in place.iterdir())
        assert names(place) == [file, f"{file}-shm", f"{file}-wal"]
    assert names(place) == [file]
    assert repr(store) == f"<{kind.__name__} {str(place)!r}>"


@pytest.mark.parametrize("path", ["", "a\0b", b"bytes"])
def test_bad_path_is_refused(kind: Kind, path: str) -> None:
    with pytest.raises(InvalidArgumentError):
        kind(path)


def test_nothing_is_made_unless_asked_for(kind: Kind, tmp_path: Path) -> None:
    for options in WAYS[kind][1:]:
        for place in (tmp_path / "absent", tmp_path):
            with pytest.raises(StoreNotFoundError):
                kind(place, **options)
    assert names(tmp_path) == []


# Refusing what is not ours


def test_directory_with_other_content_is_refused(kind: Kind, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    check_refused(kind, tmp_path)


@pytest.mark.parametrize(
    "content", [b"hello", b"x" * 5000, b"SQLite format 3\0", b"SQLite format 3\0" + b"\0" * 5000], ids=len
)
def test_file_that_is_not_a_database_is_refused(kind: Kind, tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILES[kind]).write_bytes(content)
    check_refused(kind, tmp_path)


def test_file_directory_or_link_in_place_of_another_is_refused(kind: Kind, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "a" / FILES[kind]).mkdir(parents=True)
    kind(tmp_path / "real").close()
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / FILES[kind]).symlink_to(tmp_path / "real" / FILES[kind])
    for place in (tmp_path / "file", tmp_path / "a", tmp_path / "b"):
        for options in WAYS[kind]:
            with pytest.raises(NotAStoreError):
                kind(place, **options)
    assert (tmp_path / "file").read_text() == "mine"
    assert names(tmp_path / "b") == [FILES[kind]]


def test_store_that_lacks_a_table_is_not_mended(kind: Kind, tmp_path: Path) -> None:
    kind(tmp_path).close()
    change(tmp_path / FILES[kind], f"DROP TABLE {'entries' if kind is Disk else 'Cache'}")
    check_refused(kind, tmp_path, CorruptStoreError)


def test_store_of_a_newer_release_is_refused_and_not_touched(kind: Kind, tmp_path: Path) -> None:
    kind(tmp_path).close()
    change(tmp_path / FILES[kind], "PRAGMA user_version = 2")
    check_refused(kind, tmp_path, FormatError)
    with pytest.raises(FormatError) as caught:
        kind(tmp_path)
    assert (caught.value.found, caught.value.supported) == (2, 1)


# Other writers, and limits


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
