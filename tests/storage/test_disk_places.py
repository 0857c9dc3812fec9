"""`Disk` in places that are not its own: network file systems, read-only mounts, other users' folders."""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.processes import NOBODY, fork, join, run_in_memory
from versioned_state import Versioned
from versioned_state.errors import InvalidArgumentError, PickleRefusedError, StorageError, UnsafeStoreError
from versioned_state.storage import Disk, DiskCache
from versioned_state.storage.local import mounts

FILE = "store.sqlite3"

# Lines as Linux prints them: one with tags and one without, a space in a name, and an automount above what it mounted.
MOUNTS = r"""
22 28 0:21 / /proc rw,nosuid,nodev,noexec,relatime shared:12 - proc proc rw
28 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw,errors=remount-ro
31 28 0:27 / /tmp rw - tmpfs tmpfs rw,size=2048k
90 28 0:51 / /home/with\040space rw,relatime shared:3 master:7 - nfs4 server:/export rw,vers=4.2
91 28 0:52 / /mnt/share rw - cifs //server/share rw
92 28 0:53 /a/b /mnt/far rw shared:9 - fuse.sshfs user@host:/ rw
93 28 0:54 / /auto rw - autofs systemd-1 rw
broken
94 28 x:y / / rw - nfs a b
95 28 0:99 / /
"""


def test_mounts_are_read_by_device():
    assert mounts.types_by_device(MOUNTS) == {
        (0, 21): "proc",
        (254, 1): "ext4",
        (0, 27): "tmpfs",
        (0, 51): "nfs4",
        (0, 52): "cifs",
        (0, 53): "fuse.sshfs",
        (0, 54): "autofs",
    }


@pytest.mark.parametrize(
    ("device", "kind"),
    [
        ((0, 51), "nfs4"),
        ((0, 52), "cifs"),
        ((0, 53), "fuse.sshfs"),
        ((0, 27), None),
        ((0, 98), None),
        ((254, 1), None),
        ((51, 0), None),
    ],
)
def test_shared_file_system_is_told_by_the_device(tmp_path, monkeypatch, device, kind):
    listing = tmp_path / "mountinfo"
    listing.write_text(MOUNTS)
    monkeypatch.setattr(mounts, "_device", lambda path: device)
    assert mounts.shared_file_system(tmp_path, listing) == kind
    assert mounts.shared_file_system(tmp_path, tmp_path / "absent") is None


def test_what_the_system_says_of_places_that_are_there():
    found = mounts.types_by_device(Path("/proc/self/mountinfo").read_text())
    number = Path("/proc").stat().st_dev
    assert found[os.major(number), os.minor(number)] == "proc"


def test_network_file_system_is_refused_but_for_readers_and_at_the_callers_word(tmp_path, monkeypatch):
    listing = tmp_path / "mountinfo"
    number = tmp_path.stat().st_dev
    device = (0, os.minor(number))
    listing.write_text(f"90 28 0:{device[1]} / {tmp_path} rw - nfs4 server:/export rw\n")
    # As if the folder lay there: stat() gives the number of the mount for everything below it.
    monkeypatch.setattr(mounts, "_device", lambda path: device)
    monkeypatch.setattr(mounts.shared_file_system, "__defaults__", (listing,))
    place = tmp_path / "deep" / "store"
    for kind in (Disk, DiskCache):
        with pytest.raises(UnsafeStoreError, match=r"network file system \(nfs4\)") as caught:
            kind(place)
        assert "allow_network=True" in caught.value.hint
        assert not place.parent.exists()
    with Disk(place, allow_network=True) as store:
        store.set("k", b"1")
    with Disk(place, read_only=True) as store:
        assert store.get("k") == b"1"
    with pytest.raises(UnsafeStoreError):
        Disk(place)


def test_the_folder_that_is_there_counts_for_one_that_is_not_yet(tmp_path):
    number = tmp_path.stat().st_dev
    assert mounts._device(tmp_path / "a" / "b") == mounts._device(tmp_path) == (os.major(number), os.minor(number))
    (tmp_path / "file").touch()
    assert mounts._device(tmp_path / "file" / "b") == mounts._device(tmp_path)
    (tmp_path / "link").symlink_to("/proc")
    assert mounts._device(tmp_path / "link" / "self") == mounts._device(Path("/proc"))


# A mount that cannot be written

READ_ONLY_MOUNT = """
import subprocess, sys
from pathlib import Path
import pytest
from versioned_state.errors import ReadOnlyError, StorageError, StoreNotFoundError
from versioned_state.storage import Disk, DiskCache
place = Path(sys.argv[1])
with Disk(place / "store") as store:
    store.set("k", b"1")
DiskCache(place / "cache").close()
# One that was killed, and left its log.
subprocess.run([sys.executable, "-c", "import os, sys; from versioned_state.storage import Disk;"
                "store = Disk(sys.argv[1]); store.set('k', b'2'); os._exit(0)", place / "killed"], check=True)
subprocess.run(["mount", "-o", "remount,ro", place], check=True)
before = sorted(place.rglob("*"))

with Disk(place / "store", read_only=True) as store:
    assert store.get("k") == b"1"
    with pytest.raises(ReadOnlyError):
        store.set("k", b"2")
for open_it in (
    lambda: Disk(place / "store"), lambda: Disk(place / "store", create=False), lambda: DiskCache(place / "cache")
):
    with pytest.raises(ReadOnlyError, match="cannot be written.*nothing was written") as caught:
        open_it()
    assert "read_only=True" in caught.value.hint
for kind in (Disk, DiskCache):
    with pytest.raises(StorageError, match="Read-only file system; nothing was made"):
        kind(place / "new")
with pytest.raises(StoreNotFoundError):
    Disk(place / "new", read_only=True)
# Its log is read as it is.
with Disk(place / "killed", read_only=True) as store:
    assert store.get("k") == b"2"
assert sorted(place.rglob("*")) == before
print("all said")
"""


