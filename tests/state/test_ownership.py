"""Who opens a store closes it, and a handle that is left with changes says so."""

from __future__ import annotations

import gc
import warnings
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import versioned_state
from tests.support.handles import RollbackWantedError
from versioned_state import Disk, Memory, Repository, Versioned
from versioned_state.errors import StoreClosedError
from versioned_state.storage import Cache, Counting


def open_files(folder: Path) -> int:
    """How many files of a folder this process has open."""
    count = 0
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # the one that lists them is gone
            count += str(descriptor.readlink()).startswith(str(folder))
    return count


@pytest.fixture
def without_collector() -> Iterator[None]:
    """What closes at once closes without the help of the collector of cycles."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


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
    "wrap", [lambda store: store, lambda store: Cache(Counting(store)), Repository], ids=["store", "wrapped", "repository"]
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


def test_leaving_with_a_store_that_fails_warns_of_what_is_known():
    store = Memory()
    state = Versioned(store)
    state["large"] = ["x" * 100] * 900
    state.commit()
    state["large"][5] = 1
    state["other"] = 1
    store.close()
    with pytest.warns(ResourceWarning, match="other"):
        state.close()


def test_a_dropped_handle_is_freed_at_once(without_collector):
    """A cycle would keep it until the collector runs, and a Ctrl-C that arrives then is lost in ``__del__``."""
    repository = Repository(Memory())

    def use() -> list[weakref.ref[Any]]:
        state = Versioned(repository)
        state["messages"] = ["x" * 100] * 100
        state.commit()
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
