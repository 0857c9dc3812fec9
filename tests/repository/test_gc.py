"""Garbage collection: what is reachable stays, and what is not goes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.support.garbage import MINUTE_US, NOW, assert_whole, contents, prepare
from tests.support.handles import committed
from tests.support.stores import MinimalStore
from tests.support.strategies import make_large
from versioned_state import Disk, KVStore, Memory, Repository, Versioned
from versioned_state.errors import (
    InvalidArgumentError,
    MissingObjectError,
    StorageError,
    UnknownRevisionError,
    UnsafeStoreError,
)
from versioned_state.objects.keys import GC, address_in
from versioned_state.repository.maintenance.prune import prune
from versioned_state.repository.refs.gc_fence import read_gc_record
from versioned_state.storage import Counting, Encrypted

# What is kept, and what goes


def test_what_nothing_leads_to_is_deleted_and_all_else_is_kept():
    store = Memory()
    ids = prepare(store)
    before = contents(store)
    repository = Repository(store)
    objects = sum(1 for _ in store.keys("o/"))
    report = repository.gc(expire=NOW)
    assert contents(store) == before
    assert (report.refs, report.kept + report.freed) == (3, objects)
    assert report.kept == sum(1 for _ in store.keys("o/"))
    assert report.kept_bytes == sum(len(value) for _, value in store.items("o/"))
    assert report.freed > 10
    assert report.freed_bytes is not None
    assert report.freed_bytes > 100_000
    for name in ("dropped", "side"):
        with pytest.raises(MissingObjectError):
            Repository(store).database.commits.read(address_in("o/" + ids[name]))
    assert_whole(store)
    assert repository.gc(expire=NOW).freed == 0


def test_the_reflog_keeps_what_was_dropped_until_it_expires():
    store = Memory()
    ids = prepare(store)
    now = 1_000_000 + 20 * MINUTE_US
    repository = Repository(store, clock=lambda: now)
    assert repository.gc(expire=timedelta(minutes=30)).freed == 0
    positions = [(p.commit and p.commit.id, p.action) for p in repository.reflog("main")]
    assert (ids["dropped"], "commit") in positions
    assert repository.gc(expire=timedelta(minutes=10)).freed > 0
    kept = [(p.commit and p.commit.id, p.action) for p in repository.reflog("main")]
    assert kept == [(ids["second"], "reset")], "the reflog ends where its entries have expired"
    assert list(repository.reflog("side")) == [], "the record of a deleted branch goes with its reflog"
    with pytest.raises(UnknownRevisionError, match="its reflog has no move"):
        repository.commit("main@{3}")
    assert_whole(store)


def test_a_dry_run_says_the_same_and_writes_nothing():
    store = Memory()
    prepare(store)
    before = dict(store.items())
    dry = Repository(store).gc(expire=NOW, dry_run=True)
    assert dict(store.items()) == before
    done = Repository(store).gc(expire=NOW)
    assert dry.dry_run
    assert not done.dry_run
    for name in ("refs", "kept", "kept_bytes", "freed", "freed_bytes"):
        assert getattr(dry, name) == getattr(done, name)


@pytest.mark.parametrize("kind", ["memory", "disk", "encrypted"])
def test_gc_and_stats_report_one_size_for_one_thing(kind, tmp_path):
    store: KVStore = Memory() if kind == "memory" else Disk(tmp_path / "store")
    if kind == "encrypted":
        store = Encrypted(store, bytes(32))
    prepare(store)
    repository = Repository(store)
    before = repository.stats().total
    report = repository.gc(expire=NOW)
    after = repository.stats()
    assert (report.kept, report.kept_bytes) == (after.reachable.objects, after.reachable.stored)
    assert (report.freed, report.freed_bytes) == (
        before.objects - after.total.objects,
        before.stored - after.total.stored,
    )
    repository.close()


class Blind(Counting):
    """Cannot tell the size of a value without reading it."""

    def sizes(self, keys: Any) -> None:
        del keys


@pytest.mark.parametrize("kind", [Counting, Blind], ids=["sizes known", "sizes not known"])
def test_garbage_is_not_read(kind):
    store = Memory()
    state = committed(store, kept="value")
    repository = Repository(store)
    repository.gc(expire=NOW)
    counting = kind(store)
    repository = Repository(counting)
    counting.reset()
    repository.gc(expire=NOW)
    without = counting.reset()
    state.repository.branches.create("side")
    side = Versioned(store, branch="side")
    side["garbage"] = make_large("dict", 2000, 3)
    side.commit()
    state.repository.branches.delete("side", force=True)
    report = repository.gc(expire=NOW)
    assert report.freed > 100
    assert (report.freed_bytes is None) == (kind is Blind)
    assert counting.counts.objects_read <= without.objects_read + 4, "the reflog of the deleted branch, and no garbage"


def test_compacting_gives_the_room_back(tmp_path):
    with Repository(Disk(tmp_path / "store")) as repository:
        prepare(repository.store)
        assert repository.gc(expire=NOW).compacted is None
        before = sum(file.stat().st_size for file in (tmp_path / "store").iterdir())
        report = repository.gc(expire=NOW, compact=True)
        assert report.compacted is not None
        assert sum(file.stat().st_size for file in (tmp_path / "store").iterdir()) < before - 150_000
        assert_whole(repository.store)
    with pytest.raises(InvalidArgumentError, match="cannot be compacted"):
        Repository(Memory()).gc(compact=True)


def test_progress_is_told_and_ends_complete():
    store = Memory()
    prepare(store)
    told: list[tuple[int, int | None]] = []
    report = Repository(store).gc(expire=NOW, progress=lambda done, total: told.append((done, total)))
    assert told[0][1] is None
    assert told[-1] == (report.kept + report.freed,) * 2


def test_cut_history_is_collected():
    store = Memory()
    state = Versioned(store)
    for n in range(50):
        state["n"] = [n] * 100
        state.commit(str(n))
    prune(state.repository.database, keep_last=5, expire=NOW)
    before = contents(store)
    assert Repository(store).gc(expire=NOW).freed == 45
    assert contents(store) == before
    assert_whole(store)
    state["n"].append("after")
    state.commit("after")
    assert_whole(store)


def test_a_store_of_one_condition_is_refused_and_may_be_looked_at():
    store = MinimalStore()
    prepare(store)
    with pytest.raises(UnsafeStoreError, match="one condition"):
        Repository(store).gc(expire=NOW)
    assert Repository(store).gc(expire=NOW, dry_run=True).freed > 0
    assert GC not in store


def test_arguments():
    with pytest.raises(InvalidArgumentError, match="expire"):
        Repository().gc(expire=timedelta(seconds=-1))


@pytest.mark.parametrize("what", ["object", "ref"])
def test_a_damaged_store_is_not_collected(what):
    """What is missing could lead to anything."""
    store = Memory()
    ids = prepare(store)
    store.delete("o/" + ids["first"] if what == "object" else "ref/tag/v1")
    before = set(store.keys("o/"))
    with pytest.raises(StorageError):
        Repository(store).gc(expire=NOW)
    assert set(store.keys("o/")) == before
    assert read_gc_record(store.get(GC)).owner is None, "the next one need not wait"
