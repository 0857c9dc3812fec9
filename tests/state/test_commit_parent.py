"""``commit(parent=…)``: the difference to any commit, and the move of the branch there, in one step."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from functools import partial

import pytest

from tests.support.faults import attempts
from tests.support.interrupts import Interrupt, interrupts
from tests.support.outage import Outage
from versioned_state import Commit, Memory, Repository, Versioned
from versioned_state.errors import (
    STAGED,
    BranchMovedError,
    CommitInDoubtError,
    HandleClosedError,
    InvalidArgumentError,
    ReadOnlyError,
    RefExistsError,
    StateError,
    UnknownRevisionError,
)
from versioned_state.storage import Counting, ReadOnly
from versioned_state.storage.wrappers.faulty import Fault, Faulty


def rounds(state: Versioned, count: int) -> list[Commit]:
    made = []
    for number in range(1, count + 1):
        state["n"] = number
        made.append(state.commit(f"round {number}", tag=f"t{number}"))
    return made


def test_the_commit_has_the_given_parent_and_the_branch_moves_there():
    state = Versioned()
    first, second, third = rounds(state, 3)
    held = state.setdefault("list", [1])
    made = state.commit(parent=first, tag="fork")
    assert state.repository.parents(made) == [first]
    assert state.head == made == state.repository.branches["main"] == state.repository.tags["fork"]
    assert dict(state) == dict(state.checkout("fork")) == {"n": 3, "list": [1]}
    assert state["list"] is held
    assert [position.commit for position in state.repository.reflog("main")] == [made, third, second, first]
    assert [each.message for each in state.log()] == ["list added, n", "round 1"]
    assert state.repository.fsck().ok
    assert state.undo() == third
    assert dict(state) == {"n": 3}
    assert state.redo() == made


def test_it_takes_any_revision_and_goes_on_from_there():
    state = Versioned()
    first, *_ = rounds(state, 3)
    state["n"] = 10
    assert state.repository.parents(state.commit(parent="t1")) == [first]
    state["n"] = 11
    after = state.commit("after")
    assert [each.message for each in state.log()] == ["after", "n", "round 1"]
    state["n"] = 12
    assert state.repository.parents(state.commit(parent="HEAD")) == [after]
    assert [each.message for each in state.log(limit=2)] == ["n", "after"]


def test_it_costs_no_more_requests_than_another_commit():
    store = Counting(Memory())
    state = Versioned(store)
    first, *_ = rounds(state, 3)
    calls = []
    for parent in (None, first):
        state["n"] += 10
        before = store.counts.round_trips
        state.commit(parent=parent)
        calls.append(store.counts.round_trips - before)
    assert calls[0] == calls[1] == 1


def test_without_a_difference_the_branch_moves_to_the_parent():
    state = Versioned()
    first, second = rounds(state, 2)
    state["n"] = 1
    assert state.commit(parent=first, tag="back") == first == state.head == state.repository.tags["back"]
    assert not state.status()
    assert dict(state) == {"n": 1}
    assert [position.commit for position in state.repository.reflog("main")][:2] == [first, second]
    made = state.commit(parent=second, allow_empty=True)
    assert state.repository.parents(made) == [second]
    assert dict(state.checkout("HEAD")) == {"n": 1}
    assert state.commit(parent="HEAD") == made
    assert state.undo(2) == second


def test_a_branch_that_stands_elsewhere_is_refused_or_left_behind():
    store = Memory()
    mine, other = Versioned(store), Versioned(store)
    first, second = rounds(mine, 2)
    other.refresh()
    other["theirs"] = 1
    theirs = other.commit(tag="theirs")
    mine["n"] = 20
    with pytest.raises(BranchMovedError) as caught:
        mine.commit(parent=first, tag="mine", on_moved="refuse")
    assert caught.value.remains == STAGED
    assert Repository(store).branches["main"] == theirs
    assert "mine" not in mine.repository.tags
    assert mine.head == second
    assert [str(change.path) for change in mine.status()] == ["n"]
    made = mine.commit(parent=first, tag="mine")
    assert dict(mine.checkout("mine")) == {"n": 20}, "nothing of the others is mixed in"
    assert mine.repository.parents(made) == [first]
    assert [position.commit for position in mine.repository.reflog("main")][:2] == [made, theirs]
    assert mine.undo() == theirs
    assert dict(mine) == {"n": 2, "theirs": 1}


def test_refuse_of_a_move_without_a_difference():
    store = Memory()
    mine, other = Versioned(store), Versioned(store)
    first, second = rounds(mine, 2)
    other.refresh()
    other["n"] = 3
    theirs = other.commit()
    mine["n"] = 1
    with pytest.raises(BranchMovedError):
        mine.commit(parent=first, on_moved="refuse")
    assert (mine.head, mine.repository.branches["main"]) == (second, theirs)
    assert mine.commit(parent=first) == first == mine.repository.branches["main"]
    assert dict(mine) == {"n": 1}


def test_gc_keeps_the_line_that_was_left_until_its_entry_expires():
    store = Memory()
    state = Versioned(store)
    first, second, third = rounds(state, 3)
    for name in ("t2", "t3"):
        state.repository.tags.delete(name)
    state["n"] = 7
    made = state.commit(parent=first)
    state.repository.gc()
    assert state.repository.commit(third.id) == third
    assert dict(state.repository.snapshot(second)) == {"n": 2}
    state.repository.gc(expire=timedelta(0))
    with pytest.raises(UnknownRevisionError):
        Repository(store).commit(second.id[:12])
    state["n"] = 8
    assert state.repository.parents(state.commit()) == [made]
    assert state.repository.fsck().ok


def test_a_parent_that_gc_deleted_is_refused_and_the_changes_stay():
    store = Memory()
    state = Versioned(store)
    first = rounds(state, 1)[0]
    with state.fork("gone") as fork:
        fork["x"] = 1
        lost = fork.commit()
    state.repository.branches.delete("gone", force=True)
    Repository(store).gc(expire=timedelta(0))
    state["n"] = 5
    with pytest.raises(StateError):
        state.commit(parent=lost)
    assert state.head == first == Repository(store).branches["main"]
    assert [str(change.path) for change in state.status()] == ["n"]
    assert state.repository.fsck().ok


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"parent": "nowhere"}, UnknownRevisionError),
        ({"parent": 7}, StateError),
        ({"parent": "t1", "keys": ["n"]}, InvalidArgumentError),
        ({"parent": "t1", "tag": "t1"}, RefExistsError),
    ],
)
def test_wrong_arguments_change_nothing(options, error):
    state = Versioned()
    head = rounds(state, 2)[-1]
    state["n"] = 9
    with pytest.raises(error):
        state.commit(**options)
    assert state.head == head == state.repository.branches["main"]
    assert [str(change.path) for change in state.status()] == ["n"]


def test_a_closed_handle_and_a_read_only_store_say_so():
    store = Memory()
    state = Versioned(store)
    rounds(state, 2)
    reader = Versioned(ReadOnly(store))
    reader["n"] = 9
    with pytest.raises(ReadOnlyError):
        reader.commit(parent="t1")
    reader.discard()
    state.close()
    with pytest.raises(HandleClosedError):
        state.commit(parent="t1")


def test_a_schema_is_held_and_a_lock_too():
    store = Memory()
    state = Versioned(store, schema={"n": int})
    first, second = rounds(state, 2)
    state["n"] = "text"
    with pytest.raises(StateError):
        state.commit(parent=first)
    assert state.repository.branches["main"] == second
    state.discard()
    with state.lock():
        state["n"] = 5
        assert state.repository.parents(state.commit(parent=first)) == [first]


async def test_awaited():
    state = Versioned()
    first, *_ = rounds(state, 2)
    state["n"] = 9
    made = await state.aio.commit(parent=first)
    assert state.repository.parents(made) == [first]
    state["n"] = 1
    assert await state.aio.commit(parent=first) == first
    assert dict(state) == {"n": 1}


@pytest.mark.parametrize("fault", list(Fault))
def test_a_failure_at_any_call_leaves_both_or_neither(fault):
    for attempt in attempts(fault):
        store = Memory()
        rounds(Versioned(store), 2)
        faulty = Faulty(store)
        state = Versioned(faulty)
        state["n"] = 9
        with attempt.on(faulty):
            state.commit("onto", tag="one", parent="t1")
        repository = Repository(store)
        assert (repository.tags.get("one") == repository.branches["main"]) == (repository.snapshot("main")["n"] == 9)
        assert repository.tags["t2"] in [position.commit for position in repository.reflog("main")]
        state.refresh()
        assert state["n"] == 9


@pytest.mark.parametrize("fault", [Fault.BEFORE, Fault.AFTER])
def test_after_a_commit_in_doubt_the_same_call_finds_it_or_makes_it(fault):
    store = Outage(Memory(), calls=2)  # the batch, and the look for its outcome
    state = Versioned(store)
    first, second = rounds(state, 2)
    state["n"] = 9
    store.arm(1, fault=fault)
    with pytest.raises(CommitInDoubtError):
        state.commit("onto", parent=first)
    commit = state.commit("onto", parent=first)
    repository = Repository(store.store)
    assert repository.branches["main"] == commit == state.head
    assert repository.parents(commit) == [first]
    positions = [position.commit for position in repository.reflog("main") if position.action != "commit given up"]
    assert positions == [commit, second, first]
    state["n"] = 10
    assert repository.parents(state.commit()) == [commit]


def test_an_interrupt_at_any_line_leaves_it_done_or_not():
    for trace in interrupts(29):
        store = Memory()
        state = Versioned(store)
        first, second = rounds(state, 2)
        held = state.setdefault("list", [1])
        with suppress(Interrupt):
            trace.run(partial(state.commit, "onto", parent=first))
        repository = Repository(store)
        head = repository.branches["main"]
        assert head == second or repository.parents(head) == [first]
        held.append(2)
        state.commit("next")
        assert Repository(store).snapshot()["list"] == [1, 2]
