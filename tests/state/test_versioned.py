"""A state is a dict over a branch: its rounds, branches over one repository, and ``Live``, the same without commits."""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock

import pytest

from tests.support.handles import committed
from versioned_state import Commit, Live, Memory, OnMoved, Repository, Snapshot, Versioned
from versioned_state.errors import HandleClosedError, StoreClosedError, UnserializableValueError
from versioned_state.repository.history.commit import ROOT_ID


def test_a_round(state_with_rounds):
    state, first, second = state_with_rounds
    assert state.head == second
    assert second.parents == (first.id,)
    assert first.parents == (ROOT_ID,)
    assert (first.message, second.message) == ("one", "two")
    assert (first.author, second.author) == ("me", "you")
    assert (dict(first.meta), dict(second.meta)) == ({}, {"step": 2, "tool": (1, None)})
    assert (first.generation, second.generation) == (1, 2)
    assert second.short == second.id[:12]
    assert second.datetime.timestamp() == pytest.approx(second.time / 1e6)
    assert first == Repository(state.repository.store).commit(first.id)
    assert first != second
    assert len({first, state.repository.commit(first.id)}) == 1
    with pytest.raises(AttributeError):
        first.message = "other"
    assert [commit.message for commit in state.log()] == ["two", "one"]
    assert [commit.message for commit in state.log(limit=1)] == ["two"]
    assert [commit.message for commit in state.log(first)] == ["one"]


@pytest.fixture
def state_with_rounds() -> tuple[Versioned, Commit, Commit]:
    clock = iter(range(1_700_000_000_000_000, 2**60, 1_000_001))
    state = Versioned(author="me", clock=lambda: next(clock))
    state["a"] = [1]
    first = state.commit("one")
    state["a"].append(2)
    return state, first, state.commit("two", author="you", meta={"step": 2, "tool": (1, None)})


def test_the_past_of_a_commit_does_not_change(state_with_rounds):
    state, _, second = state_with_rounds
    second.meta["step"] = 99
    second.meta["new"] = 1
    again = Repository(state.repository.store)
    for commit in (
        state.repository.commit(second.id),
        next(state.log()),
        state.repository.commit("main"),
        again.commit(second.id),
    ):
        assert dict(commit.meta) == {"step": 2, "tool": (1, None)}


def test_nothing_changed_is_no_round(state_with_rounds):
    state, _, second = state_with_rounds
    assert state.commit("nothing") == second
    assert state.commit("asked for", allow_empty=True).parents == (second.id,)
    assert state.head.message == "asked for"
    assert state.head.root == second.root
    assert not state.diff(second, state.head)


def test_an_empty_commit_on_a_moved_branch_is_made_too():
    for on_moved in (OnMoved.MERGE, OnMoved.REPLACE):
        repository = Repository()
        a, b = Versioned(repository), Versioned(repository)
        theirs = a.commit("theirs", allow_empty=True)
        ours = b.commit("ours", allow_empty=True, on_moved=on_moved)
        assert ours.message == "ours"
        assert ours.parents == (theirs.id,)


@pytest.mark.parametrize(
    ("change", "summary"),
    [
        (lambda s: s["messages"].extend([1, 2]), "messages +2"),
        (lambda s: s["messages"].pop(), "messages -1"),
        (lambda s: s["messages"].__setitem__(0, "x"), "messages"),
        (lambda s: s.__setitem__("new", 1), "new added"),
        (lambda s: s.__delitem__("step"), "step removed"),
        (lambda s: (s["messages"].append(1), s.__setitem__("step", 2)), "messages +1, step"),
        (
            lambda s: s.update({f"k{n}": n for n in range(9)}),
            "k0 added, k1 added, k2 added, k3 added, k4 added, and 4 more",
        ),
        (lambda s: s.sequence("long").extend([1, 2, 3]), "long +3"),
        (lambda s: s.namespace("n").__setitem__("k", 1), "@n.k added"),
        (lambda s: s.__setitem__("odd key", 1), '["odd key"] added'),
        (lambda s: None, "no change"),
    ],
)
def test_the_message_of_a_round_that_was_given_none(change, summary):
    first = committed(messages=[1, 2], step=1, long=["x" * 100] * 100)
    state = Versioned(first.repository)
    change(state)
    assert state.commit(allow_empty=True).message == summary


