"""A write whose reply was lost may still be done: a commit is made once or never, and the caller knows which."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from math import inf
from typing import Any

import pytest

from tests.support.concurrent_stores import ActsBeforeCall
from tests.support.lossy import Lossy
from versioned_state import Repository, Versioned
from versioned_state.errors import (
    CommitInDoubtError,
    RefExistsError,
    StorageError,
    UnknownOutcomeError,
    UnknownRevisionError,
    UnreachableStoreError,
)


def begin(*, committed: bool) -> tuple[Lossy, Versioned]:
    store = Lossy()
    state = Versioned(store, clock=itertools.count(1).__next__)
    state["list"] = [1]
    if committed:
        state.commit("one")
    state["list"].append(2)
    state["other"] = 1
    return store, state


def leave_in_doubt(store: Lossy, error: type[StorageError], call: Callable[[], object]) -> Any:
    """Lose the request of a call, and all further ones until it has given up. Return its error."""
    store.lose("request", silent=inf)
    with pytest.raises(error) as caught:
        call()
    store.silent = 0
    return caught.value


def messages(store: Lossy) -> list[str]:
    repository = Repository(store)
    return [commit.message for commit in repository.log("main")] if "main" in repository.branches else []


@pytest.mark.parametrize("committed", [True, False], ids=["a branch", "a branch that is not there yet"])
class TestLateDelivery:
    def test_a_commit_that_was_given_up_is_not_made_later(self, committed):
        store, state = begin(committed=committed)
        store.lose("request")
        with pytest.raises(UnreachableStoreError) as caught:
            state.commit("two")
        assert not isinstance(caught.value, UnknownOutcomeError | CommitInDoubtError), (
            "it is known: nothing was committed"
        )
        assert "nothing was committed" in str(caught.value)
        assert store.deliver() == [False]
        assert messages(store) == ["one"] * committed
        assert state.status(), "what was staged still is"
        state["list"].append(3)
        state.commit("three")
        assert messages(store) == ["three", *["one"] * committed]
        assert Repository(store).snapshot("main").copy() == {"list": [1, 2, 3], "other": 1}

    def test_one_that_was_delivered_before_anybody_looked_is_found(self, committed):
        store, state = begin(committed=committed)
        error = leave_in_doubt(store, CommitInDoubtError, lambda: state.commit("two"))
        assert store.deliver() == [True]
        state["list"].append(3)
        state.commit("three")
        assert messages(store) == ["three", "two", *["one"] * committed], "made once"
        assert Repository(store).commit("main~1").id == error.commit

    def test_one_that_is_delivered_after_the_next_call_is_barred(self, committed):
        store, state = begin(committed=committed)
        leave_in_doubt(store, CommitInDoubtError, lambda: state.commit("two"))
        head = state.refresh()
        assert head.message == ("one" if committed else "")
        assert store.deliver() == [False]
        state.commit("again")
        assert messages(store) == ["again", *["one"] * committed]

    def test_others_who_move_the_branch_bar_it_too(self, committed):
        store, state = begin(committed=committed)
        leave_in_doubt(store, CommitInDoubtError, lambda: state.commit("two"))
        other = Versioned(store)
        other["theirs"] = 1
        other.commit("theirs")
        assert store.deliver() == [False]
        state.commit("again")
        assert messages(store) == ["again", "theirs", *["one"] * committed]
        assert Repository(store).snapshot("main").copy() == {"list": [1, 2], "other": 1, "theirs": 1}

    def test_it_is_found_below_what_others_committed_on_top(self, committed):
        store, state = begin(committed=committed)
        leave_in_doubt(store, CommitInDoubtError, lambda: state.commit("two"))
        assert store.deliver() == [True]
        other = Versioned(store)
        other["theirs"] = 1
        other.commit("theirs")
        assert state.refresh().message == "theirs"
        assert not state.status()
        assert messages(store) == ["theirs", "two", *["one"] * committed]


def test_giving_up_shows_in_the_reflog():
    store, state = begin(committed=True)
    store.lose("request")
    with pytest.raises(UnreachableStoreError):
        state.commit("two")
    assert [position.action for position in state.repository.reflog("main")] == ["commit given up", "commit"]
    assert state.reset("main@{1}").message == "one"


def test_a_lost_reply_while_giving_up_leaves_the_commit_in_doubt(monkeypatch):
    store, state = begin(committed=True)
    store.lose("request")
    move = state.repository.database.move

    def lose_again(*args: Any, **options: Any) -> Any:
        store.lose("request")
        return move(*args, **options)

    monkeypatch.setattr(state.repository.database, "move", lose_again)
    with pytest.raises(CommitInDoubtError):
        state.commit("two")
    monkeypatch.undo()
    assert store.deliver() == [True, False]
    assert state.commit("three").message == "two", "nothing was left to commit"
    assert messages(store) == ["two", "one"]


def test_a_fork_on_which_others_went_on_before_it_was_found_is_merged_with():
    store, state = begin(committed=True)
    state.commit("two")
    leave_in_doubt(store, UnknownOutcomeError, lambda: state.fork("new"))
    assert store.deliver() == [True]
    other = Versioned(store, branch="new")
    other["theirs"] = 1
    other.commit("theirs")
    fork = state.fork("new")
    fork["ours"] = 1
    fork.commit("ours")
    assert [commit.message for commit in fork.log()] == ["ours", "theirs", "two", "one"]
    assert dict(fork) == {"list": [1, 2], "other": 1, "theirs": 1, "ours": 1}


KINDS = {
    "branch": (lambda repository, at="main": repository.branches.create("new", at), "branches"),
    "tag": (lambda repository, at="main": repository.tags.create("new", at), "tags"),
}


@pytest.mark.parametrize("kind", KINDS)
class TestNames:
    def test_one_whose_reply_was_lost_is_made_by_the_call_itself(self, kind):
        create, refs = KINDS[kind]
        store, state = begin(committed=True)
        store.lose("request")
        assert create(state.repository) == state.head
        assert store.deliver() == [False], "it is there, and is not made again"
        assert getattr(state.repository, refs)["new"] == state.head
        with pytest.raises(RefExistsError):
            create(state.repository)

    def test_one_that_was_delivered_before_anybody_looked_is_known_again(self, kind):
        create, _ = KINDS[kind]
        store, state = begin(committed=True)
        leave_in_doubt(store, UnknownOutcomeError, lambda: create(state.repository))
        assert store.deliver() == [True]
        assert create(state.repository) == state.head
        with pytest.raises(RefExistsError):
            create(state.repository)
        assert [position.action for position in state.repository.reflog("new", kind=kind)] == ["create"]

    def test_one_that_somebody_else_made_meanwhile_is_his(self, kind):
        create, _ = KINDS[kind]
        store, state = begin(committed=True)
        leave_in_doubt(store, UnknownOutcomeError, lambda: create(state.repository))
        create(Repository(store))
        assert store.deliver() == [False]
        with pytest.raises(RefExistsError):
            create(state.repository)

    def test_one_that_was_made_then_deleted_and_made_by_somebody_else_is_his(self, kind):
        create, refs = KINDS[kind]
        store, state = begin(committed=True)
        leave_in_doubt(store, UnknownOutcomeError, lambda: create(state.repository))
        store.deliver()
        other = Repository(store)
        getattr(other, refs).delete("new")
        create(other)
        with pytest.raises(RefExistsError):
            create(state.repository)

    def test_one_at_another_commit_is_not_taken_for_it(self, kind):
        create, refs = KINDS[kind]
        store, state = begin(committed=True)
        state.commit("two")
        leave_in_doubt(store, UnknownOutcomeError, lambda: create(state.repository))
        store.deliver()
        with pytest.raises(RefExistsError):
            create(state.repository, "main~1")
        assert getattr(state.repository, refs)["new"] == state.head

    def test_one_whose_deletion_was_lost_is_deleted_once(self, kind):
        create, refs = KINDS[kind]
        store, state = begin(committed=True)
        names = getattr(state.repository, refs)
        create(state.repository)
        store.lose("request")
        assert names.delete("new") == state.head
        create(state.repository)
        leave_in_doubt(store, UnknownOutcomeError, lambda: names.delete("new"))
        assert store.deliver() == [False, True]
        assert names.delete("new") == state.head
        with pytest.raises(UnknownRevisionError):
            names.delete("new")


def test_a_name_that_a_thread_created_while_another_asks_whether_it_did_is_there_once():
    """Both threads use one repository, and the reply of the second create is lost as well."""
    store, state = begin(committed=True)
    between = ActsBeforeCall(store, lambda: None)
    branches = Repository(between).branches
    outcomes: list[object] = []

    def create() -> None:
        try:
            outcomes.append(branches.create("new", "main"))
        except RefExistsError:
            outcomes.append(None)

    for at in itertools.count(1):
        del outcomes[:]
        store.lose("request")
        between.arm(at)
        between.act = create
        create()
        assert state.head in outcomes, at
        assert state.repository.branches["new"] == state.head
        if not between.fired:
            break
        state.repository.branches.delete("new", force=True)
        store.deliver()
        if "new" in state.repository.branches:
            state.repository.branches.delete("new", force=True)
    assert at > 3
