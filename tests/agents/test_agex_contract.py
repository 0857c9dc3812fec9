"""Promises of agex's state, and its traps that are closed here, as far as the tests of no other part hold them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.support.stores import DictStore
from versioned_state import (
    ActionEvent,
    Cache,
    ClarifyEvent,
    Disk,
    ErrorEvent,
    FailEvent,
    Memory,
    OutputEvent,
    SuccessEvent,
    TaskStartEvent,
    Versioned,
    current_state,
    emit,
    events,
    task,
    view,
)


@task
def note(word: str) -> int:
    words = current_state().setdefault("words", [])
    words.append(word)
    emit(ActionEvent(code=word))
    return len(words)


@task
def orchestrate(*words: str) -> None:
    current_state()["begun"] = True
    for word in words:
        note(word)


def stores(folder: Path) -> Iterator[Any]:
    yield None
    yield Memory()
    yield Disk(folder / "plain")
    yield Disk(folder / "limited", size_limit=500 * 1024 * 1024)
    yield Cache(Disk(folder / "cached"), max_bytes=64 * 1024 * 1024)
    yield Cache(Memory())
    yield DictStore()


def test_a_versioned_state_remembers_over_every_store(tmp_path: Path):
    for store in stores(tmp_path):
        state = Versioned(store)
        assert [note("a", state=state), note("b", state=state)] == [1, 2]
        assert state.head.height == 2
        state.close()


def test_a_disk_has_no_limit_unless_it_is_given_one(tmp_path: Path):
    assert Disk(tmp_path).size_limit is None


def test_any_commit_of_the_store_can_be_checked_out():
    state = Versioned()
    note("a", state=state)
    with state.fork("other") as other:
        note("of the other branch", state=other)
        outside = other.head.id
    note("b", state=state)
    left = state.head.id
    state.undo()
    assert state.checkout(outside)["words"] == ["a", "of the other branch"]
    assert state.checkout(left)["words"] == ["a", "b"]


def test_the_engines_own_keys_are_hidden_unless_asked_for():
    state = Versioned()
    orchestrate("a", state=state)
    assert list(state) == ["begun"]
    before = state.repository.commit("main~1")
    assert [str(change.path) for change in state.diff(before, "HEAD")] == ["begun", "@note.words"]
    asked = state.repository.diff(before, "HEAD", internal=True)
    assert len(list(asked)) > 2, "with the events"
    text = view(state, focus="full")
    assert "begun" in text
    assert "Event" not in text
    assert type(events(state)[0]) is TaskStartEvent


FIELDS = {
    TaskStartEvent: ["task_name", "inputs", "message"],
    ActionEvent: ["thinking", "code"],
    OutputEvent: ["parts"],
    SuccessEvent: ["result"],
    FailEvent: ["message"],
    ClarifyEvent: ["message"],
    ErrorEvent: ["error", "recoverable"],
}


@pytest.mark.parametrize("cls", FIELDS, ids=lambda cls: cls.__name__)
def test_the_fields_of_events(cls: Any):
    assert [field.name for field in dataclasses.fields(cls)] == FIELDS[cls]


def test_events_carry_time_agent_namespace_and_the_commit_that_was_seen_before():
    state = Versioned()
    orchestrate("a", state=state)
    before = state.head
    orchestrate("b", "c", state=state)
    last = [event for event in events(state) if event.commit_hash == before.id]
    assert [event.code for event in last if isinstance(event, ActionEvent)] == ["b", "c"]
    assert {event.full_namespace for event in last} == {"orchestrate", "orchestrate/note"}
    assert {event.agent_name for event in last} == {""}
    times = [event.timestamp for event in events(state)]
    assert times == sorted(times)
    assert all(time.utcoffset() == datetime.now(UTC).utcoffset() for time in times)
    assert state.checkout(last[0].commit_hash) == state.checkout(before)