def test_a_summary_stays_short():
    state = Versioned()
    for n in range(6):
        state[f"{n}" + "k" * 4_000] = 1
    assert len(state.commit().message) < 1000


def test_views_of_the_past(state_with_rounds):
    state, first, second = state_with_rounds
    past = state.checkout(first)
    assert isinstance(past, Snapshot)
    assert issubclass(Snapshot, Mapping)
    assert (past["a"], state["a"]) == ([1], [1, 2])
    assert past.commit == first
    assert dict(past) == {"a": [1]} == past.copy()
    assert len(past) == 1
    assert first.short in repr(past)
    for revision in (first.id, first.short, "HEAD~1", "main~", first):
        assert state.checkout(revision)["a"] == [1]
    assert state.head == second
    assert past.keys_at("a") == 1
    assert state.checkout(second).at("a[-1]") == 2


def test_diffs(state_with_rounds):
    state, first, second = state_with_rounds
    assert [str(change) for change in state.diff(first, second)] == ["+ a[1] = 2"]
    assert [str(change) for change in state.diff(second, first)] == ["- a[1] = 2"]
    state["a"].append(3)
    assert [str(change) for change in state.diff(first)] == ["+ a[1] = 2", "+ a[2] = 3"]
    assert (
        [str(change) for change in state.diff("HEAD")] == ["+ a[2] = 3"] == [str(change) for change in state.status()]
    )
    assert not state.diff(first, first)


def test_a_handle_opened_again_stands_at_the_head(state_with_rounds):
    state, _, second = state_with_rounds
    again = Versioned(state.repository.store)
    assert again.head == second
    assert dict(again) == {"a": [1, 2]}
    assert not again.status()
    other = Versioned(state.repository.store, branch="other")
    assert dict(other) == {}
    assert other.head.id == ROOT_ID
    assert "other" not in state.repository.branches, "a branch begins with its first commit"
    assert "main" in repr(state)


def test_discard_and_reset(state_with_rounds):
    state, first, second = state_with_rounds
    state["a"].append(3)
    state["b"] = 1
    state.discard()
    assert dict(state) == {"a": [1, 2]}
    state["a"].append(3)
    assert state.reset(first) == first == state.head
    assert dict(state) == {"a": [1]}
    assert state.repository.branches["main"] == first
    assert state.reset("main@{1}") == second
    assert dict(state) == {"a": [1, 2]}


# Live


def test_live_takes_anything_and_commits_nothing():
    live = Live()
    live["socket"] = thing = object()
    assert live["socket"] is thing
    live.namespace("n")["k"] = 1
    assert dict(live.namespace("n")) == {"k": 1}
    assert list(live) == ["socket"]
    assert not hasattr(live, "commit")
    assert repr(live)


# Several branches over one repository


def test_status_shows_the_other_changes_beside_a_value_that_cannot_be_stored():
    state = Versioned()
    state["list"] = [1]
    state.commit("base")
    state["list"].append(2)
    state["lock"] = {"held": Lock()}
    for diff in (state.status(), state.diff("HEAD")):
        assert [str(change) for change in diff] == ["+ list[1] = 2"]
        assert list(diff.unstorable) == ["lock.held"]
        assert str(diff).splitlines()[1].startswith("! lock.held: cannot be stored: ")
        assert "committed" not in str(diff)
        assert diff
    assert not state.status().under("list").unstorable
    with pytest.raises(UnserializableValueError, match="nothing was committed, and the staged changes are still there"):
        state.commit()


def test_a_commit_on_a_closed_store_is_not_in_doubt():
    store = Memory()
    state = Versioned(store)
    state["a"] = 1
    store.close()
    with pytest.raises(StoreClosedError):
        state.commit()
    with pytest.raises(StoreClosedError):
        state.commit()
    with pytest.warns(ResourceWarning, match="not committed: a"):
        state.close()
    with pytest.raises(HandleClosedError):
        state.commit()
