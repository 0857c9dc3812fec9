"""The promises of agex's state, and the traps of it that are closed here: line by line."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.support.handles import committed
from versioned_state import (
    ActionEvent,
    Cache,
    ClarifyEvent,
    Disk,
    ErrorEvent,
    FailEvent,
    Live,
    Memory,
    OutputEvent,
    Snapshot,
    SuccessEvent,
    TaskClarify,
    TaskFailed,
    TaskStartEvent,
    Versioned,
    current_state,
    emit,
    events,
    task,
    view,
)
from versioned_state.errors import (
    MergeConflictError,
    PickleRefusedError,
    ReadOnlyError,
    StorageFullError,
    UnknownRevisionError,
    UnserializableValueError,
)
from versioned_state.storage import KVStore, SingleProcessStore


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


class Own(SingleProcessStore):
    """A store as a user of agex has it: get, set, keys."""

    def __init__(self) -> None:
        super().__init__()
        self.data: dict[str, bytes] = {}

    def read_value(self, key: str) -> bytes | None:
        return self.data.get(key)

    def write_value(self, key: str, value: bytes) -> None:
        self.data[key] = value

    def remove_value(self, key: str) -> None:
        self.data.pop(key, None)

    def list_keys(self, prefix: str) -> Iterator[str]:
        return iter([key for key in self.data if key.startswith(prefix)])


class OwnAndPrivate(Own):
    private = True


# Three ways to give a task its memory


def test_without_a_state_nothing_is_remembered():
    assert [note("a"), note("b")] == [1, 1]


def test_a_live_state_that_is_passed_to_a_task_remembers_any_object():
    live = Live()
    live["lock"] = threading.Lock()
    assert [note("a", state=live), note("b", state=live)] == [1, 2]


def stores(folder: Path) -> Iterator[Any]:
    yield None
    yield Memory()
    yield Disk(folder / "plain")
    yield Disk(folder / "limited", size_limit=500 * 1024 * 1024)
    yield Cache(Disk(folder / "cached"), max_bytes=64 * 1024 * 1024)
    yield Cache(Memory())
    yield Own()


def test_a_versioned_state_remembers_over_every_store(tmp_path: Path):
    for store in stores(tmp_path):
        state = Versioned(store)
        assert [note("a", state=state), note("b", state=state)] == [1, 2]
        assert state.head.height == 2
        state.close()


def test_a_store_that_is_reopened_goes_on_at_its_head(tmp_path: Path):
    for count in (1, 2, 3):
        with Versioned(Disk(tmp_path)) as state:
            assert note("again", state=state) == count


def test_a_disk_has_no_limit_unless_it_is_given_one(tmp_path: Path):
    assert Disk(tmp_path).size_limit is None


# Checkout


def test_a_checkout_is_read_only_and_moves_nothing():
    state = Versioned()
    note("a", state=state)
    note("b", state=state)
    head = state.head
    past = state.checkout("HEAD~1")
    assert isinstance(past, Snapshot)
    with pytest.raises(ReadOnlyError):
        past["words"] = []
    past["words"].append("c")
    assert past["words"] == ["a"]
    assert state.head == head
    assert state["words"] == ["a", "b"]
    with pytest.raises(ReadOnlyError):
        note("c", state=past)  # type: ignore[call-overload]


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


@pytest.mark.parametrize("revision", ["0" * 48, "deadbeef", "unknown"])
def test_an_unknown_commit_is_an_error_and_not_none(revision: str):
    state = Versioned()
    note("a", state=state)
    with pytest.raises(UnknownRevisionError):
        state.checkout(revision)


# Changes are seen


def test_every_object_that_was_returned_is_watched_and_so_is_the_one_that_was_set():
    state = Versioned()
    mine: list[int] = []
    state["list"] = mine
    state.commit()
    mine.append(1)
    assert state.commit().height == 2, "the object that was set, after its commit"
    first, second = state["list"], state["list"]
    second.append(2)
    state.commit()
    first.append(3)
    state.commit()
    assert state.checkout("HEAD")["list"] == [1, 2, 3]


def test_an_equal_value_that_is_set_again_makes_no_commit():
    state = committed(prefs={"a": [1, 2], "b": {3, 4}})
    head = state.head
    state["prefs"] = {"a": [1, 2], "b": {4, 3}}
    assert state.commit() == head


def test_a_set_makes_no_commit_in_a_process_with_another_order_of_hashes(tmp_path: Path):
    program = (
        "import sys; from versioned_state import Versioned, Disk\n"
        "with Versioned(Disk(sys.argv[1])) as state:\n"
        "    state['names'] = {f'name {n}' for n in range(50)}\n"
        "    state.commit()\n"
        "    print(state.head.height, list(state['names'])[0])\n"
    )
    printed = [
        subprocess.run(
            [sys.executable, "-c", program, str(tmp_path)],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split(maxsplit=1)
        for seed in ("1", "2")
    ]
    assert [height for height, _ in printed] == ["1", "1"]
    assert printed[0][1] != printed[1][1], "the order of the set did differ"


def test_a_removal_alone_is_committed_and_a_removed_key_stays_away():
    state = committed(a=[1], b=1)
    del state["b"]
    assert state.commit().height == 2
    assert "b" not in state.checkout("HEAD")
    state["a"].append(2)  # both staged and committed
    del state["a"]
    assert "a" not in state
    state.commit()
    assert not state
    assert not state.checkout("HEAD")


# Values that cannot be stored


def test_a_value_that_cannot_be_stored_is_an_error_and_not_dropped():
    state = committed(prefs={"n": 1})
    head = state.head
    state["prefs"]["lock"] = threading.Lock()
    state["other"] = 2
    with pytest.raises(UnserializableValueError) as raised:
        state.commit()
    assert (raised.value.path, raised.value.type_name) == ("prefs.lock", "_thread.lock")
    assert state.head == head
    assert "lock" in state["prefs"], "the old value does not come back silently"
    rest = state.commit(skip_unserializable=True)
    assert rest.skipped == ("prefs.lock",)
    assert state.checkout(rest)["other"] == 2


def test_a_full_disk_refuses_and_loses_no_history(tmp_path: Path):
    with Versioned(Disk(tmp_path, size_limit=1024 * 1024)) as state:
        note("first", state=state)
        first = state.head
        state["large"] = Random(1).randbytes(2 * 1024 * 1024)
        with pytest.raises(StorageFullError):
            state.commit()
        assert state.head == first
        state.discard()
        assert state.checkout(first)["words"] == ["first"]
        assert note("second", state=state) == 2


def test_two_writers_are_merged_or_told():
    store = Memory()
    one, two = Versioned(store), Versioned(store)
    one["one"], two["two"] = 1, 2
    one.commit()
    two.commit()
    assert dict(two) == {"one": 1, "two": 2}
    one["same"], two["same"] = 1, 2
    one.commit()
    with pytest.raises(MergeConflictError) as raised:
        two.commit()
    assert [str(conflict.path) for conflict in raised.value.conflicts] == ["same"]
    assert two["same"] == 2


# Stores


def test_many_take_one_iterable_or_mapping():
    store = Memory()
    store.set_many({"a": b"1", "b": b"2"})
    assert store.get_many(["a", "b", "c"]) == {"a": b"1", "b": b"2"}
    assert store.get_many(key for key in "ab") == {"a": b"1", "b": b"2"}
    with pytest.raises(TypeError):
        store.set_many(a=b"1")  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        store.get_many("a", "b")  # type: ignore[call-arg]


def test_a_store_of_your_own_has_apply_or_borrows_it():
    class Without(KVStore):
        def get(self, key: str) -> bytes | None: ...
        def set(self, key: str, value: bytes) -> None: ...

    with pytest.raises(TypeError, match="apply"):
        Without()  # type: ignore[abstract]
    store = Own()
    assert store.apply({"ref": None}, {"ref": b"1"})
    assert not store.apply({"ref": None}, {"ref": b"2"})
    assert store.get("ref") == b"1"


def test_pickled_values_need_a_store_that_says_it_is_private():
    class Local:
        pass

    for store in (Own(), OwnAndPrivate()):
        state = Versioned(store)
        state["object"] = Local()
        if store.private:
            state.commit()
        else:
            with pytest.raises(PickleRefusedError):
                state.commit()


# Events


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


@task
def end(error: Exception) -> None:
    raise error


@pytest.mark.parametrize(
    ("error", "event"),
    [
        (TaskFailed("no seat"), FailEvent(message="no seat")),
        (TaskClarify("which day?"), ClarifyEvent(message="which day?")),
        (ValueError("x"), ErrorEvent(error="ValueError('x')", recoverable=False)),
    ],
)
def test_the_ends_of_tasks(error: Exception, event: Any):
    state = Versioned()
    with pytest.raises(type(error)):
        end(error, state=state)
    assert events(state)[-1] == event


def test_events_are_heard_and_streamed():
    state = Versioned()
    heard: list[Any] = []
    streamed = list(orchestrate.stream("a", state=state, on_event=heard.append))
    assert heard == streamed == list(events(state))
    assert [type(event) for event in heard] == [TaskStartEvent, TaskStartEvent, ActionEvent, SuccessEvent, SuccessEvent]
