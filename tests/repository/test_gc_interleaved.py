"""Garbage collection beside writers: whoever acts between any two calls of it, what is reachable stays."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from tests.support.concurrent_stores import ActsBeforeCall
from tests.support.exact import exact
from tests.support.garbage import NOW, append, assert_whole, contents, prepare, recommit
from tests.support.handles import committed, insist
from tests.support.strategies import make_large
from versioned_state import Cache, Commit, KVStore, Memory, OnMoved, Repository, Versioned
from versioned_state.errors import BranchMovedError, MergeConflictError, MissingObjectError
from versioned_state.repository.maintenance.prune import prune
from versioned_state.state.worktree import worktree


def branch_and_reset(store: KVStore) -> None:
    repository = Repository(store)
    repository.branches.create("new", "main~1")
    Versioned(repository).reset("v1")
    repository.tags.delete("v1")
    Versioned(repository, branch="new").reset("main")


ACTIONS: dict[str, Callable[[KVStore], None]] = {
    "recommit": recommit,
    "append": append,
    "branch and reset": branch_and_reset,
}


@pytest.mark.parametrize("cached", [False, True], ids=["plain", "cached"])
@pytest.mark.parametrize("name", ACTIONS)
def test_others_act_before_each_call_of_gc(name, cached, long_run):
    act = ACTIONS[name]
    # Everyday without a cache before the odd calls, with one before the even ones.
    for k in itertools.count(1) if long_run else itertools.count(1 + cached, 2):
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
    """A handle at a commit that nothing leads to any more. Its values were loaded and assigned long ago."""
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
    monkeypatch.setattr("versioned_state.repository.maintenance.gc.collector._BATCH", 7)
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
    """What it stands on is in no history any more: it is sent again from a cache, or the commit says what is gone."""
    store = Memory()
    state = Versioned(store)
    state["large"] = make_large("list", 400, 1)
    state.commit("one")
    handle = Versioned(Cache(store) if cached else store)
    handle["large"].append("ours")
    contents(handle.repository.store)
    other = committed(store, large="something else")
    prune(other.repository.database, keep_last=1, expire=NOW)
    Repository(store).gc(expire=NOW)
    with pytest.raises(MergeConflictError) if cached else pytest.raises((MergeConflictError, BranchMovedError)):
        handle.commit("ours")
    if cached:
        handle.commit("ours", on_moved=OnMoved.REPLACE)
        assert exact(Repository(store).snapshot("main").copy()) == exact(handle.copy())
    else:
        with pytest.raises(BranchMovedError):
            handle.commit("ours", on_moved=OnMoved.REPLACE)
        anew = Versioned(store)  # the value is at hand
        anew["large"] = handle["large"]
        anew.commit()
        assert Repository(store).snapshot("main")["large"][-1] == "ours"
    assert_whole(store)
    contents(store)


@pytest.mark.parametrize("how", ["branch", "tag", "reset"])
def test_nothing_can_point_to_what_was_collected(how):
    """The commit is at hand as an object and in the repository's cache, but the store has lost all or part of it."""
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
    assert exact(Repository(store).snapshot("new" if how != "reset" else "main")["other"]) == exact(
        make_large("nested", 200, 2)
    )
