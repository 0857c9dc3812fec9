"""Garbage collection: what is reachable stays, what is not goes, whoever does what between any two of its calls of the store."""

from __future__ import annotations

import itertools
import os
import random
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from tests.support.concurrent_stores import ActsBeforeCall
from tests.support.exact import exact
from tests.support.handles import insist
from tests.support.processes import start
from tests.support.stores import MinimalStore
from tests.support.strategies import make_large
from versioned_state import Cache, Commit, Disk, KVStore, Memory, OnMoved, Repository, Versioned
from versioned_state.errors import (
    BranchMovedError,
    CorruptObjectError,
    InvalidArgumentError,
    MergeConflictError,
    MissingObjectError,
    RefExistsError,
    StorageError,
    StorageFullError,
    StoreBusyError,
    UnknownRevisionError,
    UnsafeStoreError,
)
from versioned_state.objects.keys import GC
from versioned_state.repository.history.commit import ROOT_ID
from versioned_state.repository.maintenance.gc import TAKEOVER_US
from versioned_state.repository.maintenance.prune import prune
from versioned_state.repository.refs import gc_fence
from versioned_state.repository.refs.gc_fence import GcRecord, read_gc_record
from versioned_state.state.worktree import worktree
from versioned_state.storage import Counting, Fault, Faulty, InjectedCrash, Wrapper

NOW = timedelta(0)
MINUTE_US = 60_000_000


def prepare(store: KVStore) -> dict[str, str]:
    """A branch, a tag on it, and garbage beside it; the ids of some commits."""
    state = Versioned(store, clock=itertools.count(1_000_000).__next__)
    state["messages"] = make_large("list", 400, 1)
    state["prefs"] = {"theme": "dark"}
    ids = {"first": state.commit("first").id}
    state.repository.tags.create("v1")
    state["messages"].append({"n": 1})
    ids["second"] = state.commit("second").id
    state["other"] = make_large("nested", 200, 2)
    state["blob"] = random.Random(1).randbytes(200_000)
    ids["dropped"] = state.commit("dropped").id
    state.reset(ids["second"])
    state.repository.branches.create("side")
    side = Versioned(state.repository, branch="side")
    side["garbage"] = make_large("dict", 250, 3)
    ids["side"] = side.commit("side").id
    state.repository.branches.delete("side", force=True)
    return ids


def contents(store: KVStore) -> dict[str, Any]:
    """Of each branch and tag, its commits and their contents, all of it read."""
    repository = Repository(store)
    return {
        name: [(commit.id, exact(repository.snapshot(commit).copy())) for commit in repository.log(refs[name])]
        for refs in (repository.branches, repository.tags)
        for name in refs
    }


def assert_whole(store: KVStore) -> None:
    report = Repository(store).fsck()
    assert report.ok, "\n".join(map(str, report.findings))


# What is kept, and what goes


def test_what_nothing_leads_to_is_deleted_and_all_else_is_kept():
    store = Memory()
    ids = prepare(store)
    before = contents(store)
    repository = Repository(store)
    objects = sum(1 for _ in store.keys("o/"))
    report = repository.gc(expire=NOW)
    assert contents(store) == before
    assert (report.refs, report.kept + report.freed) == (3, objects)
    assert report.kept == sum(1 for _ in store.keys("o/"))
    assert report.kept_bytes == sum(len(value) for _, value in store.items("o/"))
    assert report.freed > 10
    assert report.freed_bytes is not None
    assert report.freed_bytes > 200_000
    for name in ("dropped", "side"):
        with pytest.raises(MissingObjectError):
            Repository(store).read(ids[name])
    assert_whole(store)
    assert repository.gc(expire=NOW).freed == 0


def test_the_reflog_keeps_what_was_dropped_until_it_expires():
    store = Memory()
    ids = prepare(store)
    now = 1_000_000 + 20 * MINUTE_US
    repository = Repository(store, clock=lambda: now)
    assert repository.gc(expire=timedelta(minutes=30)).freed == 0
    positions = [(p.commit and p.commit.id, p.action) for p in repository.reflog("main")]
    assert (ids["dropped"], "commit") in positions
    assert repository.gc(expire=timedelta(minutes=10)).freed > 0
    kept = [(p.commit and p.commit.id, p.action) for p in repository.reflog("main")]
    assert kept == [(ids["second"], "reset")], "the reflog ends where its entries have expired"
    assert [p.action for p in repository.reflog("side")] == ["delete"]
    with pytest.raises(UnknownRevisionError, match="moved only"):
        repository.commit("main@{3}")
    assert_whole(store)


