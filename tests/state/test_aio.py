"""``aio``'s calls do as their twins, never make the loop wait for the store, and miss no change made meanwhile."""

from __future__ import annotations

import asyncio
import copy
import gc
import inspect
import os
import random
import signal
import threading
import time
import weakref
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from contextvars import ContextVar
from functools import partial
from threading import Lock, Thread, get_ident
from typing import Any

import pytest

import versioned_state
from tests.support.aio_calls import CALLS, Note, edit
from tests.support.dice import dice
from tests.support.handles import RollbackWantedError, cold, commits_on, committed
from tests.support.services.gate import until
from tests.support.watched_stores import PATIENCE_S, Stopped, Watching
from versioned_state import Memory, Repository, Versioned
from versioned_state.errors import (
    EventLoopError,
    HandleClosedError,
    MergeConflictError,
    PatchConflictError,
    StoreNotFoundError,
    TransactionError,
    UncommittedChangesError,
    UnknownPathError,
    UnserializableValueError,
)
from versioned_state.off_loop import _THREADS
from versioned_state.state.aio.caller import HandleLock
from versioned_state.storage import Counting
from versioned_state.storage.testing.writers import run_together


class Slow:
    """An object that takes its time to be stored, while other threads go on."""

    def __reduce__(self) -> tuple[Any, ...]:
        time.sleep(0.002)
        return Slow, ()


TWINS = (
    "apply bisect blame checkout cherry_pick close commit diff discard fork grep history load log merge rebase redo "
    "refresh reset restore revert rollback run sequence squash status switch transaction undo"
).split()


# What they are


def test_each_call_that_asks_the_store_has_a_twin():
    state = Versioned()
    assert sorted(name for name in dir(state.aio) if not name.startswith("_")) == sorted(
        [*TWINS, "handle_lock", "lock", "of"]
    )
    for name in TWINS:
        if hasattr(Versioned, name) and name != "apply":
            twin = inspect.signature(getattr(state.aio, name))
            assert list(twin.parameters) == list(inspect.signature(getattr(state, name)).parameters), name
    assert inspect.iscoroutinefunction(state.aio.commit)
    assert state.aio.commit.__doc__ == Versioned.commit.__doc__


async def test_they_do_as_their_twins():
    repository = commits_on(Memory())
    state, twin = Versioned(repository), Versioned(repository)
    aio = state.aio
    assert [commit async for commit in aio.log()] == list(twin.log())
    assert [commit async for commit in aio.log(limit=2, author="me")] == list(twin.log(limit=2, author="me"))
    assert [str(match.path) async for match in aio.grep("line")] == [str(match.path) for match in twin.grep("line")]
    changes = [change async for change in aio.history("n")]
    assert [change.commit for change in changes] == [change.commit for change in twin.history("n")]
    assert await aio.run(lambda: changes[0].new) == 3
    assert [str(each.path) for each in await aio.blame("words")] == [str(each.path) for each in twin.blame("words")]
    past = await aio.checkout("HEAD~2")
    assert past["n"] == twin.checkout("HEAD~2")["n"] == 1
    assert str(await aio.diff("HEAD~1", "HEAD")) == str(twin.diff("HEAD~1", "HEAD")) != ""
    found = await aio.bisect("HEAD~3", "HEAD", lambda snapshot: snapshot["n"] >= 2)
    assert found.commit == twin.bisect("HEAD~3", "HEAD", lambda snapshot: snapshot["n"] >= 2).commit

    state["n"] = 10
    assert str(await aio.status()) == "~ n = 3 -> 10"
    await aio.discard()
    assert not state.status()
    assert state["n"] == 3
    await aio.restore("n", at="HEAD~1")
    assert state["n"] == 2
    assert (await aio.commit("two again", author="me")).author == "me"
    assert (await aio.undo()) == twin.head
    assert (await aio.redo()).message == "two again"
    assert (await aio.rollback()) == twin.head
    assert (await aio.reset("HEAD~1")).message == "round 1"
    assert (await aio.reset(twin.head)) == twin.head
    merged = await aio.merge("side")
    assert (len(merged.parents), state["many"][150]["text"], state["side"]) == (2, "changed", [1])
    await aio.reset(twin.head)
    assert (await aio.cherry_pick("side")).message == "aside"
    assert (await aio.revert("HEAD")).message.startswith("revert")
    assert (await aio.squash(twin.head)).parents == (twin.head.id,)
    await aio.reset(twin.head)
    assert (await aio.switch("side")).message == "aside"
    assert (await aio.rebase("main")).parents == (twin.head.id,)
    fork = await aio.fork("third", at="main")
    assert (fork.branch, fork.head) == ("third", twin.head)
    patch = twin.diff("HEAD~1", "HEAD").to_patch()
    await fork.aio.reset("HEAD~1")
    await fork.aio.apply(patch)
    assert fork["n"] == 3
    other = Versioned(repository, branch="third")
    other["z"] = 1
    other.commit()
    assert (await fork.aio.refresh()) == other.head
    assert fork["z"] == 1
    await fork.aio.discard()
    await fork.aio.close()
    with pytest.raises(HandleClosedError):
        await fork.aio.commit()


