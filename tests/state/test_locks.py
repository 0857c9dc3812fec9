"""`state.lock()`: one holder at a time, an expiry, and a fence that refuses commits of a holder that was too slow."""

from __future__ import annotations

import asyncio
import gc
import os
import pickle
import signal
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Event, Thread

import pytest

from tests.support.faults import attempts
from tests.support.interrupts import Interrupt, Trace
from tests.support.processes import fork, join
from tests.support.store_openers import Opener, postgres, redis
from tests.support.stores import OneCondition
from versioned_state import Disk, Memory, Repository, Versioned, task
from versioned_state.errors import (
    FencedError,
    HandleClosedError,
    InvalidArgumentError,
    LockTimeoutError,
    MergeConflictError,
    StateError,
    TransactionError,
    UnsupportedByStoreError,
)
from versioned_state.objects.keys import lock_key
from versioned_state.repository.refs import lock_record
from versioned_state.storage import Cache, Counting, Encrypted, Fault, Faulty, Tiered


def other(state: Versioned) -> Versioned:
    """Another handle on the branch, as of another process: it knows nothing of what this process has seen."""
    return Versioned(Repository(state.repository.store), branch=state.branch)


def let_the_time_pass(state: Versioned, branch: str = "main") -> None:
    """Make a holder look as if it had given no sign for an hour."""
    seen = lock_record._seen.setdefault(state.repository.database, {})
    record = lock_record.read_lock(state.repository.store, branch)
    seen[branch] = (record.token, record.beat), time.monotonic() - 3600


def steal(state: Versioned) -> int:
    """Take the lock over for another holder, and release it. Return its token."""
    thief = other(state)
    let_the_time_pass(thief, state.branch)
    with thief.lock(wait=0) as lock:
        return lock.token


def test_the_lock_keeps_others_out_and_its_holder_sees_the_newest_head():
    first = Versioned(Memory())
    second = other(first)
    with first.lock() as lock:
        first["balance"] = 100
        first.commit("open")
        with (
            pytest.raises(LockTimeoutError, match="branch 'main' is locked, with token 1") as caught,
            second.lock(wait=0),
        ):
            pass
        assert isinstance(caught.value, TimeoutError)
        assert (caught.value.branch, caught.value.token) == ("main", 1)
        assert lock.token == 1
    with second.lock(wait=0) as lock:
        assert lock.token == 2
        assert second["balance"] == 100, "entering took in the head"
        second["balance"] -= 10
        second.commit("pay")
    assert [commit.message for commit in first.log(first.repository.branches["main"], limit=2)] == ["pay", "open"]


def test_tokens_grow_and_a_branch_has_one_small_record():
    state = Versioned(Memory())
    tokens = []
    for _ in range(5):
        with state.lock() as lock:
            tokens.append(lock.token)
    assert tokens == [1, 2, 3, 4, 5]
    (key,) = state.repository.store.keys("lock/")
    stored = state.repository.store.get(key)
    assert key == lock_key("main")
    assert stored is not None
    assert len(stored) < 80


def test_each_branch_has_a_lock_of_its_own():
    state = Versioned(Memory())
    with state.lock(), Versioned(state.repository, branch="other").lock(wait=0) as lock:
        assert lock.token == 1


@pytest.mark.parametrize("key", ["balance", "something else"])
def test_a_commit_under_a_lost_lock_is_refused_whatever_it_touches(key):
    state = Versioned(Memory())
    state["balance"] = 100
    state.commit("open")
    with state.lock() as lock:
        assert steal(state) == 2
        state[key] = 1
        with pytest.raises(FencedError) as caught:
            state.commit("late")
        assert (caught.value.branch, caught.value.token, caught.value.newest) == ("main", 1, 2)
        assert "still there" in str(caught.value)
        assert state.head.message == "open"
        assert str(state.status())
        for late in (lambda: state.commit("again"), lambda: state.commit("some", keys=[key]), lock.renew):
            with pytest.raises(FencedError):
                late()
        with pytest.raises(FencedError), state.transaction("block"):
            state["more"] = 1
        assert "more" not in state
    assert state.commit("without a lock").message == "without a lock"


