"""The feed of changes: what a watch reports, from where to where, what it costs, and what an interruption leaves."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from datetime import timedelta

import pytest

from tests.support.histories import SECOND, Clock
from tests.support.interrupts import Interrupt, interrupts
from tests.support.processes import start
from versioned_state import Disk, Memory, Repository, Versioned
from versioned_state.errors import InvalidArgumentError, StoreClosedError
from versioned_state.repository.names.watching import BranchMove
from versioned_state.storage import Counting, KVStore
from versioned_state.storage.testing.writers import run_together


def commit(repository: Repository, branch: str, n: int = 0) -> str:
    state = Versioned(repository, branch=branch)
    state["n"] = state.get("n", 0) + 1 + n
    return state.commit().id


def seen(moves: Iterator[BranchMove]) -> list[tuple[str, str | None, str | None]]:
    return [(move.name, move.before, move.id) for move in moves]


def test_a_watch_reports_each_move_from_where_to_where(any_store):
    repository = Repository(any_store, clock=Clock())
    old = commit(repository, "old")
    watch = repository.watch(timeout=0)
    assert seen(watch) == []
    one = commit(repository, "a")
    assert seen(watch) == [("a", None, one)]
    commit(repository, "a")
    three = commit(repository, "a")
    newer = commit(repository, "old")
    assert seen(watch) == [("a", one, three), ("old", old, newer)], "several moves are one"
    Versioned(repository, branch="a").reset("a~2")
    repository.branches.create("fork", at=three)
    assert seen(watch) == [("a", three, one), ("fork", None, three)]
    repository.branches.delete("fork", force=True)
    repository.branches.rename("old", "new")
    assert sorted(seen(watch)) == [("fork", three, None), ("new", None, newer), ("old", newer, None)]
    assert seen(watch) == []


def test_a_branch_that_has_long_rested_moves_from_its_last_head(any_store):
    clock = Clock()
    repository = Repository(any_store, clock=clock)
    rested = [commit(repository, "a"), commit(repository, "b"), commit(repository, "c")]
    clock.now += 100_000 * SECOND
    commit(repository, "other")
    watch = repository.watch(timeout=0)
    moved = commit(repository, "a"), commit(repository, "a")
    repository.branches.delete("b", force=True)
    repository.branches.rename("c", "d")
    assert seen(watch) == [
        ("a", rested[0], moved[1]),
        ("b", rested[1], None),
        ("c", rested[2], None),
        ("d", None, rested[2]),
    ]


def test_prefix_and_names(any_store):
    repository = Repository(any_store)
    users, two = repository.watch("user/", timeout=0), repository.watch(branches=["x", "user/2", "x"], timeout=0)
    ids = {name: commit(repository, name) for name in ("user/1", "user/2", "user", "x", "y")}
    assert seen(users) == [(name, None, ids[name]) for name in ("user/1", "user/2")]
    assert seen(two) == [(name, None, ids[name]) for name in ("user/2", "x")]
    repository.branches.rename("y", "user/3")
    repository.branches.delete("x", force=True)
    assert seen(users) == [("user/3", None, ids["y"])]
    assert seen(two) == [("x", ids["x"], None)]


@pytest.mark.parametrize("step", [0, 1, SECOND, 400 * SECOND])
def test_a_watch_goes_on_at_every_cursor(any_store, step):
    repository = Repository(any_store, clock=Clock(step=step))
    first = repository.watch(after="", timeout=0)
    ids = {name: commit(repository, name) for name in ("a", "b", "c")}
    moves = list(first)
    assert [move.id for move in moves] == list(ids.values())
    ids["d"] = commit(repository, "d")
    for number, move in enumerate(moves):
        known = {each.name: each.id for each in moves[: number + 1]}
        known |= {each.name: each.id for each in repository.watch(after=move.cursor, timeout=0)}
        assert known == ids, "from each cursor on, nothing is missed"
    last = repository.watch(after=first.cursor, timeout=0, lag=0)
    assert {move.name for move in last} >= {"d"}
    assert step == 0 or [move.name for move in repository.watch(after=last.cursor, timeout=0, lag=0)] == ["d"]


def test_a_clock_far_ahead_hides_nothing(any_store):
    ahead, here = Clock(), Clock()
    ahead.now += 10**6 * SECOND
    repository = Repository(any_store, clock=here)
    watch = repository.watch(timeout=0)
    far = commit(Repository(any_store, clock=ahead), "far")
    assert seen(watch) == [("far", None, far)]
    near = commit(repository, "near")
    assert seen(watch) == [("near", None, near)]
    again = repository.watch(after=watch.cursor, timeout=0)
    later = commit(repository, "later")
    assert ("later", None, later) in seen(again)


def test_a_poll_costs_what_moved_lately(tmp_path):
    clock = Clock(step=1)
    repository = Repository(Memory(), clock=clock)
    for number in range(300):
        commit(repository, f"s/{number:03}")
    clock.now += 1000 * SECOND
    commit(repository, "s/007")
    counting = Counting(repository.store)
    watching = Repository(counting, clock=clock)
    watch = watching.watch("s/", timeout=0)
    list(watch)
    counting.reset()
    assert list(watch) == []
    assert (counting.counts.round_trips, counting.counts.gets) == (3, 0)
    commit(repository, "s/008")
    counting.reset()
    assert [move.name for move in watch] == ["s/008"]
    assert counting.counts.round_trips <= 8


def test_all_of_thousands_of_branches_that_move_at_once_come_in_order(long_run):
    clock = Clock(step=1)
    repository = Repository(Memory(), clock=clock)
    total = 10_000 if long_run else 1500  # more than a page of the index
    first = commit(repository, "main")
    watch = repository.watch("s/", timeout=0)
    for number in range(total):
        repository.branches.create(f"s/{number:05}", at=first)
    moves = list(watch)
    assert [move.name for move in moves] == [f"s/{number:05}" for number in range(total)]
    assert [move.name for move in repository.watch("s/", after=moves[total // 2].cursor, lag=0, timeout=0)] == [
        move.name for move in moves[total // 2 :]
    ]


def test_an_erased_branch_is_reported_if_it_moved_lately():
    repository = Repository(Memory())
    one = commit(repository, "a")
    watch = repository.watch(timeout=0)
    repository.purge(branches="a")
    assert seen(watch) == [("a", one, None)]
    assert [*repository.store.keys("gone/"), *repository.store.keys("recent/")] == []


def test_a_deletion_leaves_a_place_in_an_index_that_goes_with_the_branch():
    clock = Clock()
    repository = Repository(Memory(), clock=clock)
    commit(repository, "a")
    commit(repository, "b")

    def gone() -> list[str]:
        assert repository.fsck().ok
        return [key.rpartition("/")[2] for key in repository.store.keys("gone/")]

    repository.branches.delete("a", force=True)
    assert gone() == ["a"]
    repository.branches.rename("b", "c")
    assert gone() == ["a", "b"]
    repository.branches.create("a", at="c")
    repository.branches.rename("c", "b")
    assert gone() == ["c"]

    repository.gc(expire=timedelta(0))
    assert gone() == []


@pytest.mark.parametrize(
    "arguments",
    [
        {"after": "yesterday"}, {"after": 5}, {"after": "9" * 40}, {"after": "٣"}, {"prefix": 1}, {"branches": "main"},
        {"branches": [1]}, {"interval": -1}, {"interval": "1"}, {"timeout": -1}, {"lag": None},
        {"timeout": float("nan")},
    ],
    ids=str,
)  # fmt: skip
def test_wrong_arguments_are_refused_at_the_call(arguments):
    with pytest.raises(InvalidArgumentError):
        Repository().watch(**arguments)


def test_the_iteration_ends_at_its_timeout_and_another_one_goes_on():
    repository = Repository()
    watch = repository.watch(timeout=0.01, interval=0.001)
    assert list(watch) == list(watch) == []
    one = commit(repository, "a")
    assert [move.id for move in watch] == [one]


def test_a_move_wakes_one_who_waits():
    repository = Repository()
    watch = repository.watch(interval=0.001)
    got: list[BranchMove] = []
    waiting = threading.Thread(target=lambda: got.append(next(watch)))
    waiting.start()
    one = commit(repository, "a")
    waiting.join()
    assert got[0].id == one


def test_two_threads_share_the_moves_of_a_watch():
    repository = Repository()
    watch = repository.watch(timeout=0)
    for number in range(200):
        commit(repository, f"b{number}")
    got = run_together([lambda: [move.name for move in watch]] * 2)
    assert sorted(got[0] + got[1]) == sorted(f"b{number}" for number in range(200))


def test_a_closed_store_ends_it_with_an_error_and_a_failed_poll_loses_nothing(tmp_path):
    from versioned_state.errors import StorageError
    from versioned_state.storage import Fault, Faulty

    repository = Repository(faulty := Faulty(Memory()))
    watch = repository.watch(timeout=0)
    one = commit(repository, "a")
    failed = 0
    for failing in range(1, 20):
        faulty.arm(failing, fault=Fault.BEFORE)
        try:
            moves = list(watch)
        except StorageError:
            failed += 1
            continue
        assert [move.id for move in moves] == [one]
        break
    assert failed
    faulty.arm(None)
    repository.close()
    with pytest.raises(StoreClosedError):
        next(watch)


def test_an_interrupt_at_any_line_loses_nothing_behind_the_cursor():
    clock = Clock()
    repository = Repository(Memory(), clock=clock)
    for trace in interrupts(7):
        watch = repository.watch(timeout=0)
        wanted = {name: commit(repository, name) for name in ("a", "b")}
        known: dict[str, str | None] = {}
        cursor = watch.cursor

        def follow(watch=watch, known=known) -> None:
            for move in watch:
                known[move.name] = move.id

        with contextlib.suppress(Interrupt):
            trace.run(follow)
        handled = dict(known)
        follow()
        lost = {name for name in wanted if known.get(name) != wanted[name]}
        assert len(lost) <= 1, f"all but one that was being handed over: {trace.hit}"
        known |= handled
        follow(repository.watch(after=cursor, timeout=0), known)
        assert {name: known[name] for name in wanted} == wanted, trace.hit


async def test_in_asyncio_the_loop_is_free_and_a_cancelled_step_loses_nothing():
    repository = Repository()

    watch = await repository.aio.watch(interval=0.001)
    step = asyncio.ensure_future(anext(watch))
    await asyncio.sleep(0)
    step.cancel()
    with pytest.raises(asyncio.CancelledError):
        await step
    one = commit(repository, "a")
    async for move in watch:
        assert move.id == one
        break
    watch = await repository.aio.watch(after="", timeout=0)
    assert [move.id async for move in watch] == [one]


WRITER = """
    import sys
    from versioned_state import Disk, Versioned
    for n in range(60):
        state = Versioned(Disk(sys.argv[1]), branch=f"{sys.argv[2]}/{n % 7}")
        state["n"] = n
        state.commit(str(n))
        state.close()
"""


def test_a_watch_sees_the_last_heads_of_other_processes(tmp_path):
    store: KVStore = Disk(tmp_path)
    repository = Repository(store)
    watch = repository.watch(interval=0.01, timeout=0)
    writers = [start(WRITER, tmp_path, who) for who in ("x", "y")]
    known: dict[str, str | None] = {}
    while any(writer.poll() is None for writer in writers):
        for move in watch:
            assert move.before == known.get(move.name)
            known[move.name] = move.id
    for writer in writers:
        assert writer.communicate()[1] == ""
    known |= {move.name: move.id for move in watch}
    assert known == {name: head.id for name, head in repository.branches.items()}
    repository.close()
