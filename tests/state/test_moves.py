"""A branch's moves between commits at their edges: reset, undo, rebase, squash, restore, also while others work."""

from __future__ import annotations

import datetime as dt
import itertools
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from tests.support.concurrent_stores import ActsAroundMove
from tests.support.faults import attempts
from tests.support.handles import committed, two
from versioned_state import Memory, Repository, Versioned
from versioned_state.errors import (
    BranchMovedError,
    InvalidArgumentError,
    StateError,
    UnknownPathError,
)
from versioned_state.storage.wrappers.faulty import Fault, Faulty

MOVES = {
    "reset": lambda s: s.reset("HEAD~1"),
    "undo": lambda s: s.undo(),
    "rollback": lambda s: s.rollback(1),
    "fast-forward": lambda s: s.merge("ahead"),
    "rebase": lambda s: s.rebase("side"),
    "squash": lambda s: s.squash("HEAD~2"),
}


@pytest.mark.parametrize("move", MOVES)
def test_a_commit_right_after_a_move_is_not_lost(move):
    memory = Memory()
    store = ActsAroundMove(memory)
    state = Versioned(store)
    for n in range(3):
        state["x"] = n
        state.commit(f"c{n}")
    side = state.fork("side", at="HEAD~1")
    side["s"] = 1
    side.commit("side")
    ahead = state.fork("ahead")
    ahead["a"] = 1
    ahead.commit("ahead")

    def others() -> None:
        other = Versioned(memory)
        other["theirs"] = 1
        other.commit("theirs")

    store.after = others
    MOVES[move](state)
    state["mine"] = 1
    state.commit("mine")
    assert "theirs" in Versioned(memory)


@pytest.mark.parametrize("move", MOVES)
def test_a_move_right_after_a_collection_loses_nothing(move):
    memory = Memory()
    store = ActsAroundMove(memory)
    state = Versioned(store)
    for n in range(4):
        state["x"], state["l"] = n, [{"n": n, "text": "x" * 50} for n in range(100)]
        state["l"][n] = "changed"
        state.commit(f"c{n}")
    side = state.fork("side", at="HEAD~1")
    side["s"] = ["s" * 100] * 100
    side.commit("side")
    ahead = state.fork("ahead")
    ahead["a"] = 1
    ahead.commit("ahead")
    collected = []
    store.before = lambda: collected.append(Repository(memory).gc(expire=dt.timedelta(0)))
    MOVES[move](state)
    assert collected
    assert Repository(memory).fsck().ok
    assert Repository(memory).commit("main") == state.head
    assert Versioned(memory).copy() == state.copy()


@pytest.mark.parametrize("fault", Fault)
def test_a_commit_that_raised_was_not_made(fault):
    base = Memory()
    begin = Versioned(base)
    begin.update({f"k{n:03}": {"n": n, "p": "q" * 150} for n in range(200)})
    begin.commit("base")
    for attempt in attempts(fault):
        memory = Memory()
        for key, value in base.items():
            memory.set(key, value)
        faulty = Faulty(memory)
        other, state = Versioned(memory), Versioned(faulty)
        for n in (7, 20, 150):
            other[f"k{n:03}"]["n"] = -1
        other.commit("theirs")
        state["mine"] = [1]
        with attempt.on(faulty):
            state.commit("mine")
        made = state.commit("mine")
        assert made.message == "mine", attempt.number
        assert made == state.head == Repository(memory).commit("main"), attempt.number
        assert not state.status()


@pytest.mark.parametrize(
    "call", ["rebase", "squash", "undo", "undo 2", "fork", "switch", "merge", "cherry_pick", "fast-forward"]
)
@pytest.mark.parametrize("fault", Fault)
def test_a_move_whose_reply_was_lost_can_be_done_again(call, fault):
    calls: dict[str, Callable[[Versioned], Any]] = {
        "rebase": lambda s: s.rebase("side"),
        "squash": lambda s: s.squash("HEAD~2"),
        "undo": lambda s: s.undo(),
        "undo 2": lambda s: s.undo(2),
        "fork": lambda s: s.fork("forked"),
        "switch": lambda s: s.switch("switched", create=True),
        "merge": lambda s: s.merge("side"),
        "cherry_pick": lambda s: s.cherry_pick("side"),
        "fast-forward": lambda s: s.merge("ahead"),
    }
    for attempt in attempts(fault):
        memory = Memory()
        begin = Versioned(memory)
        for n in range(4):
            begin[f"k{n}"] = ["x" * 300] * 20
            begin.commit(f"c{n}")
        side = begin.fork("side", at="HEAD~2")
        side["s"] = 1
        side.commit("side")
        ahead = begin.fork("ahead")
        ahead["a"] = 1
        ahead.commit("ahead")
        faulty = Faulty(memory)
        state = Versioned(faulty)
        dict(state)
        with attempt.on(faulty):
            calls[call](state)
        if attempt.failed:
            calls[call](state)
        assert Repository(memory).branches[state.branch] == state.head, attempt.number
        assert Versioned(memory, branch=state.branch).copy() == state.copy(), attempt.number
        assert Repository(memory).fsck().ok, attempt.number


