"""The log of an open store, cut or removed from outside, and a store's file that is empty."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from versioned_state.errors import CorruptStoreError
from versioned_state.storage import Disk, DiskCache

WAL = "store.sqlite3-wal"


def written(path: Path, count: int) -> Disk:
    """Return a store of that many writes, of which all but the first are in the log."""
    with Disk(path) as store:
        write(store, 0)
    store = Disk(path)
    for number in range(1, count):
        write(store, number)
    return store


def write(store: Disk, number: int) -> None:
    assert store.apply({}, {"last": b"%d" % number}, objects={f"o/{number:02x}": bytes(9_000)})


def check_prefix(path: Path, *, least: int) -> None:
    """Check that the store holds the first writes, no half of one, and can be written to."""
    with Disk(path) as store:
        last = int(store.get("last") or b"-1")
        assert least <= last < 8
        assert sorted(store.keys("o/")) == [f"o/{number:02x}" for number in range(last + 1)]
        write(store, last + 1)
    with Disk(path) as store:
        assert store.get("last") == b"%d" % (last + 1)


@pytest.mark.parametrize("kept", [0.0, 0.3, 0.99], ids=["to nothing", "to a third", "by its end"])
def test_a_log_that_was_cut_is_noticed_by_the_next_write(tmp_path: Path, kept: float) -> None:
    store = written(tmp_path / "s", 8)
    log = tmp_path / "s" / WAL
    os.truncate(log, int(log.stat().st_size * kept))
    for _ in range(2):
        with pytest.raises(CorruptStoreError, match="cut or removed") as caught:
            write(store, 8)
        assert caught.value.remains == "nothing was written"
    # A copy, as a crash leaves it.
    shutil.copytree(tmp_path / "s", tmp_path / "copy", ignore=shutil.ignore_patterns("*-shm"))
    store.close()
    check_prefix(tmp_path / "s", least=0)
    check_prefix(tmp_path / "copy", least=0)


def test_nothing_is_lost_with_a_log_that_was_removed(tmp_path: Path) -> None:
    """SQLite has it open still, and folds it in when it looks."""
    store = written(tmp_path / "s", 8)
    (tmp_path / "s" / WAL).unlink()
    with pytest.raises(CorruptStoreError, match="cut or removed"):
        write(store, 8)
    store.close()
    check_prefix(tmp_path / "s", least=7)


def test_a_log_that_others_fold_in_is_not_damage(tmp_path: Path) -> None:
    with Disk(tmp_path / "s") as one, Disk(tmp_path / "s") as other:
        for number in range(6):
            one.set("one", b"%d" % number)
            other.set("other", b"x" * 10_000 * (6 - number))
            (other, one)[number % 2].compact()
        assert one.get("one") == b"5"
    with Disk(tmp_path / "s") as store:
        assert store.get("one") == b"5"


# An empty file


@pytest.mark.parametrize(("kind", "name"), [(Disk, "store.sqlite3"), (DiskCache, "cache.db")])
def test_an_empty_file_is_not_taken_for_a_new_store(tmp_path: Path, kind: type[Disk | DiskCache], name: str) -> None:
    """It may be all that is left of a store, and an empty store would hide that."""
    (tmp_path / name).touch()
    for create in (True, False):
        with pytest.raises(CorruptStoreError, match="is empty"):
            kind(tmp_path, create=create)
    assert [(path.name, path.stat().st_size) for path in tmp_path.iterdir()] == [(name, 0)]
