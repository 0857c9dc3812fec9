"""Whether another ref leads to the head of a branch: known without a scan, and the same as a scan would say."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import nullcontext
from datetime import timedelta

import pytest

from tests.support.histories import Clock, numbered
from tests.support.long_runs import first
from tests.support.moves import one_move
from versioned_state import Memory, Repository, Versioned
from versioned_state.errors import UnmergedBranchError
from versioned_state.repository.history import graph
from versioned_state.repository.history.commit import ROOT_ID
from versioned_state.storage import Counting


def naive(repository: Repository, name: str) -> bool:
    """Whether another branch or a tag leads to the head of a branch."""
    head = repository.branches[name]
    others = [commit for other, commit in repository.branches.items() if other != name]
    others += list(repository.tags.values())
    return head.id == ROOT_ID or any(commit == head for commit in graph.walk(others, repository.database.commits.read))


@pytest.mark.parametrize("seed", first(5, range(12)))
def test_the_answer_is_that_of_a_scan(seed, long_run):
    for each in range(20 if long_run else 1):
        rng = random.Random(seed + 1000 * each)
        clock = Clock()
        repository = Repository(Memory(), clock=clock)
        for step in range(120):
            one_move(repository, clock, rng)
            if step % 6 == 0:
                for name in repository.branches:
                    kept = naive(repository, name)
                    try:
                        repository.branches.delete(name)
                    except UnmergedBranchError:
                        assert not kept, (seed, step, name)
                        continue
                    assert kept, (seed, step, name)
                    repository.branches.create(name, f"{name}@{{1}}")
        assert repository.fsck().ok


def assert_costs_the_same(
    totals: tuple[int, int], name: str, make: Callable[[Repository], object], *, refused: bool = False
) -> None:
    """Assert that a branch is deleted, or the deletion refused, at the same cost among these numbers of branches.

    Args:
        make: called when there are six branches, so that all later ones change after what it makes.
    """
    counts = []
    for total in totals:
        store = Memory()
        repository = Repository(store)
        for n in range(total):
            state = Versioned(repository, branch=f"s{n}")
            for number in range(2):
                state["n"] = n, number
                state.commit()
            if n == 5:
                make(repository)
        counting = Counting(store)
        repository = Repository(counting)
        counting.reset()
        with pytest.raises(UnmergedBranchError) if refused else nullcontext():
            repository.branches.delete(name)
        counts.append((counting.counts.round_trips, counting.counts.objects_read))
    assert counts[0] == counts[1]
    assert counts[0][0] < 30


@pytest.mark.parametrize("rounds", [1, 200])
def test_the_answer_costs_the_same_however_many_branches_there_are(rounds):
    assert_costs_the_same(
        (10, 300), "s5", lambda repository: go_on(Versioned(repository, branch="s5"), rounds), refused=True
    )


def fork_by_name(repository: Repository) -> None:
    repository.branches.create("other", "s3")


def fork_of_a_fork(repository: Repository) -> None:
    repository.branches.create("other", "s3")
    go_on(Versioned(repository, branch="other"))
    repository.branches.create("s3-again", "s3")


def fork_by_switch(repository: Repository) -> None:
    state = Versioned(repository, branch="s3")
    state.switch("other", create=True)


def fork_that_goes_on(repository: Repository) -> None:
    fork_by_switch(repository)
    go_on(Versioned(repository, branch="other"))


def fork_of_a_handle(repository: Repository) -> None:
    Versioned(repository, branch="s3").fork("other").close()


def merge_into_another(repository: Repository) -> None:
    state = Versioned(repository, branch="s4")
    go_on(state)
    state.merge("s3", policies={"**": "ours"})
    go_on(state)


def tag_of_the_commit(repository: Repository) -> None:
    state = Versioned(repository, branch="s3")
    state["more"] = 1
    state.commit(tag="own")


def rename_to_another(repository: Repository) -> None:
    fork_by_name(repository)
    repository.branches.rename("s3", "old")
    repository.branches.create("s3", "old")


def go_on(state: Versioned, rounds: int = 5) -> None:
    numbered(state, range(rounds), key="more")


MADE = [fork_by_name, fork_of_a_fork, fork_that_goes_on, merge_into_another, tag_of_the_commit, rename_to_another]


@pytest.mark.parametrize("make", MADE)
def test_the_ref_that_keeps_a_head_is_found_at_the_same_cost_among_many(make):
    assert_costs_the_same((70, 160), "s3", make)


@pytest.mark.parametrize("make", [fork_by_name, fork_by_switch, fork_of_a_handle])
def test_a_fork_without_commits_is_kept_by_its_origin_at_the_same_cost(make):
    def make_and_go_on(repository: Repository) -> None:
        make(repository)
        go_on(Versioned(repository, branch="s3"))

    assert_costs_the_same((70, 160), "other", make_and_go_on)


def test_a_lost_record_of_another_branch_is_in_nobody_s_way_if_the_keeper_is_known():
    store = Memory()
    repository = Repository(store)
    for n in range(4):
        state = Versioned(repository, branch=f"s{n}")
        state["n"] = n
        state.commit()
    repository.branches.create("other", "s1")
    store.delete("ref/branch/s3")
    repository.branches.delete("s1")
    assert "s1" not in repository.branches
    assert "other" in repository.branches


def test_a_branch_is_kept_by_one_that_nothing_names():
    """The records name the latest ref only: the others are looked for among all."""
    repository = Repository(Memory())
    for n in range(100):
        state = Versioned(repository, branch=f"s{n}")
        state["n"] = n
        state.commit()
        if n == 3:
            repository.branches.create("first", "s3")
            repository.branches.create("second", "s3")
    repository.branches.delete("second", force=True)
    repository.branches.delete("s3")
    with pytest.raises(UnmergedBranchError):
        repository.branches.delete("first")


def test_a_purge_of_a_fork_leaves_its_name_nowhere():
    store = Memory()
    repository = Repository(store)
    go_on(Versioned(repository, branch="a"))
    repository.branches.create("alice", "a")
    assert any(b"alice" in stored for _, stored in store.items("shared/"))
    repository.purge(branches="alice")
    assert [key for key, stored in store.items() if b"alice" in stored or "alice" in key] == []
    with pytest.raises(UnmergedBranchError):
        repository.branches.delete("a")


def test_a_damaged_record_of_a_shared_commit_hides_no_ref():
    store = Memory()
    repository = Repository(store)
    go_on(Versioned(repository, branch="a"))
    repository.branches.create("b", "a")
    (key,) = store.keys("shared/")
    store.set(key, b"damaged")
    assert repository.branches.delete("a") == repository.branches["b"]


def test_a_tag_that_came_with_the_commit_keeps_it():
    repository = Repository(Memory())
    state = Versioned(repository, branch="a")
    state["n"] = 1
    state.commit(tag="t")
    repository.branches.rename("a", "b")
    repository.branches.delete("b")
    state = Versioned(repository, branch="c")
    state["n"] = 2
    state.commit(tag="t2")
    state["n"] = 3
    state.commit()
    with pytest.raises(UnmergedBranchError):
        repository.branches.delete("c")


def test_what_is_shared_is_forgotten_with_its_commits():
    store = Memory()
    repository = Repository(store)
    state = Versioned(repository, branch="a")
    state["n"] = 1
    state.commit()
    repository.branches.create("b", "a")
    assert len(list(store.keys("shared/"))) == 1
    for name in ("a", "b"):
        repository.branches.delete(name, force=True)
    repository.gc()
    assert len(list(store.keys("shared/"))) == 1
    repository.gc(expire=timedelta(0))
    assert list(store.keys("shared/")) == []


def test_a_purge_carries_it_over():
    repository = Repository(Memory())
    state = Versioned(repository, branch="a")
    state["secret"] = 1
    state.commit()
    repository.branches.create("b", "a")
    repository.purge("secret")
    repository.branches.delete("b")
    with pytest.raises(UnmergedBranchError):
        repository.branches.delete("a")
