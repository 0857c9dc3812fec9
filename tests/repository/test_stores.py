"""The engine asks of a store only what the contract gives: the same work has the same hashes over any kind of store."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.exact import clone, exact
from tests.support.store_workload import work
from tests.support.stores import MinimalStore
from versioned_state import Cache, Disk, KVStore, Memory, Repository, Versioned
from versioned_state.errors import StorageError
from versioned_state.storage import Counting, Fault, Faulty, InjectedCrash

STORES: dict[str, Callable[[Path], KVStore]] = {
    "memory": lambda folder: Memory(),
    "disk": Disk,
    "disk, synced": lambda folder: Disk(folder, durability="power"),
    "cache": lambda folder: Cache(Disk(folder)),
    "small cache": lambda folder: Cache(Memory(), max_bytes=2000),
    "counting": lambda folder: Counting(Memory()),
    "the least": lambda folder: MinimalStore(),
}


def test_the_same_over_every_store(tmp_path):
    expected = work(Memory())
    for number, (name, make) in enumerate(STORES.items()):
        with make(tmp_path / str(number)) as store:
            assert work(store) == expected, name


def test_two_caches_over_one_store_show_the_same_head():
    store = Memory()
    a, b = Versioned(Cache(store)), Versioned(Cache(store))
    for n in range(5):
        a["n"] = n
        head = a.commit()
        assert b.refresh() == head
        assert b["n"] == n
        assert Repository(Cache(store)).branches["main"] == head


@pytest.mark.parametrize("fault", list(Fault), ids=lambda fault: fault.value)
def test_a_commit_too_large_to_be_held_is_all_or_nothing(fault):
    """A large commit stores its objects ahead, in several batches.

    Those that a failed one leaves behind are not part of any history.
    """
    rng = random.Random(1)
    large = [rng.randbytes(60_000) for _ in range(700)]
    for k in (1, 2, 3, 4):
        store = Memory()
        faulty = Faulty(store)
        state = Versioned(faulty)
        state["kept"] = [1]
        first = state.commit("first")
        state["large"] = large
        faulty.arm(k, fault=fault)
        failed = False
        try:
            state.commit("large")
        except StorageError:
            failed = True
        repository = Repository(store)
        assert failed == (repository.branches["main"] == first) or fault is Fault.AFTER
        assert list(repository.snapshot("main")) in (["kept"], ["kept", "large"])
        state["kept"].append(2)
        state.commit("again")
        assert exact(Repository(store).snapshot("main").copy()) == exact({"kept": [1, 2], "large": large})
        assert [commit.message for commit in Repository(store).log("main")].count("large") == int(not failed)
        if not failed:
            break


def test_a_crash_in_a_commit_too_large_to_be_held():
    rng = random.Random(1)
    large = [rng.randbytes(60_000) for _ in range(700)]
    for k in (1, 2, 3):
        store = Memory()
        faulty = Faulty(store)
        state = Versioned(faulty)
        state["kept"] = [1]
        state.commit("first")
        state["large"] = clone(large)
        faulty.arm(k, fault=Fault.PARTIAL, crash=True)
        with suppress(InjectedCrash):
            state.commit("large")
        again = Versioned(store)
        assert list(again) == ["kept"]
        again["large"] = large
        assert again.checkout(again.commit())["large"] == large
