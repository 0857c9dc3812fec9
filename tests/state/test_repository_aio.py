"""``repository.aio``: a repository's calls off the event loop, and ``commit_together`` of states whose tasks go on."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import pytest

from tests.support.handles import lists_of, two_branches
from tests.support.interrupts import interrupts, run_in_loop
from tests.support.watched_stores import Stopped
from versioned_state import Memory, Repository, Versioned
from versioned_state.errors import (
    EventLoopError,
    InvalidArgumentError,
    MergeConflictError,
    StateError,
    TransactionError,
)
from versioned_state.repository.repository import RepositoryAio


def two(store: Stopped | None = None) -> tuple[Versioned, Versioned]:
    """The handles of ``two_branches``, each with an element that is not committed."""
    a, b = two_branches(store)
    a["n"].append(2)
    b["n"].append(2)
    return a, b


async def test_each_twin_gives_what_its_call_gives():
    repository = Repository()
    state = Versioned(repository)
    state["a"] = [1]
    first = state.commit("one")
    state["a"].append(2)
    state.commit("two")

    aio = repository.aio
    assert await aio.commit("main~1") == first
    assert await aio.default_branch() == "main"
    assert str(await aio.diff("main~1", "main")) == str(repository.diff("main~1", "main"))
    assert (await aio.snapshot("main"))["a"] == [1, 2]
    assert await aio.merge_base("main", first) == first
    assert await aio.parents(await aio.commit("main")) == [first]
    assert [part.commit for part in await aio.blame("a")] == [part.commit for part in repository.blame("a")]
    assert (await aio.fsck()).ok
    assert (await aio.gc()).freed == 0
    assert await aio.expire() == []
    assert (await aio.stats()).total == repository.stats().total
    assert (await aio.prune(keep_last=10)).removed == 0
    assert not (await aio.purge("nothing")).commits
    assert [commit.message for commit in await aio.run(lambda: list(repository.log()))] == ["two", "one"]
    with pytest.raises(StateError):
        await aio.commit("nowhere")
    await aio.close()


def test_the_twins_have_the_signatures_of_their_calls():
    repository = Repository()
    for name in (name for name in vars(RepositoryAio) if not name.startswith("_") and name != "run"):
        assert str(inspect.signature(getattr(repository.aio, name))) == str(
            inspect.signature(getattr(repository, name))
        ), name


def test_without_an_event_loop_it_says_so():
    repository = Repository()
    for work in (repository.aio.gc(), repository.aio.commit_together(two())):
        with pytest.raises(EventLoopError):
            work.send(None)


async def test_states_are_committed_together_as_they_were_when_it_was_called():
    a, b = two(store := Stopped(Memory()))

    store.stop(1)
    task = asyncio.ensure_future(a.repository.aio.commit_together([a, b], "second", meta={"round": 2}))
    assert await store.is_reached(task)
    a["n"].append(3)  # the tasks go on, with live values too
    store.go()
    made = await task
    assert made == [a.head, b.head]
    assert [(commit.message, commit.meta) for commit in made] == [("second", {"round": 2})] * 2
    assert lists_of(a.repository.store) == [[1, 2], [1, 2]]
    assert [str(change) for change in a.status()] == ["+ n[2] = 3"]
    assert await a.repository.aio.commit_together([]) == []


async def test_its_errors_are_those_of_the_call():
    a, b = two()
    other = Versioned(a.repository, branch="b")
    other["n"] = "theirs"
    other.commit()
    mixed: list[Any] = [a, {}]

    together = a.repository.aio.commit_together
    for states in (mixed, mixed[1:], [a, a], [a, Versioned(branch="c")]):
        with pytest.raises(InvalidArgumentError):
            await together(states)
    with pytest.raises(MergeConflictError):
        await together([a, b])
    c, d = two()
    async with d.aio.transaction():
        with pytest.raises(TransactionError):
            await together([c, d])
    assert await together([a, b], policies={"n": "ours"}) == [a.head, b.head]
    assert lists_of(a.repository.store) == [[1, 2], [1, 2]]


def test_tasks_and_threads_that_name_the_states_in_either_order_do_not_wait_for_each_other():
    a, b = two()

    async def work(states: list[Versioned], key: str) -> None:
        for n in range(10):
            a[key] = b[key] = n
            await a.repository.aio.commit_together(states)
            await a.aio.status()

    async def main() -> None:
        await asyncio.gather(
            work([a, b], "x"), work([b, a], "y"), work([b], "z"), asyncio.to_thread(asyncio.run, work([b, a], "w"))
        )

    asyncio.run(asyncio.wait_for(main(), 60))
    asyncio.run(a.repository.aio.commit_together([a, b]))
    assert [dict(a)[key] for key in "wxy"] == [9, 9, 9]
    assert not a.status()
    assert not b.status()


def test_a_synchronous_call_on_either_waits_for_the_end():
    a, b = two(store := Stopped(Memory()))

    async def main() -> None:
        for state in (a, b):
            state["m"] = 1
            store.stop(1)
            task = asyncio.ensure_future(a.repository.aio.commit_together([a, b]))
            assert await store.is_reached(task)
            asyncio.get_running_loop().run_in_executor(None, store.go)
            assert not state.status()  # it is over by then
            await task

    asyncio.run(asyncio.wait_for(main(), 60))


@pytest.mark.parametrize("moves", [False, True])
@pytest.mark.parametrize("times", [1, 3])
def test_a_call_that_is_cancelled_in_the_store_has_committed_all(moves, times):
    async def main() -> int:
        for stop in range(1, 50):
            a, b = two(store := Stopped(Memory()))
            if moves:
                other = Versioned(a.repository, branch="b")
                other["theirs"] = 1
                other.commit()
            store.stop(stop)
            task = asyncio.ensure_future(a.repository.aio.commit_together([a, b]))
            if not await store.is_reached(task):
                await task
                return stop - 1
            for _ in range(times):
                task.cancel()
                await asyncio.sleep(0)
            assert not task.done(), "it ends before it raises"
            store.go()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert lists_of(a.repository.store) == [[1, 2], [1, 2]]
            for state in (a, b):
                assert not state.status()
                state["n"].append(3)
                await state.aio.commit()
            assert lists_of(a.repository.store) == [[1, 2, 3], [1, 2, 3]]
        raise AssertionError

    assert asyncio.run(main()) >= 1


async def test_a_call_that_is_cancelled_before_its_turn_does_nothing():
    a, b = two(store := Stopped(Memory()))

    store.stop(1)
    first = asyncio.ensure_future(b.aio.commit("alone"))
    assert await store.is_reached(first)
    second = asyncio.ensure_future(a.repository.aio.commit_together([a, b], "together"))
    await asyncio.sleep(0.01)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    store.go()
    await first
    assert lists_of(a.repository.store) == [[1], [1, 2]]
    assert [str(change) for change in a.status()] == ["+ n[1] = 2"]


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore:coroutine:RuntimeWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("moves", [False, True])
def test_an_interrupt_at_any_line_of_the_loop_leaves_all_or_none(moves, long_run):
    for trace in interrupts(1 if long_run else 7):
        a, b = two()
        if moves:
            other = Versioned(a.repository, branch="b")
            other["theirs"] = 1
            other.commit()
        run_in_loop(lambda a=a, b=b: a.repository.aio.commit_together([a, b]), trace)  # type: ignore[misc]
        made = lists_of(a.repository.store)
        assert made in ([[1], [1]], [[1, 2], [1, 2]]), trace.hit
        for state in (a, b):
            assert bool(state.status()) == (made[0] == [1]), trace.hit
            state["n"].append(3)
            state.commit()
        assert lists_of(a.repository.store) == [[1, 2, 3], [1, 2, 3]], trace.hit
        assert asyncio.run(a.repository.aio.commit_together([b, a])) == [b.head, a.head]
