"""``commit_together`` makes commits on several branches in one batch: all of them, or none."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.faults import attempts
from tests.support.handles import lists_of, two_branches
from tests.support.interrupts import Interrupt, interrupts
from tests.support.outage import Outage
from tests.support.stores import OneCondition
from versioned_state import Bounded, Commit, Disk, Memory, Repository, Versioned, Workspace
from versioned_state.errors import (
    STAGED,
    BranchMovedError,
    HandleClosedError,
    InvalidArgumentError,
    MergeConflictError,
    StateError,
    TransactionError,
    UnserializableValueError,
    UnsupportedByStoreError,
)
from versioned_state.state.branch.commit_options import CommitOptions
from versioned_state.state.branch.hooks import Hook
from versioned_state.state.branch.together import prepare_commit
from versioned_state.storage import Counting
from versioned_state.storage.testing.writers import run_together
from versioned_state.storage.wrappers.faulty import Fault, Faulty


def test_all_are_committed_in_one_request():
    store = Counting(Memory())
    a, b = two_branches(store)
    a["n"].append(2)
    b["n"].append(2)
    store.reset()
    made = a.repository.commit_together([b, a], "second", meta={"round": 2}, author="me")
    assert store.counts.round_trips == store.counts.applies == 1
    assert made == [b.head, a.head] == [b.repository.branches["b"], a.repository.branches["a"]]
    assert [(commit.message, commit.meta, commit.author) for commit in made] == [("second", {"round": 2}, "me")] * 2
    assert lists_of(store) == [[1, 2], [1, 2]]
    assert not a.status()
    assert not b.status()
    a["n"].append(3)
    a.commit()
    assert lists_of(store) == [[1, 2, 3], [1, 2]]


def test_a_state_without_changes_makes_no_commit():
    a, b = two_branches()
    before = b.head
    a["n"].append(2)
    assert a.repository.commit_together([a, b]) == [a.head, before]
    assert a.repository.commit_together([a, b]) == [a.head, before]
    assert a.head.message == "n[1] added" or a.head.message
    assert a.repository.commit_together([]) == []


def test_handles_with_repositories_of_their_own_work_too():
    store = Memory()
    a, b = Versioned(store, branch="a"), Versioned(store, branch="b")
    a["n"], b["n"] = [1], [2]
    Repository(store).commit_together([a, b])
    assert lists_of(store) == [[1], [2]]


def test_a_branch_that_has_moved_is_merged():
    store = Memory()
    a, b = two_branches(store)
    other = Versioned(store, branch="b")
    other["m"] = 1
    other.commit()
    a["n"].append(2)
    b["n"].append(2)
    held = b["n"]
    a.repository.commit_together([a, b])
    assert dict(b) == {"m": 1, "n": [1, 2]}
    assert b["n"] is held
    assert b.head.parents == (other.head.id,)
    assert lists_of(store) == [[1, 2], [1, 2]]


def test_a_conflict_moves_no_branch():
    store = Memory()
    a, b = two_branches(store)
    other = Versioned(store, branch="b")
    other["n"] = "other"
    other.commit()
    a["n"].append(2)
    b["n"] = "mine"
    heads = a.head, b.head
    with pytest.raises(MergeConflictError) as caught:
        a.repository.commit_together([a, b])
    assert caught.value.remains == STAGED
    assert (a.head, b.head) == heads
    assert a.repository.branches["a"] == heads[0]
    assert [str(change.path) for change in a.status()] == ["n[1]"]
    with pytest.raises(BranchMovedError):
        a.repository.commit_together([a, b], on_moved="refuse")
    assert a.repository.commit_together([a, b], policies={"n": "ours"}) == [a.head, b.head]
    assert lists_of(store) == [[1, 2], "mine"]


def test_the_same_change_by_another_is_taken_over():
    store = Memory()
    a, b = two_branches(store)
    other = Versioned(store, branch="b")
    for state in (a, b, other):
        state["n"].append(2)
    other.commit()
    assert a.repository.commit_together([a, b])[1] == other.head == b.head
    assert lists_of(store) == [[1, 2], [1, 2]]


def test_what_cannot_be_committed_together_changes_nothing():
    a, b = two_branches()
    a["n"].append(2)
    again, elsewhere = Versioned(a.repository, branch="a"), Versioned(branch="c")
    closed = Versioned(a.repository, branch="d")
    closed.close()
    together = a.repository.commit_together
    calls: list[tuple[list[Any], type[StateError]]] = [
        ([a, again], InvalidArgumentError),
        ([a, elsewhere], InvalidArgumentError),
        ([a, {}], InvalidArgumentError),
        ([{}], InvalidArgumentError),
        ([a, closed], HandleClosedError),
    ]
    for states, error in calls:
        with pytest.raises(error):
            together(states)
    with b.transaction(), pytest.raises(TransactionError):
        together([a, b])
    b["bad"] = (n for n in [1])
    with pytest.raises(UnserializableValueError):
        together([a, b])
    assert a.status()
    del b["bad"]
    assert together([a, b]) == [a.head, b.head]


def test_a_store_of_one_condition_a_batch_says_so():
    store = OneCondition()
    a, b = Versioned(store, branch="a"), Versioned(store, branch="b")
    a["n"] = 1
    assert Repository(store).commit_together([a, b]) == [a.head, b.head]
    a["n"], b["n"] = 2, 2
    with pytest.raises(UnsupportedByStoreError):
        Repository(store).commit_together([a, b])
    assert a.status()
    assert b.status()


def test_hooks_of_each_handle_take_part():
    a, b = two_branches()
    asked = []

    class Asked(Hook):
        def __init__(self, name: str) -> None:
            self.name = name

        def before_commit(self, keys):
            asked.append(f"before {self.name}")

        def check(self, nodes, before, after):
            asked.append(f"check {self.name}")

        def moved(self, before, after):
            asked.append(f"moved {self.name}")

    for state in (a, b):
        state._handle.hooks.add(Asked(state.branch), state.head)
        state["n"].append(2)
    a.repository.commit_together([a, b])
    assert sorted(asked) == ["before a", "before b", "check a", "check b", "moved a", "moved b"]


def one_by_one(states: list[Versioned]) -> list[Commit]:
    return [state.commit() for state in states]


def each_prepared(states: list[Versioned]) -> list[Commit]:
    """As a service sends the commits of many sessions."""
    found = []
    for state in states:
        prepared = prepare_commit(state, CommitOptions())
        assert prepared is not None
        (answer,) = state.repository.database.publish_each([prepared.publication])
        commit = prepared.settle(answer)
        assert commit is not None
        found.append(commit)
    return found


@pytest.mark.parametrize("commit", [one_by_one, Repository.commit_together, each_prepared])
def test_every_way_to_commit_names_what_hooks_amend(commit: Callable[[list[Versioned]], list[Commit]], tmp_path: Path):
    store, folder = Memory(), tmp_path / "files"
    bounded = Versioned(store, branch="a", schema={"log": Bounded(max_items=2)})
    bounded["log"] = [1, 2]
    bounded.commit()
    files = Versioned(store, branch="b")
    Workspace(files, folder)
    files["n"] = 1
    files.commit()
    plain = Versioned(store, branch="c")
    bounded["log"].append(3)
    (folder / "x.txt").write_text("new")
    plain["k"] = plain["l"] = 1
    assert [each.message for each in commit([bounded, files, plain])] == [
        "log +1",
        "workspace added",
        "k added, l added",
    ]
    assert bounded["log"] == [2, 3]


def test_threads_that_commit_the_same_handles_in_either_order_do_not_wait_for_each_other():
    a, b = two_branches()

    def work(states: list[Versioned]) -> None:
        for _ in range(30):
            with suppress(BranchMovedError):
                a.repository.commit_together(states)

    run_together(partial(work, states) for states in ([a, b], [b, a]))


def test_writers_on_both_branches_lose_nothing(tmp_path):
    with Disk(tmp_path) as store:
        two_branches(store)

        def work(key: str) -> None:
            repository = Repository(store)
            a, b = Versioned(repository, branch="a"), Versioned(repository, branch="b")
            for n in range(15):
                a[key], b[key] = n, n
                repository.commit_together([a, b])

        run_together(partial(work, key) for key in ("x", "y", "z"))
        repository = Repository(store)
        for name in ("a", "b"):
            assert {key: repository.snapshot(name)[key] for key in "xyz"} == {"x": 14, "y": 14, "z": 14}
        assert repository.fsck().ok


@pytest.mark.parametrize("fault", list(Fault))
@pytest.mark.parametrize("moves", [False, True])
def test_a_failure_at_any_call_leaves_all_or_none(fault, moves):
    for attempt in attempts(fault):
        store = Memory()
        two_branches(store)
        faulty = Faulty(store)
        repository = Repository(faulty)
        a, b = Versioned(repository, branch="a"), Versioned(repository, branch="b")
        a["n"].append(2)
        b["n"].append(2)
        if moves:
            other = Versioned(store, branch="b")
            other["m"] = 1
            other.commit()
        with attempt.on(faulty):
            repository.commit_together([a, b])
        found = lists_of(store)
        assert found in ([[1], [1]], [[1, 2], [1, 2]])
        assert attempt.failed or found == [[1, 2], [1, 2]]
        a["n"].append(3)
        repository.commit_together([a, b])
        assert lists_of(store) == [[1, 2, 3], [1, 2]]


def test_if_the_store_is_gone_the_next_call_of_each_finds_out():
    for fault in (Fault.BEFORE, Fault.AFTER):
        store = Memory()
        two_branches(store)

        faulty = Outage(store, calls=2)  # the batch, and the look for its outcome
        repository = Repository(faulty)
        a, b = Versioned(repository, branch="a"), Versioned(repository, branch="b")
        a["n"].append(2)
        b["n"].append(2)
        faulty.arm(1, fault=fault)
        with pytest.raises(StateError):
            repository.commit_together([a, b])
        b.refresh()
        a["n"].append(3)
        repository.commit_together([a, b])
        assert lists_of(store) == [[1, 2, 3], [1, 2]]


@pytest.mark.parametrize("moves", [False, True])
def test_an_interrupt_at_any_line_leaves_all_or_none(moves, long_run):
    for trace in interrupts(3 if long_run else 31):
        store = Memory()
        a, b = two_branches(store)
        a["n"].append(2)
        b["n"].append(2)
        if moves:
            other = Versioned(store, branch="b")
            other["m"] = 1
            other.commit()
        with suppress(Interrupt):
            trace.run(partial(a.repository.commit_together, [a, b]))
        assert lists_of(store) in ([[1], [1]], [[1, 2], [1, 2]]), trace.hit
        for state in (a, b):  # its next call knows what became of the commit
            made = lists_of(store) == [[1, 2], [1, 2]]
            assert bool(state.status()) != made, trace.hit
            assert not made or state.head == state.repository.branches[state.branch], trace.hit
        a["n"].append(3)
        b["n"].append(3)
        b.commit()
        a.commit()
        assert lists_of(store) == [[1, 2, 3], [1, 2, 3]], trace.hit
        assert "m" in b or not moves
