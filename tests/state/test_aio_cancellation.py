"""A call of ``aio`` that is cancelled anywhere ends first: it is known to be done or not, and the handle goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextlib import suppress
from threading import Event
from typing import Any

import anyio
import anyio.lowlevel
import pytest

import versioned_state
from tests.support.aio_calls import CALLS, edit
from tests.support.handles import cold, commits_on
from tests.support.watched_stores import PATIENCE_S, Stopped
from versioned_state import Memory, Repository, Versioned
from versioned_state.errors import StoreClosedError, UnreachableStoreError
from versioned_state.off_loop import off_loop
from versioned_state.state import open as opening

NAMES = "commit discard status reset restore load checkout merge cherry_pick rebase undo switch fork transaction"
WORK = {name: CALLS[name] for name in NAMES.split()} | {
    f"{name}, moved": CALLS[name] for name in ("commit", "commit of a key", "refresh")
}
CLEAN = {"merge", "cherry_pick", "rebase", "undo", "switch", "transaction"}


def prepared(name: str) -> tuple[Stopped, Versioned]:
    """A store that can be stopped, and a handle on it that is about to make a call."""
    store = Stopped(Memory())
    commits_on(store)
    repository = cold(store)
    state = Versioned(repository)
    state["many"], state["words"]
    if name not in CLEAN:
        edit(state)
    if name.endswith("moved"):
        other = Versioned(repository)
        other["many"][200]["text"] = other["theirs"] = "theirs"
        other.commit("theirs")
    return store, state


async def cancelled_at(store: Stopped, work: Awaitable[Any], stop: int, *, times: int = 1) -> bool:
    """Cancel some work while it is in its ``stop``-th call of the store. False if it made fewer calls, and ended."""
    store.stop(stop)
    task = asyncio.ensure_future(work)
    if not await store.is_reached(task):
        await task
        return False
    for _ in range(times):
        task.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert not task.done(), "it ends before it raises"
    store.go()
    with pytest.raises(asyncio.CancelledError):
        await task
    return True


def seen(state: Versioned) -> tuple[Any, ...]:
    """What a handle knows and holds, and what the store has."""
    repository = state.repository
    branches = {name: repository.snapshot(head).copy() for name, head in repository.branches.items()}
    return state.branch, state.head.message, state.copy(), str(state.status()), branches


@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("name", WORK)
def test_a_call_that_is_cancelled_in_the_store_has_done_all_that_it_does(name: str, times: int):
    async def main() -> int:
        _, state = prepared(name)
        await WORK[name](state)
        expected = seen(state)
        for stop in range(1, 200):
            store, state = prepared(name)
            if not await cancelled_at(store, WORK[name](state), stop, times=times):
                return stop - 1
            assert state.branch == expected[0]
            if name == "transaction" and state.head.message != "t":  # it was cancelled as it began
                assert seen(state) == seen(prepared(name)[1])
            else:
                assert seen(state) == expected, stop
                assert state.repository.branches[state.branch] == state.head
            # and the handle goes on, by references that are held
            state["words"].append(f"after {stop}")
            state["after"] = stop
            commit = await state.aio.commit("after")
            assert (
                dict(Versioned(state.repository, branch=state.branch)) == state.copy() == dict(state.checkout(commit))
            )
            assert state["words"][-1] == f"after {stop}"
        raise AssertionError("it never ends")

    assert asyncio.run(main()) >= (0 if name in ("status", "discard", "load") else 1)


async def test_a_commit_whose_store_fails_as_it_is_cancelled_is_not_made():
    class Failing(Stopped):
        failing = False

        def apply(self, *args: Any, **options: Any) -> bool:
            if not self.failing:
                return super().apply(*args, **options)
            self.before("apply")
            raise UnreachableStoreError("no route")

    store = Failing(Memory())
    state = Versioned(commits_on(store))
    edit(state)
    before = state.head
    store.failing = True
    store.stop(1)
    commit = asyncio.create_task(state.aio.commit("edited"))
    while not store.reached.is_set():  # noqa: ASYNC110 - it is set by another thread
        await asyncio.sleep(0)
    commit.cancel()
    store.go()
    with pytest.raises(asyncio.CancelledError) as caught:
        await commit
    assert isinstance(caught.value.__cause__, UnreachableStoreError)
    store.failing = False
    assert state.head == before
    assert state.status()
    assert (await state.aio.commit("edited")).parents == (before.id,)


async def test_a_call_that_is_cancelled_before_its_turn_does_nothing():
    store, state = prepared("commit")
    store.stop(1)
    first = asyncio.create_task(state.aio.commit("first"))
    assert await store.is_reached(first)
    second = asyncio.create_task(state.aio.reset("HEAD~2"))
    await asyncio.sleep(0)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    assert not first.done()
    store.go()
    assert await first == state.head
    assert state["n"] == 50


async def test_a_transaction_that_is_cancelled_as_it_waits_for_its_end_has_ended():
    store, state = prepared("transaction")

    async def work() -> None:
        transaction = state.aio.transaction("t")  # held by a name, as an ExitStack does
        async with transaction:
            edit(state)
            store.stop(1)
            slow.append(asyncio.create_task(state.aio.checkout("HEAD~2")))
            assert await store.is_reached(slow[0])
            task.cancel()
            asyncio.get_running_loop().call_later(0, store.go)

    slow: list[asyncio.Task[Any]] = []
    task = asyncio.create_task(work())
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await slow[0])["n"] == 1
    assert not state._transactions.open
    assert state.head.message in ("t", "round 2")
    assert (state["n"] == 50) == (state.head.message == "t")


async def test_a_stream_whose_step_is_cancelled_loses_no_element():
    store = Stopped(Memory())
    repository = commits_on(store)
    expected = list(Versioned(repository).log())
    for stop in range(1, 50):
        state = Versioned(cold(store))
        log = state.aio.log()
        commits: list[Any] = []

        async def read(log: Any = log, commits: list[Any] = commits) -> None:
            async for commit in log:
                commits.append(commit)  # noqa: PERF401 - those before the cancellation stay

        cancelled = await cancelled_at(store, read(), stop)
        await read()
        assert commits == expected, stop
        if not cancelled:
            assert stop > 1
            return


async def test_timeouts_of_asyncio_and_task_groups_are_told_apart_from_errors():
    loop = asyncio.get_running_loop()
    store, state = prepared("commit")
    store.stop(1)
    work = loop.create_task(state.aio.commit("waited for"))
    assert await store.is_reached(work)  # a commit that has not begun does nothing
    loop.call_later(0.02, store.go)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(work, 0.001)
    assert state.head.message == "waited for"
    store.stop(1)
    state["n"] = 49

    async def expire(limit: asyncio.Timeout, waiting: asyncio.Task[Any]) -> None:
        assert await store.is_reached(waiting)
        loop.call_later(0.02, store.go)
        limit.reschedule(loop.time())

    async def commit_in_time() -> None:
        waiting = asyncio.current_task()
        assert waiting is not None
        async with asyncio.timeout(None) as limit:
            expiry = loop.create_task(expire(limit, waiting))
            await state.aio.commit("edited")
        await expiry

    with pytest.raises(TimeoutError):
        await commit_in_time()
    assert state.head.message == "edited"
    store.stop(1)
    edit(state)
    state["n"] = 51
    try:
        async with asyncio.TaskGroup() as group:
            commit = group.create_task(state.aio.commit("edited again"))
            assert await store.is_reached(commit)
            asyncio.get_running_loop().call_later(0.01, store.go)
            raise LookupError
    except* LookupError:
        pass
    assert commit.cancelled()
    assert state.head.message == "edited again"


# anyio, which cancels a task at each step of the event loop until it gives in


@pytest.mark.parametrize("name", ["commit, moved", "merge", "transaction", "refresh, moved"])
def test_a_cancel_scope_of_anyio_is_heeded_when_the_call_has_ended(name: str):
    async def main() -> None:
        _, state = prepared(name)
        await WORK[name](state)
        expected = seen(state)
        for stop in range(1, 200):
            store, state = prepared(name)
            store.stop(stop)
            steps = 0

            async def count() -> None:
                nonlocal steps
                while True:
                    steps += 1
                    await anyio.sleep(0.001)

            async def cancel(scope: anyio.CancelScope, store: Stopped = store) -> None:
                while not store.reached.is_set():
                    await anyio.lowlevel.checkpoint()
                scope.cancel()
                await anyio.sleep(0.005)
                store.go()

            went_on = False
            async with anyio.create_task_group() as group:
                group.start_soon(count)
                with anyio.CancelScope() as scope:
                    group.start_soon(cancel, scope)
                    await WORK[name](state)
                    went_on = True
                    store.reached.set()
                group.cancel_scope.cancel()
            if went_on:
                assert stop > 1
                return
            assert scope.cancelled_caught
            if name == "transaction" and state.head.message != "t":
                assert seen(state) == seen(prepared(name)[1])
            else:
                assert seen(state) == expected
            state["after"] = stop
            with anyio.CancelScope():
                await state.aio.commit("after")
            assert dict(Versioned(state.repository, branch=state.branch)) == state.copy()

    anyio.run(main, backend="asyncio")


def test_twins_are_functions_that_a_task_group_of_anyio_starts():
    async def main() -> None:
        repository = Repository(Memory())
        states = [Versioned(repository, branch=f"b{n}") for n in range(3)]
        async with anyio.create_task_group() as group:
            for state in states:
                state["n"] = 1
                group.start_soon(state.aio.commit, "one")
        assert [head.message for head in repository.branches.values()] == ["one"] * 3

    anyio.run(main, backend="asyncio")


# Work off the loop


async def test_what_a_cancelled_call_made_is_undone():
    go, begun, undone = Event(), asyncio.Event(), []
    loop = asyncio.get_running_loop()

    def work() -> str:
        loop.call_soon_threadsafe(begun.set)
        assert go.wait(PATIENCE_S)
        return "made"

    async def undo(result: str) -> None:
        await asyncio.sleep(0)
        undone.append(result)

    task = asyncio.create_task(off_loop(work, undo=undo))
    await asyncio.wait_for(begun.wait(), PATIENCE_S)
    task.cancel()
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert undone == ["made"]


def test_a_state_whose_opening_is_cancelled_does_not_stay_open(monkeypatch: pytest.MonkeyPatch):
    async def main() -> int:
        for stop in range(1, 50):
            inner = Memory()
            store = Stopped(inner)
            monkeypatch.setattr(opening, "open_store", lambda *_, store=store, **__: store)
            if not await cancelled_at(store, versioned_state.open_async("memory:"), stop):
                return stop
            with pytest.raises(StoreClosedError):
                inner.get("x")
        raise AssertionError("it never ends")

    with suppress(ResourceWarning):
        assert asyncio.run(main()) > 1