def test_a_dry_run_says_the_same_and_writes_nothing():
    store = Memory()
    prepare(store)
    before = dict(store.items())
    dry = Repository(store).gc(expire=NOW, dry_run=True)
    assert dict(store.items()) == before
    done = Repository(store).gc(expire=NOW)
    assert dry.dry_run
    assert not done.dry_run
    for name in ("refs", "kept", "kept_bytes", "freed", "freed_bytes"):
        assert getattr(dry, name) == getattr(done, name)


@pytest.mark.parametrize("kind", ["memory", "disk"])
def test_gc_and_stats_report_one_size_for_one_thing(kind, tmp_path):
    store = Memory() if kind == "memory" else Disk(tmp_path / "store")
    prepare(store)
    repository = Repository(store)
    before = repository.stats().total
    report = repository.gc(expire=NOW)
    after = repository.stats()
    assert (report.kept, report.kept_bytes) == (after.reachable.objects, after.reachable.stored)
    assert (report.freed, report.freed_bytes) == (before.objects - after.total.objects, before.stored - after.total.stored)
    repository.close()


class Blind(Counting):
    """Cannot tell the size of a value without reading it."""

    def sizes(self, keys: Any) -> None:
        del keys


@pytest.mark.parametrize("kind", [Counting, Blind], ids=["sizes known", "sizes not known"])
def test_garbage_is_not_read(kind):
    store = Memory()
    state = Versioned(store)
    state["kept"] = "value"
    state.commit()
    repository = Repository(store)
    repository.gc(expire=NOW)
    counting = kind(store)
    repository = Repository(counting)
    counting.reset()
    repository.gc(expire=NOW)
    without = counting.reset()
    state.repository.branches.create("side")
    side = Versioned(store, branch="side")
    side["garbage"] = make_large("dict", 2000, 3)
    side.commit()
    state.repository.branches.delete("side", force=True)
    report = repository.gc(expire=NOW)
    assert report.freed > 100
    assert (report.freed_bytes is None) == (kind is Blind)
    assert counting.counts.objects_read <= without.objects_read + 4, "the reflog of the deleted branch, and no garbage"


def test_compacting_gives_the_room_back(tmp_path):
    with Repository(Disk(tmp_path / "store")) as repository:
        prepare(repository.store)
        assert repository.gc(expire=NOW).compacted is None
        before = sum(file.stat().st_size for file in (tmp_path / "store").iterdir())
        report = repository.gc(expire=NOW, compact=True)
        assert report.compacted is not None
        assert sum(file.stat().st_size for file in (tmp_path / "store").iterdir()) < before - 150_000
        assert_whole(repository.store)
    with pytest.raises(InvalidArgumentError, match="cannot be compacted"):
        Repository(Memory()).gc(compact=True)


def test_progress_is_told_and_ends_complete():
    store = Memory()
    prepare(store)
    told: list[tuple[int, int | None]] = []
    report = Repository(store).gc(expire=NOW, progress=lambda done, total: told.append((done, total)))
    assert told[0][1] is None
    assert told[-1] == (report.kept + report.freed,) * 2


def test_cut_history_is_collected():
    store = Memory()
    state = Versioned(store)
    for n in range(50):
        state["n"] = [n] * 100
        state.commit(str(n))
    prune(state.repository, keep_last=5, expire=NOW)
    before = contents(store)
    assert Repository(store).gc(expire=NOW).freed == 45
    assert contents(store) == before
    assert_whole(store)
    state["n"].append("after")
    state.commit("after")
    assert_whole(store)


def test_a_store_of_one_condition_is_refused_and_may_be_looked_at():
    store = MinimalStore()
    prepare(store)
    with pytest.raises(UnsafeStoreError, match="one condition"):
        Repository(store).gc(expire=NOW)
    assert Repository(store).gc(expire=NOW, dry_run=True).freed > 0
    assert GC not in store


