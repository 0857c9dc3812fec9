"""A purge beside writers and gc, and one that is cut off: nothing is lost, and no purged content is kept."""

from __future__ import annotations

import itertools
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

from tests.support.concurrent_stores import ActsBeforeCall
from tests.support.handles import committed
from tests.support.histories import Clock
from tests.support.personal_data import SECRET, agent, holds, messages, small
from versioned_state import KVStore, Memory, Repository, Versioned
from versioned_state.errors import MissingObjectError, StoreBusyError, UnfinishedPurgeError
from versioned_state.repository.maintenance.purge.purge import purge
from versioned_state.storage import Fault, Faulty
from versioned_state.storage.wrappers.faulty import InjectedCrash, InjectedFaultError


def test_a_writer_that_comes_in_between_any_two_calls_loses_nothing_and_keeps_nothing():
    def writing(store: KVStore, which: str) -> Any:
        state = Versioned(Repository(store, clock=Clock()), branch=which)
        state["users"]

        def act() -> None:
            state["late"] = 1
            state.commit("late")
            if which == "main":
                state.repository.branches.create("another", "main")

        return act

    for which in ("main", "side"):
        for k in itertools.count(1):
            store = Memory()
            small(Repository(store, clock=Clock()))
            act = writing(store, which)
            repository = Repository(store, clock=Clock())
            between = ActsBeforeCall(store, act, at=k)
            repository.database.objects.kv = repository.database.fence._store = between
            purge(repository.database, "users.alice")
            if between.calls < k:
                break
            fresh = Repository(store)
            expected = ["late", "2", "1", "0"] if which == "main" else ["late", "1", "0"]
            assert messages(fresh, which) == expected, k
            assert fresh.snapshot(which)["late"] == 1
            for name in fresh.branches:
                assert all("alice" not in fresh.snapshot(commit)["users"] for commit in fresh.log(name)), (k, name)
            purge(fresh.database, "users.alice")
            assert not holds(store), k


def test_a_gc_that_comes_in_between_any_two_calls_takes_nothing_that_is_needed(monkeypatch):
    monkeypatch.setattr("versioned_state.repository.maintenance.purge.rewrite._FLUSH_AT", 200)
    for k in itertools.count(1):
        # one clock: by another that is far off, the gc of the purge would be taken for dead
        store, clock = Memory(), Clock()
        small(Repository(store, clock=clock))
        repository = Repository(store, clock=clock)
        garbage = committed(Repository(store, clock=clock), garbage="x" * 1000)
        garbage.reset("main~1")
        collector = Repository(store, clock=clock)

        def collect(collector: Repository = collector) -> None:
            with suppress(StoreBusyError):  # once the purge itself collects
                collector.gc(expire=timedelta(0))

        between = ActsBeforeCall(store, collect, at=k)
        repository.database.objects.kv = repository.database.fence._store = between
        purge(repository.database, "users.alice")
        assert not holds(store), k
        assert Repository(store).fsck().findings == (), k
        assert messages(Repository(store)) == ["2", "1", "0"]
        if between.calls < k:
            return


@pytest.mark.parametrize(
    ("fault", "crash"),
    [(Fault.BEFORE, False), (Fault.AFTER, False), (Fault.PARTIAL, False), (Fault.AFTER, True), (Fault.PARTIAL, True)],
)
def test_it_may_be_cut_off_anywhere_and_run_again(fault: Fault, crash):
    for k in itertools.count(1):
        store = Memory()
        small(Repository(store, clock=Clock()))
        faulty = Faulty(store)
        repository = Repository(faulty, clock=Clock())
        faulty.arm(k, fault=fault, crash=crash)
        try:
            purge(repository.database, "users.alice")
        except (InjectedFaultError, InjectedCrash, UnfinishedPurgeError):
            # Whole at any moment.
            between = Repository(store)
            assert messages(between) == ["2", "1", "0"]
            assert messages(between, "side") == ["1", "0"]
            assert [between.snapshot(commit)["users"]["bob"] for commit in between.log()] == [2, 1, 0]
        clock = Clock()
        clock.now += 3_600_000_000  # a gc that died is taken for dead by then
        purge(Repository(store, clock=clock).database, "users.alice")
        assert not holds(store), k
        assert messages(Repository(store)) == ["2", "1", "0"]
        assert Repository(store).fsck().findings == ()
        if not faulty.fired:
            return


def test_a_handle_that_stands_on_an_old_commit_goes_on():
    store = Memory()
    repository = Repository(store, clock=Clock())
    agent(repository)
    state = Versioned(Repository(store), branch="side")
    alice = state["users"]
    purge(repository.database, "users.alice")
    state["mine"] = 1
    state.commit("mine")
    assert state["users"] == {"bob": {"who": "Bob"}}
    assert state["users"] is alice
    # What it sent before it found the branch moved is garbage, and may hold what was purged: hence the advice to purge
    # again.
    report = purge(Repository(store).database, "users.alice")
    assert report.commits == {}
    assert any("whose head is an old commit" in text for text in report.unreached)
    assert not holds(store)


def test_what_was_read_of_it_before_is_not_shown_any_more():
    state = Versioned()
    state.update({f"key {n}": f"value {n}" * 10 for n in range(100)})
    state["alice"] = SECRET
    old = state.commit()
    repository = state.repository
    assert repository.snapshot(old)["alice"] == SECRET
    repository.purge("alice")
    with pytest.raises(MissingObjectError):
        repository.snapshot(old)["alice"]


def test_a_branch_may_be_renamed_while_its_head_is_purged_and_collected():
    for k in itertools.count(1):
        store, clock = Memory(), Clock()
        small(Repository(store, clock=clock))

        def erase(store: Memory = store, clock: Clock = clock) -> None:
            other = Repository(store, clock=clock)
            purge(other.database, "users.alice")
            other.gc(expire=timedelta(0))

        between = ActsBeforeCall(store, erase)
        repository = Repository(between, clock=clock)
        between.arm(k)
        head = repository.branches.rename("main", "renamed")
        fresh = Repository(store)
        assert fresh.branches["renamed"] == head, k
        assert "main" not in fresh.branches
        if between.calls < k:
            break
    assert k > 3
