"""Where merges and moves between commits are easily got wrong: others in between, failing stores, forms, equal keys, criss-cross."""

from __future__ import annotations

import copy
import datetime as dt
import itertools
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from versioned_state import Memory, Merge, OnMoved, Repository, Versioned
from versioned_state.errors import (
    BranchMovedError,
    InvalidArgumentError,
    MergeConflictError,
    StateError,
    TransactionError,
    UnknownPathError,
    UnserializableValueError,
)
from versioned_state.repository.merge import MISSING
from versioned_state.storage.faulty import Fault, Faulty
from versioned_state.storage.wrapper import Wrapper
from versioned_state.values.keys import user_key


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


class BeforeMove(Wrapper):
    """Runs something once, right before a batch that moves a ref."""

    hook: Callable[[], None] | None = None

    def apply(self, expected, puts, deletes=(), *, objects=None):
        if puts and self.hook:
            hook, self.hook = self.hook, None
            hook()
        return self.store.apply(expected, puts, deletes, objects=objects)


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


@pytest.mark.parametrize("move", MOVES)
def test_a_move_right_after_a_collection_loses_nothing(move):
    memory = Memory()
    store = BeforeMove(memory)
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
    store.hook = lambda: collected.append(Repository(memory).gc(expire=dt.timedelta(0)))
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


@pytest.mark.parametrize("call", ["rebase", "squash", "undo", "undo 2", "fork", "switch", "merge", "cherry_pick", "fast-forward"])
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
    for k in itertools.count(1):
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
        faulty.arm(k, fault=fault)
        failed = False
        try:
            calls[call](state)
        except StateError:
            failed = True
        fired = faulty.fired
        faulty.arm(None)
        if failed:
            calls[call](state)
        assert Repository(memory).branches[state.branch] == state.head, k
        assert Versioned(memory, branch=state.branch).copy() == state.copy(), k
        assert Repository(memory).fsck().ok, k
        if not fired:
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
    conflicts = [(str(conflict.path), conflict.base, conflict.ours, conflict.theirs) for conflict in caught.value.conflicts]
    assert conflicts == [("l[0]", "a", MISSING, "a1"), ("l[1]", "b", MISSING, "b1")]
    merge = merge_of(caught.value)
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
    merge_of(caught.value).resolve("d", {"x": 4})
    merge_of(caught.value).commit()
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


