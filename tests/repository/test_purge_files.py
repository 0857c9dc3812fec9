"""No byte of a store's files holds the purged content. Places that a purge cannot reach are named."""

from __future__ import annotations

import random
import sqlite3
from pathlib import Path

import pytest

from tests.support.histories import Clock
from tests.support.personal_data import LONG, SECRET, agent, holds
from tests.support.segments import own_bytes
from versioned_state import Cache, Disk, KVStore, Memory, Repository, Versioned
from versioned_state.errors import UnfinishedPurgeError
from versioned_state.repository.history.signing import Signer
from versioned_state.repository.maintenance.purge.purge import PurgeReport, purge
from versioned_state.storage import DiskCache, Encrypted


def files_hold(folder: Path, *words: bytes) -> list[tuple[str, bytes]]:
    return [(file.name, word) for file in sorted(folder.iterdir()) for word in words if word in file.read_bytes()]


@pytest.mark.parametrize("wrapped", [False, True])
def test_no_byte_of_the_store_s_files_has_it(tmp_path: Path, wrapped):
    folder = tmp_path / "store"
    disk = Disk(folder)
    repository = Repository(Cache(disk) if wrapped else disk, clock=Clock())
    made = agent(repository)
    state = Versioned(repository)
    noise = random.Random(1)
    for n in range(60):  # free pages, rewritten pages, checkpoints
        state["users"]["alice"] = {"who": f"{SECRET} again", "long": LONG[: noise.randrange(len(LONG))]}
        state[f"k{n % 7}"] = noise.randbytes(3000).hex()
        state.commit(f"round {n}")
    # As text, as the values that hold it are compressed and stored, and under the addresses of those.
    planted = [SECRET.encode(), b"Chestnut"]
    for key, stored in disk.items("o/"):
        if SECRET.encode() in own_bytes(stored):
            planted += [bytes.fromhex(key[2:]), stored[:40], stored[len(stored) // 2 :][:24], stored[-24:]]
    for commit in (*made.values(), *repository.log()):
        if commit != made["before"]:
            planted.append(bytes.fromhex(commit.id))
    assert len(planted) > 200
    present = {word for _, word in files_hold(folder, *planted)}
    assert SECRET.encode() in present
    assert len(present) > len(planted) // 2
    reader = Disk(folder)  # another process would be the same to SQLite: a connection that is open, and idle
    reader.get("format")
    report = purge(repository.database, "users.alice")
    assert report.collected is not None
    assert report.collected.compacted is not None
    assert not holds(disk)
    left = files_hold(folder, *planted)
    # An address of 24 bytes, or the middle of a commit that shares its end with the new one, could be innocent: none
    # is.
    assert [found for found in left if not _is_shared(found[1], disk)] == []
    reader.close()
    repository.close()
    assert [found for found in files_hold(folder, *planted) if not _is_shared(found[1], Disk(folder))] == []
    assert [file.name for file in folder.iterdir()] == ["store.sqlite3"]
    with Versioned(Disk(folder)) as again:
        assert again["users"] == {"bob": {"who": "Bob"}}
        assert len(list(again.log())) == 64


def _is_shared(word: bytes, store: KVStore) -> bool:
    """Whether what is there now, rightly, has the same bytes: the end of an object's envelope, say."""
    return any(word in stored for _, stored in store.items())


def test_a_reader_that_holds_the_log_is_waited_for_and_then_named(tmp_path: Path):
    disk = Disk(tmp_path / "store", timeout=0.2)
    repository = Repository(disk, clock=Clock())
    agent(repository)
    reader = sqlite3.connect(tmp_path / "store" / "store.sqlite3", isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM objects").fetchall()
    with pytest.raises(
        UnfinishedPurgeError, match=r"a reader holds the log.*its objects are deleted, and .* may still hold"
    ) as caught:
        purge(repository.database, "users.alice")
    reader.close()
    report = purge(repository.database, "users.alice")
    assert report.commits
    assert report.commits == caught.value.report.commits
    assert files_hold(tmp_path / "store", SECRET.encode(), b"Chestnut") == []
    repository.close()


def test_an_encrypted_store_and_what_cannot_be_reached():
    store = Memory()
    repository = Repository(Encrypted(store, bytes(32)), clock=Clock())
    agent(repository)
    report: PurgeReport = purge(repository.database, "users.alice")
    assert not holds(repository.store)
    assert any("backups" in text for text in report.unreached)
    assert not any("Memory" in text for text in report.unreached)


def test_another_kind_of_store_is_named_for_what_it_keeps_by_itself(tmp_path: Path):
    with Repository(DiskCache(tmp_path / "store"), clock=Clock()) as repository:
        agent(repository)
        report = purge(repository.database, "users.alice")
        assert "DiskCache" in report.unreached[0]
        assert not holds(repository.store)


def test_a_signature_does_not_stay_on_what_was_not_signed():
    repository = Repository(Memory(), clock=Clock(), signer=Signer.generate())
    made = agent(repository)
    assert made["before"].signature is not None
    report = purge(repository.database, "users.alice")
    assert repository.commit(made["before"].id).signature is not None
    assert {repository.commit(new).signature for new in report.commits.values()} == {None}