async def test_errors_are_those_of_the_twin_and_lose_nothing():
    repository = commits_on(Memory())
    state = Versioned(repository)
    state["n"] = 9
    with pytest.raises(UncommittedChangesError):
        await state.aio.merge("side")
    with pytest.raises(PatchConflictError):
        await state.aio.apply(state.diff("HEAD~1", "HEAD").to_patch())
    state["lock"] = Lock()
    with pytest.raises(UnserializableValueError):
        await state.aio.commit()
    skipped = await state.aio.commit(skip_unserializable=True)
    assert skipped.skipped == ("lock",)
    del state["lock"]
    with pytest.raises(UnknownPathError):
        await state.aio.load("nothing")
    other = committed(repository, n=1)
    state["n"] = 2
    with pytest.raises(MergeConflictError) as caught:
        await state.aio.commit("two")
    merge = caught.value.merge
    merge.resolve("n", 12)
    assert (await state.aio.run(merge.commit)).parents == (other.head.id,)
    assert state["n"] == 12


def test_without_an_event_loop_of_asyncio_they_say_so():
    state = Versioned()
    state["n"] = 1
    commit = state.aio.commit()
    with pytest.raises(EventLoopError, match=r"no event loop.*nothing was changed") as caught:
        commit.send(None)
    assert "trio.to_thread.run_sync" in caught.value.hint
    assert state.status()
    trio = pytest.importorskip("trio")
    with pytest.raises(EventLoopError):
        trio.run(state.aio.commit)
    trio.run(trio.to_thread.run_sync, state.commit)
    assert not state.status()


# The event loop goes on


async def watching(store: Watching, work: Awaitable[Any]) -> Any:
    """Do some work, and see that no call of the store made the loop wait."""
    watch = asyncio.create_task(store.watch())
    await asyncio.sleep(0)
    try:
        result = await work
    finally:
        watch.cancel()
    assert store.calls
    assert not store.waited_for
    return result


CLEAN = {"merge", "cherry_pick", "rebase", "revert", "undo", "switch", "load", "fork", "checkout", "log"}
"""The calls that are tried without uncommitted changes."""


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("loaded", [True, False])
@pytest.mark.parametrize("name", CALLS)
async def test_the_event_loop_never_waits_for_the_store(name, loaded):
    store = Watching(Memory())
    commits_on(store)
    state = Versioned(cold(store))
    if loaded:
        state.copy()
    if name not in CLEAN:
        edit(state)
    if name in ("commit", "refresh", "discard"):
        other = Versioned(Repository(store))
        other["many"][200]["text"] = "theirs"
        other["words"].append("theirs")
        other.commit("theirs")
    if name == "diff":
        assert str(await watching(store, CALLS[name](state)))  # shown without a call of the store
    elif loaded and name in ("apply", "failing transaction", "status", "load", "close", "discard"):
        watch = asyncio.create_task(store.watch())
        await asyncio.sleep(0)
        await CALLS[name](state)  # not each of them asks the store
        watch.cancel()
        assert not store.waited_for
    else:
        await watching(store, CALLS[name](state))


