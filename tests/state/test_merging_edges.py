"""Merges at their edges: what conflicts, what settles it, and what is left as it was."""

from __future__ import annotations

import copy
import datetime as dt
from typing import Any

import pytest

from tests.support.concurrent_stores import ActsAroundMove
from tests.support.handles import two
from versioned_state import Memory, OnMoved, Versioned
from versioned_state.errors import (
    BranchMovedError,
    InvalidArgumentError,
    MergeConflictError,
    StateError,
    TransactionError,
    UnserializableValueError,
)
from versioned_state.repository.merging.merge import MISSING, preview_merge
from versioned_state.repository.merging.policies import Policies
from versioned_state.repository.views.diff import Diff
from versioned_state.values.trees.tree import same


def test_what_was_settled_by_hand_does_not_hide_a_third_writer():
    ours, theirs = two(score=10)
    third = Versioned(ours.repository)
    theirs["score"] = 11
    theirs.commit()
    ours["score"] = 12
    with pytest.raises(MergeConflictError) as caught:
        ours.commit()
    caught.value.merge.resolve("score", 13)
    third.refresh()
    third["score"] = 99
    third.commit()
    with pytest.raises(MergeConflictError):
        caught.value.merge.commit()


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
    caught.value.merge.resolve("score", 101)
    with pytest.raises(MergeConflictError, match="score"):
        caught.value.merge.commit()  # drops side 2 and side 3


def test_what_was_settled_in_a_list_stays_with_its_element():
    ours, theirs = two(l=[{"n": 0}, {"n": 1}, {"n": 2}])
    theirs["l"][1]["n"], theirs["l"][2]["n"] = 10, 20
    theirs.commit()
    ours["l"][1]["n"], ours["l"][2]["n"] = 11, 22
    with pytest.raises(MergeConflictError) as caught:
        ours.commit()
    merge = caught.value.merge
    merge.resolve("l[1].n", "of 1")
    merge.resolve("l[2].n", "of 2")
    ours["l"].insert(0, "new")
    merge.commit()
    assert ours["l"] == ["new", {"n": 0}, {"n": "of 1"}, {"n": "of 2"}]


def test_each_conflict_has_a_path_of_its_own():
    """Where ours has no such element, there is nothing in our list that its path could name."""
    ours, theirs = two(l=["a", "b", "c", "d"])
    del ours["l"][:2]
    ours["l"].append("ours")
    theirs["l"][:2] = ["a1", "b1"]
    theirs.commit()
    with pytest.raises(MergeConflictError) as caught:
        ours.commit()
    conflicts = [
        (str(conflict.path), conflict.base, conflict.ours, conflict.theirs) for conflict in caught.value.conflicts
    ]
    assert conflicts == [("l[0]", "a", MISSING, "a1"), ("l[1]", "b", MISSING, "b1")]
    merge = caught.value.merge
    merge.resolve("l[1]", "b2")
    merge.resolve("l[0]", MISSING)
    merge.commit()
    assert ours["l"] == ["b2", "c", "d", "ours"]


def test_of_what_is_to_be_settled_as_a_whole_no_part_is_a_conflict_too():
    ours, theirs = two(d={"x": 1})
    ours["d"].update({"x": 2, 1: "ours"})
    theirs["d"].update({"x": 3, True: "theirs"})
    theirs.commit()
    with pytest.raises(MergeConflictError) as caught:
        ours.commit()
    assert [str(conflict.path) for conflict in caught.value.conflicts] == ["d"], "no dict can have both keys"
    caught.value.merge.resolve("d", {"x": 4})
    caught.value.merge.commit()
    assert ours["d"] == {"x": 4}


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


def criss_crossed() -> tuple[Versioned, Versioned]:
    """Two branches that have merged each other's commit, so that they have two merge bases: x is 1 and y is 1."""
    a, _ = two(x=0, y=0)
    b = a.fork("b")
    a["x"] = 1
    a1 = a.commit("a1")
    b["y"] = 1
    b1 = b.commit("b1")
    a.merge(b1)
    b.merge(a1)
    return a, b