def test_merges_and_moves_under_a_lost_lock_are_refused_too():
    state = Versioned(Memory())
    state["n"] = 1
    state.commit("one")
    branch = state.fork("side")
    branch["m"] = 1
    branch.commit("side")
    state["n"] = 2
    state.commit("two")
    with state.lock():
        steal(state)
        for late in (
            lambda: state.merge("side"),
            lambda: state.revert("HEAD"),
            state.undo,
            state.rollback,
            lambda: state.reset("HEAD~1"),
        ):
            with pytest.raises(FencedError):
                late()
            assert state.head.message == "two"
            assert dict(state) == {"n": 2}
    assert other(state)["n"] == 2


def test_a_task_under_a_lost_lock_fails_and_is_rolled_back():
    @task
    def book(state):
        state.setdefault("trips", []).append("Rome")

    state = Versioned(Memory())
    with state.lock():
        book(state=state)
        steal(state)
        with pytest.raises(FencedError) as caught:
            book(state=state)
        assert any("recorded yet" in note for note in caught.value.__notes__), "its failure is a commit too"
        assert state["trips"] == ["Rome"]
        assert len(list(state.log())) == 1


def test_a_holder_that_is_slow_keeps_the_lock_as_long_as_nobody_wants_it():
    state = Versioned(Memory())
    with state.lock(ttl=0.001):
        time.sleep(0.01)
        state["n"] = 1
        state.commit("late, and alone")


def test_a_waiter_takes_over_once_it_has_seen_no_sign_for_the_time_to_live():
    state = Versioned(Memory())
    waiter = other(state)
    with state.lock(ttl=0.2):
        begin = time.monotonic()
        with waiter.lock(wait=30) as lock:
            assert lock.token == 2
        assert time.monotonic() - begin >= 0.2
        with pytest.raises(FencedError):
            state.commit("late", allow_empty=True)


def test_short_waits_add_up():
    state = Versioned(Memory())
    waiter = other(state)
    with state.lock(ttl=0.1):
        with pytest.raises(LockTimeoutError), waiter.lock(wait=0):
            pass
        time.sleep(0.1)
        with waiter.lock(wait=0) as lock:
            assert lock.token == 2


def test_signs_of_life_keep_the_lock():
    state = Versioned(Memory())
    waiter = other(state)
    with state.lock(ttl=30) as lock:
        for sign in (lock.renew, lambda: state.commit("round", allow_empty=True)):
            let_the_time_pass(waiter)
            state._handle.hooks.all[0].holding.since -= 11  # type: ignore[attr-defined]
            sign()
            with pytest.raises(LockTimeoutError), waiter.lock(wait=0):
                pass


def test_a_commit_soon_after_another_sign_writes_nothing_more():
    store = Counting(Memory())
    state = Versioned(store)
    store.reset()
    with state.lock():
        assert store.counts.round_trips == 3
        record = store.get(lock_key("main"))
        store.reset()
        state["n"] = 1
        state.commit("one")
        assert store.counts.round_trips == 1
        assert store.get(lock_key("main")) == record


def test_a_dead_holder_on_this_machine_is_noticed_at_once(tmp_path):
    def die() -> None:
        Versioned(Disk(tmp_path)).lock(ttl=1000).__enter__()
        os._exit(0)

    join(fork(die))
    with Versioned(Disk(tmp_path)).lock(wait=0) as lock:
        assert lock.token == 2


def test_a_forked_child_that_leaves_the_block_does_not_release_the_lock_of_its_parent(tmp_path):
    state = Versioned(Disk(tmp_path))
    with state.lock(ttl=1000) as lock:
        join(fork(partial(lock.__exit__, None, None, None)))
        with pytest.raises(LockTimeoutError), Versioned(Disk(tmp_path)).lock(wait=0):
            pass
        state["n"] = 1
        state.commit("the parent still holds it")
    with Versioned(Disk(tmp_path)).lock(wait=0) as after:
        assert after.token == 2


def test_a_lock_that_is_left_without_an_end_is_free(tmp_path):
    state = Versioned(Memory())
    lock = state.lock(ttl=1000)
    lock.__enter__()
    del lock
    gc.collect()
    with other(state).lock(wait=0) as again:
        assert again.token == 2
    state["n"] = 1
    state.commit("the handle is not under it any more")


