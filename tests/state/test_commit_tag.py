"""``commit(tag=…, note=…)``: the tag, the note and the commit are stored in one batch, or none of them is."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from tests.support.faults import attempts
from tests.support.handles import committed
from tests.support.interrupts import Interrupt, interrupts
from tests.support.outage import Outage
from tests.support.stores import OneCondition
from versioned_state import Commit, Memory, Repository, Versioned
from versioned_state.errors import (
    STAGED,
    BranchMovedError,
    CommitInDoubtError,
    InvalidArgumentError,
    MergeConflictError,
    RefExistsError,
    UnsupportedByStoreError,
)
from versioned_state.storage import Counting
from versioned_state.storage.wrappers.faulty import Fault, Faulty

TAG: dict[str, Any] = {"tag": "one"}
NOTE: dict[str, Any] = {"note": {"score": 0.5, "parts": [b"\0"]}}
BOTH = TAG | NOTE
BESIDE = [pytest.param(TAG, id="tag"), pytest.param(NOTE, id="note"), pytest.param(BOTH, id="both")]


def assert_has(repository: Repository, beside: dict[str, Any], commit: Commit | None) -> None:
    """Assert that the store has the tag, the note or both for this commit alone, or neither for None."""
    assert repository.tags.get("one") == (commit if "tag" in beside else None)
    assert dict(repository.notes.items()) == ({commit.id: beside["note"]} if commit and "note" in beside else {})


@pytest.mark.parametrize("beside", BESIDE)
def test_it_costs_no_call_of_the_store(beside: dict[str, Any]):
    store = Counting(Memory())
    state = committed(store, a=1)
    calls = []
    for options in ({}, beside):
        before = store.counts.round_trips
        state["a"] += 1
        state.commit(**options)
        calls.append(store.counts.round_trips - before)
    assert calls[0] == calls[1]
    assert_has(state.repository, beside, state.head)
    assert state.repository.fsck().ok


def test_a_tag_that_exists_refuses_the_commit():
    state = Versioned()
    state["a"] = 1
    first = state.commit(tag="one")
    state["a"] = 2
    with pytest.raises(RefExistsError) as caught:
        state.commit("again", tag="one")
    assert caught.value.remains == STAGED
    assert state.head == first == state.repository.tags["one"] == state.repository.branches["main"]
    assert [str(change.path) for change in state.status()] == ["a"]
    assert state.commit(tag="two") == state.repository.tags["two"]


@pytest.mark.parametrize("on_moved", ["merge", "replace", "refuse"])
def test_without_changes_and_with_a_head_that_is_gone_the_head_of_the_branch_gets_the_tag(on_moved):
    state = committed(a=[1], secret="s")
    held = state["a"]
    other = Versioned(state.repository)
    other.repository.purge("secret")
    if on_moved == "refuse":
        with pytest.raises(BranchMovedError):
            state.commit(tag="one", on_moved=on_moved)
        assert not list(state.repository.tags)
        return
    commit = state.commit(tag="one", on_moved=on_moved)
    assert state.repository.tags["one"] == commit == state.head == state.repository.branches["main"]
    assert state["a"] is held
    assert "secret" not in state
    assert "secret" not in state.checkout("one")
    held.append(2)
    assert state.repository.snapshot(state.commit(tag="two"))["a"] == [1, 2]
    assert state.repository.fsck().ok


def test_without_changes_the_head_gets_the_tag():
    state = committed(a=1)
    head = state.head
    assert state.commit(tag="one") == head == state.repository.tags["one"]
    with pytest.raises(RefExistsError):
        state.commit(tag="one")


def test_a_tag_that_was_deleted_is_made_again():
    state = Versioned()
    state["a"] = 1
    first = state.commit(tag="one")
    state.repository.tags.delete("one")
    state["a"] = 2
    second = state.commit(tag="one")
    assert state.repository.tags["one"] == second
    assert [position.commit for position in state.repository.reflog("one", kind="tag")] == [second, None, first]


def test_a_transaction_makes_both():
    state = Versioned()
    with state.transaction("both", **BOTH):
        state["a"] = 1
    assert_has(state.repository, BOTH, state.head)
    with pytest.raises(RefExistsError), state.transaction(tag="one"):
        state["a"] = 2
    assert dict(state) == {"a": 1}


@pytest.mark.parametrize("moved", [False, True])
def test_a_commit_under_a_lock_makes_its_tag(moved):
    store = Memory()
    state, other = Versioned(store), Versioned(store)
    with state.lock():
        if moved:
            other["b"] = 1
            other.commit()
        state["a"] = 1
        commit = state.commit(tag="one")
    assert Repository(store).tags["one"] == commit == Repository(store).branches["main"]
    assert dict(state.checkout("one")) == ({"a": 1, "b": 1} if moved else {"a": 1})


def test_on_a_branch_that_has_moved_the_tag_names_the_merge():
    store = Memory()
    mine, other = Versioned(store), Versioned(store)
    other["b"] = 1
    other.commit()
    mine["a"] = 1
    commit = mine.commit(tag="one")
    assert mine.repository.tags["one"] == commit
    assert dict(mine.checkout("one")) == {"a": 1, "b": 1}
    other["a"] = 2
    with pytest.raises(MergeConflictError):
        other.commit(tag="two")
    assert "two" not in mine.repository.tags


@pytest.mark.parametrize("name", ["", "a b", "HEAD", 7])
def test_a_bad_name_changes_nothing(name):
    state = Versioned()
    state["a"] = 1
    with pytest.raises(InvalidArgumentError):
        state.commit(tag=name)
    assert state.status()


def test_a_store_of_one_condition_a_batch_says_so():
    state = Versioned(OneCondition())
    state["a"] = 1
    with pytest.raises(UnsupportedByStoreError):
        state.commit(tag="one")
    assert state.status()
    assert state.commit() == state.head


@pytest.mark.parametrize("beside", BESIDE)
@pytest.mark.parametrize("keys", [None, ["a"]])
@pytest.mark.parametrize("fault", list(Fault))
def test_a_failure_at_any_call_leaves_all_or_none(fault, keys, beside):
    for attempt in attempts(fault):
        store = Memory()
        committed(store, a=1)
        faulty = Faulty(store)
        state = Versioned(faulty)
        state["a"] = 2
        with attempt.on(faulty):
            state.commit("second", keys=keys, **beside)
        repository = Repository(store)
        assert_has(repository, beside, repository.branches["main"] if repository.snapshot("main")["a"] == 2 else None)
        state.refresh()


@pytest.mark.parametrize("beside", BESIDE)
@pytest.mark.parametrize("fault", [Fault.BEFORE, Fault.AFTER])
def test_after_a_commit_in_doubt_the_same_call_finds_its_commit_or_makes_it(fault, beside):
    store = Outage(Memory(), calls=2)  # the batch, and the look for its outcome
    state = Versioned(store)
    state["a"] = 1
    state.commit("first")
    state["a"] = 2
    store.arm(1, fault=fault)
    with pytest.raises(CommitInDoubtError):
        state.commit("second", **beside)
    commit = state.commit("second", **beside)
    repository = Repository(store.store)
    assert commit == repository.branches["main"]
    assert_has(repository, beside, commit)
    assert [each.message for each in repository.log()] == ["second", "first"]


def test_an_interrupt_at_any_line_leaves_all_or_none():
    for trace in interrupts(23):
        store = Memory()
        state = committed(store, a=[1])
        state["a"].append(2)
        with suppress(Interrupt):
            trace.run(partial(state.commit, "second", **BOTH))
        repository = Repository(store)
        assert_has(repository, BOTH, repository.branches["main"] if repository.snapshot()["a"] == [1, 2] else None)
        state["a"].append(3)
        state.commit()
        assert Repository(store).snapshot()["a"] == [1, 2, 3]