def test_really_read_only_mount(tmp_path):
    assert run_in_memory(READ_ONLY_MOUNT, tmp_path) == "all said\n"


# What somebody else made


@pytest.mark.parametrize("kind", [Disk, DiskCache])
def test_store_of_another_user_is_read_without_unpickling(open_folder, kind):
    """As root, who can read everything, and for whom it matters most."""
    if os.geteuid() != 0:
        pytest.skip("only root can give a file to another user")
    place = open_folder / "store"
    with Versioned(kind(place)) as state:
        state["data"], state["object"] = [1], SimpleNamespace
        state.commit()
    for path in (place, *place.iterdir()):
        os.chown(path, NOBODY, NOBODY)
    with Versioned(kind(place)) as state:
        assert not state.repository.store.private
        assert state["data"] == [1]
        with pytest.raises(PickleRefusedError):
            state["object"]
        state["data"].append(2)
        state.commit()


@pytest.mark.parametrize(("kind", "file"), [(Disk, FILE), (DiskCache, "cache.db")])
@pytest.mark.parametrize("suffix", ["-wal", "-shm"])
def test_link_planted_for_the_log_is_not_followed(tmp_path, kind, file, suffix):
    place, victim = tmp_path / "store", tmp_path / "victim"
    kind(place).close()
    victim.write_bytes(b"precious" * 1000)
    (place / f"{file}{suffix}").symlink_to(victim)
    with pytest.raises(StorageError, match="cannot be opened"):
        kind(place)
    assert victim.read_bytes() == b"precious" * 1000


def test_journal_beside_the_store_is_not_played_back(tmp_path):
    """SQLite would put the pages that it holds into the file, whoever made it."""
    with Disk(tmp_path / "store") as store:
        store.set("k", b"1")
    # A journal that SQLite takes for one that a crash left: of a writer in the old mode, copied while it was at work.
    victim = tmp_path / "victim"
    shutil.copytree(tmp_path / "store", victim)
    with closing(sqlite3.connect(victim / FILE, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.execute("UPDATE entries SET value = x'ff'")
        before = (victim / FILE).read_bytes()

        def write() -> None:
            with closing(sqlite3.connect(victim / FILE, isolation_level=None)) as other:
                other.execute("PRAGMA cache_size = 0")
                other.execute("BEGIN")
                other.execute("UPDATE entries SET value = x'00'")
                other.execute("INSERT INTO objects VALUES(x'00', zeroblob(100000))")
                shutil.copy(victim / f"{FILE}-journal", tmp_path / "journal")
                other.execute("ROLLBACK")

        join(fork(write))
    assert (tmp_path / "journal").stat().st_size > 512
    shutil.copy(tmp_path / "journal", victim / f"{FILE}-journal")
    naive = tmp_path / "naive"
    shutil.copytree(victim, naive)
    with closing(sqlite3.connect(naive / FILE)) as connection:
        connection.execute("SELECT * FROM entries").fetchall()
    assert not (naive / f"{FILE}-journal").exists(), "SQLite does play it back"
    with pytest.raises(UnsafeStoreError, match="journal"):
        Disk(victim)
    with pytest.raises(UnsafeStoreError, match="journal"):
        Disk(victim, read_only=True)
    assert (victim / FILE).read_bytes() == before


# A folder that is taken away


@pytest.mark.parametrize("replaced", [False, True])
def test_nothing_is_acknowledged_that_goes_to_a_file_without_a_name(tmp_path: Path, replaced):
    state = Versioned(Disk(tmp_path / "s"))
    state["x"] = 1
    state.commit()
    shutil.rmtree(tmp_path / "s")
    if replaced:
        with Versioned(Disk(tmp_path / "s")) as another:
            another["y"] = 1
            another.commit()
    state["x"] = 2
    for _ in range(2):
        with pytest.raises(StorageError, match="removed or replaced"):
            state.commit()
    assert state["x"] == 2
    with pytest.warns(ResourceWarning):
        state.close()
    assert (tmp_path / "s").exists() is replaced
    if replaced:
        with Versioned(Disk(tmp_path / "s")) as again:
            assert dict(again) == {"y": 1}


@pytest.mark.parametrize("timeout", ["x", None, -1, float("nan")])
@pytest.mark.parametrize("kind", [Disk, DiskCache])
def test_a_timeout_is_a_number_of_seconds(tmp_path: Path, kind: Any, timeout: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="timeout must be a number of seconds"):
        kind(tmp_path / "new", timeout=timeout)
    assert not (tmp_path / "new").exists()