def test_undo_and_redo_do_not_pretend():
    state, other = two(x=0)
    state["x"] = 1
    state.commit("one")
    other.refresh()
    other["x"] = 2
    other.commit("two")
    with pytest.raises(BranchMovedError):
        state.undo()  # returns "one" and moves nothing


def test_undo_gets_past_a_commit_that_was_given_up():
    memory = Memory()
    faulty = Faulty(memory)
    state = Versioned(faulty)
    for n in range(2):
        state["x"] = n
        state.commit(f"c{n}")
    state["x"] = 2
    for at in itertools.count(1):
        faulty.arm(at, fault=Fault.BEFORE)
        with pytest.raises(StateError):
            state.commit("c2")
        if next(iter(state.repository.reflog("main"))).action == "commit given up":
            break
    faulty.arm(None)
    state.discard()
    assert [state.undo().message, state["x"]] == ["c0", 0]


@pytest.mark.parametrize("call", ["rebase", "cherry_pick"])
def test_what_is_made_again_comes_after_what_is_there(call):
    state, _ = two(log=[])
    side = state.fork("side")
    state["log"].append("main, first")
    state.commit()
    side["log"].append("side, later")
    side.commit()
    if call == "rebase":
        side.rebase("main", policies={"log": "append"})
        assert side["log"] == ["main, first", "side, later"]
    else:
        state.cherry_pick("side", policies={"log": "append"})
        assert state["log"] == ["main, first", "side, later"]


def test_a_merge_among_rebased_commits_conflicts_with_nothing_that_is_there():
    """::

    main  base ── m1 ── m2
             \\      \\
    side      s1 ── merge ── s2
    """
    state, _ = two(x=0, s=0)
    side = state.fork("side")
    side["s"] = 1
    side.commit("s1")
    state["x"] = 1
    state.commit("m1")
    side.merge("main")
    side["s"] = 2
    side.commit("s2")
    state["x"] = 2
    state.commit("m2")
    side.rebase("main")
    assert dict(side) == {"x": 2, "s": 2}
    assert [commit.message for commit in side.log()] == ["s2", "s1", "m2", "m1", "base"]


def test_what_a_merge_brought_in_from_elsewhere_is_rebased_commit_by_commit():
    """::

    main     base ── m1 ── s1 (picked)
               ├──── s1 ─────── merge ── s2
    feature    └──── f1 ── f2 ──┘
    """
    state, _ = two(**dict.fromkeys(["m1", "s1", "s2", "f1", "f2"], 0))
    side, feature = state.fork("side"), state.fork("feature")
    for handle, names in ((side, ["s1"]), (feature, ["f1", "f2"]), (state, ["m1"])):
        for name in names:
            handle[name] = 1
            handle.commit(name, author=name)
    side.merge("feature")
    side["s2"] = 1
    side.commit("s2")
    state.cherry_pick("side~2")
    side.rebase("main")
    assert set(side.values()) == {1}
    assert [commit.message for commit in side.log()] == ["s2", "f2", "f1", "s1", "m1", "base"], "s1 is there already"
    assert all(len(commit.parents) == 1 for commit in side.log())
    assert side.checkout("HEAD~1")["s2"] == 0
    assert side.undo().message == "s2"
    assert len(side.repository.commit("side~1").parents) == 2


def test_a_branch_that_moves_just_before_a_fast_forward_is_merged():
    memory = Memory()
    store = ActsAroundMove(memory)
    state = Versioned(store)
    state["x"] = 0
    state.commit("base")
    side = state.fork("side")
    side["x"] = 1
    there = side.commit("side")

    def others() -> None:
        other = Versioned(memory)
        other["y"] = 1
        other.commit("others")

    store.before = others
    merged = state.merge("side")
    assert [state.repository.commit(id).message for id in merged.parents] == ["others", there.message]
    assert dict(state) == {"x": 1, "y": 1}