def test_arguments():
    with pytest.raises(InvalidArgumentError, match="expire"):
        Repository().gc(expire=timedelta(seconds=-1))


@pytest.mark.parametrize("what", ["object", "ref"])
def test_a_damaged_store_is_not_collected(what):
    """What is missing could lead to anything."""
    store = Memory()
    ids = prepare(store)
    store.delete("o/" + ids["first"] if what == "object" else "ref/tag/v1")
    before = set(store.keys("o/"))
    with pytest.raises(StorageError):
        Repository(store).gc(expire=NOW)
    assert set(store.keys("o/")) == before
    assert read_gc_record(store.get(GC)).owner is None, "the next one need not wait"


# Others act between any two calls


def recommit(store: KVStore) -> None:
    """The content of what was dropped, again: its objects are there, be they garbage."""
    state = Versioned(store, branch="again")
    state["messages"] = [*make_large("list", 400, 1), {"n": 1}]
    state["other"] = make_large("nested", 200, 2)
    state["blob"] = random.Random(1).randbytes(200_000)
    state["garbage"] = make_large("dict", 250, 3)
    state.commit("again")
    assert exact(Repository(store).snapshot("again")["garbage"]) == exact(make_large("dict", 250, 3))


def append(store: KVStore) -> None:
    state = Versioned(store)
    state["messages"].append("between")
    state.commit("between")


def branch_and_reset(store: KVStore) -> None:
    repository = Repository(store)
    repository.branches.create("new", "main~1")
    Versioned(repository).reset("v1")
    repository.tags.delete("v1")
    Versioned(repository, branch="new").reset("main")


ACTIONS: dict[str, Callable[[KVStore], None]] = {"recommit": recommit, "append": append, "branch and reset": branch_and_reset}


@pytest.mark.parametrize("cached", [False, True], ids=["plain", "cached"])
@pytest.mark.parametrize("name", ACTIONS)
def test_others_act_before_each_call_of_gc(name, cached):
    act = ACTIONS[name]
    for k in itertools.count(1):
        store = Memory()
        prepare(store)
        writers = Cache(store) if cached else store
        if cached:
            contents(writers)  # so that it has what will be deleted
        between = ActsBeforeCall(store, lambda: act(writers), at=k)  # noqa: B023 - called within this round
        report = Repository(between).gc(expire=NOW)
        if not between.fired:
            break
        assert_whole(store)
        contents(store)
        act_again = Repository(store).gc(expire=NOW)
        assert_whole(store)
        assert report.freed + act_again.freed > 0
        contents(store)


def commit_stale(handle: Versioned) -> None:
    """A handle that has stood where nothing leads any more; its values were loaded and given long ago."""
    handle["messages"].append("late")
    handle["kept"] = handle["messages"]
    handle.commit("late")


def commit_large(handle: Versioned) -> None:
    handle["large"] = make_large("nested", 200, 9)
    handle["messages"].append("late")
    insist(handle)


def merge_late(handle: Versioned) -> None:
    handle["prefs"]["late"] = make_large("list", 60, 5)
    other = Versioned(Repository(handle.repository.store))
    other["theirs"] = make_large("list", 300, 4)
    insist(other)
    insist(handle)


WRITERS: dict[str, Callable[[Versioned], None]] = {"append": commit_stale, "large": commit_large, "merge": merge_late}


@pytest.mark.parametrize("flush_at", [5000, 1 << 21])
@pytest.mark.parametrize("name", WRITERS)
def test_gc_runs_before_each_call_of_a_writer(name, flush_at, monkeypatch):
    """A whole gc, which deletes what the writer has sent and what leads to nothing yet."""
    monkeypatch.setattr(worktree, "_FLUSH_AT", flush_at)
    write = WRITERS[name]
    for k in itertools.count(1):
        store = Memory()
        prepare(store)
        between = ActsBeforeCall(store, lambda: Repository(store).gc(expire=NOW))  # noqa: B023 - called within this round
        handle = Versioned(between)
        handle.copy()
        between.arm(k)
        write(handle)
        fired = between.fired
        between.arm(None)
        assert_whole(store)
        assert exact(Repository(store).snapshot("main").copy()) == exact(handle.copy()), k
        handle["messages"].append("and on")
        handle.commit()
        Repository(store).gc(expire=NOW)
        assert_whole(store)
        if not fired:
            break


