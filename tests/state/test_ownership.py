"""Who opens a store closes it, and a handle that is left with changes says so."""

from __future__ import annotations

import gc
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from math import inf
from pathlib import Path
from typing import Any

import pytest

import versioned_state
from tests.support.handles import RollbackWantedError, committed
from tests.support.lossy import Lossy
from versioned_state import Disk, Memory, Repository, Versioned
from versioned_state.errors import (
    HandleClosedError,
    StateError,
    StoreClosedError,
    UnreachableStoreError,
)
from versioned_state.storage import Cache, Counting


def open_files(folder: Path) -> int:
    """How many files of a folder this process has open."""
    count = 0
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # the one that lists them is gone
            count += str(descriptor.readlink()).startswith(str(folder))
    return count


def collect(states: list[Versioned]) -> None:
    states.clear()
    gc.collect()


@contextmanager
def no_warning() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


# Stores


def test_a_handle_closes_no_store_of_others():
    store = Memory()
    with Versioned(store) as first, Versioned(store) as second:
        first["a"] = 1
        first.commit()
        first.close()
        second.refresh()
        second["b"] = 2
        second.commit()
    assert dict(Versioned(store)) == {"a": 1, "b": 2}


def test_open_closes_its_store(tmp_path):
    state = versioned_state.open(tmp_path / "store")
    store = state.repository.store
    state.close()
    with pytest.raises(StoreClosedError):
        store.get("x")
    assert open_files(tmp_path) == 0


@pytest.mark.usefixtures("without_collector")
@pytest.mark.parametrize(
    "wrap",
    [lambda store: store, lambda store: Cache(Counting(store)), Repository],
    ids=["store", "wrapped", "repository"],
)
def test_a_store_that_nobody_else_refers_to_closes_with_its_handle(wrap, tmp_path):
    with Versioned(wrap(Disk(tmp_path / "store"))) as state:
        space, sequence = state.namespace("n"), state.sequence("list")
        state["a"] = [1]
        state.commit()
        state["a"].append(2)
        sequence.append(1)
        state.status()
        with state.transaction():
            space["b"] = 1
        state.undo()
        state.redo()
        assert len(list(state.log())) == 2
        assert open_files(tmp_path) > 0
    assert open_files(tmp_path) == 0
    assert state.branch == "main"


@pytest.mark.usefixtures("without_collector")
def test_a_store_stays_open_while_somebody_refers_to_it(tmp_path):
    state = Versioned(Disk(tmp_path / "store"))
    state["a"] = 1
    past = state.checkout(state.commit())
    state.close()
    assert past["a"] == 1
    assert open_files(tmp_path) > 0
    del past
    assert open_files(tmp_path) == 0


# Changes that are not committed


def changed(state: Versioned, how: str) -> None:
    if how == "assigned":
        state["list"] = "new"
    elif how == "in place":
        state["list"].append(2)
    elif how == "removed":
        del state["list"]
    elif how == "appended":
        state.sequence("list").append(2)
    else:
        state.namespace("list")["x"] = 1


HOW = ("assigned", "in place", "removed", "appended", "in a namespace")


@pytest.mark.parametrize("how", HOW)
def test_leaving_with_changes_warns(how):
    store = Memory()
    with Versioned(store, branch="work") as state:
        state["list"] = [1]
        state.commit()
    with pytest.warns(ResourceWarning, match=r"'work'.*list"), Versioned(store, branch="work") as state:
        changed(state, how)
    state = Versioned(store, branch="work")
    changed(state, how)
    with pytest.warns(ResourceWarning, match=r"closed.*list") as caught:
        state.close()
    assert caught[0].filename == __file__
    with no_warning():
        state.close()


@pytest.mark.parametrize("how", [how for how in HOW if how != "in place"])
def test_a_collected_handle_with_changes_warns(how):
    store = Counting(Memory())
    with Versioned(store) as state:
        state["list"] = [1]
        state.commit()
    state = Versioned(store)
    changed(state, how)
    store.reset()
    states = [state]
    del state
    with pytest.warns(ResourceWarning, match="'main' was dropped with changes"):
        collect(states)
    assert store.counts.round_trips == 0, "a finalizer asks no store"


def test_leaving_without_changes_does_not_warn():
    store = Memory()
    with no_warning():
        with Versioned(store) as state:
            state["list"] = [1]
            state.commit()
            state["list"].append(2)
            state.commit()
            state["list"].append(3)
            state.discard()
            state["list"] = [1, 2]
        with suppress(RollbackWantedError), Versioned(store) as state:
            state["list"].append("the exception says enough")
            raise RollbackWantedError
        with Versioned() as state:
            state["a"] = "its memory ends with it, committed or not"
        state = Versioned(store)
        assert state["list"] == [1, 2]
        del state
        gc.collect()


