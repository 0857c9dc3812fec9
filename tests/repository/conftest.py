"""Fixtures of gc, shared by the tests of maintenance."""

from __future__ import annotations

import math

import pytest

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
