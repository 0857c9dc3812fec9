"""A gc in slices while the store fails at each call."""

from __future__ import annotations

import itertools
from contextlib import suppress
from datetime import timedelta

import pytest

from tests.support.garbage import assert_whole, contents
from tests.support.histories import Clock
from tests.support.stores import memory_of
from versioned_state import KVStore, Memory, Repository, Versioned
from versioned_state.errors import StateError, StorageError
from versioned_state.storage import Fault, Faulty

NOW = timedelta(0)
LATER = 1_800_000_000_000_000


pytestmark = pytest.mark.usefixtures("small_gc")


def filled() -> dict[str, bytes]:
    """Some sessions: another branch leads to the head of one, one has expired by ``LATER``, and one is deleted."""
    store = Memory()
    repository = Repository(store, clock=Clock())
    for n in range(6):
        state = Versioned(repository, branch=f"s{n}", ttl_seconds=60 if n == 3 else None)
        for number in range(5):
            state["messages"] = [f"{n} {number} {m}" for m in range(60)]
            state.commit()
    repository.branches.create("fork", "s1")
    state = Versioned(repository, branch="fork")
    state["more"] = 1
    state.commit()
    repository.branches.delete("s5", force=True)
    return dict(store.items())


PREPARED = filled()


def outcome(store: KVStore) -> dict[str, list[str]]:
    return {name: [id for id, _ in commits] for name, commits in contents(store).items()}


def collect_in_slices(store: KVStore, fault: Fault | None = None, at: int = 0) -> tuple[int, bool]:
    """Run slices until one finishes, the first over a store that fails once.

    Return their number, and whether the store failed.
    """
    fired = False
    for slices in itertools.count(1):
        faulty = Faulty(store)
        repository = Repository(faulty, clock=Clock(LATER + slices * 60_000_000_000))
        if fault is not None and not fired:
            faulty.arm(at if slices == 1 else 1_000_000, fault=fault)
        with suppress(StorageError, StateError):
            if repository.gc(expire=NOW, time_limit=1e-9 if slices < 40 else 100).finished:
                return slices, fired
        fired = fired or faulty.fired
        assert_whole(store)
    raise AssertionError


@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize("slices_before", [0, 6])
def test_a_slice_of_a_gc_that_fails_leaves_a_whole_store(fault: Fault, slices_before: int, long_run):
    prepared = memory_of(PREPARED)
    expected = outcome(prepared)
    for n in range(slices_before):
        Repository(prepared, clock=Clock(LATER + n * 60_000_000_000)).gc(expire=NOW, time_limit=1e-9)
    for k in itertools.count(1, 1 if long_run else 8):
        store = memory_of(dict(prepared.items()))
        slices, fired = collect_in_slices(store, fault, k)
        assert outcome(store) == expected, k
        assert slices < 60
        repository = Repository(store, clock=Clock(LATER * 2))
        report = repository.purge(branches="s4")
        assert report.branches == ("s4",)
        assert_whole(store)
        assert outcome(store) == {name: ids for name, ids in expected.items() if name != "s4"}
        repository.gc(expire=NOW)
        assert not list(store.keys("gc-marks/"))
        if not fired:
            break
    assert k > 6
