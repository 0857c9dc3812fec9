"""``commit(note=…)``: the note and the commit are stored in one batch."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta

import pytest

from tests.support.outage import Outage
from versioned_state import Memory, Repository, Versioned
from versioned_state.errors import (
    BranchMovedError,
    CommitInDoubtError,
    InvalidArgumentError,
    LimitExceededError,
    StateError,
    UnserializableValueError,
)
from versioned_state.storage import Counting
from versioned_state.storage.wrappers.faulty import Fault, Faulty


def test_the_commit_has_the_note_at_no_further_request():
    store = Counting(Memory())
    state = Versioned(store)
    state["n"] = 0
    state.commit()
    calls = []
    for note in (None, {"score": 0.5, "parts": [b"\0"]}):
        state["n"] += 1
        before = store.counts.round_trips
        commit = state.commit(note=note, tag=f"t{state['n']}")
        calls.append(store.counts.round_trips - before)
    assert calls[0] == calls[1]
    assert state.repository.notes[commit] == {"score": 0.5, "parts": [b"\0"]} == state.repository.notes["t2"]
    assert len(state.repository.notes) == 1
    assert state.repository.fsck().ok


def test_the_values_are_those_of_the_call():
    state = Versioned()
    state["n"] = 1
    note = {"list": [1]}
    commit = state.commit(note=note, parent="HEAD")
    note["list"].append(2)
    assert state.repository.notes[commit] == {"list": [1]}


def test_without_changes_the_head_gets_it_beside_what_it_has():
    state = Versioned()
    state["n"] = 1
    head = state.commit(note={"a": 1})
    assert state.commit(note={"b": 2}) == head
    assert state.repository.notes[head] == {"a": 1, "b": 2}


def test_a_merged_commit_has_it_and_one_that_another_made_gets_it():
    store = Memory()
    mine, other = Versioned(store), Versioned(store)
    other["b"] = 1
    other.commit()
    mine["a"] = 1
    commit = mine.commit(note={"by": "me"})
    assert dict(mine) == {"a": 1, "b": 1}
    assert mine.repository.notes[commit] == {"by": "me"}
    other.refresh()
    mine["c"] = other["c"] = 1
    theirs = other.commit(note={"by": "them"})
    assert mine.commit(note={"too": 1}) == theirs
    assert mine.repository.notes[theirs] == {"by": "them", "too": 1}
    assert len(mine.repository.notes) == 2


@pytest.mark.parametrize(
    ("note", "error"),
    [
        ([1], InvalidArgumentError),
        ({1: 2}, InvalidArgumentError),
        ({"a": object()}, UnserializableValueError),
        ({"a": "x" * (1 << 21)}, LimitExceededError),
    ],
)
def test_what_cannot_be_kept_commits_nothing(note, error):
    state = Versioned()
    state["a"] = 1
    with pytest.raises(error):
        state.commit(note=note)
    assert state.status()
    assert not list(state.log())


def test_a_refused_commit_leaves_no_note():
    store = Memory()
    mine, other = Versioned(store), Versioned(store)
    other["b"] = 1
    other.commit()
    mine["a"] = 1
    with pytest.raises(BranchMovedError):
        mine.commit(note={"by": "me"}, on_moved="refuse")
    assert not list(mine.repository.notes)


@pytest.mark.parametrize("fault", list(Fault))
def test_a_failure_at_any_call_leaves_both_or_neither(fault):
    for at in range(1, 12):
        store = Memory()
        faulty = Faulty(store, at=10_000, fault=fault)
        state = Versioned(faulty)
        state["a"] = 2
        faulty.calls, faulty.at = 0, at
        with suppress(StateError):
            state.commit("second", note={"n": 1})
        repository = Repository(store)
        made = [commit.id for commit in repository.log("main")] if "main" in repository.branches else []
        assert list(repository.notes) == made
        if not faulty.fired:
            return
    pytest.fail("the commit never went through without a fault")


@pytest.mark.parametrize("fault", [Fault.BEFORE, Fault.AFTER])
def test_after_a_commit_in_doubt_the_same_call_leaves_one_note(fault):
    store = Outage(Memory(), calls=2)  # the batch, and the look for its outcome
    state = Versioned(store)
    state["a"] = 1
    store.calls, store.at, store.fault = 0, 1, fault
    with pytest.raises(CommitInDoubtError):
        state.commit("first", note={"n": 1})
    commit = state.commit("first", note={"n": 1})
    repository = Repository(store.store)
    assert dict(repository.notes.items()) == {commit.id: {"n": 1}}
    assert repository.branches["main"] == commit


def test_a_transaction_leaves_a_note():
    state = Versioned()
    with state.transaction("both", note={"n": 1}):
        state["a"] = 1
    assert state.repository.notes[state.head] == {"n": 1}


def test_gc_removes_it_with_its_commit():
    state = Versioned()
    state["n"] = 1
    first = state.commit(note={"n": 1})
    state["n"] = 2
    state.commit(note={"n": 2})
    state.reset(first)
    state.repository.gc(expire=timedelta(0))
    assert dict(state.repository.notes.items()) == {first.id: {"n": 1}}