def test_a_sweep_in_many_batches_beside_a_large_commit(monkeypatch):
    """The writer's objects go ahead, and gc deletes some of them: it is told, or they are sent again."""
    monkeypatch.setattr(worktree, "_FLUSH_AT", 5000)
    monkeypatch.setattr("versioned_state.repository.maintenance.gc._BATCH", 7)
    for k in itertools.count(1, 3):
        store = Memory()
        prepare(store)
        handle = Versioned(store)
        handle.copy()
        between = ActsBeforeCall(store, lambda: commit_large(handle), at=k)  # noqa: B023 - called within this round
        Repository(between).gc(expire=NOW)
        if not between.fired:
            break
        assert_whole(store)
        assert exact(Repository(store).snapshot("main").copy()) == exact(handle.copy())


@pytest.mark.parametrize("cached", [False, True], ids=["plain", "cached"])
def test_a_handle_whose_history_was_cut_and_collected(cached):
    """What it stands on is in no history any more: it is sent again where a cache has it, or the commit says what is gone."""
    store = Memory()
    state = Versioned(store)
    state["large"] = make_large("list", 400, 1)
    state.commit("one")
    handle = Versioned(Cache(store) if cached else store)
    handle["large"].append("ours")
    contents(handle.repository.store)
    other = Versioned(store)
    other["large"] = "something else"
    other.commit()
    prune(other.repository, keep_last=1, expire=NOW)
    Repository(store).gc(expire=NOW)
    with pytest.raises(MergeConflictError) if cached else pytest.raises((MergeConflictError, MissingObjectError)):
        handle.commit("ours")
    if cached:
        handle.commit("ours", on_moved=OnMoved.REPLACE)
        assert exact(Repository(store).snapshot("main").copy()) == exact(handle.copy())
    else:
        with pytest.raises(MissingObjectError):
            handle.commit("ours", on_moved=OnMoved.REPLACE)
        anew = Versioned(store)  # the value is at hand
        anew["large"] = handle["large"]
        anew.commit()
        assert Repository(store).snapshot("main")["large"][-1] == "ours"
    assert_whole(store)
    contents(store)


@pytest.mark.parametrize("how", ["branch", "tag", "reset"])
def test_nothing_can_point_to_what_was_collected(how):
    """The commit is at hand as an object, and in the cache of the repository; the store has it no more, or only a part of it."""
    store = Memory()
    ids = prepare(store)
    repository = Repository(store)
    state = Versioned(repository)
    dropped = repository.commit(ids["dropped"])
    assert repository.snapshot(dropped)["other"]
    part = {key: store.get(key) or b"" for key in list(store.keys("o/"))}
    Repository(store).gc(expire=NOW)
    store.set("o/" + dropped.id, part["o/" + dropped.id])  # as where a gc died between two batches

    def point(at: Commit) -> object:
        if how == "reset":
            return state.reset(at)
        return (repository.branches if how == "branch" else repository.tags).create("new", at)

    with pytest.raises(MissingObjectError):
        point(dropped)
    assert_whole(store)
    assert "new" not in repository.branches
    point(repository.commit("main~1"))
    store.set_many(part)
    if how != "reset":
        refs = repository.branches if how == "branch" else repository.tags
        refs.delete("new")
    assert point(dropped) == dropped, "it is whole again: nothing of it is missing"
    assert_whole(store)
    Repository(store).gc(expire=NOW)
    assert_whole(store)
    assert exact(Repository(store).snapshot("new" if how != "reset" else "main")["other"]) == exact(make_large("nested", 200, 2))


# Failures, crashes, and another gc


