"""Notes: data attached to commits afterwards, beside other writers, gc and purge."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from functools import partial

import pytest

from tests.support.faults import attempts
from tests.support.interrupts import Interrupt, interrupts
from versioned_state import Disk, Memory, Repository, Versioned
from versioned_state.errors import (
    CorruptObjectError,
    InvalidArgumentError,
    LimitExceededError,
    UnknownNoteError,
    UnknownRevisionError,
    UnserializableValueError,
)
from versioned_state.storage import Counting
from versioned_state.storage.testing.writers import run_together
from versioned_state.storage.wrappers.faulty import Fault, Faulty


@pytest.fixture
def state() -> Versioned:
    state = Versioned(Memory())
    for n in range(4):
        state["n"] = n
        state.commit(f"m{n}")
    return state


def test_a_note_is_a_dict_by_commit_or_revision(state):
    notes = state.repository.notes
    first, head = state.repository.commit("main~3"), state.head
    notes[head] = {"score": 0.5}
    assert notes[head] == notes["main"] == notes["HEAD"] == notes[head.id] == {"score": 0.5}
    assert notes.update("main~3", {"by": "me"}) == {"by": "me"}
    assert notes.update(first, {"score": 1, "parts": [{"a": b"\0"}]}) == {
        "by": "me",
        "score": 1,
        "parts": [{"a": b"\0"}],
    }
    assert set(notes) == {first.id, head.id}
    assert len(notes) == 2
    assert dict(notes.items()) == {first.id: notes[first], head.id: {"score": 0.5}}
    assert notes.of(state.log()) == dict(notes.items())
    assert "main~1" not in notes
    assert first in notes
    assert notes.get("nothing") is None
    del notes[head]
    assert list(notes) == [first.id]
    assert state.head == head
    assert not state.status()


def test_changing_a_copy_changes_no_note(state):
    notes = state.repository.notes
    given = {"list": [1]}
    notes["main"] = given
    given["list"].append(2)
    notes["main"]["list"].append(3)
    assert notes["main"] == {"list": [1]}


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ([1], InvalidArgumentError),
        ({1: 2}, InvalidArgumentError),
        ({"a": object()}, UnserializableValueError),
        ({"a": "x" * (1 << 21)}, LimitExceededError),
    ],
)
def test_what_cannot_be_kept_changes_nothing(state, values, error):
    notes = state.repository.notes
    notes["main"] = {"a": 1}
    with pytest.raises(error):
        notes["main"] = values
    with pytest.raises(error):
        notes.update("main", values)
    assert notes["main"] == {"a": 1}


def test_there_is_no_note_of_no_commit(state):
    notes = state.repository.notes
    for call in (lambda: notes["main"], lambda: notes.__delitem__("main"), lambda: notes["ab" * 24]):
        with pytest.raises(UnknownNoteError):
            call()
    for rev in ("nothing", "ab" * 24):
        with pytest.raises(UnknownRevisionError):
            notes.update(rev, {"a": 1})
    assert len(notes) == 0


def test_writers_side_by_side_lose_no_key(state):
    store, id = state.repository.store, state.head.id

    def write(name: str) -> None:
        notes = Repository(store).notes
        for n in range(20):
            notes.update(id, {f"{name}{n}": n})

    run_together(partial(write, name) for name in "abcd")
    assert len(state.repository.notes[id]) == 80


def test_it_goes_with_its_commit(state):
    repository = state.repository
    Versioned(repository, branch="side")["x"] = 1
    side = state.fork("side")
    side["x"] = 1
    gone = side.commit()
    repository.notes[gone] = {"a": 1}
    repository.notes["main"] = {"b": 2}
    repository.branches.delete("side", force=True)
    repository.gc()
    assert repository.notes[gone] == {"a": 1}
    report = repository.gc(expire=timedelta(0), dry_run=True)
    assert repository.gc(expire=timedelta(0)).freed == report.freed
    assert list(repository.notes) == [repository.commit("main").id]


def test_a_purge_carries_notes_over_to_the_commits_made_anew(tmp_path):
    with Disk(tmp_path) as store:
        state = Versioned(store)
        for n in range(3):
            state["secret"] = f"secret {n}"
            state["n"] = n
            state.commit()
        repository = state.repository
        for n in range(3):
            repository.notes[f"main~{n}"] = {"n": n, "said": "alice was here"}
        report = repository.purge("secret", replace={"alice": "someone"})
        assert not any(mention.startswith("note") for mention in report.mentions)
        repository = Repository(store)
        assert [repository.notes[f"main~{n}"] for n in range(3)] == [
            {"n": n, "said": "someone was here"} for n in range(3)
        ]
        assert len(repository.notes) == 3
    assert b"alice" not in (tmp_path / "store.sqlite3").read_bytes()


def test_a_purge_says_which_notes_mention_it(state):
    repository = state.repository
    repository.notes["main"] = {"about": "n and more"}
    state["alice"] = 1
    state.commit()
    repository.notes["main"] = {"about": "alice"}
    assert repository.purge("alice").mentions == (
        f"note of {repository.commit('main').id}",
        repository.commit("main").id,
    )


def test_words_are_replaced_in_notes_of_commits_that_stay(state):
    repository = state.repository
    head = state.head
    repository.notes["main"] = {"by": ["alice"]}
    repository.purge(replace={"alice": "someone"})
    assert repository.notes[head] == {"by": ["someone"]}


def test_damage_is_found(state):
    repository = state.repository
    repository.notes["main"] = {"a": 1}
    (key,) = repository.store.keys("note/")
    stored = repository.store.get(key)
    assert repository.fsck().ok
    repository.store.set(key, bytes([*stored[:-1], stored[-1] ^ 1]))
    with pytest.raises(CorruptObjectError):
        repository.notes["main"]
    assert [(finding.problem, finding.id) for finding in repository.fsck().findings] == [("corrupt", key)]


def test_a_note_costs_a_read_and_a_write():
    counts = []
    for size in (5, 200):
        store = Memory()
        state = Versioned(store)
        for n in range(size):
            state["n"] = n
            state.commit()
            state.repository.notes[state.head] = {"n": n}
        counting = Counting(store)
        repository = Repository(counting)
        counting.reset()
        repository.notes.update(state.head, {"more": 1})
        assert repository.notes[state.head.id] == {"n": size - 1, "more": 1}
        counts.append((counting.counts.round_trips, counting.counts.objects_read))
    assert counts[0] == counts[1] == (3, 0)


def test_keys_are_removed_in_one_step(state):
    notes = state.repository.notes
    notes["main"] = {"a": 1, "b": 2, "c": 3}
    assert notes.remove("main", "a", "c") == {"b": 2}
    for keys in (("a",), ("b", "a")):
        with pytest.raises(UnknownNoteError) as caught:
            notes.remove("main", *keys)
        assert caught.value.key == "a"
    assert notes["main"] == {"b": 2}
    assert notes.remove("main", "b") == {}
    assert "main" not in notes
    with pytest.raises(UnknownNoteError) as caught:
        notes.remove("main", "b")
    assert caught.value.key is None


@pytest.mark.parametrize("fault", list(Fault))
def test_a_failure_at_any_call_leaves_the_note_before_or_after(state, fault):
    store, id = state.repository.store, state.head.id
    for attempt in attempts(fault):
        state.repository.notes[id] = {"a": 1}
        faulty = Faulty(store)
        notes = Repository(faulty).notes
        with attempt.on(faulty):
            notes.update(id, {"b": 2})
        found = Repository(store).notes[id]
        assert found in ({"a": 1}, {"a": 1, "b": 2})
        assert attempt.failed or found == {"a": 1, "b": 2}


def test_an_interrupt_at_any_line_leaves_the_note_before_or_after(state):
    repository, id = state.repository, state.head.id
    for trace in interrupts(3):
        repository.notes[id] = {"a": 1}
        with suppress(Interrupt):
            trace.run(partial(repository.notes.update, id, {"b": 2}))
        assert repository.notes[id] in ({"a": 1}, {"a": 1, "b": 2})
