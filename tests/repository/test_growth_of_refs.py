"""What calls on branches, tags and reflogs ask of the store, at two sizes: only what is asked for makes it grow."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial

import pytest

from tests.support.handles import asked, committed
from tests.support.histories import make_graph, numbered
from versioned_state import Memory, Repository, Versioned
from versioned_state.repository import caches
from versioned_state.repository.refs.reflog import Reflog
from versioned_state.storage import Wrapper


def with_branches(count: int, rounds: int = 3) -> Memory:
    """A store with a line of rounds and as many other branches at its head."""
    store = Memory()
    state = Versioned(store)
    numbered(state, range(rounds))
    for n in range(count):
        state.repository.branches.create(f"b{n:05}", state.head)
    return store


@pytest.mark.parametrize(
    "act",
    [
        lambda repository: repository.branches.create("new", "main"),
        lambda repository: repository.branches.create("new"),
        lambda repository: repository.branches.delete("b00007"),
        lambda repository: repository.branches.delete("b00007", force=True),
        lambda repository: repository.branches.rename("b00007", "new"),
        lambda repository: repository.tags.create("new", "b00007"),
        lambda repository: repository.branches["b00007"],
        lambda repository: "b00007" in repository.branches,
        lambda repository: list(repository.reflog("b00007")),
        lambda repository: list(repository.log("b00007")),
    ],
)
def test_a_call_on_one_branch_asks_the_same_however_many_there_are(act):
    assert asked(with_branches(10), act) == asked(with_branches(40), act)


@pytest.mark.parametrize(
    "act",
    [
        lambda repository: repository.branches.create("new", "main"),
        lambda repository: repository.branches.delete("b00007"),
        lambda repository: repository.branches.rename("b00007", "new"),
        lambda repository: next(repository.reflog("main")),
    ],
)
def test_a_call_on_one_branch_asks_little_more_where_its_history_is_long(act):
    short, long = (asked(with_branches(8, rounds), act) for rounds in (50, 800))
    assert long.round_trips <= short.round_trips + 8


def test_listing_branches_asks_once_for_hundreds_of_heads():
    store = Memory()
    repository = Repository(store)
    for commit in make_graph(repository, 600, merges=0, seed=1):
        repository.branches.create(commit.id[:20], commit)
    views: list[Callable[[Repository], object]] = [
        lambda each: list(each.branches.values()),
        lambda each: list(each.branches.items()),
    ]
    for view in views:
        counts = asked(store, view)
        assert counts.objects_read == 601
        assert counts.round_trips <= 16
    assert dict(repository.branches.items()) == {name: repository.branches[name] for name in repository.branches}
    assert set(repository.branches.values()) == {repository.branches[name] for name in repository.branches}
    assert len(repository.branches.items()) == len(list(repository.branches)) == 601


def test_a_position_far_back_in_a_reflog_is_found_without_a_walk():
    near, far = (asked(with_branches(1, n), partial(Repository.commit, rev=f"main@{{{n - 10}}}")) for n in (50, 800))
    assert far.objects_read <= near.objects_read + 16


class KeyCounting(Wrapper):
    """Counts the keys that a listing yields."""

    listed = 0

    def keys(self, prefix: str = "") -> Iterator[str]:
        for key in self.store.keys(prefix):
            self.listed += 1
            yield key


@pytest.mark.parametrize(
    "act", [lambda each: next(iter(each.branches)), lambda each: next(each.branches.values().__iter__())]
)
def test_the_first_branches_are_listed_before_the_last_are_looked_at(act):
    def listed(count: int) -> int:
        store = KeyCounting(with_branches(count))
        repository = Repository(store)
        store.listed = 0
        act(repository)
        return store.listed

    assert listed(1200) == listed(600)


def test_a_deleted_branch_comes_back_after_a_gc_at_the_cost_of_its_own_commits(monkeypatch):
    monkeypatch.setattr(caches, "_COMMITS_KEPT", 16)  # so that no cache hides what is read

    def read(rounds: int) -> int:
        store = Memory()
        state = committed(store, start=0)
        side = state.fork("side")
        for n in range(rounds):
            for handle in (state, side):
                handle[handle.branch] = n
                handle.commit()
        state.repository.branches.delete("side", force=True)
        store.apply({}, {}, objects={"o/" + "ab" * 24: b"\0garbage"})
        assert state.repository.gc(expire=timedelta(days=1)).freed == 1
        found = asked(
            store, lambda repository: (repository.branches["main"], repository.branches.create("back", at="side@{1}"))
        )
        assert Repository(store).snapshot("back")["side"] == rounds - 1
        return found.objects_read

    assert read(60) < 2.5 * read(30)


def test_a_merged_branch_comes_back_without_what_others_have():
    store = Memory()
    state = Versioned(store)
    state.commit("start", allow_empty=True)
    side = state.fork("side")
    numbered(side, range(200), key="side")
    state.merge("side")
    numbered(state, range(50))
    last = side.head
    side["more"] = 1
    side.commit()
    state.repository.branches.delete("side", force=True)
    store.apply({}, {}, objects={"o/" + "ab" * 24: b"\0garbage"})
    assert state.repository.gc(expire=timedelta(days=1)).freed == 1
    found = asked(
        store, lambda repository: (repository.branches["main"], repository.branches.create("back", at="side@{1}"))
    )
    assert found.objects_read < 120  # main's rounds since the merge, and not the 200 before it
    assert Repository(store).commit("back~1") == last


@pytest.mark.parametrize("seed", range(3))
def test_a_position_of_a_reflog_is_the_one_that_a_walk_comes_to(seed):
    rng = random.Random(seed)
    state = Versioned(Memory())
    repository = state.repository
    for n in range(60):
        match rng.randrange(8):
            case 0 if state.head.height > 3:
                state.reset(f"HEAD~{rng.randrange(1, 4)}")
            case 1 if state.head.height > 2:
                repository.branches.delete("main", force=True)
                repository.branches.create("main", f"main@{{{rng.randrange(1, 3)}}}")
                state = Versioned(repository)
            case 2 if state.head.height:
                other = state.fork(f"other-{n}")
                other[f"other-{n}"] = n
                other.commit()
                state.merge(other.branch)
            case 3 if state.head.height > 6 and n > 40:
                repository.prune(keep_last=4, expire=timedelta(0))
            case _:
                state["n"] = n
                state.commit(str(n))
    reflog = repository.database.reflog(repository.database.ref("branch", "main"))
    assert isinstance(reflog, Reflog)
    positions = list(reflog)
    assert [reflog.at(number) for number in range(len(positions) + 2)] == [*positions, None, None]
    assert len(reflog) == len(positions)
