"""Where merges and moves between commits are easily got wrong: others in between, failing stores, forms, equal keys, criss-cross."""

from __future__ import annotations

import copy
import datetime as dt
import itertools
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from versioned_state import Memory, Merge, Repository, Versioned
from versioned_state.errors import BranchMovedError, MergeConflictError, StateError, TransactionError
from versioned_state.storage.faulty import Fault, Faulty
from versioned_state.storage.wrapper import Wrapper


class AfterMove(Wrapper):
    """Runs something once, right after a batch that moved a ref."""

    hook: Callable[[], None] | None = None

    def apply(self, expected, puts, deletes=(), *, objects=None):
        done = self.store.apply(expected, puts, deletes, objects=objects)
        if done and puts and self.hook:
            hook, self.hook = self.hook, None
            hook()
        return done


def two(**values: Any) -> tuple[Versioned, Versioned]:
    repository = Repository(Memory(), clock=itertools.count(1).__next__)
    ours = Versioned(repository)
    ours.update(copy.deepcopy(values))
    ours.commit("base")
    return ours, Versioned(repository)


def merge_of(error: MergeConflictError) -> Merge:
    assert error.merge is not None
    return error.merge


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
    store = AfterMove(memory)
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

    store.hook = others
    MOVES[move](state)
    state["mine"] = 1
    state.commit("mine")
    assert "theirs" in Versioned(memory)


@pytest.mark.parametrize("fault", Fault)
def test_a_commit_that_raised_was_not_made(fault):
    base = Memory()
    begin = Versioned(base)
    begin.update({f"k{n:03}": {"n": n, "p": "q" * 150} for n in range(200)})
    begin.commit("base")
    for k in itertools.count(1):
        memory = Memory()
        for key, value in base.items():
            memory.set(key, value)
        faulty = Faulty(memory)
        other, state = Versioned(memory), Versioned(faulty)
        for n in (7, 20, 150):
            other[f"k{n:03}"]["n"] = -1
        other.commit("theirs")
        state["mine"] = [1]
        faulty.arm(k, fault=fault)
        with suppress(StateError):
            state.commit("mine")
        fired = faulty.fired
        faulty.arm(None)
        made = state.commit("mine")
        assert made.message == "mine", k
        assert made == state.head == Repository(memory).commit("main"), k
        assert not state.status()
        if not fired:
            break


@pytest.mark.parametrize("call", ["rebase", "squash", "undo", "undo 2"])
@pytest.mark.parametrize("fault", Fault)
def test_a_move_whose_reply_was_lost_can_be_done_again(call, fault):
    calls: dict[str, Callable[[Versioned], Any]] = {
        "rebase": lambda s: s.rebase("side"),
        "squash": lambda s: s.squash("HEAD~2"),
        "undo": lambda s: s.undo(),
        "undo 2": lambda s: s.undo(2),
    }
    for k in itertools.count(1):
        memory = Memory()
        begin = Versioned(memory)
        for n in range(4):
            begin[f"k{n}"] = ["x" * 300] * 20
            begin.commit(f"c{n}")
        side = begin.fork("side", at="HEAD~2")
        side["s"] = 1
        side.commit("side")
        faulty = Faulty(memory)
        state = Versioned(faulty)
        dict(state)
        faulty.arm(k, fault=fault)
        try:
            calls[call](state)
        except StateError:
            faulty.arm(None)
            calls[call](state)
        else:
            if not faulty.fired:
                break


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


def test_what_was_settled_by_hand_does_not_hide_a_third_writer():
    ours, theirs = two(score=10)
    third = Versioned(ours.repository)
    theirs["score"] = 11
    theirs.commit()
    ours["score"] = 12
    with pytest.raises(MergeConflictError) as caught:
        ours.commit()
    merge_of(caught.value).resolve("score", 13)
    third.refresh()
    third["score"] = 99
    third.commit()
    with pytest.raises(MergeConflictError):
        merge_of(caught.value).commit()


def test_what_was_settled_for_one_commit_of_a_range_is_not_taken_for_the_next():
    state, _ = two(score=0)
    side = state.fork("side")
    for n in (1, 2, 3):
        side["score"] = n
        side.commit(f"side {n}")
    state["score"] = 100
    state.commit("main")
    with pytest.raises(MergeConflictError) as caught:
        state.cherry_pick("side~3..side")
    merge_of(caught.value).resolve("score", 101)
    with pytest.raises(MergeConflictError, match="score"):
        merge_of(caught.value).commit()  # drops side 2 and side 3


def test_what_was_settled_in_a_list_stays_with_its_element():
    ours, theirs = two(l=[{"n": 0}, {"n": 1}, {"n": 2}])
    theirs["l"][1]["n"], theirs["l"][2]["n"] = 10, 20
    theirs.commit()
    ours["l"][1]["n"], ours["l"][2]["n"] = 11, 22
    with pytest.raises(MergeConflictError) as caught:
        ours.commit()
    merge = merge_of(caught.value)
    merge.resolve("l[1].n", "of 1")
    merge.resolve("l[2].n", "of 2")
    ours["l"].insert(0, "new")
    with pytest.raises(MergeConflictError) as again:
        merge.commit()
    assert {str(conflict.path) for conflict in again.value.conflicts} == {"l[2].n", "l[3].n"}


@pytest.mark.parametrize("size", [2, 40, 400])
def test_sets_of_any_size_are_merged(size):
    ours, theirs = two(s={f"element {n:03}" for n in range(size)})
    ours["s"].add("ours")
    theirs["s"].add("theirs")
    theirs.commit()
    ours.commit()
    assert {"ours", "theirs"} <= ours["s"]