@pytest.mark.parametrize("crash", [False, True], ids=["fails", "crashes"])
@pytest.mark.parametrize("fault", list(Fault), ids=lambda fault: fault.value)
def test_gc_that_fails_at_any_call_leaves_a_whole_store(fault, crash, monkeypatch):
    monkeypatch.setattr("versioned_state.repository.maintenance.gc._BATCH", 40)
    for k in itertools.count(1):
        store = Memory()
        prepare(store)
        before = contents(store)
        faulty = Faulty(store, at=k, fault=fault, crash=crash)
        with suppress(StorageError, InjectedCrash):
            Repository(faulty).gc(expire=NOW)
        assert contents(store) == before
        assert_whole(store)
        append(store)
        before = contents(store)
        Repository(store).gc(expire=NOW)  # neither a failed gc nor a dead one is waited for
        assert contents(store) == before
        assert_whole(store)
        assert Repository(store).gc(expire=NOW).freed == 0
        assert read_gc_record(store.get(GC)).owner is None
        if not faulty.fired:
            break


def test_a_gc_whose_place_was_taken_deletes_nothing_more(monkeypatch):
    """It sleeps before any of its calls; meanwhile another gc runs, and a writer puts back what both took for garbage."""
    monkeypatch.setattr("versioned_state.repository.maintenance.gc._BATCH", 40)
    stopped = 0
    for k in itertools.count(1):
        store = Memory()
        prepare(store)

        def sleep(store: Memory = store) -> None:
            if read_gc_record(store.get(GC)).owner is not None:
                with pytest.raises(StoreBusyError, match="sign of life"):
                    Repository(store).gc(expire=NOW)
            Repository(store).gc(expire=NOW, force=True)
            recommit(store)

        between = ActsBeforeCall(store, sleep, at=k)
        try:
            Repository(between).gc(expire=NOW)
        except StoreBusyError as error:
            assert "took this one's place" in str(error)  # noqa: PT017 - whether it is raised depends on where it slept
            stopped += 1
        assert_whole(store)
        contents(store)
        if not between.fired:
            break
    assert stopped >= k - 6


class Full(Wrapper):
    """A store that has no room for any write after the `left`-th."""

    left: int | None = None

    def apply(self, *args: Any, **kwargs: Any) -> bool:
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise StorageFullError("no room")
        return super().apply(*args, **kwargs)


@pytest.mark.parametrize("left", range(4))
def test_a_gc_that_had_no_room_is_not_waited_for(left):
    """Not even its own name could it take out of the record."""
    store = Full(Memory())
    prepare(store)
    store.left = left
    with suppress(StorageFullError):
        Repository(store).gc(expire=NOW)
    store.left = None
    Repository(store).gc(expire=NOW)
    assert read_gc_record(store.get(GC)).owner is None
    assert_whole(store)


@pytest.mark.parametrize("at", [2, 3, 5, 9])
def test_an_interrupted_gc_gives_up_its_name(at):
    store = Memory()
    prepare(store)

    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Repository(ActsBeforeCall(store, interrupt, at=at)).gc(expire=NOW)
    assert read_gc_record(store.get(GC)).owner is None
    assert Repository(store).gc(expire=NOW).freed > 0


def test_a_gc_in_another_thread_is_waited_for():
    store = Memory()
    prepare(store)

    def try_another() -> None:
        if read_gc_record(store.get(GC)).owner is not None:
            with pytest.raises(StoreBusyError, match="sign of life"):
                Repository(store).gc(expire=NOW)
            refused.append(True)

    refused: list[bool] = []
    Repository(ActsBeforeCall(store, try_another, at=8)).gc(expire=NOW)
    assert refused


KILLED = """
import os, signal, sys
from datetime import timedelta
from versioned_state import Disk, Repository
from versioned_state.storage.wrapper import Wrapper

class Killed(Wrapper):
    left = int(sys.argv[2])

    def apply(self, *args, **kwargs):
        self.left -= 1
        if self.left < 0:
            os.kill(os.getpid(), signal.SIGSTOP if sys.argv[3] == "stop" else signal.SIGKILL)
        return super().apply(*args, **kwargs)

repository = Repository(Killed(Disk(sys.argv[1])))
print("ready", flush=True)
repository.gc(expire=timedelta(0))
"""


@pytest.mark.parametrize("left", [1, 2])
def test_a_gc_that_was_killed_is_not_waited_for(left, tmp_path):
    """Its process is gone, or not even reaped yet: its id, its start and the machine are in the record."""
    with Disk(tmp_path / "store") as store:
        prepare(store)
        process = start(KILLED, tmp_path / "store", left, "kill")
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert read_gc_record(store.get(GC)).owner is not None
        assert Repository(store).gc(expire=NOW).freed >= 0, "it is not even reaped"
        assert process.wait(10) == -signal.SIGKILL
        assert read_gc_record(store.get(GC)).owner is None
        assert_whole(store)
        process.communicate()


