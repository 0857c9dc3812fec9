"""A write whose reply was lost, which a server may still carry out: a commit is made once or not at all, and the caller knows which."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import pytest

from versioned_state import Memory, Repository, Versioned
from versioned_state.errors import (
    CommitInDoubtError,
    RefExistsError,
    UnknownOutcomeError,
    UnknownRevisionError,
    UnreachableStoreError,
)
from versioned_state.storage import Wrapper


class Late(Wrapper):
    """A server behind a connection that is lost at the next write: the request is delivered when the test says so, or never.

    With ``away`` it then answers nobody until it is back.
    """

    def __init__(self) -> None:
        super().__init__(Memory())
        self.losing = False
        self.away = False
        self.stays_away = False
        self.requests: list[Callable[[], bool]] = []

    def lose(self, *, away: bool = False) -> None:
        self.losing, self.stays_away = True, away

    def deliver(self) -> list[bool]:
        """Carry the lost requests out, by now; what each of them would have replied."""
        requests, self.requests = self.requests, []
        return [request() for request in requests]

    def get(self, key: str) -> bytes | None:
        self._answer()
        return super().get(key)

    def get_many(self, keys: Iterable[str]) -> dict[str, bytes]:
        self._answer()
        return super().get_many(keys)

    def apply(
        self,
        expected: Mapping[str, bytes | None],
        puts: Mapping[str, bytes],
        deletes: Collection[str] = (),
        *,
        objects: Mapping[str, bytes] | None = None,
    ) -> bool:
        self._answer()
        request = lambda: self.store.apply(dict(expected), dict(puts), tuple(deletes), objects=dict(objects or {}))  # noqa: E731
        if self.losing:
            self.losing, self.away = False, self.stays_away
            self.requests.append(request)
            raise UnknownOutcomeError("connection reset")
        return request()

    def _answer(self) -> None:
        if self.away:
            raise UnreachableStoreError("no route")


def begin(*, committed: bool) -> tuple[Late, Versioned]:
    store = Late()
    state = Versioned(store, clock=itertools.count(1).__next__)
    state["list"] = [1]
    if committed:
        state.commit("one")
    state["list"].append(2)
    state["other"] = 1
    return store, state


def messages(store: Late) -> list[str]:
    repository = Repository(store)
    return [commit.message for commit in repository.log("main")] if "main" in repository.branches else []


@pytest.mark.parametrize("committed", [True, False], ids=["a branch", "a branch that is not there yet"])
class TestLateDelivery:
    def test_a_commit_that_was_given_up_is_not_made_later(self, committed):
        store, state = begin(committed=committed)
        store.lose()
        with pytest.raises(UnreachableStoreError) as caught:
            state.commit("two")
        assert not isinstance(caught.value, UnknownOutcomeError | CommitInDoubtError), "it is known: nothing was committed"
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
        store.lose(away=True)
        with pytest.raises(CommitInDoubtError) as caught:
            state.commit("two")
        assert store.deliver() == [True]
        store.away = False
        state["list"].append(3)
        state.commit("three")
        assert messages(store) == ["three", "two", *["one"] * committed], "made once"
        assert Repository(store).commit("main~1").id == caught.value.commit

    def test_one_that_is_delivered_after_the_next_call_is_barred(self, committed):
        store, state = begin(committed=committed)
        store.lose(away=True)
        with pytest.raises(CommitInDoubtError):
            state.commit("two")
        store.away = False
        head = state.refresh()
        assert head.message == ("one" if committed else "")
        assert store.deliver() == [False]
        state.commit("again")
        assert messages(store) == ["again", *["one"] * committed]

    def test_others_who_move_the_branch_bar_it_too(self, committed):
        store, state = begin(committed=committed)
        store.lose(away=True)
        with pytest.raises(CommitInDoubtError):
            state.commit("two")
        store.away = False
        other = Versioned(store)
        other["theirs"] = 1
        other.commit("theirs")
        assert store.deliver() == [False]
        state.commit("again")
        assert messages(store) == ["again", "theirs", *["one"] * committed]
        assert Repository(store).snapshot("main").copy() == {"list": [1, 2], "other": 1, "theirs": 1}

    def test_it_is_found_below_what_others_committed_on_top(self, committed):
        store, state = begin(committed=committed)
        store.lose(away=True)
        with pytest.raises(CommitInDoubtError):
            state.commit("two")
        assert store.deliver() == [True]
        store.away = False
        other = Versioned(store)
        other["theirs"] = 1
        other.commit("theirs")
        assert state.refresh().message == "theirs"
        assert not state.status()
        assert messages(store) == ["theirs", "two", *["one"] * committed]


def test_giving_up_shows_in_the_reflog():
    store, state = begin(committed=True)
    store.lose()
    with pytest.raises(UnreachableStoreError):
        state.commit("two")
    assert [position.action for position in state.repository.reflog("main")] == ["commit given up", "commit"]
    assert state.reset("main@{1}").message == "one"


def test_a_lost_reply_while_giving_up_leaves_the_commit_in_doubt(monkeypatch):
    store, state = begin(committed=True)
    store.lose()
    move = state.repository.database.move

    def lose_again(*args: Any, **options: Any) -> Any:
        store.lose()
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
    store.lose(away=True)
    with pytest.raises(UnknownOutcomeError):
        state.fork("new")
    assert store.deliver() == [True]
    store.away = False
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
        store.lose()
        assert create(state.repository) == state.head
        assert store.deliver() == [False], "it is there, and is not made again"
        assert getattr(state.repository, refs)["new"] == state.head
        with pytest.raises(RefExistsError):
            create(state.repository)

    def test_one_that_was_delivered_before_anybody_looked_is_known_again(self, kind):
        create, _ = KINDS[kind]
        store, state = begin(committed=True)
        store.lose(away=True)
        with pytest.raises(UnknownOutcomeError):
            create(state.repository)
        assert store.deliver() == [True]
        store.away = False
        assert create(state.repository) == state.head
        with pytest.raises(RefExistsError):
            create(state.repository)
        assert [position.action for position in state.repository.reflog("new", kind=kind)] == ["create"]

    def test_one_that_somebody_else_made_meanwhile_is_his(self, kind):
        create, _ = KINDS[kind]
        store, state = begin(committed=True)
        store.lose(away=True)
        with pytest.raises(UnknownOutcomeError):
            create(state.repository)
        store.away = False
        create(Repository(store))
        assert store.deliver() == [False]
        with pytest.raises(RefExistsError):
            create(state.repository)

    def test_one_that_was_made_then_deleted_and_made_by_somebody_else_is_his(self, kind):
        create, refs = KINDS[kind]
        store, state = begin(committed=True)
        store.lose(away=True)
        with pytest.raises(UnknownOutcomeError):
            create(state.repository)
        store.deliver()
        store.away = False
        other = Repository(store)
        getattr(other, refs).delete("new")
        create(other)
        with pytest.raises(RefExistsError):
            create(state.repository)

    def test_one_at_another_commit_is_not_taken_for_it(self, kind):
        create, refs = KINDS[kind]
        store, state = begin(committed=True)
        state.commit("two")
        store.lose(away=True)
        with pytest.raises(UnknownOutcomeError):
            create(state.repository)
        store.deliver()
        store.away = False
        with pytest.raises(RefExistsError):
            create(state.repository, "main~1")
        assert getattr(state.repository, refs)["new"] == state.head

    def test_one_whose_deletion_was_lost_is_deleted_once(self, kind):
        create, refs = KINDS[kind]
        store, state = begin(committed=True)
        names = getattr(state.repository, refs)
        create(state.repository)
        store.lose()
        assert names.delete("new") == state.head
        create(state.repository)
        store.lose(away=True)
        with pytest.raises(UnknownOutcomeError):
            names.delete("new")
        assert store.deliver() == [False, True]
        store.away = False
        assert names.delete("new") == state.head
        with pytest.raises(UnknownRevisionError):
            names.delete("new")
