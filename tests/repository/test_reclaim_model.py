"""Branches are erased at their own cost beside everything else that a store lives through: nobody loses an object."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from fnmatch import fnmatchcase

import pytest

from tests.support.concurrent_stores import ActsBeforeCall
from tests.support.worlds import NAMES, PATTERNS, World, is_fast
from versioned_state import KVStore, Repository
from versioned_state.errors import StateError
from versioned_state.objects.keys import PURGES
from versioned_state.repository.refs.ref import iter_refs
from versioned_state.storage import Fault, Faulty
from versioned_state.storage.wrappers.faulty import InjectedCrash

pytestmark = pytest.mark.usefixtures("small_gc")


def test_nobody_loses_an_object(long_run):
    fast = 0
    for seed in range(300 if long_run else 2):
        world = World(seed)
        for _ in range(110):
            world.step()
            world.check()
        fast += world.fast
    assert fast > 2


def test_beside_writers(long_run):
    fast = 0
    for seed in range(300 if long_run else 2):
        world = World(seed + 1000)
        for _ in range(30):
            for _ in range(world.rng.randrange(1, 8)):
                world.step()
            if world.rng.random() < 0.5:
                world.repositories[0].gc(expire=timedelta(seconds=world.rng.choice([0, 10_000])))
                world.step()

            def others(world=world) -> None:
                for _ in range(world.rng.randrange(1, 4)):
                    world.step()

            between = ActsBeforeCall(world.store, others, at=world.rng.randrange(1, 24))
            with suppress(StateError):
                report = Repository(between, clock=world.clock).purge(branches=world.rng.choice(PATTERNS[:-1]))
                fast += is_fast(report)
            world.check()
        fast += world.fast
    assert fast > 3


def test_a_purge_that_is_cut_off_beside_writers_reports_all_of_it_when_it_is_repeated(long_run):
    cut_off = 0
    for seed in range(200 if long_run else 2):
        world = World(seed + 3000)
        for _ in range(14):
            for _ in range(world.rng.randrange(1, 8)):
                world.step()
            if world.rng.random() < 0.6:
                with suppress(StateError):
                    world.repositories[0].gc(expire=timedelta(seconds=10_000))
            pattern = world.rng.choice(PATTERNS[:-1])
            before = names(world.store)
            faulty = Faulty(
                world.store,
                at=world.rng.randrange(8, 30),
                fault=world.rng.choice([Fault.BEFORE, Fault.AFTER]),
                crash=True,
            )
            report = None
            with suppress(InjectedCrash, StateError):
                report = Repository(faulty, clock=world.clock).purge(branches=pattern)
            world.check()
            gone = before - names(world.store)
            if report is not None:
                assert gone <= {*report.branches}
                continue
            finished = not list(world.store.keys(PURGES))  # only the reply to the last write is missing
            cut_off += bool(gone) and not finished
            with suppress(StateError):  # whatever else happens meanwhile
                world.handle(world.rng.choice(NAMES)).commit()
            world.clock.now += 3_600_000_000  # a gc that died is taken for dead by then
            again = Repository(world.store, clock=world.clock).purge(branches=pattern)
            assert finished or gone <= {*again.branches}
            assert not list(world.store.keys(PURGES))
            assert not any(fnmatchcase(name, pattern) for name in names(world.store))
            world.check()
    assert cut_off


def names(store: KVStore) -> set[str]:
    """The names of all branches, deleted ones too."""
    return {ref.name for ref in iter_refs(store, "branch", deleted=True)}