def test_a_set_that_outgrew_its_form_is_merged():
    ours, theirs = two(s={"x" * 20, "y" * 20})
    ours["s"].update(f"element {n:020}" for n in range(10))
    theirs["s"].add("theirs")
    theirs.commit()
    ours.commit()
    assert "theirs" in ours["s"]


@pytest.mark.parametrize(
    ("base", "ours", "theirs"),
    [("one\ntwo\n", "one\ntwo", "one\ntwo\nthree\n"), ("a\nb", "a", "a\nx\nb")],
)
def test_a_merge_of_texts_joins_no_lines(base, ours, theirs):
    a, b = two(t=base)
    a["t"], b["t"] = ours, theirs
    b.commit()
    try:
        a.commit()
    except MergeConflictError:
        return
    assert set(a["t"].splitlines()) <= {*base.splitlines(), *ours.splitlines(), *theirs.splitlines()}


@pytest.mark.parametrize("case", ["set", "dict", "long keys"])
def test_a_merge_is_canonical(case):
    base: Any = {"set": {"x"}, "dict": {"x": 1}, "long keys": {"k" * 5000: 1, "x": 1, "y": 1}}[case]
    a, b = two(v=base)
    if case == "set":
        a["v"].add(1)
        b["v"].add(True)
    elif case == "dict":
        a["v"][1], b["v"][True] = "a", "b"
    else:
        a["v"]["x"], b["v"]["y"] = 2, 2
    b.commit()
    try:
        a.commit()
    except MergeConflictError:
        return
    again = Versioned()
    again["v"] = copy.deepcopy(a["v"])
    assert again.commit().root == a.head.root


def test_criss_cross_merges_lose_nothing():
    a, _ = two(x=0, y=0)
    b = a.fork("b")
    a["x"] = 1
    a1 = a.commit("a1")
    b["y"] = 1
    b1 = b.commit("b1")
    a.merge(b1)
    b.merge(a1)
    a["x"] = 0
    a.commit("x back to 0")
    b["y"] = 0
    b.commit("y back to 0")
    try:
        a.merge("b")
    except MergeConflictError:
        return
    assert dict(a) == {"x": 0, "y": 0}


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


def test_a_stopped_merge_is_not_done_again_within_a_transaction_or_elsewhere():
    ours, theirs = two(x=0)
    theirs["x"] = 1
    theirs.commit()
    ours["x"] = 2
    with pytest.raises(MergeConflictError) as caught:
        ours.commit()
    merge_of(caught.value).resolve("x", 3)
    with pytest.raises(TransactionError), ours.transaction():
        merge_of(caught.value).commit()
    state, _ = two(x=0)
    side = state.fork("side")
    side["x"] = 1
    side.commit()
    state["x"] = 2
    state.commit()
    with pytest.raises(MergeConflictError) as caught:
        state.merge("side")
    merge_of(caught.value).resolve("x", 3)
    state.switch("other", create=True)
    with pytest.raises(StateError):
        merge_of(caught.value).commit()


def test_a_transaction_that_met_a_conflict_offers_no_way_that_does_nothing():
    ours, theirs = two(x=0)
    theirs["x"] = 1
    theirs.commit()
    with pytest.raises(MergeConflictError) as caught, ours.transaction():
        ours.update(x=2, z=1)
    assert caught.value.merge is None
    assert "undone" in caught.value.hint
    assert dict(ours) == {"x": 0}


def test_what_is_changed_before_a_value_could_be_patched_is_not_lost():
    for k in range(1, 60):
        memory = Memory()
        faulty = Faulty(memory)
        theirs = Versioned(memory)
        theirs.update(l=["x" * 300] * 20, m=["x" * 300] * 20)
        theirs.commit()
        ours = Versioned(faulty)
        held, _ = ours["l"], ours["m"]
        theirs["l"].insert(0, "theirs")
        theirs["m"][3] = "theirs"
        theirs.commit()
        faulty.arm(k)
        try:
            ours.refresh()
        except StateError:
            continue
        faulty.arm(None)
        held.append("ours")
        ours.commit()
        assert ours["l"][-1] == "ours", k
        assert ours["l"][0] == "theirs", k


def test_a_dict_with_a_nan_key_follows_the_head():
    ours, theirs = two(d={float("nan"): 1, "x": 0})
    theirs["d"]["x"] = 1
    theirs.commit()
    held = ours["d"]
    ours.refresh()
    assert held["x"] == 1
    assert not ours.status()


@pytest.mark.parametrize("key", [dt.date(2026, 1, 2), frozenset({1, 2})])
def test_paths_with_keys_that_have_no_literal(key):
    state, _ = two(d={key: "old"})
    first = state.head
    state["d"][key] = "new"
    second = state.commit()
    (change,) = state.diff(first, second)
    state.restore(change.path, first)
    assert state["d"] == {key: "old"}
    state.discard()
    state.reset(first)
    state.apply(state.diff(first, second))
    assert state["d"] == {key: "new"}


def test_a_patch_that_changes_the_type_of_a_key():
    state, _ = two(d={1: "a"})
    first = state.head
    state["d"] = {True: "a"}
    second = state.commit()
    state.reset(first)
    state.apply(state.diff(first, second))
    assert state.commit().root == second.root


@pytest.mark.parametrize("path", ["l[-1]", "e[-1]"])
def test_restore_of_a_negative_index(path):
    state, _ = two(l=[1], e=[])
    first = state.head
    state["l"] = []
    with suppress(StateError):
        state.restore(path, first)


def test_a_patch_with_a_negative_index():
    state, _ = two(l=[1])
    with pytest.raises(StateError):
        state.apply([{"path": "l[-1]", "kind": "added", "new": 9}])
