"""Forks and the branches that they began at are erased at their own cost, however many other branches there are."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from tests.support.garbage import assert_whole, contents
from tests.support.histories import Clock
from tests.support.personal_data import SECRET, holds
from tests.support.worlds import check_against_marking, is_fast, led_to
from versioned_state import Memory, Repository, Versioned
from versioned_state.objects.keys import SHARED
from versioned_state.repository.refs.ref import match_refs
from versioned_state.repository.refs.shared import read_shared
from versioned_state.storage import Counting

NOW = timedelta(0)


pytestmark = pytest.mark.usefixtures("no_sign_of_life")


def commits(state: Versioned, count: int = 2) -> None:
    """Commits of a branch's own, with a secret."""
    for n in range(count):
        state["mine"] = [f"{SECRET} {state.branch} {n} {m}" for m in range(20)]
        state.commit()


def fork(repository: Repository, name: str, origin: str, *, at: str = "") -> None:
    """A fork with commits of its own, by the name of its origin."""
    repository.branches.create(name, origin + at)
    commits(Versioned(repository, branch=name))


def a_fork(repository: Repository) -> None:
    fork(repository, "victim", "main", at="~3")


def a_fork_by_a_handle(repository: Repository) -> None:
    with Versioned(repository, branch="main").fork("victim") as state:
        commits(state)


def a_fork_by_id(repository: Repository) -> None:
    repository.branches.create("victim", repository.commit("main~5"))
    commits(Versioned(repository, branch="victim"))


def a_fork_without_commits(repository: Repository) -> None:
    repository.branches.create("victim", "main~1")


def a_fork_of_a_fork(repository: Repository) -> None:
    fork(repository, "first", "main", at="~2")
    fork(repository, "victim", "first")


def a_fork_that_was_forked(repository: Repository) -> None:
    fork(repository, "victim", "main", at="~2")
    fork(repository, "second", "victim", at="~1")
    commits(Versioned(repository, branch="victim"))


def a_fork_of_a_deleted_branch(repository: Repository) -> None:
    fork(repository, "origin", "main", at="~4")
    fork(repository, "victim", "origin", at="~1")
    repository.branches.delete("origin", force=True)


def a_fork_of_a_branch_that_has_expired(repository: Repository) -> None:
    a_fork_of_a_deleted_branch(repository)
    repository.gc(expire=NOW)


def a_fork_of_a_renamed_branch(repository: Repository) -> None:
    fork(repository, "origin", "main", at="~4")
    fork(repository, "victim", "origin", at="~1")
    repository.branches.rename("origin", "elsewhere")


def a_fork_of_a_branch_that_was_reset(repository: Repository) -> None:
    fork(repository, "origin", "main", at="~4")
    fork(repository, "victim", "origin")
    Versioned(repository, branch="origin").reset("HEAD~1")


def one_of_many_forks_of_a_commit(repository: Repository) -> None:
    for n in range(10):
        fork(repository, f"fork-{n}", "main", at="~3")
    fork(repository, "victim", "main", at="~3")
    repository.branches.create("last", repository.commit("main~3"))


def an_origin(repository: Repository) -> None:
    fork(repository, "victim", "main")
    for n in range(6):
        commits(Versioned(repository, branch="victim"))
        fork(repository, f"fork-{n}", "victim", at="~1")


def a_tagged_branch(repository: Repository) -> None:
    fork(repository, "victim", "main")
    repository.tags.create("kept", "victim~1")


def a_merged_branch(repository: Repository) -> None:
    fork(repository, "victim", "main")
    Versioned(repository, branch="main").merge("victim")
    commits(Versioned(repository, branch="victim"))


def a_session(repository: Repository) -> None:
    commits(Versioned(repository, branch="victim"))


KINDS: list[Callable[[Repository], None]] = [
    a_fork,
    a_fork_by_a_handle,
    a_fork_by_id,
    a_fork_without_commits,
    a_fork_of_a_fork,
    a_fork_that_was_forked,
    a_fork_of_a_deleted_branch,
    a_fork_of_a_branch_that_has_expired,
    a_fork_of_a_renamed_branch,
    a_fork_of_a_branch_that_was_reset,
    one_of_many_forks_of_a_commit,
    an_origin,
    a_tagged_branch,
    a_merged_branch,
    a_session,
]


def requests(kind: Callable[[Repository], None], others: int, *, since: bool) -> int:
    """The round trips of a purge of ``victim``, made before or since the last gc.

    The purge is checked against a marking of the whole store.
    """
    store = Memory()
    repository = Repository(store, clock=Clock())
    main = Versioned(repository, branch="main")
    for n in range(12):
        main["shared"] = [f"{n} {m}" for m in range(30)]
        main.commit()
    for n in range(others):
        other = Versioned(repository, branch=f"other-{n}")
        other["x"] = n
        other.commit()
    if since:
        repository.gc()
    kind(repository)
    if not since:
        repository.gc()
    before = contents(store)
    led = led_to(store, list(match_refs(store, ["victim"], deleted=True)))
    counting = Counting(store)
    repository = Repository(counting, clock=Clock(1_800_000_000_000_000))
    counting.reset()
    report = repository.purge(branches="victim")
    count = counting.counts.round_trips
    assert is_fast(report)
    assert report.branches == ("victim",)
    check_against_marking(store, led, report)
    assert contents(store) == {name: each for name, each in before.items() if name != "victim"}
    if kind is not an_origin:  # records of commits further down may name it still, as ``unreached`` says
        assert not any("victim" in name for key, stored in store.items(SHARED) for name in read_shared(key, stored))
    assert any("records of others" in each for each in report.unreached)
    assert_whole(store)
    return count


@pytest.mark.parametrize("since", [False, True], ids=["before the gc", "since the gc"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_requests_are_as_many_among_few_branches_as_among_many(kind, since):
    few, many = requests(kind, 10, since=since), requests(kind, 80, since=since)
    assert many <= few + 3, "a page of the table for each read of objects at most"
    assert many <= 60


def test_forks_are_erased_one_after_the_other_and_their_origin_last():
    """Each erased fork leaves the next one findable: the record of the commit names another ref that leads there."""
    store = Memory()
    repository = Repository(store, clock=Clock())
    commits(Versioned(repository, branch="main"), 5)
    for n in range(8):
        fork(repository, f"fork-{n}", "main", at=f"~{n % 3}")
    repository.gc()
    for n in (3, 0, 7, 1, 2, 5, 4):
        assert is_fast(repository.purge(branches=f"fork-{n}"))
        assert_whole(store)
    assert is_fast(repository.purge(branches="main"))
    assert list(repository.branches) == ["fork-6"]
    # Nobody but the last fork leads to the commits of its origin any more, which only a gc knows.
    assert not is_fast(repository.purge(branches="fork-6"))
    assert not holds(store)


def test_the_secret_of_a_purged_origin_goes_with_its_last_fork():
    """At the last gc two branches led to the commit. Now both are purged, one after the other."""
    store = Memory()
    repository = Repository(store, clock=Clock())
    commits(Versioned(repository, branch="origin"))
    repository.branches.create("fork", "origin")
    repository.gc()
    first = repository.purge(branches="origin")
    assert is_fast(first)
    assert holds(store)
    assert first.shared == (repository.branches["fork"].id,)
    repository.purge(branches="fork")
    assert not holds(store)