def test_a_gc_whose_process_is_stopped_is_waited_for_a_while(tmp_path):
    with Disk(tmp_path / "store") as store:
        prepare(store)
        process = start(KILLED, tmp_path / "store", 1, "stop")
        os.waitpid(process.pid, os.WUNTRACED)
        try:
            with pytest.raises(StoreBusyError, match="sign of life"):
                Repository(store).gc(expire=NOW)
            later = time.time_ns() // 1000 + TAKEOVER_US
            assert Repository(store, clock=lambda: later).gc(expire=NOW).freed > 0
            before = contents(store)
            recommit(store)
        finally:
            os.kill(process.pid, signal.SIGCONT)
        _, said = process.communicate(timeout=20)
        assert "took this one's place" in said, "it wakes up and deletes nothing more"
        assert contents(store).items() >= before.items()
        assert_whole(store)


def test_a_gc_on_another_machine_is_succeeded_after_a_while():
    store = Memory()
    prepare(store)
    now = 5_000_000
    dead = GcRecord().but(owner=b"dead", beat=now, epoch=1)
    assert dead.stored is not None
    store.set(GC, dead.stored)
    with pytest.raises(StoreBusyError) as caught:
        Repository(store, clock=lambda: now + TAKEOVER_US - 1).gc(expire=NOW)
    assert "--force" in caught.value.hint
    assert Repository(store, clock=lambda: now + TAKEOVER_US).gc(expire=NOW).freed > 0


# The record


def test_idle_gc_costs_a_commit_no_round_trip():
    store = Memory()
    prepare(store)
    for _ in range(2):
        counting = Counting(store)
        state = Versioned(counting)
        state["messages"].append(1)
        state.commit()
        counting.reset()
        for n in range(5):
            state["messages"].append(n)
            state.commit()
        assert counting.counts.applies == 5
        assert counting.counts.gets + counting.counts.get_manys <= 2
        Repository(store).gc(expire=NOW)  # and after it has run


def test_a_handle_from_before_a_gc_pays_once():
    store = Memory()
    prepare(store)
    counting = Counting(store)
    state = Versioned(counting)
    state["messages"].append(1)
    state.commit()
    Repository(store).gc(expire=NOW)
    counts = []
    for n in range(4):
        counting.reset()
        state["messages"].append(n)
        state.commit()
        counts.append(counting.counts.round_trips)
    assert counts[0] <= 10
    assert max(counts[1:]) <= 2


def test_writers_put_down_where_refs_go_while_gc_is_at_work(monkeypatch):
    store = Memory()
    prepare(store)
    state, side = Versioned(store), Versioned(store, branch="side 2".replace(" ", "-"))
    Repository(store)
    begun = GcRecord().but(owner=b"someone", epoch=1)
    assert begun.stored is not None
    store.set(GC, begun.stored)

    def published() -> list[str]:
        return [address.hex() for address in read_gc_record(store.get(GC)).published]

    for n in range(3):
        state["n"] = n
        assert state.commit().id in published()
    assert len(published()) == 1, "the last one leads to those before it"
    side["n"] = 1
    side.commit()
    assert published() == [state.head.id, side.head.id]
    state.reset("HEAD~1")
    assert len(published()) == 4, "the entry of the reflog, and where it goes"
    monkeypatch.setattr(gc_fence, "MAX_PUBLISHED", 4)
    Versioned(store, branch="third").repository.branches.create("third", "main")
    record = read_gc_record(store.get(GC))
    assert (record.owner, record.published) == (None, ()), "so many wait only where it has died: it is called off"
    assert record.epoch == 2
    assert_whole(store)


