"""The note that ``commit(note=…)`` gives a commit. ``test_commit_tag`` has its batch, and its failures."""

from __future__ import annotations

from datetime import timedelta

import pytest

from versioned_state import Memory, Versioned
from versioned_state.errors import (
    BranchMovedError,
    InvalidArgumentError,
    LimitExceededError,
    UnserializableValueError,
)


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


def test_gc_removes_it_with_its_commit():
    state = Versioned()
    state["n"] = 1
    first = state.commit(note={"n": 1})
    state["n"] = 2
    state.commit(note={"n": 2})
    state.reset(first)
    state.repository.gc(expire=timedelta(0))
    assert dict(state.repository.notes.items()) == {first.id: {"n": 1}}
