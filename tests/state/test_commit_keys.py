"""``commit(keys=…)`` commits the changes of some keys. The others stay staged, whatever happens to the branch."""

from __future__ import annotations

from contextlib import suppress
from math import inf
from typing import Any

import pytest

from tests.support.handles import RollbackWantedError, two
from tests.support.lossy import Lossy
from versioned_state import Versioned
from versioned_state.errors import (
    BranchMovedError,
    CommitInDoubtError,
    InvalidArgumentError,
    MergeConflictError,
    UnknownPathError,
)

LARGE = [{"content": "x" * 100, "n": n} for n in range(300)]


def changed() -> Versioned:
    state = Versioned()
    state.update(a=[1], b=[1], c=[1], gone=1, large=list(LARGE), text="t")
    state.namespace("n")["x"] = 1
    state.commit("first")
    state["a"].append(2)
    state["b"].append(2)
    state["new"] = {"k": 1}
    del state["gone"]
    state["large"].append("end")
    state.sequence("c")
    state.namespace("n")["x"] = 2
    state["text"] = "u"
    return state


ALL = {"a", "b", "new", "gone", "large", "text"}


@pytest.mark.parametrize(
    "keys", [{"a"}, {"gone"}, {"new", "large"}, {"b", "text"}, set(), ALL], ids=lambda keys: ",".join(sorted(keys))
)
def test_the_others_stay_staged(keys):
    state = changed()
    held = {key: state[key] for key in ("a", "b", "large", "new")}
    full = state.copy()
    before = {str(change) for change in state.status()}
    first = state.head
    commit = state.commit("some", keys=sorted(keys))
    assert state.copy() == full
    assert all(state[key] is value for key, value in held.items())
    committed = {str(change) for change in state.diff(first, commit)}
    left = {str(change) for change in state.status()}
    assert committed | left == before
    assert not committed & left
    assert {str(change.path).split("[")[0].split(".")[0] for change in state.diff(first, commit)} == keys
    assert (commit == first) == (not keys)
    held["b"].append("in place")
    held["a"].append("in place")
    rest = state.commit("the rest")
    assert dict(state.checkout(rest)) == {**full, "a": [1, 2, "in place"], "b": [1, 2, "in place"]}
    assert state.checkout(rest).namespace("n")["x"] == 2
    assert not state.status()


def test_discarding_what_was_left():
    state = changed()
    state.commit(keys=["a", "large"])
    state.discard()
    assert state.copy() == {"a": [1, 2], "b": [1], "c": [1], "gone": 1, "large": [*LARGE, "end"], "text": "t"}
    assert state.namespace("n")["x"] == 1


def test_appended_elements_of_a_list_that_is_not_loaded():
    first = Versioned()
    first["list"], first["other"] = list(LARGE), list(LARGE)
    first.commit()
    state = Versioned(first.repository)
    state.sequence("list").append("a")
    state.sequence("other").append("b")
    commit = state.commit(keys=["other"])
    assert (len(state.checkout(commit)["list"]), len(state.checkout(commit)["other"])) == (300, 301)
    assert [str(change) for change in state.status()] == ["+ list[300] = 'a'"]
    assert state.checkout(state.commit())["list"][-1] == "a"


def test_a_summary_names_the_keys_that_were_committed():
    state = changed()
    assert state.commit(keys=["a", "gone"]).message == "a +1, gone removed"


def test_a_key_that_is_not_there():
    state = changed()
    status = str(state.status())
    for keys, error in (
        (["a", "nothing"], UnknownPathError),
        ("a", InvalidArgumentError),
        (5, InvalidArgumentError),
        ([5], TypeError),
    ):
        given: Any = keys
        with pytest.raises(error):
            state.commit(keys=given)
        assert (str(state.status()), state.head.message) == (status, "first")


def test_a_value_of_another_key_that_cannot_be_stored_is_no_hindrance():
    state = Versioned()
    state["a"], state["bad"] = 1, (n for n in "")
    commit = state.commit(keys=["a"])
    assert (dict(state.checkout(commit)), commit.skipped) == ({"a": 1}, ())


def test_on_a_moved_branch_all_changes_are_merged_first():
    ours, theirs = two(a=[1, 2, 3], b=[1, 2, 3], c=0)
    theirs["a"].insert(0, "theirs")
    theirs["b"].insert(0, "theirs")
    theirs["c"] = 1
    head = theirs.commit("theirs")
    ours["a"].append("ours")
    ours["b"].append("ours")
    live = ours["b"]
    commit = ours.commit("ours", keys=["a"])
    assert commit.parents == (head.id,)
    assert dict(ours.checkout(commit)) == {"a": ["theirs", 1, 2, 3, "ours"], "b": ["theirs", 1, 2, 3], "c": 1}
    assert ours["b"] is live
    assert live == ["theirs", 1, 2, 3, "ours"]
    assert [str(change) for change in ours.status()] == ["+ b[4] = 'ours'"]


def test_a_conflict_anywhere_stops_it_and_can_be_resolved():
    ours, theirs = two(a=0, b=0)
    theirs["b"] = 1
    theirs.commit()
    ours["a"], ours["b"] = 2, 2
    with pytest.raises(MergeConflictError) as caught:
        ours.commit(keys=["a"])
    assert dict(ours) == {"a": 2, "b": 2}
    caught.value.merge.resolve("b", 3)
    commit = caught.value.merge.commit()
    assert dict(ours.checkout(commit)) == {"a": 2, "b": 1}
    assert ours["b"] == 3
    ours["a"] = 4
    theirs.refresh()
    theirs["c"] = 1
    theirs.commit()
    with pytest.raises(BranchMovedError):
        ours.commit(keys=["a"], on_moved="refuse")
    replaced = ours.commit(keys=["a"], on_moved="replace")
    assert dict(ours.checkout(replaced)) == {"a": 4, "b": 1}
    assert [str(change) for change in ours.status()] == ["~ b = 1 -> 3"]


def test_a_transaction_of_some_keys():
    state = changed()
    with suppress(RollbackWantedError), state.transaction(keys=["a"]):
        state["a"].append(3)
        raise RollbackWantedError
    assert state["a"] == [1, 2]
    with state.transaction("one", keys=["a"]):
        state["a"].append(3)
        state["b"].append(3)
    assert state.checkout("HEAD")["a"] == [1, 2, 3]
    assert state.checkout("HEAD")["b"] == [1]
    assert state["b"] == [1, 2, 3]


@pytest.mark.parametrize("outcome", ["done", "not done"])
def test_a_commit_in_doubt(outcome):
    store = Lossy()
    state = Versioned(store)
    state.update(a=[1], b=[1], large=list(LARGE))
    state.commit("first")
    state["a"].append(2)
    state["b"].append(2)
    state["large"].append("end")
    store.lose("reply" if outcome == "done" else "request", silent=inf)
    with pytest.raises(CommitInDoubtError):
        state.commit("some", keys=["a", "large"])
    store.silent = 0
    state["a"].append(3)
    state.refresh()
    assert state.head.message == ("some" if outcome == "done" else "first")
    assert state.copy() == {"a": [1, 2, 3], "b": [1, 2], "large": [*LARGE, "end"]}
    state.commit("rest")
    assert dict(Versioned(store.store)) == state.copy()
    assert not state.status()
