"""`Disk`: making and refusing, its log, privacy, and errors of the driver. `test_local.py` has more."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.local_files import change, check_refused, names
from tests.support.processes import without_rights
from versioned_state.errors import (
    CorruptStoreError,
    FormatError,
    ReadOnlyError,
    StorageError,
)
from versioned_state.storage import Disk

FILE = "store.sqlite3"


def random_objects(count: int, size: int = 1000) -> dict[str, bytes]:
    return {f"o/{os.urandom(24).hex()}": os.urandom(size) for _ in range(count)}


# Opening


def test_leftover_of_a_maker_that_died_does_not_matter(tmp_path: Path) -> None:
    (tmp_path / f".{FILE}.123.abcd").write_bytes(b"half")
    with Disk(tmp_path) as store:
        store.set("k", b"1")
    assert FILE in names(tmp_path)


def test_a_maker_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_link(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(os, "link", no_link)
    with pytest.raises(MemoryError):
        Disk(tmp_path)
    assert names(tmp_path) == []


def test_file_system_without_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_link(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_link)
    with Disk(tmp_path) as store:
        store.set("k", b"1")
    assert names(tmp_path) == [FILE]


def test_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageError) as caught:
        Disk(tmp_path / "file" / "store")
    assert isinstance(caught.value.__cause__, OSError)


# Refusing what is not ours


@pytest.mark.parametrize("mode", ["DELETE", "WAL"])
def test_database_of_another_program_is_refused(tmp_path: Path, mode: str) -> None:
    with closing(sqlite3.connect(tmp_path / FILE)) as connection:
        connection.execute(f"PRAGMA journal_mode = {mode}")
        connection.execute("CREATE TABLE objects(key, value)")
        connection.commit()
        check_refused(Disk, tmp_path)
        connection.execute("INSERT INTO objects VALUES(1, 2)")
    check_refused(Disk, tmp_path)


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE more(x)",
        "CREATE VIEW more AS SELECT 1",
        "CREATE TRIGGER more AFTER INSERT ON objects BEGIN DELETE FROM entries; END",
        "CREATE TRIGGER objects AFTER INSERT ON entries BEGIN DELETE FROM objects; END",
        "CREATE INDEX more ON objects(value)",
        "ALTER TABLE objects ADD COLUMN more",
        "ALTER TABLE objects ADD COLUMN more AS (abs(1))",
        "CREATE VIRTUAL TABLE more USING fts5(x)",
        "ANALYZE",
        "DROP TABLE entries; CREATE VIEW entries AS SELECT x'00' AS key, x'00' AS value",
    ],
)
def test_planted_schema_is_refused(tmp_path: Path, statement: str) -> None:
    with Disk(tmp_path) as store:
        store.set("o/ab", b"1")
    change(tmp_path / FILE, statement)
    check_refused(Disk, tmp_path)


def test_newer_schema_that_is_still_in_the_log_is_refused(tmp_path: Path) -> None:
    Disk(tmp_path).close()
    with closing(sqlite3.connect(tmp_path / FILE, isolation_level=None)) as connection:
        connection.execute("PRAGMA user_version = 7")
        for read_only in (False, True):
            with pytest.raises(FormatError):
                Disk(tmp_path, read_only=read_only)


@pytest.mark.parametrize("value", ["'text'", "1", "1.5"])
def test_planted_value_of_another_type_is_damage(tmp_path: Path, value: str) -> None:
    Disk(tmp_path).close()
    change(
        tmp_path / FILE, f"INSERT INTO objects VALUES(x'ab', {value})", f"INSERT INTO entries VALUES(x'6b', {value})"
    )
    with Disk(tmp_path) as store:
        for call in (
            lambda: store.get("o/ab"),
            lambda: store.get("k"),
            lambda: store.get_many(["o/ab"]),
            lambda: list(store.items()),
        ):
            with pytest.raises(CorruptStoreError):
                call()


def test_planted_keys_of_other_types_are_not_seen(tmp_path: Path) -> None:
    Disk(tmp_path).close()
    change(
        tmp_path / FILE,
        "INSERT INTO objects VALUES('ab', x'01'), (7, x'01')",
        "INSERT INTO entries VALUES('k', x'01'), (1.5, x'01')",
    )
    with Disk(tmp_path) as store:
        assert list(store.keys()) == []
        assert store.get("o/ab") is None
        assert store.get("k") is None


def test_planted_key_that_is_not_text_is_damage(tmp_path: Path) -> None:
    Disk(tmp_path).close()
    change(tmp_path / FILE, "INSERT INTO entries VALUES(x'ff', x'01')")
    with Disk(tmp_path) as store, pytest.raises(CorruptStoreError):
        list(store.keys())


# What is left behind


def test_log_of_a_huge_batch_is_cut_back(tmp_path: Path) -> None:
    with Disk(tmp_path) as store:
        store.set_many(random_objects(30, 1_000_000))
        wal = tmp_path / f"{FILE}-wal"
        assert wal.stat().st_size > 25_000_000
        store.set("k", b"1")
        store.set("k", b"2")
        assert wal.stat().st_size <= 16 * 1024 * 1024


def test_log_stays_small_over_many_commits(tmp_path: Path) -> None:
    with Disk(tmp_path) as store:
        for _ in range(3000):
            store.apply({}, {"ref": os.urandom(100)}, objects=random_objects(2, 500))
        assert (tmp_path / f"{FILE}-wal").stat().st_size < 10_000_000


# Privacy


def test_private_is_what_only_this_user_can_write(tmp_path: Path) -> None:
    place = tmp_path / "parent" / "store"
    Disk(place).close()

    def private() -> bool:
        with Disk(place, read_only=True) as one, Disk(place) as other:
            assert one.private == other.private
            return one.private

    assert private()
    for path, mode, answer in (
        (place, 0o755, True),
        (place, 0o770, False),
        (place, 0o707, False),
        (place / FILE, 0o644, True),
        (place / FILE, 0o660, False),
        (place / FILE, 0o606, False),
        (place.parent, 0o775, True),
        (place.parent, 0o777, False),
        (place.parent, 0o1777, True),
    ):
        before = path.stat().st_mode
        path.chmod(mode)
        assert private() is answer, (path, oct(mode))
        path.chmod(before)
    link = tmp_path / "link"
    link.symlink_to(place)
    with Disk(link) as store:
        assert store.private


def test_store_of_another_user_is_not_private(open_folder: Path) -> None:
    Disk(open_folder / "store").close()
    (open_folder / "store").chmod(0o755)
    (open_folder / "store" / FILE).chmod(0o644)
    if os.geteuid() != 0:
        pytest.skip("only root can make a file that is another user's")

    def look() -> None:
        with Disk(open_folder / "store", read_only=True) as store:
            assert not store.private

    without_rights(look)


# Errors of the driver


def test_failure_within_a_batch_changes_nothing(tmp_path: Path) -> None:
    with Disk(tmp_path) as store:
        store.set("k", b"1")
        (connection,) = store._pool._connections
        connection.set_authorizer(
            lambda action, *_: sqlite3.SQLITE_DENY if action == sqlite3.SQLITE_DELETE else sqlite3.SQLITE_OK
        )
        with pytest.raises(StorageError) as caught:
            store.apply({}, {"k": b"2", "m": b"2"}, ["gone"], objects={"o/ab": b"x"})
        assert isinstance(caught.value.__cause__, sqlite3.Error)
        connection.set_authorizer(None)
        assert dict(store.items()) == {"k": b"1"}
        store.set("k", b"3")


@pytest.mark.parametrize(
    "write",
    [
        lambda store: store.set("k", b"2"),
        lambda store: store.set_many({}),
        lambda store: store.delete("k"),
        lambda store: store.apply({}, {}),
        lambda store: store.compare_and_set("k", b"1", b"2"),
    ],
)
def test_read_only_store_refuses_writes(tmp_path: Path, write: Callable[[Disk], object]) -> None:
    with Disk(tmp_path) as store:
        store.set("k", b"1")
    with Disk(tmp_path, read_only=True) as store:
        with pytest.raises(ReadOnlyError):
            write(store)
        assert store.get("k") == b"1"