def test_a_long_dead_holder_on_another_machine_is_told_by_its_clock():
    now = 1_000_000_000_000_000
    store = Memory()
    state = Versioned(store, clock=lambda: now)
    with state.lock(ttl=10):
        record = lock_record.read_lock(store, "main")
        abroad = record.but("main", owner=bytes(28))
        assert lock_record.put_lock(store, "main", record, abroad)
        with pytest.raises(LockTimeoutError), Versioned(Repository(store, clock=lambda: now + 60_000_000)).lock(wait=0):
            pass
        with Versioned(Repository(store, clock=lambda: now + 71_000_000)).lock(wait=0) as lock:
            assert lock.token == 2


def test_blocks_of_one_thread_nest():
    state = Versioned(Memory())
    with state.lock() as outer:
        with state.lock(wait=0) as inner, state.transaction("t"), state.lock(wait=0):
            assert inner.token == outer.token == 1
            inner.renew()
        with pytest.raises(LockTimeoutError), other(state).lock(wait=0):
            pass
    with other(state).lock(wait=0) as lock:
        assert lock.token == 2


def test_another_thread_on_the_same_handle_waits_and_the_holder_goes_on():
    state = Versioned(Memory())
    state["n"] = 0
    entered, done = Event(), []

    def second() -> None:
        entered.set()
        with state.lock(wait=30) as lock:
            state["n"] += 1
            done.append((lock.token, state.commit("second")))

    with state.lock():
        thread = Thread(target=second)
        thread.start()
        entered.wait()
        time.sleep(0.02)
        state["n"] += 1
        state.commit("first")
        assert not done
    thread.join()
    assert state["n"] == 2
    assert done[0][0] == 2


def test_a_lock_within_a_task_or_a_transaction_is_refused():
    @task
    def book(state):
        with pytest.raises(TransactionError, match="within a task"), state.lock():
            pass

    state = Versioned(Memory())
    book(state=state)
    with state.transaction("t"):
        with pytest.raises(TransactionError, match="within a transaction"), state.lock():
            pass
        state["n"] = 1
    assert not list(state.repository.store.keys("lock/"))


def test_uncommitted_changes_that_conflict_with_the_head_leave_the_lock_free():
    state = Versioned(Memory())
    state["n"] = 1
    state.commit("one")
    second = other(state)
    second["n"] = 2
    second.commit("two")
    state["n"] = 3
    with pytest.raises(MergeConflictError), state.lock():
        pass
    assert state["n"] == 3
    with second.lock(wait=0):
        pass
    state.discard()


def test_a_store_that_takes_one_condition_says_so():
    state = Versioned(OneCondition())
    with pytest.raises(UnsupportedByStoreError, match="3 conditions, and this store allows 1"), state.lock():
        pass


@pytest.mark.parametrize(
    "options", [{"ttl": 0}, {"ttl": float("inf")}, {"ttl": True}, {"wait": -1}, {"wait": "1"}, {"wait": float("nan")}]
)
def test_bad_seconds_are_refused(options):
    with pytest.raises(InvalidArgumentError):
        Versioned().lock(**options)


def test_a_closed_state_and_a_closed_store():
    state = Versioned()
    lock = state.lock()
    with pytest.raises(InvalidArgumentError, match="outside"):
        lock.renew()
    with lock:
        state.close()
    with pytest.raises(HandleClosedError), lock:
        pass
    store = Memory()
    with Versioned(store).lock():
        store.close()


def test_deleting_a_branch_deletes_its_lock_and_fences_its_holder():
    state = Versioned(Memory(), branch="work")
    state["n"] = 1
    state.commit("one")
    with state.lock():
        state.repository.branches.delete("work", force=True)
        assert not list(state.repository.store.keys("lock/"))
        state["n"] = 2
        with pytest.raises(FencedError) as caught:
            state.commit("two")
        assert caught.value.newest is None
    assert not list(state.repository.store.keys("lock/"))
    state.discard()