@pytest.mark.parametrize("path", ["l[-1]", "e[-1]"])
def test_restore_of_a_negative_index(path):
    state, _ = two(l=[1], e=[])
    first = state.head
    state["l"] = []
    with suppress(StateError):
        state.restore(path, first)


@pytest.mark.parametrize("path", ["nope", "d.nope", "l[7]", "@n.nope"])
def test_restore_of_what_is_neither_here_nor_there(path):
    state, _ = two(d={}, l=[1])
    state["x"] = 1
    state.commit()
    with pytest.raises(UnknownPathError):
        state.restore(path, "HEAD~1")
    assert not state.status()


def test_undo_counts_moves_also_where_they_lead_to_where_it_stands():
    one, other = (two(x=0)[0] for _ in range(2))
    for state in (one, other):
        for n in (1, 2):
            state["x"] = n
            state.commit()
        state.reset("HEAD~1")
        assert state["x"] == 1
    for _ in range(3):
        one.undo()
    other.undo(2)
    assert other["x"] == 1
    other.undo()
    assert one["x"] == other["x"] == 0
    other.redo(3)
    assert other["x"] == 1


def test_squash_leaves_later_merges_merges():
    state, _ = two(x=0)
    for n in (1, 2, 3):
        state["x"] = n
        state.commit(f"x{n}")
    idea = state.fork("idea")
    idea["plan"] = "theirs"
    idea.commit("idea")
    state["y"] = 1
    state.commit("y")
    state.merge("idea")
    state["plan"] = "ours, later"
    state.commit("later")
    root = state.head.root
    state.squash("HEAD~5", "HEAD~3")
    assert [commit.message for commit in state.log(first_parent=True)][2:4] == ["y", "x2\nx3"]
    assert state.repository.commit("HEAD~1", head=state.head).parents[1] == idea.head.id
    assert state.head.root == root
    assert state.merge("idea") == state.head
    assert state["plan"] == "ours, later"
    assert state.repository.fsck().ok


@pytest.mark.parametrize("call", ["rebase", "cherry_pick", "revert", "squash"])
def test_commits_that_one_call_makes_are_found_as_fast_as_others(call):
    """Each has the jump that it would have, had it been made by itself."""
    state, _ = two(x=0)
    topic = state.fork("topic")
    for n in range(12):
        topic[f"t{n}"] = n
        topic.commit()
    state["y"] = 1
    state.commit()
    match call:
        case "rebase":
            topic.rebase("main")
        case "cherry_pick":
            state.cherry_pick("topic~12..topic")
        case "revert":
            topic.revert("topic~12..topic")
        case _:
            topic.squash("topic~12", "topic~10")
    assert state.repository.fsck().findings == ()
    with pytest.raises(InvalidArgumentError, match="not a range"):
        state.cherry_pick("topic...main")


def test_restoring_an_element_beyond_the_end_is_refused():
    state = committed(l=[0, 1, 2, 3, 4, 5])
    full = state.head
    del state["l"][2:]
    for path in ("l[5]", "l[3]"):
        with pytest.raises(UnknownPathError) as caught:
            state.restore(path, full)
        assert caught.value.path == path
        assert "2 elements" in caught.value.hint
        assert state["l"] == [0, 1]
    state.restore("l[2]", full)
    assert state["l"] == [0, 1, 2], "the one that follows the last is put there"
    state["d"] = defaultdict(list)
    with pytest.raises(UnknownPathError):
        state.restore("d.x.y", full)
    assert dict(state["d"]) == {}, "looking adds nothing"


def test_a_key_that_the_head_removed_is_not_there_even_if_the_store_failed_while_the_head_moved():
    memory = Memory()
    state = committed(memory, gone=[1], big=[{"n": n, "text": "x" * 50} for n in range(300)])
    for attempt in attempts():
        other = state.fork(f"b{attempt.number}")
        del other["gone"]
        other["big"][7]["n"] = -1
        other.commit()
        faulty = Faulty(memory)
        reader = Versioned(faulty, branch="main")
        dict(reader)
        with attempt.on(faulty):
            reader.reset(other.head)
        assert ("gone" in reader) == ("gone" in list(reader)) == (reader.get("gone") is not None), attempt.number
        reader.reset(state.head)
    assert attempt.number > 3