@pytest.mark.parametrize("fault", list(Fault), ids=lambda fault: fault.value)
def test_a_writer_whose_store_fails_while_gc_is_at_work(fault):
    for k in itertools.count(1):
        store = Memory()
        prepare(store)
        faulty = Faulty(store)
        state = Versioned(faulty)
        state["messages"].append("before")
        state.commit()
        begun = GcRecord().but(owner=b"someone", epoch=1, sweeps=1)
        assert begun.stored is not None
        store.set(GC, begun.stored)
        state["messages"].append("now")
        faulty.arm(k, fault=fault)
        with suppress(StorageError):
            state.commit("now")
        fired = faulty.fired
        faulty.arm(None)
        state.commit("now")
        assert next(state.log()).message == "now"
        assert sum(commit.message == "now" for commit in state.log()) == 1
        record = read_gc_record(store.get(GC))
        assert Repository(store).branches["main"].id in {address.hex() for address in record.published}
        assert_whole(store)
        if not fired:
            break


class Watched(Memory):
    """Keeps each record of gc that was put."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[GcRecord] = []

    def apply(self, expected: Any, puts: Any, deletes: Any = (), *, objects: Any = None) -> bool:
        done = super().apply(expected, puts, deletes, objects=objects)
        if done and GC in puts:
            self.records.append(read_gc_record(puts[GC]))
        return done


def test_a_gc_that_looks_for_long_says_that_it_lives(monkeypatch):
    """And takes note of what was published meanwhile, so that the record stays short."""
    monkeypatch.setattr("versioned_state.repository.maintenance.gc._BEAT_S", 0.0)
    monkeypatch.setattr("versioned_state.repository.history.reach.BATCH", 5)
    store = Watched()
    prepare(store)
    between = ActsBeforeCall(store, lambda: append(store), at=12)
    Repository(between).gc(expire=NOW)
    marking = [record for record in store.records if record.owner is not None and record.sweeps == 0]
    published = [len(record.published) for record in marking]
    assert published.count(1) == 1
    assert published[-1] == 0, "before anything was deleted"
    assert [record.beat for record in marking if not record.published] == sorted({r.beat for r in marking if not r.published})
    assert len(marking) > 3
    assert_whole(store)


def test_a_damaged_record_keeps_nobody_from_reading_and_nobody_writes():
    store = Memory()
    ids = prepare(store)
    before = contents(store)
    store.set(GC, b"damaged, and long enough")
    assert contents(store) == before
    state = Versioned(store)
    state["n"] = 1
    with pytest.raises(CorruptObjectError, match="gc"):
        state.commit()
    assert state["n"] == 1
    with pytest.raises(CorruptObjectError):
        Repository(store).gc(expire=NOW)
    assert Repository(store).gc(expire=NOW, force=True).freed > 0
    assert state.commit().parents == (ids["second"],)
    assert_whole(store)


@pytest.mark.parametrize("field", ["epoch", "beat", "sweeps", "expired", "hold", "owner"])
def test_a_record_with_a_field_of_another_type_is_corrupt(field):
    record = GcRecord().but(**{field: "x"})
    with pytest.raises(CorruptObjectError, match="damaged"):
        read_gc_record(record.stored)


def test_a_writer_waits_for_a_moment_where_it_is_asked_to_and_no_longer():
    store = Memory()
    prepare(store)
    state = Versioned(store)
    asked = GcRecord().but(owner=b"dead", epoch=1, hold=True)
    assert asked.stored is not None
    store.set(GC, asked.stored)
    state["n"] = 1
    state.commit()
    assert Repository(store).snapshot("main")["n"] == 1


# At random, against a model

KEYS = ("a", "b")
VALUES = tuple(
    make_large(kind, size, seed) for seed, (kind, size) in enumerate([("list", 300), ("dict", 200), ("text", 1500), ("nested", 60)])
)
"""Few, so that what was garbage comes back all the time."""

steps = st.tuples(st.sampled_from(["put", "append", "commit", "branch", "drop", "tag", "reset", "undo", "create"]), st.integers(0, 2**16))


class GcMachine(RuleBasedStateMachine):
    """Two handles, each over a repository of its own, and gc, between whose calls they act."""

    def __init__(self) -> None:
        super().__init__()
        self.store = Memory()
        self.now = 1
        self.handles = [Versioned(Repository(Cache(self.store) if n else self.store, clock=self.clock)) for n in range(2)]
        self.known: dict[str, Any] = {ROOT_ID: exact({})}
        self.refs: dict[tuple[str, str], str] = {}
        self.commits: list[Commit] = []

    def clock(self) -> int:
        self.now += 1
        return self.now

    @rule(which=st.integers(0, 1), step=steps)
    def act(self, which: int, step: tuple[str, int]) -> None:
        self.do(which, step)

    @rule(acts=st.lists(st.tuples(st.integers(1, 30), st.integers(0, 1), steps), max_size=5), expire=st.sampled_from([0, 10, 1000]))
    def gc(self, acts: list[tuple[int, int, tuple[str, int]]], expire: int) -> None:
        due = sorted(acts, reverse=True)

        def go_on() -> None:
            while due and due[-1][0] <= between.calls:
                _, which, step = due.pop()
                self.do(which, step)
            between.at = due[-1][0] if due else None

        between = ActsBeforeCall(self.store, go_on, at=due[-1][0] if due else None)
        Repository(between, clock=self.clock).gc(expire=timedelta(microseconds=expire))

    def do(self, which: int, step: tuple[str, int]) -> None:
        what, seed = step
        rng = random.Random(seed)
        handle = self.handles[which]
        if what == "put":
            handle[rng.choice(KEYS)] = rng.choice(VALUES)
        elif what == "append":
            for value in handle.values():
                if isinstance(value, list):
                    value.append(seed % 3)
        elif what == "commit":
            # Where others moved the branch away, and what this handle stood on was collected, what it has not loaded is gone.
            with suppress(BranchMovedError, MissingObjectError):
                handle.discard() if seed % 7 == 0 else handle.commit(on_moved=OnMoved.REPLACE)
                self.note(handle.head, handle)
        else:
            with suppress(BranchMovedError, RefExistsError, UnknownRevisionError, MissingObjectError):
                self.move(handle, what, rng)

    def note(self, commit: Commit, handle: Versioned) -> None:
        if commit.id not in self.known:  # with nothing changed it is the old head, where others may have moved on
            self.refs["branch", handle.branch] = commit.id
            self.known[commit.id] = exact(Repository(self.store).snapshot(commit).copy())
            self.commits.append(commit)

    def move(self, handle: Versioned, what: str, rng: random.Random) -> None:
        repository = handle.repository
        if what == "reset":
            target = repository.commit(f"main~{rng.randrange(3)}")
            handle.discard()
            handle.refresh()
            handle.reset(target)
            self.refs["branch", "main"] = target.id
        elif what == "undo":
            target = repository.commit(f"main@{{{rng.randrange(4)}}}")
            handle.discard()
            handle.refresh()
            handle.reset(target)
            self.refs["branch", "main"] = target.id
        elif what in ("branch", "tag"):
            refs = repository.branches if what == "branch" else repository.tags
            self.refs[what, "x"] = refs.create("x", "main").id
        elif what == "create" and self.commits:
            commit = rng.choice(self.commits)  # it may have been collected long ago
            repository.branches.create("x", commit)
            self.refs["branch", "x"] = commit.id
        elif what == "drop":
            name = rng.choice(("branch", "tag"))
            if name == "branch":
                repository.branches.delete("x", force=True)
            else:
                repository.tags.delete("x")
            del self.refs[name, "x"]

    @invariant()
    def what_is_reachable_is_whole(self) -> None:
        assert_whole(self.store)
        repository = Repository(self.store)
        found = {("branch", name): commit.id for name, commit in repository.branches.items()}
        found |= {("tag", name): commit.id for name, commit in repository.tags.items()}
        assert found == {key: id for key, id in self.refs.items() if id != ROOT_ID or key in found}
        for id in set(found.values()):
            assert exact(repository.snapshot(id).copy()) == self.known[id]


def test_gc_never_takes_what_is_reachable():
    default = settings.default
    assert default is not None
    run_state_machine_as_test(GcMachine, settings=settings(stateful_step_count=default.stateful_step_count // 2))


def test_a_dry_run_knows_what_an_earlier_gc_took_for_expired():
    state = Versioned()
    for n in range(2):
        state["n"] = [n] * 500
        state.commit()
    state.reset("HEAD~1")
    state.repository.gc(expire=NOW)
    assert state.repository.gc(dry_run=True).freed == state.repository.gc().freed == 0
