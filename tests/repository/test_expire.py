"""Branches with a time to live: kept with the branch, renewed by commits for nothing, deleted beside writers."""

from __future__ import annotations

import threading
from contextlib import suppress
from datetime import timedelta

import pytest

from tests.support.faults import attempts
from tests.support.handles import asked
from tests.support.histories import SECOND, Clock
from tests.support.interrupts import Interrupt, interrupts
from tests.support.stores import OneCondition
from versioned_state import Disk, Memory, Repository, Versioned
from versioned_state.errors import InvalidArgumentError
from versioned_state.storage import Counting, KVStore
from versioned_state.storage.wrappers.faulty import Fault, Faulty


@pytest.fixture
def clock() -> Clock:
    return Clock(step=1)


@pytest.fixture(params=[Memory, OneCondition], ids=["indexed", "one condition"])
def repository(request, clock) -> Repository:
    return Repository(request.param(), clock=clock)


def session(repository: Repository, name: str, ttl: float | None = 60) -> Versioned:
    state = Versioned(repository, branch=name, ttl_seconds=ttl)
    state["n"] = 0
    state.commit()
    return state


def test_a_branch_that_nobody_changes_expires(repository, clock):
    session(repository, "a")
    session(repository, "b", None)
    assert repository.expire() == []
    clock.sleep(59)
    assert repository.expire() == []
    clock.sleep(2)
    assert repository.expire(dry_run=True) == ["a"]
    assert list(repository.branches) == ["a", "b"]
    assert repository.expire() == ["a"]
    assert repository.expire() == repository.expire(dry_run=True) == []
    assert list(repository.branches) == ["b"]
    assert [position.action for position in repository.reflog("a")] == ["expire", "commit"]
    assert repository.snapshot("a@{1}")["n"] == 0
    assert Versioned(repository, branch="a").get("n") is None
    assert repository.fsck().ok


def test_each_commit_renews_it_whoever_makes_it(repository, clock):
    session(repository, "a")
    for n in range(5):
        clock.sleep(50)
        state = Versioned(repository, branch="a")  # it need not know
        state["n"] = n + 1
        state.commit()
        assert repository.expire() == []
    (info,) = repository.branches.iter_info()
    assert info.expires == info.head.time + 60 * SECOND
    clock.sleep(61)
    assert repository.expire() == ["a"]


def test_a_commit_renews_it_without_another_write(clock):
    counting = Counting(Memory())
    repository = Repository(counting, clock=clock)
    states = [session(repository, "a"), session(repository, "b", None)]
    counts = []
    for state in states:
        state["n"] += 1
        state.commit()
        counting.reset()
        for _ in range(10):
            clock.sleep(1)
            state["n"] += 1
            state.commit()
        counts.append((counting.counts.round_trips, counting.counts.bytes_written))
    (with_ttl, bytes_with), (without, bytes_without) = counts
    assert with_ttl == without
    assert bytes_with <= bytes_without + 10 * 24


def test_another_time_to_live_counts_from_the_next_commit(repository, clock):
    session(repository, "a", 1000)
    state = Versioned(repository, branch="a", ttl_seconds=10)
    state["n"] = 2
    state.commit()
    clock.sleep(11)
    assert repository.expire() == ["a"]
    state = session(repository, "b", 10)
    state = Versioned(repository, branch="b", ttl_seconds=0)
    state["n"] = 2
    state.commit()
    clock.sleep(11)
    assert repository.expire() == []


def test_a_fork_expires_too_and_another_branch_does_not(repository, clock):
    state = session(repository, "a")
    session(repository, "b", None)
    state.fork("what-if")
    state.switch("b")
    state["n"] = 5
    state.commit()
    clock.sleep(61)
    assert repository.expire() == ["a", "what-if"]
    assert list(repository.branches) == ["b"]


def test_a_handle_on_a_branch_that_expired_brings_it_back(repository, clock):
    state = session(repository, "a")
    live = state.setdefault("list", [1])
    state.commit()
    clock.sleep(61)
    assert repository.expire() == ["a"]
    assert state.refresh() == state.head
    live.append(2)
    state.commit()
    assert repository.snapshot("a")["list"] == [1, 2]
    assert len(list(repository.log("a"))) == 3
    assert repository.expire() == []
    clock.sleep(61)
    assert repository.expire() == ["a"]
    state["n"] = 7
    state.commit()
    repository.gc(expire=timedelta(0)) if repository.database.fence.enabled else None
    assert repository.fsck().ok