async def test_a_sequence_and_a_snapshot_are_read_off_the_loop():
    store = Watching(Memory())
    repository = commits_on(store)
    state = Versioned(Repository(store))
    past = Versioned(repository).checkout("HEAD")
    watch = asyncio.create_task(store.watch())
    await asyncio.sleep(0)
    sequence = await state.aio.sequence("many")
    assert await sequence.aio.length() == 300
    assert (await sequence.aio.get(299))["i"] == 299
    assert [each["i"] for each in await sequence.aio.get(slice(0, 3))] == [0, 1, 2]
    await sequence.aio.append({"i": 300})
    await sequence.aio.extend([{"i": 301}])
    assert [each["i"] async for each in sequence.aio] == list(range(302))
    assert await sequence.aio.index({"i": 301}) == 301
    many, note = await past.aio.load("many", "notes.text")
    assert (len(many), note) == (300, "line 1\nline 2")
    assert await past.aio.load("n") == 3
    asked = len(store.calls)
    assert past["many"] == many
    assert (past["n"], past.at("notes.text")) == (3, note)
    assert len(store.calls) == asked > 0
    assert not store.waited_for
    watch.cancel()


async def test_a_namespace_is_loaded_off_the_loop():
    counting = Counting(Memory())
    first = Versioned(counting)
    first.namespace("a").namespace("b")["list"] = list(range(5000))
    first.commit()
    space = Versioned(counting).namespace("a").namespace("b")
    assert len(await space.aio.load("list")) == 5000
    before = counting.counts.round_trips
    space["list"].append(1)
    assert counting.counts.round_trips == before
    assert len(await space.aio.sequence("list")) == 5001


async def test_a_log_reads_ahead_and_no_more_than_twice_what_is_taken():
    counting = Counting(Memory())
    first = Versioned(counting)
    for n in range(300):
        first["n"] = n
        first.commit(str(n))
    state = Versioned(counting)
    counting.reset()
    taken = 0
    async for _ in state.aio.log():
        taken += 1
        if taken == 20:
            break
    assert counting.counts.round_trips <= 2 * 20 + 2


# Changes that are made meanwhile


CHANGES: dict[str, Callable[[Versioned, object], None]] = {
    "small": lambda state, n: state["words"].append(n),
    "large": lambda state, n: state["many"][5].update(text=n),
    "tail": lambda state, n: state["many"].append(n),
    "object": lambda state, n: state["note"].tags.append(n),
    "untouched": lambda state, n: state["notes"].update(later=n),
}


@pytest.mark.parametrize("moved", [False, True])
@pytest.mark.parametrize("change", CHANGES)
async def test_a_value_that_is_changed_while_a_commit_is_in_the_store_is_seen_by_the_next_one(change, moved):
    store = Stopped(Memory())
    repository = commits_on(store)
    state = committed(repository, note=Note("first", []))
    applied = 0
    for stop in range(1, 100):
        state = Versioned(repository)
        state.copy()
        if moved:
            other = Versioned(repository)
            other["many"][250]["text"] = other["theirs"] = f"theirs {stop}"
            other.commit("theirs")
        state["words"].append(stop)
        state["many"][5]["i"] = state["note"].text = stop
        before = copy.deepcopy({key: state[key] for key in ("words", "note", "notes")})
        store.stop(stop)
        commit = asyncio.create_task(state.aio.commit("ours"))
        if not await store.is_reached(commit):
            await commit
            break
        CHANGES[change](state, f"later {stop}")
        store.go()
        made = await commit
        if store.stopped_in == "apply":  # everything was staged before
            applied += 1
            seen = dict(state.checkout(made))
            assert {key: seen[key] for key in before} == before
            assert f"later {stop}" not in str(seen["many"])
            assert str(await state.aio.status()) != ""
        later = state.commit("later")
        assert dict(state.checkout(later)) == state.copy() == dict(Versioned(repository))
        assert f"later {stop}" in str(state.copy())
    assert applied