def test_gc_removes_the_locks_of_branches_that_never_were_and_fsck_checks_the_others():
    store = Memory()
    with Versioned(store, branch="never").lock():
        Repository(store).gc()
        assert list(store.keys("lock/")) == ["lock/never"], "somebody has it"
    Repository(store).gc()
    assert not list(store.keys("lock/"))
    with Versioned(store).lock():
        pass
    assert Repository(store).fsck().ok
    stored = store.get("lock/main")
    assert stored is not None
    store.set("lock/main", stored[:-1] + bytes((stored[-1] ^ 1,)))
    (finding,) = Repository(store).fsck().findings
    assert (finding.problem, finding.what, finding.id) == ("corrupt", "lock", "lock/main")
    with pytest.raises(StateError, match="damaged"), Versioned(store).lock():
        pass
    Versioned(store).commit("begin", allow_empty=True)
    Repository(store).branches.delete("main", force=True)
    assert Repository(store).fsck().ok


@pytest.mark.parametrize(
    "wrap", [lambda store: Encrypted(store, b"k" * 32), lambda store: Tiered(Memory(), store), Cache]
)
def test_over_wrapped_stores(wrap):
    store = wrap(Memory())
    state = Versioned(store, branch="a/b")
    with state.lock():
        state["n"] = 1
        state.commit("one")
        with pytest.raises(LockTimeoutError), other(state).lock(wait=0):
            pass
        steal(state)
        with pytest.raises(FencedError):
            state.commit("late", allow_empty=True)
    assert Repository(store).fsck().ok


def test_errors_cross_processes():
    for error in (FencedError("main", 1, 2), LockTimeoutError("main", 1, 2.0)):
        again = pickle.loads(pickle.dumps(error))
        assert str(again) == str(error)
        assert again.token == 1


# Faults and interrupts


@pytest.mark.parametrize("fault", list(Fault))
def test_a_fault_at_any_call_leaves_the_lock_free_or_a_commit_made(fault):
    for attempt in attempts(fault):
        store = Memory()
        faulty = Faulty(store)
        state = Versioned(faulty)
        state["n"] = 0
        state.commit("zero")
        with attempt.on(faulty), state.lock(ttl=1000, wait=0):
            state["n"] += 1
            state.commit("one")
        with Versioned(store).lock(wait=0):
            pass
        state.commit("after")
        assert Versioned(store)["n"] == state["n"]
    assert state["n"] == 1


def locked_round(state: Versioned) -> None:
    with state.lock(ttl=1000, wait=0):
        state["n"] += 1
        state.commit("round")


@pytest.mark.parametrize("every_line", [False, pytest.param(True, marks=pytest.mark.long)])
def test_an_interrupt_at_any_line_leaves_the_lock_free_and_the_handle_whole(every_line):
    def begin() -> Versioned:
        state = Versioned(Memory())
        state["n"] = 0
        state.commit("zero")
        return state

    locked_round(begin())  # what is loaded late is loaded
    lines = Trace()
    lines.run(partial(locked_round, begin()))
    firsts = {place: at for at, place in reversed(list(enumerate(lines.lines, 1))) if "lock" in Path(place[0]).name}
    for at in range(1, lines.count + 1) if every_line else sorted(firsts.values()):
        state = begin()
        trace = Trace(at)
        with suppress(Interrupt):
            trace.run(partial(locked_round, state))
        with other(state).lock(wait=0):
            pass
        state.commit("after")
        assert other(state)["n"] == state["n"], trace.hit
        assert all(hook.holding is None for hook in state._handle.hooks.all), trace.hit  # type: ignore[attr-defined]


# Asyncio


async def test_async_locks_keep_tasks_apart():
    async def work(state: Versioned, turns: list[int]) -> None:
        async with state.aio.lock(wait=30) as lock:
            turns.append(lock.token)
            before = state["n"]
            await asyncio.sleep(0.001)
            state["n"] = before + 1
            await state.aio.commit("round")
            await lock.renew()

    store = Memory()
    state = Versioned(store)
    state["n"] = 0
    state.commit("zero")
    handles = [state, state, Versioned(store), Versioned(store)]
    turns: list[int] = []
    await asyncio.gather(*(work(each, turns) for each in handles))
    assert turns == [1, 2, 3, 4]
    assert Versioned(store)["n"] == 4


