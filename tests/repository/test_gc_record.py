"""The record that keeps gc and writers from harming each other: its cost, its life signs, and its damage."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.concurrent_stores import ActsBeforeCall
from tests.support.faults import attempts
from tests.support.garbage import NOW, append, assert_whole, contents, prepare, set_gc_record
from versioned_state import Memory, Repository, Versioned
from versioned_state.errors import (
    CorruptObjectError,
)
from versioned_state.objects.keys import GC
from versioned_state.repository.refs import gc_fence
from versioned_state.repository.refs.gc_fence import GcRecord, read_gc_record
from versioned_state.storage import Counting, Fault, Faulty


def test_idle_gc_costs_a_commit_no_round_trip():
    store = Memory()
    prepare(store)
    for _ in range(2):
        counting = Counting(store)
        state = Versioned(counting)
        state["messages"].append(1)
        state.commit()
        counting.reset()
        for n in range(5):
            state["messages"].append(n)
            state.commit()
        assert counting.counts.applies == 5
        assert counting.counts.gets + counting.counts.get_manys <= 2
        Repository(store).gc(expire=NOW)  # and after it has run


def test_a_handle_from_before_a_gc_pays_once():
    store = Memory()
    prepare(store)
    counting = Counting(store)
    state = Versioned(counting)
    state["messages"].append(1)
    state.commit()
    Repository(store).gc(expire=NOW)
    counts = []
    for n in range(4):
        counting.reset()
        state["messages"].append(n)
        state.commit()
        counts.append(counting.counts.round_trips)
    assert counts[0] <= 10
    assert max(counts[1:]) <= 2


def test_writers_put_down_where_refs_go_while_gc_is_at_work(monkeypatch):
    store = Memory()
    prepare(store)
    state, side = Versioned(store), Versioned(store, branch="side 2".replace(" ", "-"))
    Repository(store)
    set_gc_record(store, owner=b"someone", generation=1)

    def published() -> list[str]:
        return [address.hex() for address in read_gc_record(store.get(GC)).published]

    for n in range(3):
        state["n"] = n
        assert state.commit().id in published()
    assert len(published()) == 1, "the last one leads to those before it"
    side["n"] = 1
    side.commit()
    assert published() == [state.head.id, side.head.id]
    state.reset("HEAD~1")
    assert len(published()) == 4, "the entry of the reflog, and where it goes"
    monkeypatch.setattr(gc_fence, "MAX_PUBLISHED", 4)
    Versioned(store, branch="third").repository.branches.create("third", "main")
    record = read_gc_record(store.get(GC))
    assert (record.owner, record.published) == (None, ()), "so many wait only where it has died: it is called off"
    assert record.generation == 2
    assert_whole(store)


@pytest.mark.parametrize("fault", list(Fault), ids=lambda fault: fault.value)
def test_a_writer_whose_store_fails_while_gc_is_at_work(fault):
    for attempt in attempts(fault):
        store = Memory()
        prepare(store)
        faulty = Faulty(store)
        state = Versioned(faulty)
        state["messages"].append("before")
        state.commit()
        set_gc_record(store, owner=b"someone", generation=1, sweeps=1)
        state["messages"].append("now")
        with attempt.on(faulty):
            state.commit("now")
        state.commit("now")
        assert next(state.log()).message == "now"
        assert sum(commit.message == "now" for commit in state.log()) == 1
        record = read_gc_record(store.get(GC))
        assert Repository(store).branches["main"].id in {address.hex() for address in record.published}
        assert_whole(store)


class Watched(Memory):
    """Keeps each record of gc that was put."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[GcRecord] = []

    def apply(self, expected: Any, puts: Any, deletes: Any = (), *, objects: Any = None) -> bool:
        done = super().apply(expected, puts, deletes, objects=objects)
        if done and GC in puts:
            self.records.append(read_gc_record(puts[GC]))
        return done


def test_a_gc_that_looks_for_long_says_that_it_lives(monkeypatch):
    """And takes note of what was published meanwhile, so that the record stays short."""
    monkeypatch.setattr("versioned_state.repository.maintenance.gc.collector._BEAT_S", 0.0)
    monkeypatch.setattr("versioned_state.repository.history.reach.BATCH", 5)
    store = Watched()
    prepare(store)
    between = ActsBeforeCall(store, lambda: append(store), at=12)
    Repository(between).gc(expire=NOW)
    marking = [record for record in store.records if record.owner is not None and record.sweeps == 0]
    published = [len(record.published) for record in marking]
    assert published.count(1) == 1
    assert published[-1] == 0, "before anything was deleted"
    assert [record.beat for record in marking if not record.published] == sorted(
        {r.beat for r in marking if not r.published}
    )
    assert len(marking) > 3
    assert_whole(store)


def test_a_damaged_record_keeps_nobody_from_reading_and_nobody_writes():
    store = Memory()
    ids = prepare(store)
    before = contents(store)
    store.set(GC, b"damaged, and long enough")
    assert contents(store) == before
    state = Versioned(store)
    state["n"] = 1
    with pytest.raises(CorruptObjectError, match="gc"):
        state.commit()
    assert state["n"] == 1
    with pytest.raises(CorruptObjectError):
        Repository(store).gc(expire=NOW)
    assert Repository(store).gc(expire=NOW, force=True).freed > 0
    assert state.commit().parents == (ids["second"],)
    assert_whole(store)


@pytest.mark.parametrize("field", ["generation", "beat", "sweeps", "expired", "hold", "owner"])
def test_a_record_with_a_field_of_another_type_is_corrupt(field):
    record = GcRecord().but(**{field: "x"})
    with pytest.raises(CorruptObjectError, match="damaged"):
        read_gc_record(record.stored)


def test_a_writer_waits_for_a_moment_where_it_is_asked_to_and_no_longer():
    store = Memory()
    prepare(store)
    state = Versioned(store)
    set_gc_record(store, owner=b"dead", generation=1, hold=True)
    state["n"] = 1
    state.commit()
    assert Repository(store).snapshot("main")["n"] == 1