async def test_a_commit_has_the_values_as_they_are_when_it_is_called():
    state = Versioned()
    state["words"] = ["one"]
    commit = asyncio.create_task(state.aio.commit("one"))
    await asyncio.sleep(0)
    state["words"].append("two")
    assert state.checkout(await commit)["words"] == ["one"]
    assert str(state.status()) == "+ words[1] = 'two'"


async def test_a_commit_never_has_one_of_two_changes_that_a_task_makes_at_once():
    state = Versioned()
    state["a"], state["b"], state["slow"], state["z"] = [0], [0], Slow(), [0]

    async def change() -> None:
        while True:
            for key in ("z", "a", "b"):
                state[key][0] += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(change())
    for n in range(20):
        state["slow"] = Slow()
        commit = await state.aio.commit(str(n), keys=["a", "b", "slow", "z"])
        seen = state.checkout(commit)
        assert seen["a"] == seen["b"] == seen["z"]
        assert seen["a"] != [0] or n == 0
    task.cancel()


@pytest.mark.parametrize("call", ["commit", "merge"])
async def test_a_change_of_the_same_path_that_another_has_made_is_a_conflict_of_the_next_call(call: str):
    store = Stopped(Memory())
    repository = commits_on(store)
    state = Versioned(repository)
    state.copy()
    other = Versioned(repository, branch="main" if call == "commit" else "side")
    other["words"][0] = "theirs"
    other.commit("theirs")
    if call == "commit":
        state["n"] = 77
    conflicts = 0
    for stop in range(1, 40):
        store.stop(stop)
        work = asyncio.create_task(state.aio.commit("ours") if call == "commit" else state.aio.merge("side"))
        if not await store.is_reached(work):
            break
        before = state["words"][0]
        state["words"][0] = "ours"
        store.go()
        try:
            made = await work
        except (MergeConflictError, UncommittedChangesError):  # it was seen in time: nothing was committed
            state["words"][0] = before
            continue
        assert repository.branches["main"] == made
        conflicts += 1
        with pytest.raises(MergeConflictError) as caught:
            await state.aio.commit("next")
        assert [str(conflict.path) for conflict in caught.value.conflicts] == ["words[0]"]
        assert state["words"][0] == "ours"
        await state.aio.discard()
        assert (state["words"][0], state.head) == ("theirs", made)
        assert not state.status()
        break
    assert conflicts == 1


def test_tasks_that_change_values_at_any_time_lose_nothing():
    """Each task appends its own numbers to lists of one handle, at any time, while others commit, merge and refresh."""
    seed = dice("changes at any time").randrange(10**6)
    chance = random.Random(seed)

    # The elements differ: among equal ones, an insertion at the front may as well be a change of the first and an
    # insertion behind it.
    async def main() -> None:
        store = Stopped(Memory())
        repository = Repository(store)
        state = committed(
            repository,
            small=[],
            large=[{"pad": "x" * 40, "n": -1 - at} for at in range(400)],
            nested={"deep": [[]]},
            note=Note("", []),
        )
        sent: list[int] = []

        async def change() -> None:
            for n in range(150):
                sent.append(n)
                state["small"].append(n)
                state["large"].insert(chance.randrange(len(state["large"])), {"pad": "y", "n": n})
                state["nested"]["deep"][0].append(n)
                state["note"].tags.append(str(n))
                await asyncio.sleep(chance.choice([0, 0, 0.001]))

        async def others() -> None:
            for n in range(25):
                other = Versioned(repository)
                other[f"other {n}"] = n
                other["large"][0]["pad"] = str(n)
                await other.aio.commit(f"other {n}")
                await asyncio.sleep(0.002)

        async def commit() -> None:
            for _ in range(40):
                calls: list[Callable[[], Awaitable[object]]] = [
                    state.aio.commit,
                    state.aio.commit,
                    state.aio.refresh,
                    state.aio.status,
                ]
                await chance.choice(calls)()
                await asyncio.sleep(chance.choice([0, 0.001]))

        await asyncio.gather(change(), others(), commit(), commit())
        await state.aio.refresh()
        last = await state.aio.commit("last", allow_empty=True)
        for seen in (state.copy(), dict(state.checkout(last)), dict(Versioned(repository))):
            assert seen["small"] == sent
            assert seen["nested"] == {"deep": [sent]}
            assert seen["note"].tags == [str(n) for n in sent]
            assert sorted(each["n"] for each in seen["large"] if each["n"] >= 0) == sent
            assert [seen[f"other {n}"] for n in range(25)] == list(range(25))
        assert not state.status()

    try:
        asyncio.run(main())
    except BaseException as error:
        error.add_note(f"seed {seed}")
        raise