@pytest.mark.parametrize("refreshed", [False, True])
def test_a_branch_that_is_brought_back_expires_again(repository, clock, refreshed):
    """Also by a handle that was not given the time to live: the branch had it."""
    session(repository, "a").commit()
    state = Versioned(repository, branch="a")
    state["n"] = 1
    state.commit()
    clock.sleep(61)
    assert repository.expire() == ["a"]
    if refreshed:
        state.refresh()
    state["n"] = 2
    state.commit()
    (info,) = repository.branches.iter_info()
    assert info.expires == info.changed + 60 * SECOND
    assert repository.expire() == []
    clock.sleep(61)
    assert repository.expire() == ["a"]


@pytest.mark.parametrize("ttl", [-1, "60", True, float("nan"), float("inf"), 10**13])
def test_a_bad_time_to_live_raises_at_once(ttl):
    with pytest.raises(InvalidArgumentError):
        Versioned(ttl_seconds=ttl)


def asked_by_expiry(store: KVStore, clock: Clock) -> tuple[int, int, int]:
    counts = asked(store, lambda repository: repository.expire(), clock=clock)
    return counts.round_trips, counts.objects_read, counts.bytes_written


def test_it_costs_what_expires_however_many_branches_there_are():
    found = []
    for total in (20, 400):
        clock = Clock(step=1)
        store = Memory()
        repository = Repository(store, clock=clock)
        for n in range(total):
            session(repository, f"s{n}", 1000)
        for n in range(5):
            session(repository, f"due{n}", 60)
        clock.sleep(100)
        found.append(asked_by_expiry(store, clock))
        assert found[-1][1] >= 5
        nothing = asked_by_expiry(store, clock)
        assert nothing[1:] == (0, 0)
    assert found[0] == found[1]


def test_a_branch_in_use_is_put_off_once_in_its_time_to_live():
    clock = Clock(step=1)
    store = Memory()
    state = session(Repository(store, clock=clock), "a", 100)
    written = 0
    for n in range(100):
        clock.sleep(10)
        state["n"] = n
        state.commit()
        written += asked_by_expiry(store, clock)[2] > 0
    assert 8 <= written <= 12


def test_writers_side_by_side_lose_nothing(tmp_path):
    with Disk(tmp_path) as store:
        done = threading.Event()

        def work(name: str) -> None:
            for n in range(40):
                state = Versioned(store, branch=name, ttl_seconds=0.001)
                state[f"{n}"] = n
                state.commit()
                state[f"{n}"] = -n
                state.commit()

        def reap() -> None:
            repository = Repository(store)
            while not done.is_set():
                repository.expire()

        reaper = threading.Thread(target=reap)
        workers = [threading.Thread(target=work, args=(name,)) for name in "ab"]
        for thread in (reaper, *workers):
            thread.start()
        for thread in workers:
            thread.join()
        done.set()
        reaper.join()
        repository = Repository(store)
        assert repository.fsck().ok
        assert {key.split("/")[-1] for key in store.keys("due/")} == set(repository.branches)


@pytest.mark.parametrize("fault", list(Fault))
def test_a_failure_at_any_call_loses_nothing_and_the_next_call_does_the_rest(fault):
    for attempt in attempts(fault):
        clock = Clock(step=1)
        store = Memory()
        repository = Repository(store, clock=clock)
        for name in "abc":
            session(repository, name)
        clock.sleep(40)
        kept = Versioned(repository, branch="b")
        kept["n"] = 1
        kept.commit()
        clock.sleep(30)
        faulty = Faulty(store)
        failing = Repository(faulty, clock=clock)
        first: list[str] = []
        with attempt.on(faulty):
            first = failing.expire()
        assert "b" in repository.branches
        assert set(first) | set(failing.expire()) <= {"a", "c"}
        assert list(repository.branches) == ["b"]
        assert repository.fsck().ok
        clock.sleep(70)
        assert repository.expire() == ["b"]
        assert list(store.keys("due/")) == list(store.keys("recent/")) == []


def test_an_interrupt_at_any_line_loses_nothing():
    for trace in interrupts(19):
        clock = Clock(step=1)
        repository = Repository(Memory(), clock=clock)
        for name in "ab":
            session(repository, name)
        session(repository, "c", 1000)
        clock.sleep(61)
        with suppress(Interrupt):
            trace.run(repository.expire)
        repository.expire()
        assert list(repository.branches) == ["c"]
        assert repository.fsck().ok