def test_criss_cross_merges_lose_nothing():
    a, b = criss_crossed()
    a["x"] = 0
    a.commit("x back to 0")
    b["y"] = 0
    b.commit("y back to 0")
    try:
        a.merge("b")
    except MergeConflictError:
        return
    assert dict(a) == {"x": 0, "y": 0}


def test_a_dry_run_of_a_criss_cross_merge_shows_what_the_merge_does():
    a, b = criss_crossed()
    a["z"] = 1
    a.commit("z")
    b["x"] = 0
    b.commit("x back to 0")
    shown, staging = preview_merge(a.repository.database, a.head, b.head, policies=Policies({}))
    assert not shown.conflicts
    assert str(Diff(staging, a.head.tree, shown.tree)) == "~ x = 1 -> 0"
    assert same(a.merge("b").tree, shown.tree)
    assert dict(a) == {"x": 0, "y": 1, "z": 1}


CALLS = {
    "merge": lambda s: s.merge("side"),
    "cherry_pick": lambda s: s.cherry_pick("side"),
    "revert": lambda s: s.revert("HEAD"),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_a_conflict_with_what_others_committed_takes_nothing_of_it_in(call, when):
    memory = Memory()
    store = ActsAroundMove(memory)
    state = Versioned(store)
    state["x"], state["y"] = 0, 0
    state.commit("base")
    side = state.fork("side")
    side["x"] = 1
    side.commit("side")
    state["x"] = 0 if call != "revert" else 1
    state["z"] = 0
    head, before = state.commit("ours"), dict(state)

    def others() -> None:
        other = Versioned(memory)
        other["x"], other["y"] = 2, 2
        other.commit("others")

    if when == "before":
        others()
    else:
        store.before = others
    with pytest.raises(MergeConflictError) as caught:
        CALLS[call](state)
    assert caught.value.conflicts[0].ours == 2
    assert str(caught.value).endswith("; nothing was changed")
    assert state.head == head
    assert dict(state) == before
    assert not state.status()
    caught.value.merge.resolve("x", 3)
    made = caught.value.merge.commit()
    assert (state["x"], state["y"], state.head) == (3, 2, made)
    assert state.repository.commit(made.parents[0]).message == "others"
    assert Versioned(memory).head == made


def test_what_remains_is_said_of_each_call():
    """After a failed commit the staged changes remain, and after any other call everything does."""
    state, other = two(x=0, y=0)
    side = state.fork("side")
    side["x"] = 1
    side.commit("side")
    state["x"] = 2
    state.commit("ours")
    for call in (*CALLS.values(), lambda s: s.rebase("side")):
        state["x"] = 3
        state.commit("later")
        with pytest.raises(MergeConflictError, match=r"changed it; nothing was changed(\n|$)"):
            call(state) if call is not CALLS["revert"] else state.revert("HEAD~1")
    other.refresh()
    other["x"] = 4
    other.commit("theirs")
    for call in (
        lambda s: s.undo(),
        lambda s: s.reset("HEAD~1"),
        lambda s: s.rebase("side", policies={"x": "ours"}),
        lambda s: s.squash("HEAD~2"),
    ):
        with pytest.raises(BranchMovedError, match=r"(?m); nothing was changed$") as moved:
            call(state)
        assert "commit()" not in moved.value.hint
    state["x"] = 5
    with pytest.raises(MergeConflictError, match=r"(?m); nothing was changed$"):
        state.refresh()
    staged = r"(?m); nothing was committed, and the staged changes are still there$"
    with pytest.raises(MergeConflictError, match=staged):
        state.commit()
    with pytest.raises(BranchMovedError, match=staged):
        state.commit(on_moved=OnMoved.REFUSE)
    state["y"] = (part for part in "y")
    with pytest.raises(UnserializableValueError, match=staged):
        state.commit()
    state.discard()
    failing: tuple[tuple[type[StateError], Any, OnMoved], ...] = (
        (MergeConflictError, 5, OnMoved.MERGE),
        (BranchMovedError, 5, OnMoved.REFUSE),
        (UnserializableValueError, (part for part in "x"), OnMoved.MERGE),
    )
    for kind, value, on_moved in failing:
        with pytest.raises(kind, match=r"(?m); the transaction was rolled back$"), state.transaction(on_moved=on_moved):
            state["x"] = value
        assert not state.status()


def test_a_conflict_of_another_state_within_a_transaction_can_be_settled():
    ours, theirs = two(x=0)
    state = Versioned()
    theirs["x"] = 1
    theirs.commit()
    ours["x"] = 2
    with pytest.raises(MergeConflictError) as caught, state.transaction():
        ours.commit()
    caught.value.merge.resolve("x", 3)
    caught.value.merge.commit()
    assert ours["x"] == 3


def _appending(base, ours, theirs):
    ours.extend(theirs[len(base) :])
    base.clear()
    return ours


def _forgetting(_base, ours, theirs):
    ours += theirs


def _failing(_base, ours, _theirs):
    ours.clear()
    raise RuntimeError("of its own")


@pytest.mark.parametrize("large", [False, True], ids=["small", "large"])
def test_a_function_may_change_what_it_is_given(large):
    begun = [{"n": n, "text": "x" * 50} for n in range(200 if large else 1)]
    ours, theirs = two(l=begun, o=0)
    theirs["l"].append({"n": "theirs"})
    theirs["l"][0]["n"] = "changed"
    theirs.commit()
    held = ours["l"]
    held.append("ours")
    before = copy.deepcopy(held)
    cases = ((_forgetting, InvalidArgumentError, "policy of l changed"), (_failing, RuntimeError, "own"))
    for policy, error, match in cases:
        with pytest.raises(error, match=match):
            ours.commit(policies={"l": policy})
        assert ours["l"] is held
        assert held == before
        assert [str(change.path) for change in ours.status()] == [f"l[{len(begun)}]"]
    ours.commit(policies={"l": _appending})
    assert ours["l"] is held
    assert held == [*begun, "ours", {"n": "theirs"}]
    assert theirs["l"][-1] == {"n": "theirs"}


def test_none_is_a_value_that_a_function_may_give():
    ours, theirs = two(x=[1])
    theirs["x"].append(2)
    theirs.commit()
    ours["x"].append(3)
    ours.commit(policies={"x": lambda *_: None})
    assert ours["x"] is None


@pytest.mark.parametrize("call", ["commit", "merge"])
@pytest.mark.parametrize("by", ["a function", "hand"])
def test_what_settles_a_conflict_and_cannot_be_stored_is_named(call, by):
    ours, theirs = two(d={"x": 0}, y=0)
    bad = {"a": [1, (part for part in "x")]}
    side = ours.fork("side")
    for state in (theirs, side):
        state["d"]["x"] = 1
        state.commit()
    ours["d"]["x"] = 2
    if call == "merge":
        ours.refresh(policies={"**": "ours"})
        ours.commit()
    head, staged = ours.head, bool(ours.status())

    def run(**policies: Any) -> Any:
        return ours.commit(policies=policies) if call == "commit" else ours.merge("side", policies=policies)

    def settle() -> Any:
        if by == "a function":
            return run(**{"d.x": lambda *_: bad})
        with pytest.raises(MergeConflictError) as stopped:
            run()
        stopped.value.merge.resolve("d.x", bad)
        return stopped.value.merge.commit()

    with pytest.raises(UnserializableValueError) as caught:
        settle()
    assert caught.value.path == "d.x.a[1]"
    assert str(caught.value).endswith(
        "the staged changes are still there" if call == "commit" else "; nothing was changed"
    )
    assert (ours.head, bool(ours.status()), dict(ours)) == (head, staged, {"d": {"x": 2}, "y": 0})


def test_a_stopped_merge_is_not_done_again_within_a_transaction_or_elsewhere():
    ours, theirs = two(x=0)
    theirs["x"] = 1
    theirs.commit()
    ours["x"] = 2
    with pytest.raises(MergeConflictError) as caught:
        ours.commit()
    caught.value.merge.resolve("x", 3)
    with pytest.raises(TransactionError), ours.transaction():
        caught.value.merge.commit()
    state, _ = two(x=0)
    side = state.fork("side")
    side["x"] = 1
    side.commit()
    state["x"] = 2
    state.commit()
    with pytest.raises(MergeConflictError) as caught:
        state.merge("side")
    caught.value.merge.resolve("x", 3)
    state.switch("other", create=True)
    with pytest.raises(StateError):
        caught.value.merge.commit()


def test_a_transaction_that_met_a_conflict_offers_no_way_that_does_nothing():
    ours, theirs = two(x=0)
    theirs["x"] = 1
    theirs.commit()
    with pytest.raises(MergeConflictError) as caught, ours.transaction():
        ours.update(x=2, z=1)
    assert not caught.value.can_resolve
    with pytest.raises(TransactionError, match="cannot be made again"):
        _ = caught.value.merge
    assert str(caught.value).endswith("; the transaction was rolled back")
    assert "do it again" in caught.value.hint
    assert dict(ours) == {"x": 0}


@pytest.mark.parametrize("call", ["commit", "refresh"])
@pytest.mark.parametrize("value", [3, 1, 0, MISSING, [1]], ids=["another", "theirs", "the base's", "nothing", "a list"])
def test_a_conflict_of_what_cannot_be_stored_can_be_settled(call, value):
    ours, theirs = two(x=0, y=0)
    theirs["x"] = 1
    theirs.commit()
    ours["x"] = held = (part for part in "x")
    ours["z"] = (part for part in "z")
    ours["y"] = 1
    with pytest.raises(MergeConflictError) as caught:
        ours.commit(skip_unserializable=True) if call == "commit" else ours.refresh()
    assert [(str(c.path), c.base, c.ours, c.theirs) for c in caught.value.conflicts] == [("x", 0, MISSING, 1)]
    assert ours["x"] is held
    caught.value.merge.resolve("x", value)
    made = caught.value.merge.commit()
    assert ours.get("x", MISSING) == value
    assert ours["y"] == 1
    if call == "commit":
        assert made.skipped == ("z",)
    del ours["z"]
    assert {str(change.path) for change in ours.status()} == (
        set() if call == "commit" else {"y"} if value == 1 else {"x", "y"}
    )
    ours.commit()
    assert ours.checkout("HEAD").copy() == ours.copy() == ({"x": value, "y": 1} if value is not MISSING else {"y": 1})


def test_what_cannot_be_stored_gives_way_to_theirs_by_a_policy():
    ours, theirs = two(x=0)
    theirs["x"] = 1
    theirs.commit()
    ours["x"] = (part for part in "x")
    ours["y"] = 1
    for policy in ("ours", "sum", "union", lambda *_: 2):
        with pytest.raises(MergeConflictError):
            ours.commit(skip_unserializable=True, policies={"x": policy})
    assert not ours.commit(skip_unserializable=True, policies={"x": "theirs"}).skipped
    assert dict(ours) == {"x": 1, "y": 1}


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


def test_a_patch_with_a_negative_index():
    state, _ = two(l=[1])
    with pytest.raises(StateError):
        state.apply([{"path": "l[-1]", "kind": "added", "new": 9}])


@pytest.mark.parametrize("call", ["merge", "cherry_pick"])
def test_what_others_have_done_already_is_taken_in(call):
    state, other = two(x=0)
    side = state.fork("side")
    side["x"] = 1
    side.commit("side")
    other["y"] = 1
    other.commit("others")
    CALLS[call](other)
    assert CALLS[call](state) == other.head == state.head
    assert dict(state) == {"x": 1, "y": 1}