# Other calls on the handle meanwhile


def soon(*steps: Callable[[], object]) -> Thread:
    """Another thread that takes these steps."""

    def run() -> None:
        for step in steps:
            step()

    thread = Thread(target=run)
    thread.start()
    return thread


async def test_what_is_loaded_is_read_while_a_call_is_in_the_store():
    store = Stopped(Memory())
    state = Versioned(commits_on(store))
    space = state.namespace("space")
    space["x"] = [1]
    words = state["words"]
    store.stop(1)
    commit = asyncio.create_task(state.aio.commit("x"))
    assert await store.is_reached(commit)
    assert state["words"] is words
    assert state.get("words") is state.at("words") is words
    assert "words" in state
    assert space["x"] == [1]
    assert state.head.message == "round 2"
    assert not commit.done()
    store.go()
    await commit


SYNCHRONOUS: dict[str, Callable[[Versioned], object]] = {
    "set": lambda state: state.__setitem__("new", 1),
    "commit": lambda state: state.commit("another"),
    "status": Versioned.status,
    "keys": list,
    "sequence": lambda state: len(state.sequence("many")),
    "read": lambda state: state["notes"],
    "discard": Versioned.discard,
    "transaction": lambda state: state.transaction("t").__enter__(),
    "close": Versioned.close,
}


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("name", SYNCHRONOUS)
async def test_another_synchronous_call_waits_and_neither_waits_for_ever(name: str):
    store = Stopped(Memory())
    repository = commits_on(store)
    for stop in range(1, 60):
        state = Versioned(repository)
        state["words"].append("ours")
        state["n"] = stop
        state.release("notes")
        other = Versioned(repository)
        other[f"theirs {stop}"] = 1
        other.commit("theirs")
        store.stop(stop)
        commit = asyncio.create_task(state.aio.commit("ours"))
        if not await store.is_reached(commit):
            break
        helper = soon(lambda: asyncio.run(asyncio.sleep(0.002)), store.go)
        SYNCHRONOUS[name](state)
        assert repository.branches["main"].message in ("ours", "another")  # the commit came first
        helper.join()
        assert (await commit).message == "ours"
    assert stop > 3


async def test_hundreds_of_handles_commit_at_once():
    repository = Repository(Memory())
    states = [Versioned(repository, branch=f"b{n}") for n in range(3 * _THREADS)]
    for n, state in enumerate(states):
        state["n"] = [n]
    commits = await asyncio.gather(*(state.aio.commit("n") for state in states for _ in range(2)))
    assert len({commit.id for commit in commits}) == len(states)
    assert [state.checkout("HEAD")["n"] for state in states] == [[n] for n in range(len(states))]


def test_two_threads_with_an_event_loop_each_share_a_handle():
    state = Versioned()
    state["a"], state["b"] = [], []

    async def work(key: str) -> None:
        for n in range(30):
            await asyncio.gather(state.aio.commit(), state.aio.status())
            state[key].append(n)

    run_together(partial(asyncio.run, work(key)) for key in ("a", "b"))
    state.commit()
    assert dict(state.checkout("HEAD")) == {"a": list(range(30)), "b": list(range(30))}


# Transactions