async def test_a_cancelled_task_does_not_keep_the_lock():
    async def hold(state: Versioned, pauses: int) -> None:
        async with state.aio.lock(ttl=1000, wait=0):
            for _ in range(pauses):
                await asyncio.sleep(0)
            state["n"] = 1
            await state.aio.commit("round")

    for steps in range(40):
        state = Versioned(Memory())
        running = asyncio.create_task(hold(state, 3))
        for _ in range(steps):
            await asyncio.sleep(0.0002)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        async with Versioned(state.repository).aio.lock(wait=0):
            pass
        assert not state._handle.hooks.all
        state.discard()


async def test_a_task_that_is_cancelled_while_it_waits():
    async def wait(state: Versioned) -> None:
        async with state.aio.lock(wait=1000):
            raise AssertionError("it has the lock")

    state = Versioned(Memory())
    async with state.aio.lock():
        waiting = [asyncio.create_task(wait(each)) for each in (state, other(state))]
        await asyncio.sleep(0.05)
        await state.aio.commit("the holder goes on", allow_empty=True)
        for each in waiting:
            each.cancel()
        results = await asyncio.gather(*waiting, return_exceptions=True)
        assert all(isinstance(each, asyncio.CancelledError) for each in results)
        await state.aio.commit("and on", allow_empty=True)
    async with other(state).aio.lock(wait=0) as lock:
        assert lock.token == 2


# Many processes

SHARED = {
    "disk": lambda request, folder: lambda: Disk(folder / "store", timeout=300),
    "redis": redis,
    "postgres": postgres,
}


@pytest.fixture(params=SHARED)
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    return SHARED[request.param](request, tmp_path)


def turn(state: Versioned, name: str, tokens: Path) -> None:
    with state.lock(ttl=30, wait=300) as lock:
        # A writer without the lock would lose its turn here: the number is read and written in two steps, with a policy
        # that hides it.
        n = state["n"]
        time.sleep(0.001)
        state["n"] = n + 1
        state.commit(f"{name} {n}", on_moved="replace")
        with tokens.open("a") as file:
            file.write(f"{lock.token}\n")


@pytest.mark.parametrize(("processes", "turns"), [(5, 4), pytest.param(16, 100, marks=pytest.mark.long)])
def test_many_processes_take_turns(opener, tmp_path, processes, turns):
    with Versioned(opener()) as state:
        state["n"] = 0
        state.commit("zero")

    def work(name: str) -> None:
        with Versioned(opener()) as state:
            for _ in range(turns):
                turn(state, name, tmp_path / "tokens")

    join(*(fork(partial(work, f"p{number}")) for number in range(processes)))
    with Versioned(opener()) as state:
        assert state["n"] == processes * turns
        tokens = [int(line) for line in (tmp_path / "tokens").read_text().split()]
        assert tokens == sorted(set(tokens))
        assert len(tokens) == processes * turns


@pytest.mark.parametrize("rounds", [3, pytest.param(50, marks=pytest.mark.long)])
def test_a_paused_holder_is_overtaken_and_its_late_commit_refused(opener, tmp_path, rounds):
    with Versioned(opener()) as state:
        state["owner"] = "nobody"
        state.commit("zero")

    def slow(ready: Path) -> None:
        with Versioned(opener()) as state:
            with state.lock(ttl=0.1, wait=60):
                state["late"] = True
                ready.touch()
                time.sleep(0.05)  # it is stopped here
                while not ready.with_suffix(".over").exists():
                    time.sleep(0.005)
                with pytest.raises(FencedError):
                    state.commit("late")
            state.discard()

    for number in range(rounds):
        ready = tmp_path / f"round{number}"
        pid = fork(partial(slow, ready))
        while not ready.exists():
            time.sleep(0.002)
        os.kill(pid, signal.SIGSTOP)
        try:
            with Versioned(opener()) as state, state.lock(ttl=30, wait=60):
                state["owner"] = number
                state.commit("the next holder")
        finally:
            ready.with_suffix(".over").touch()
            os.kill(pid, signal.SIGCONT)
        join(pid)
    with Versioned(opener()) as state:
        assert state["owner"] == rounds - 1
        assert "late" not in state
