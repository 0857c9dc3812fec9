"""A prune at the cost of its branch alone: the plan that all refs give, by calls that do not grow with the branches."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import timedelta
from itertools import islice

import pytest

from tests.support.garbage import assert_whole
from tests.support.histories import Clock, numbered
from tests.support.long_runs import first
from tests.support.moves import LONG_AGO_S, one_move
from versioned_state import Memory, Repository, Versioned
from versioned_state.objects.keys import shared_key
from versioned_state.repository.maintenance.prune import Retention, plan_of_all, plan_of_own
from versioned_state.storage import Counting


def retention(repository: Repository, pattern: str, rng: random.Random) -> Retention:
    since = repository.database.clock() - timedelta(days=30) // timedelta(microseconds=1)
    return Retention(
        keep_last=rng.randrange(1, 4),
        since=None,
        down_to=None,
        keep_tagged=rng.random() < 0.7,
        patterns=(pattern,),
        entries_since=max(since, repository.database.fence.refresh().expired),
    )


@pytest.mark.parametrize("seed", first(4, range(10)))
def test_the_plan_is_that_from_all_refs(seed, long_run):
    own = 0
    for each in range(60 if long_run else 1):
        rng = random.Random(seed + 1000 * each)
        clock = Clock()
        repository = Repository(Memory(), clock=clock)
        for step in range(100):
            one_move(repository, clock, rng)
            if step % 3:
                continue
            for pattern in [*repository.branches, "b[0-2]", "*"]:
                wanted = retention(repository, pattern, rng)
                repository.database.commits.refresh_shallow()
                plan = plan_of_own(repository.database, wanted, dry_run=True)
                if plan is not None:
                    expected = plan_of_all(repository.database, wanted, dry_run=True)
                    assert plan == expected, (each, step, pattern)
                    own += expected.report.removed > 0
                for commit in islice(repository.log(pattern), step % 5, 6, 3) if pattern in repository.branches else ():
                    wanted = replace(wanted, keep_last=1, down_to=commit)
                    plan = plan_of_own(repository.database, wanted, dry_run=True)
                    assert plan in (None, plan_of_all(repository.database, wanted, dry_run=True)), (each, step, pattern)
        assert_whole(repository.store)
    assert own > 3


def calls_of_a_prune(branches: int, *, fork: bool) -> int:
    """Return the store calls of a prune of one of the branches, after which the log is short and gc frees the rest."""
    store = Counting(Memory())
    repository = Repository(store, clock=Clock())
    for n in range(branches):
        state = Versioned(repository, branch=f"s{n}")
        state["n"] = n
        state.commit()
    name = "s3"
    if fork:
        repository.branches.create("fork", "s3")
        name = "fork"
    state = Versioned(repository, branch=name)
    for n in range(10):
        state["n"] = -n
        state.commit()
    repository = Repository(store, clock=Clock(1_000_000))
    repository.prune(keep_last=2, branches="s5")  # the modules that it needs
    store.reset()
    report = repository.prune(keep_last=3, branches=name)
    calls = store.counts.round_trips
    assert report.removed == (7 if fork else 8)
    assert (report.kept, [each.kept for each in report.branches]) == (4 if fork else 3, [3])
    assert len(list(repository.log(name))) == 3
    assert repository.gc(expire=timedelta(0)).freed >= report.removed
    assert repository.fsck().ok
    return calls


@pytest.mark.parametrize("fork", [False, True])
def test_a_prune_of_one_branch_costs_the_same_among_many(fork):
    few, many = calls_of_a_prune(8, fork=fork), calls_of_a_prune(300, fork=fork)
    assert few == many <= 22


def calls_of_a_prune_with_tags(branches: int) -> int:
    store = Counting(Memory())
    repository = Repository(store, clock=Clock())
    for n in range(branches):
        state = Versioned(repository, branch=f"s{n}")
        for number in range(10 if n == 3 else 1):
            state["n"] = number
            state.commit(tag=f"s{n}/{number}")
    for number in range(4, 10):
        repository.tags.delete(f"s3/{number}")
    repository.gc(expire=timedelta(0))
    repository = Repository(store, clock=Clock(1_000_000))
    store.reset()
    report = repository.prune(keep_last=2, branches="s3")
    calls = store.counts.round_trips
    assert (report.removed, report.kept) == (4, 6), "the newest tag that is left keeps the commits from the fourth down"
    assert repository.fsck().ok
    assert [commit.short for commit in repository.log("s3/3")] == [
        repository.tags[f"s3/{n}"].short for n in (3, 2, 1, 0)
    ]
    return calls


def test_a_prune_of_a_branch_with_tags_of_its_own_costs_the_same_among_many():
    few, many = calls_of_a_prune_with_tags(8), calls_of_a_prune_with_tags(100)
    assert few == many <= 25


def test_the_reflog_of_a_deleted_tag_keeps_the_commit_that_it_was_made_with():
    clock = Clock()
    repository = Repository(Memory(), clock=clock)
    state = Versioned(repository, branch="a")
    for n in range(6):
        state["n"] = n
        state.commit(tag=f"t{n}")
    for n in range(6):
        repository.tags.delete(f"t{n}")
    assert repository.prune(keep_last=1, branches="a").removed == 0
    clock.sleep(LONG_AGO_S)
    repository.gc()
    assert repository.prune(keep_last=1, branches="a").removed == 5


def test_a_branch_whose_old_name_remembers_it_is_not_alone():
    repository = Repository(Memory(), clock=Clock())
    state = Versioned(repository, branch="old")
    numbered(state, range(5))
    repository.branches.rename("old", "new")
    assert shared_key(repository.branches["new"].address) in repository.store
    assert repository.prune(keep_last=2, branches="new").removed == 0  # the reflog of the old name leads to all of it
