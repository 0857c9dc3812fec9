"""Branches are erased at their own cost beside everything else that a store lives through: nobody loses an object."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta

import pytest

from tests.support.concurrent_stores import ActsBeforeCall
from tests.support.worlds import PATTERNS, World, is_fast
from versioned_state import Repository
from versioned_state.errors import StateError
from versioned_state.repository.maintenance.gc import collector as gc_module
from versioned_state.repository.maintenance.purge import reclaim as reclaim_module


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gc_module, "_BEAT_S", 1e9)
    monkeypatch.setattr("versioned_state.repository.history.reach.BATCH", 16)
    monkeypatch.setattr("versioned_state.repository.maintenance.gc.keeper_table._PER_PAGE", 4)
    monkeypatch.setattr(reclaim_module, "_AT_ONCE", 9)


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
