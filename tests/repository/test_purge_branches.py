"""Purging whole branches: what only they lead to goes, and what another ref leads to stays."""

from __future__ import annotations

import itertools
from contextlib import suppress

import pytest

from tests.support.concurrent_stores import ActsBeforeCall
from tests.support.histories import Clock
from tests.support.personal_data import SECRET, holds, messages
from versioned_state import Memory, Repository, Versioned
from versioned_state.errors import BranchMovedError
from versioned_state.objects.address import Address
from versioned_state.objects.keys import object_key
from versioned_state.repository.maintenance.purge.purge import purge


def sessions(repository: Repository) -> None:
    """A branch of a person's, forked from main, with a move that only its reflog knows, and one that was deleted."""
    state = Versioned(repository)
    state["n"] = 0
    state.commit("begin")
    with state.fork("alice/1") as hers:
        for n in range(3):
            hers["said"] = f"{SECRET} {n}"
            hers.commit(f"hers {n}")
        hers.reset("HEAD~1")
    repository.branches.create("alice/2", "alice/1")
    repository.branches.delete("alice/2")
    state["n"] = 1
    state.commit("end")


@pytest.mark.parametrize("patterns", ["alice/*", ["alice/1", "alice/2"]])
def test_a_branch_is_erased_whole(patterns):
    store = Memory()
    repository = Repository(store, clock=Clock())
    sessions(repository)
    untouched = [commit.id for commit in repository.log()]
    dry = repository.purge(branches=patterns, dry_run=True)
    assert holds(store)
    report = repository.purge(branches=patterns)
    assert set(report.branches) == set(dry.branches) == {"alice/1", "alice/2"}
    assert report.shared == dry.shared == (untouched[1],)
    assert report.commits == {}
    assert not holds(store)
    assert not any("alice" in key for key, _ in store.items())
    assert [commit.id for commit in repository.log()] == untouched
    assert repository.fsck().ok
    assert repository.purge(branches=patterns).branches == ()


def test_what_another_ref_leads_to_stays_and_is_named():
    store = Memory()
    repository = Repository(store, clock=Clock())
    sessions(repository)
    repository.tags.create("kept", "alice/1")
    report = repository.purge(branches="alice/1")
    kept = [commit.id for commit in repository.log("kept")]
    assert report.shared == tuple(kept)
    assert repository.snapshot("kept")["said"] == f"{SECRET} 1"
    assert repository.fsck().ok
    both = repository.purge("said", branches="alice/*")
    assert not holds(store)
    assert both.branches == ("alice/2",)
    assert set(both.shared) == {both.commits.get(id, id) for id in kept}


def test_a_branch_whose_head_is_lost_can_be_given_up():
    store = Memory()
    repository = Repository(store, clock=Clock())
    sessions(repository)
    head = repository.branches["alice/1"]
    store.delete(object_key(Address(bytes.fromhex(head.id))))
    fresh = Repository(store)
    assert not fresh.fsck().ok
    report = fresh.purge(branches="alice/*")
    assert set(report.branches) == {"alice/1", "alice/2"}
    assert fresh.fsck().ok
    assert messages(fresh) == ["end", "begin"]


def test_a_handle_on_an_erased_branch_finds_it_gone():
    store = Memory()
    repository = Repository(store, clock=Clock())
    sessions(repository)
    state = Versioned(Repository(store), branch="alice/1")
    state["mine"] = [1]
    repository.purge(branches="alice/*")
    for _ in range(2):
        with pytest.raises(BranchMovedError, match="alice/1"):
            state.commit("late")
    assert state["mine"] == [1]
    repository.purge(branches="alice/*")
    assert not holds(store)


def test_a_writer_on_a_branch_that_is_being_erased():
    for k in itertools.count(1):
        store = Memory()
        sessions(Repository(store, clock=Clock()))
        state = Versioned(Repository(store, clock=Clock()), branch="alice/1")
        repository = Repository(store, clock=Clock())

        def late(state=state) -> None:
            with suppress(BranchMovedError):
                state["late"] = 1
                state.commit("late")

        between = ActsBeforeCall(store, late, at=k)
        repository.database.objects.kv = repository.database.fence._store = between
        purge(repository.database, branches="alice/*")
        fresh = Repository(store)
        assert "alice/1" not in fresh.branches, k
        purge(fresh.database, branches="alice/*")
        assert not holds(store), k
        assert messages(fresh) == ["end", "begin"]
        assert fresh.fsck().ok
        if between.calls < k:
            return