async def test_a_transaction_belongs_to_its_task():
    state = Versioned()
    state["n"] = 0
    await state.aio.commit("base")
    entered, tried = asyncio.Event(), asyncio.Event()

    async def book() -> None:
        async with state.aio.transaction("A: book the hotel"):
            state["a"] = "booked"
            entered.set()
            await tried.wait()
            await state.aio.load("n")
            async with state.aio.transaction("inner"):
                state["inner"] = 1
            with pytest.raises(TransactionError, match="within a transaction"):
                await state.aio.commit()

    async def pay() -> None:
        await entered.wait()
        with pytest.raises(TransactionError, match="another task is in a transaction"):
            await state.aio.transaction("B: pay").__aenter__()
        for call in (state.aio.commit, state.aio.refresh, state.aio.discard, partial(state.aio.reset, "HEAD")):
            with pytest.raises(TransactionError, match="another task"):
                await call()
        with pytest.raises(TransactionError, match="another task"), state.transaction("B: pay"):
            raise AssertionError("it is not entered")
        tried.set()

    await asyncio.gather(book(), pay())
    assert state.head.message == "A: book the hotel"
    assert dict(state.checkout("HEAD")) == {"n": 0, "a": "booked", "inner": 1}


async def test_both_kinds_of_transaction_nest():
    state = Versioned()
    with state.transaction("outer"):
        state["a"] = 1
        async with state.aio.transaction("inner") as inner:
            assert inner is state
            state["b"] = 1
    async with state.aio.transaction("outer 2"):
        state["c"] = 1
        with suppress(RollbackWantedError), state.transaction("inner"):
            state["d"] = 1
            raise RollbackWantedError
    assert [commit.message for commit in state.log()] == ["outer 2", "outer"]
    assert dict(state) == {"a": 1, "b": 1, "c": 1}


async def test_a_transaction_that_fails_or_is_cancelled_is_rolled_back():
    state = Versioned()
    held: list[Any] = [1]
    state["l"] = held
    await state.aio.commit("base")
    state["l"].append("before")

    async def work(failure: BaseException | None) -> None:
        async with state.aio.transaction("never", author="me"):
            state["l"].append("inside")
            state["new"] = 1
            if failure is not None:
                raise failure
            await asyncio.sleep(PATIENCE_S)

    with pytest.raises(RollbackWantedError):
        await work(RollbackWantedError())
    assert (state["l"], dict(state)) == ([1, "before"], {"l": held})
    task = asyncio.create_task(work(None))
    while "new" not in state:  # noqa: ASYNC110 - the task is stopped where it stands
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert state["l"] is held
    assert dict(state) == {"l": [1, "before"]}
    async with state.aio.transaction("at last", author="me"):
        state["l"].append("inside")
    assert (state.head.author, state.head.message, state["l"]) == ("me", "at last", [1, "before", "inside"])
    task = asyncio.create_task(work(None))
    coroutine = work(None)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    coroutine.close()


def test_a_block_that_its_task_left_behind_is_rolled_back_by_the_next_call():
    state = committed(n=0)

    async def work() -> None:
        async with state.aio.transaction("never"):
            state["n"] = 1
            await asyncio.sleep(PATIENCE_S)

    loop = asyncio.new_event_loop()
    task = loop.create_task(work())
    while state["n"] == 0:
        loop.run_until_complete(asyncio.sleep(0.001))
    task._coro.close()  # type: ignore[attr-defined] # as the garbage collector does with the task of a loop that was closed
    task.cancel()
    loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
    loop.close()
    assert state["n"] == 0
    state["n"] = 5
    assert state.commit("goes on").parents == (state.checkout("HEAD~1").commit.id,)  # type: ignore[union-attr]


# Opening and closing