class Unreachable(Lossy):
    """A store that gives no answer when it is closed either."""

    def close(self) -> None:
        self._answer()
        super().close()


def assign(state: Versioned) -> None:
    state["large"] = "new"


def change_in_place(state: Versioned) -> None:
    state["large"][5]["n"] = -1


def append(state: Versioned) -> None:
    state.sequence("large").append(1)


def remove(state: Versioned) -> None:
    del state["large"]


def change_small(state: Versioned) -> None:
    state["large_small"].append(1)


def become_unstorable(state: Versioned) -> None:
    state["large"].append(threading.Lock())


def prepared(store: Unreachable) -> Versioned:
    with Versioned(store) as state:
        state["large"] = [{"n": number, "text": "x" * 50} for number in range(2000)]
        state["large_small"] = [1]
        state["same"] = ["x" * 100] * 900
        state.commit()
    state = Versioned(store)
    assert state["same"]
    return state


@pytest.mark.parametrize("in_doubt", [False, True], ids=["", "after a failed commit"])
@pytest.mark.parametrize("how", ["down", "closed"])
@pytest.mark.parametrize("change", [assign, change_in_place, append, remove, change_small, become_unstorable])
def test_a_state_closes_whatever_its_store_does_and_names_what_is_lost(change, how, in_doubt):
    store = Unreachable()
    state = prepared(store)
    change(state)
    state._own_store = store
    if how == "down":
        store.silent = inf
    else:
        store.close()
    if in_doubt:
        with suppress(StateError):
            state.commit()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        state.close()
    changes, *others = [str(each.message) for each in caught if each.category is ResourceWarning]
    assert "not committed: large" in changes
    assert "same" not in changes
    assert ["could not be closed: no route" in other for other in others] == ([True] if how == "down" else [])
    with no_warning():
        state.close()
    with pytest.raises(HandleClosedError):
        state["large"]


def test_a_closed_state_of_a_store_that_fails_without_changes_is_silent():
    store = Unreachable()
    state = prepared(store)
    assert len(state["large"]) == 2000
    store.silent = inf
    with no_warning():
        state.close()


@pytest.mark.parametrize("change", [assign, remove, change_small])
def test_a_discard_reads_nothing_that_the_handle_has(change):
    store = Unreachable()
    state = prepared(store)
    large, small = state["large"], state["large_small"]
    change(state)
    store.silent = inf
    state.discard()
    assert state["large"] is large
    assert state["large_small"] is small
    assert small == [1]
    assert len(state["large"]) == 2000


def test_a_discard_that_must_read_fails_with_the_store_and_works_afterwards():
    store = Unreachable()
    state = prepared(store)
    change_in_place(state)
    state["new"] = 1
    store.silent = inf
    with pytest.raises(UnreachableStoreError):
        state.discard()
    store.silent = 0
    state.discard()
    assert state["large"][5]["n"] == 5
    assert not state.status()


def test_a_dropped_handle_is_freed_at_once(without_collector):
    """A cycle would keep it until the collector runs, and a Ctrl-C that arrives then is lost in ``__del__``."""
    repository = Repository(Memory())

    def use() -> list[weakref.ref[Any]]:
        state = committed(repository, messages=["x" * 100] * 100)
        state.sequence("messages").append("y")
        with state.transaction():
            state.namespace("notes")["n"] = 1
        other = state.fork("other")
        other["theirs"] = 1
        other.commit()
        state["ours"] = 1
        state.commit()
        state.merge("other")
        state.refresh()
        state.undo()
        state.reset("HEAD~1")
        state["dropped"] = 1
        state.discard()
        return [weakref.ref(each) for each in (state, state._handle, state._worktree, other)]

    assert [each() for each in use()] == [None] * 4


def test_a_handle_whose_commit_was_merged_is_freed_at_once(without_collector):
    repository = Repository(Memory())

    def use() -> weakref.ref[Any]:
        first, second = Versioned(repository), Versioned(repository)
        first["theirs"] = 1
        first.commit()
        second["ours"] = 1
        assert second.commit().parents == (first.head.id,)
        return weakref.ref(second._handle)

    assert use()() is None


def test_a_store_that_is_down_is_asked_once_a_call_what_came_of_an_interrupted_commit():
    store = Lossy()
    state = Versioned(store)
    state["a"] = 1
    store.lose("reply", silent=inf, error=KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        state.commit()
    calls: list[Callable[[], Any]] = [
        state.status,
        lambda: state.update(a=2),
        state.refresh,
        lambda: state.transaction().__enter__(),
    ]
    for call in calls:
        store.unanswered = 0
        with pytest.raises(UnreachableStoreError):
            call()
        assert store.unanswered == 1
    store.silent = 0
    assert not state.status()
    assert len(list(state.log())) == 1
