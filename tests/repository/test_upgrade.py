"""``upgrade``: a store keeps its version until it is called, and from then on writers of the older one are refused."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from functools import partial

import pytest

from tests.support.stores import OneCondition
from versioned_state import Memory, Repository, Versioned
from versioned_state.errors import FormatError, StoreBusyError, UnsafeStoreError
from versioned_state.repository.database import Database
from versioned_state.repository.format import FORMAT_VERSION, read_format, write_format
from versioned_state.repository.maintenance.gc.collector import Collector
from versioned_state.repository.maintenance.upgrade import UpgradeReport, upgrade
from versioned_state.repository.refs.gc_fence import read_gc_record
from versioned_state.repository.refs.ref import NOTHING, BatchPart
from versioned_state.storage.testing.writers import run_together


def version_of(store):
    return read_format(store.get("format"))


def made_up(database):
    """A made-up step to version 2: it writes a record that version 1 does not have."""
    return BatchPart(puts={"made-up": b"2"}, deletes=("obsolete",))


STEPS = {2: made_up}


@pytest.fixture
def state():
    with Versioned(Memory()) as state:
        state["k"] = 1
        state.commit()
        yield state


def test_there_is_nothing_to_do_today(state):
    before = dict(state.repository.store.items())
    assert state.repository.upgrade() == UpgradeReport(1, 1)
    assert state.repository.upgrade(dry_run=True) == UpgradeReport(1, 1, dry_run=True)
    assert dict(state.repository.store.items()) == before


def test_the_version_and_what_the_step_writes_come_in_one_batch(state):
    store = state.repository.store
    store.set("obsolete", b"")
    assert upgrade(state.repository.database, steps=STEPS) == UpgradeReport(1, 2)
    assert version_of(store) == 2
    assert store.get("made-up") == b"2"
    assert "obsolete" not in store


def test_a_dry_run_changes_nothing(state):
    before = dict(state.repository.store.items())
    assert upgrade(state.repository.database, dry_run=True, steps=STEPS) == UpgradeReport(1, 2, dry_run=True)
    assert dict(state.repository.store.items()) == before


def test_versions_are_raised_one_after_the_other(state):
    seen = []

    def step(database):
        seen.append(version_of(database.store))
        return NOTHING

    assert upgrade(state.repository.database, steps={2: step, 3: step}) == UpgradeReport(1, 3)
    assert seen == [1, 2]
    assert version_of(state.repository.store) == 3


@pytest.mark.parametrize("swept", [False, True], ids=["never collected", "collected"])
def test_a_handle_that_was_open_before_is_refused_and_keeps_its_changes(state, swept):
    store = state.repository.store
    if swept:
        state.repository.gc(expire=timedelta(0))
        state.refresh()
    upgrade(Database(store), steps=STEPS)
    head, before = state.head, dict(store.items("ref/"))
    state["k"] = 2
    for _ in range(2):
        with pytest.raises(FormatError, match="format version 2") as raised:
            state.commit()
        assert (raised.value.found, raised.value.supported) == (2, 1)
    assert dict(store.items("ref/")) == before
    assert state.head == head
    assert state["k"] == 2
    assert state.status()
    state.discard()
    assert state["k"] == 1


@pytest.mark.parametrize(
    "call",
    [
        lambda repository: repository.gc(),
        lambda repository: repository.branches.create("new"),
        lambda repository: repository.purge("k"),
        lambda repository: repository.upgrade(),
    ],
    ids=["gc", "branch", "purge", "upgrade"],
)
def test_whatever_was_open_before_changes_no_ref_and_deletes_nothing(state, call):
    store = state.repository.store
    upgrade(Database(store), steps=STEPS)
    before = {key: value for key, value in store.items() if not key.startswith("purge/")}
    with pytest.raises(FormatError):
        call(state.repository)
    assert before.items() <= dict(store.items()).items()


def test_a_newer_store_is_not_opened_and_not_touched(state):
    store = state.repository.store
    upgrade(Database(store), steps=STEPS)
    before = dict(store.items())
    with pytest.raises(FormatError, match="upgrade versioned-state"):
        Versioned(store)
    with pytest.raises(FormatError):
        Repository(store)
    assert dict(store.items()) == before


def test_a_commit_during_the_step_is_kept(state):
    database = Database(state.repository.store)
    calls: list[int] = []

    def step(database):
        if not calls:
            state["k"] = "while it upgrades"
            state.commit()
        calls.append(version_of(database.store))
        return NOTHING

    assert upgrade(database, steps={2: step}) == UpgradeReport(1, 2)
    assert calls == [1, 1], "the step is repeated after a commit"
    record = read_gc_record(database.store.get("gc"), version=2)
    assert (record.version, record.owner, record.published) == (2, None, ())
    head = database.ref("branch", "main").head
    assert head is not None
    assert head.hex() == state.head.id


def test_a_condition_of_the_step_that_does_not_hold_repeats_it(state):
    store = state.repository.store
    store.set("place", b"1")
    seen: list[bytes] = []

    def step(database):
        found = database.store.get("place")
        if not seen:
            database.store.set("place", b"2")  # another program
        seen.append(found)
        return BatchPart(expected={"place": found}, puts={"place": b"done"})

    upgrade(state.repository.database, steps={2: step})
    assert seen == [b"1", b"2"]
    assert store.get("place") == b"done"


def test_a_step_that_dies_leaves_the_older_version_which_still_works(state):
    def dies(database):
        database.store.set("prepared", b"")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        upgrade(Database(state.repository.store), steps={2: dies})
    assert version_of(state.repository.store) == 1
    state["k"] = 3
    state.commit()
    state.repository.gc(expire=timedelta(0))
    assert state.repository.fsck().ok
    assert upgrade(Database(state.repository.store), steps=STEPS) == UpgradeReport(1, 2)


def test_no_gc_and_no_other_upgrade_runs_beside_it(state):
    refused = []

    def step(database):
        for call in (Repository(database.store).gc, lambda: upgrade(Database(database.store), steps=STEPS)):
            with pytest.raises(StoreBusyError) as raised:
                call()
            refused.append(raised.value)
        return NOTHING

    upgrade(state.repository.database, steps={2: step})
    assert len(refused) == 2


def test_it_does_not_begin_while_a_gc_is_at_work(state):
    collector = Collector(Database(state.repository.store))
    with collector.at_work():
        collector.begin(marks=False)
        with pytest.raises(StoreBusyError):
            upgrade(state.repository.database, steps=STEPS)
        collector.end()
    assert version_of(state.repository.store) == 1


def test_two_at_once_raise_the_version_once():
    store = Memory()
    databases = [Database(store), Database(store)]

    def run(database):
        with suppress(StoreBusyError, FormatError):
            return upgrade(database, steps=STEPS)

    outcomes = run_together(partial(run, database) for database in databases)
    assert any(outcomes)
    assert version_of(store) == 2


def test_a_store_that_cannot_keep_others_away_needs_force():
    store = OneCondition()
    database = Database(store)
    with pytest.raises(UnsafeStoreError, match="force"):
        upgrade(database, steps=STEPS)
    assert version_of(store) == 1
    assert upgrade(database, steps=STEPS, force=True) == UpgradeReport(1, 2)
    assert version_of(store) == 2


def test_a_store_without_a_step_to_its_version_is_newer(state):
    store = state.repository.store
    database = state.repository.database
    store.set("format", write_format(FORMAT_VERSION + 1))
    with pytest.raises(FormatError):
        upgrade(database)
