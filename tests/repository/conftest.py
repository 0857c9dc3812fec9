"""Fixtures of gc, shared by the tests of maintenance, and stores, shared by those of listings."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.stores import OneCondition
from versioned_state import Disk, KVStore, Memory
from versioned_state.repository.maintenance.gc import collector
from versioned_state.repository.maintenance.purge import reclaim


@pytest.fixture
def no_sign_of_life(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gc does not write every two seconds that it lives: on a busy machine that is one more call of the store."""
    monkeypatch.setattr(collector, "_BEAT_S", math.inf)


@pytest.fixture
def small_gc(monkeypatch: pytest.MonkeyPatch, no_sign_of_life: None) -> None:
    """A gc reads, deletes and writes a few objects at a time, so that a small store takes many calls."""
    monkeypatch.setattr(collector, "_BATCH", 8)
    monkeypatch.setattr("versioned_state.repository.history.reach.BATCH", 8)
    monkeypatch.setattr("versioned_state.repository.maintenance.gc.keeper_table._PER_PAGE", 4)
    monkeypatch.setattr(reclaim, "_AT_ONCE", 9)


@pytest.fixture(params=["memory", "disk", "one condition"])
def any_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[KVStore]:
    """A store of each kind that the index of the last changes tells apart."""
    make = {"memory": Memory, "disk": lambda: Disk(tmp_path), "one condition": OneCondition}[request.param]
    with make() as store:
        yield store