CALLS = {
    "merge": lambda s: s.merge("side"),
    "cherry_pick": lambda s: s.cherry_pick("side"),
    "revert": lambda s: s.revert("HEAD"),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_a_conflict_with_what_others_committed_takes_nothing_of_it_in(call, when):
    memory = Memory()
    store = BeforeMove(memory)
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
        store.hook = others
    with pytest.raises(MergeConflictError) as caught:
        CALLS[call](state)
    assert caught.value.conflicts[0].ours == 2
    assert str(caught.value).endswith("; nothing was changed")
    assert state.head == head
    assert dict(state) == before
    assert not state.status()
    merge_of(caught.value).resolve("x", 3)
    made = merge_of(caught.value).commit()
    assert (state["x"], state["y"], state.head) == (3, 2, made)
    assert state.repository.read(made.parents[0]).message == "others"
    assert Versioned(memory).head == made


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


def test_a_branch_that_moves_just_before_a_fast_forward_is_merged():
    memory = Memory()
    store = BeforeMove(memory)
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

    store.hook = others
    merged = state.merge("side")
    assert [state.repository.read(id).message for id in merged.parents] == ["others", there.message]
    assert dict(state) == {"x": 1, "y": 1}


def test_what_remains_is_said_of_each_call():
    """After a failed commit, what was staged; after any other call, all that was there."""
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
        with pytest.raises(BranchMovedError, match=r"; nothing was changed$") as moved:
            call(state)
        assert "commit()" not in moved.value.hint
    state["x"] = 5
    with pytest.raises(MergeConflictError, match=r"; nothing was changed$"):
        state.refresh()
    staged = r"; nothing was committed, and the staged changes are still there$"
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
        with pytest.raises(kind, match=r"; the transaction was undone$"), state.transaction(on_moved=on_moved):
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
    merge_of(caught.value).resolve("x", 3)
    merge_of(caught.value).commit()
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
        merge_of(stopped.value).resolve("d.x", bad)
        return merge_of(stopped.value).commit()

    with pytest.raises(UnserializableValueError) as caught:
        settle()
    assert caught.value.path == "d.x.a[1]"
    assert str(caught.value).endswith("the staged changes are still there" if call == "commit" else "; nothing was changed")
    assert (ours.head, bool(ours.status()), dict(ours)) == (head, staged, {"d": {"x": 2}, "y": 0})


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
    assert str(caught.value).endswith("; the transaction was undone")
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
    merge_of(caught.value).resolve("x", value)
    made = merge_of(caught.value).commit()
    assert ours.get("x", MISSING) == value
    assert ours["y"] == 1
    if call == "commit":
        assert made.skipped == ("z",)
    del ours["z"]
    assert {str(change.path) for change in ours.status()} == (set() if call == "commit" else {"y"} if value == 1 else {"x", "y"})
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


FOLLOWS: dict[str, Callable[[Versioned], Any]] = {
    "commit": lambda s: (s.update(x=1), s.commit("ours")),
    "refresh": lambda s: s.refresh(),
    "merge": lambda s: (s.update(x=1), s.commit(), s.merge("side")),
    "cherry_pick": lambda s: s.cherry_pick("side"),
    "fast-forward": lambda s: s.merge("side"),
    "rebase": lambda s: s.rebase("side"),
    "reset": lambda s: s.reset("side"),
    "switch": lambda s: s.switch("side"),
}


def behind(call: str, k: int) -> tuple[Versioned, bool]:
    """A handle whose live values had to follow the head, while the store failed once, at its k-th call; and whether it did."""
    memory = Memory()
    theirs = Versioned(memory)
    theirs.update({key: ["x" * 300] * 20 for key in ("l", "m", "n", "gone")}, d={"a": 0, "b": 0}, o=[object])
    theirs.commit()
    faulty = Faulty(memory)
    ours = Versioned(faulty)
    dict(ours)
    side = theirs.fork("side")
    for state in (side,) if call not in ("commit", "refresh") else (theirs,):
        state["l"].insert(0, "theirs")
        state["m"][3] = "theirs"
        state["d"]["a"] = "theirs"
        state["o"].append(1)
        del state["gone"]
        state.commit()
    faulty.arm(k)
    failed = False
    try:
        FOLLOWS[call](ours)
    except StateError:
        failed = True
    fired = faulty.fired
    faulty.arm(None)
    if failed:
        FOLLOWS[call](ours)
    return ours, fired


@pytest.mark.parametrize("then", ["get", "status", "commit", "save"])
@pytest.mark.parametrize("call", FOLLOWS)
def test_what_is_changed_before_a_value_could_follow_is_a_change_of_ours(call, then):
    late = 0
    for k in itertools.count(1):
        ours, fired = behind(call, k)
        held = {key: ours._worktree._slots[user_key(key)].value for key in ("l", "m", "d", "o")}
        late += held["l"][0] != "theirs"
        held["l"].append("ours")
        held["m"][5] = "ours"
        held["d"]["b"] = "ours"
        held["o"].insert(0, 0)
        if then == "get":
            assert ours["l"] is held["l"]
        elif then == "status":
            assert [str(change.path) for change in ours.status()] == ["d.b", "l[21]", "m[5]", "o[0]"], k
        elif then == "save":
            with ours.transaction():
                held["l"].append("more")
            assert held["l"].pop() == "more"
        ours.commit()
        for key, value in held.items():
            assert ours[key] is value, (k, key)
        assert (held["l"][0], held["l"][-1], len(held["l"])) == ("theirs", "ours", 22), k
        assert (held["m"][3], held["m"][5], held["d"], held["o"]) == ("theirs", "ours", {"a": "theirs", "b": "ours"}, [0, object, 1]), k
        assert "gone" not in ours
        assert ours.checkout("HEAD").copy() == ours.copy()
        assert not ours.status()
        if not fired:
            break
    assert late or call == "refresh", "at some call of the store, values could not follow; what is not committed is read before"


@pytest.mark.parametrize("settle", ["assign", "assign what is there", "delete", "discard", "mend"])
def test_what_is_changed_in_the_same_place_before_a_value_could_follow_is_a_conflict(settle):
    late = 0
    for k in itertools.count(1):
        ours, fired = behind("reset", k)
        held = ours._worktree._slots[user_key("m")].value
        behind_now = held[3] != "theirs"
        held[3] = "ours"
        if behind_now:
            late += 1
            for look in (partial(ours.get, "m"), ours.status, ours.commit, partial(ours.merge, "side")):
                with pytest.raises(MergeConflictError, match=r"m\[3\]") as caught:
                    look()
                assert "discard()" in caught.value.hint
                assert held[3] == "ours"
        if settle == "assign":
            ours["m"] = ["mine"]
        elif settle == "assign what is there":
            ours["m"] = held
        elif settle == "delete":
            del ours["m"]
        elif settle == "discard":
            ours.discard()
            assert held[3] == "theirs"
        else:
            held[3] = "theirs"
        expected = {"assign": ["mine"], "delete": None, "discard": held, "mend": held}.get(settle, held)
        assert ours.get("m") == expected
        ours.commit()
        assert ours.checkout("HEAD").get("m") == ours.get("m") == expected, k
        assert ours["l"][0] == "theirs"
        if not fired:
            break
    assert late


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
    with pytest.raises(InvalidArgumentError, match="no range"):
        state.cherry_pick("topic...main")