async def test_a_state_is_opened_and_closed_off_the_loop(tmp_path: Any):
    async with await versioned_state.open_async(f"disk:{tmp_path / 'state'}", author="me") as state:
        state["n"] = 1
        await state.aio.commit("one")
        store = state.repository.store
    with pytest.raises(HandleClosedError):
        state["n"] = 2
    with pytest.raises(Exception, match="closed"):
        store.get("x")
    with pytest.raises(StoreNotFoundError):
        await versioned_state.open_async(tmp_path / "other", create=False)
    again = await versioned_state.open_async(tmp_path / "state", read_only=True)
    assert again["n"] == 1
    await again.aio.close()
    await again.aio.run(again.close)  # idempotent
    assert (
        inspect.signature(versioned_state.open_async).parameters == inspect.signature(versioned_state.open).parameters
    )


def test_a_state_that_is_closed_with_changes_warns():
    async def main() -> None:
        async with Versioned(Memory()) as state:
            state["n"] = 1

    with pytest.warns(ResourceWarning, match="closed with changes"):
        asyncio.run(main())


@pytest.fixture
def interrupts() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_ends_the_call_under_way_first(interrupts: None):
    store = Stopped(Memory())
    state = Versioned(commits_on(store))
    state["n"] = "interrupted"
    store.stop(1)

    async def main() -> None:
        await state.aio.commit("on its way")

    def interrupt() -> None:
        assert store.reached.wait(PATIENCE_S)
        signal.raise_signal(signal.SIGINT) if hasattr(signal, "pthread_kill") is False else signal.pthread_kill(
            main_thread, signal.SIGINT
        )
        store.go()

    main_thread = get_ident()
    helper = soon(interrupt)
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(main())
    helper.join()
    assert state.head.message == "on its way"
    assert not state.status()


def test_a_call_whose_loop_is_gone_leaves_a_handle_that_goes_on():
    store = Stopped(Memory())
    repository = commits_on(store)
    state = Versioned(repository)
    state.copy()
    other = Versioned(repository)
    other["words"].append("theirs")
    other.commit("theirs")
    state["n"] = "ours"
    store.stop(2)
    loop = asyncio.new_event_loop()
    task = loop.create_task(state.aio.refresh())
    loop.run_until_complete(store.is_reached(task))
    loop.close()  # the call wants to hold the loop, and there is none
    store.go()
    assert state["words"][-1] in ("theirs", "w2")
    state.refresh()
    assert (state["words"][-1], state["n"]) == ("theirs", "ours")
    assert state.commit("ours").parents == (other.head.id,)
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    task._coro.close()  # type: ignore[attr-defined]


# The surroundings of a call


async def test_a_call_runs_in_the_context_of_its_task_and_calls_what_a_subclass_has():
    class Mine(Versioned):
        def discard(self) -> None:
            found.append(request.get())

    request: ContextVar[str] = ContextVar("request")
    found: list[str] = []

    request.set("r1")
    state = Mine()
    await state.aio.discard()
    assert found == ["r1"]
    kept = weakref.ref(state)
    del state
    gc.collect()
    await until(lambda: kept() is None)  # the thread lets the ended call go a moment after it has answered


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform has no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_process_has_threads_of_its_own():
    async def commit() -> str:
        state = Versioned()
        state["n"] = 1
        return (await state.aio.commit("one")).message

    assert asyncio.run(commit()) == "one"
    child = os.fork()
    if not child:
        try:
            os._exit(0 if asyncio.run(commit()) == "one" else 1)
        finally:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0


async def test_a_lock_that_another_thread_takes_at_this_moment_does_not_stop_the_loop(monkeypatch):
    # As if the thread had taken it after the look at it. It may itself wait for this loop, so the loop must not wait
    # for it.
    monkeypatch.setattr(HandleLock, "is_free", True)
    state = Versioned()
    state["n"] = 1
    taken, given = threading.Event(), threading.Event()

    def hold() -> bool:
        with state._lock:
            taken.set()
            return given.wait(20)

    holding = asyncio.ensure_future(asyncio.to_thread(hold))
    await asyncio.to_thread(taken.wait, 20)
    commit = asyncio.ensure_future(state.aio.commit("while another thread has the lock"))
    await asyncio.sleep(0.01)
    given.set()
    assert await holding
    await commit
    assert state.head.message == "while another thread has the lock"
    assert not state.status()
