"""A gc with a time limit goes on next time, and leaves no record of a deleted ref whose reflog has expired."""

from __future__ import annotations

import random
import time
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from tests.support.interrupts import Interrupt, interrupts
from tests.support.watched_stores import Watched
from versioned_state import Disk, Memory, Repository, Versioned
from versioned_state.errors import InvalidArgumentError
from versioned_state.repository.history.keepers import KeeperSet
from versioned_state.repository.maintenance.gc import collector as gc_module
from versioned_state.repository.maintenance.gc.marking import Marking

NOW = timedelta(0)


def filled(store: Any, sessions: int = 60) -> Repository:
    repository = Repository(store)
    for n in range(sessions):
        state = Versioned(repository, branch=f"s{n}")
        state["messages"] = [f"{n} {i} " * 40 for i in range(30)]
        state.commit()
        state["messages"].append("more")
        state.commit()
        if n % 2:
            repository.branches.delete(f"s{n}", force=True)
    return repository


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("versioned_state.repository.history.reach.BATCH", 8)
    monkeypatch.setattr(gc_module, "_BATCH", 50)
    monkeypatch.setattr(gc_module, "_BEAT_S", 1e9)


class Steps:
    """A clock that is over after some calls."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left = 0
        real = time.monotonic
        monkeypatch.setattr(time, "monotonic", lambda: real() + (0 if self._step() else 1e6))

    def _step(self) -> bool:
        self.left -= 1
        return self.left > 0


@pytest.mark.parametrize("disk", [False, True])
def test_a_gc_in_slices_does_what_a_whole_one_does(disk, tmp_path, monkeypatch):
    whole = filled(Memory())
    expected = whole.gc(expire=NOW)
    store = Disk(tmp_path) if disk else Memory()
    repository = filled(store)
    steps = Steps(monkeypatch)
    slices, freed = 0, 0
    finished = False
    while not finished:
        steps.left = 20
        report = Repository(store).gc(expire=NOW, time_limit=1000)
        finished, slices, freed = report.finished, slices + 1, freed + report.freed
        assert slices < 200
        if slices % 3 == 0:  # others go on meanwhile
            state = Versioned(store, branch=f"s{slices % 60 * 2 % 60}")
            state["at"] = slices
            state.commit()
    steps.left = 10**9
    assert slices > 5
    assert freed == expected.freed
    assert not list(store.keys("gc-marks/"))
    assert repository.fsck().ok
    for n in range(0, 60, 2):
        assert len(repository.snapshot(f"s{n}")["messages"]) == 31
    store.close()


def test_a_whole_gc_begins_anew(monkeypatch):
    store = Memory()
    repository = filled(store)
    steps = Steps(monkeypatch)
    steps.left = 20
    assert not repository.gc(expire=NOW, time_limit=1000).finished
    steps.left = 10**9
    repository.branches.delete("s0", force=True)
    report = repository.gc(expire=NOW)
    assert report.finished
    assert not list(store.keys("gc-marks/"))
    assert repository.gc(expire=NOW, dry_run=True).freed == 0


def test_what_another_gc_deleted_meanwhile_is_no_damage(monkeypatch):
    store = Memory()
    repository = filled(store)
    steps = Steps(monkeypatch)
    rng = random.Random(1)
    for _ in range(10):
        steps.left = rng.randrange(60, 200)
        repository.gc(expire=NOW, time_limit=1000)
        marks = dict(store.items("gc-marks/"))
        steps.left = 10**9
        for name in list(repository.branches)[:2]:
            repository.branches.delete(name, force=True)
        repository.gc(expire=NOW)
        if marks:
            store.set_many(marks)  # as if it had not removed them
    steps.left = 10**9
    assert repository.gc(expire=NOW, time_limit=1000).finished
    assert repository.fsck().ok


@pytest.mark.parametrize("damage", [b"", b"x" * 40])
def test_damaged_marks_are_not_used(monkeypatch, damage):
    store = Memory()
    repository = filled(store)
    steps = Steps(monkeypatch)
    steps.left = 20
    repository.gc(expire=NOW, time_limit=1000)
    steps.left = 10**9
    for key in list(store.keys("gc-marks/")):
        store.set(key, damage)
    assert repository.gc(expire=NOW, time_limit=1000).finished
    assert repository.fsck().ok


@pytest.mark.parametrize("limit", [0, -1, float("nan")])
def test_a_time_limit_is_more_than_nothing(limit):
    with pytest.raises(InvalidArgumentError):
        Repository(Memory()).gc(time_limit=limit)


def test_nothing_is_left_of_a_deleted_ref_once_its_reflog_has_expired():
    store = Memory()
    repository = Repository(store)
    state = Versioned(repository)
    state["n"] = 1
    state.commit(tag="t")
    empty = set(store.keys())
    for n in range(100):
        repository.branches.create(f"b{n}", "main")
        repository.tags.create(f"t{n}", "main")
        repository.branches.delete(f"b{n}")
        repository.tags.delete(f"t{n}")
    repository.gc()
    assert len(list(repository.branches.deleted())) == len(list(repository.tags.deleted())) == 100
    repository.gc(expire=NOW)
    left = {key for key in store.keys("") if not key.startswith(("shared/", "keepers"))}
    assert left - {"gc"} == empty, "one key says that main was shared, some who leads to which object"
    assert repository.fsck().ok


def test_a_branch_that_comes_back_while_gc_runs_stays():
    for trace in interrupts(97):
        store = Memory()
        repository = filled(store, 4)
        other = Repository(store)
        with suppress(Interrupt):
            trace.run(partial(repository.gc, expire=NOW))
        state = Versioned(other, branch="s1")
        state["x"] = trace.at
        state.commit()
        repository.gc(expire=NOW)
        assert dict(other.snapshot("s1")) == {"x": trace.at}
        assert repository.fsck().ok


def test_the_reflog_of_a_branch_that_comes_back_as_its_record_goes_is_whole():
    inner = Memory()
    state = Versioned(inner, branch="b")
    state["n"] = 1
    state.commit()
    state.repository.branches.delete("b", force=True)
    other = Versioned(inner, branch="b")
    other["n"] = 2
    store = Watched(inner)
    applied = []

    def before(call):
        if call == "apply":
            applied.append(call)
            if len(applied) == 2:  # the first one begins the gc, the second one removes the record
                other.commit("back")

    repository = Repository(store)
    store.before = before
    repository.gc(expire=NOW)
    assert len(applied) > 2
    assert repository.fsck().ok
    assert [each.action for each in repository.reflog("b")] == [each.action for each in other.repository.reflog("b")]
    assert repository.gc(expire=NOW).finished


def test_a_walk_from_what_was_published_ends_though_the_time_is_over_and_a_beat_walks_within_it():
    """Seed 1064901: the inner walk ended, and the outer one was cut off by the time.

    Its commits were marked without their parents.
    """
    repository = filled(Memory(), 3)
    one, other = repository.branches["s0"], repository.branches["s2"]
    with KeeperSet() as expected, KeeperSet() as seen:
        Marking(repository.database, expected, None).mark_published([one.address, other.address])
        marking = Marking(repository.database, seen, None)
        beats = iter(range(1, 1000))

        def beat() -> None:
            if next(beats) == 3:  # amid the walk from ``one``
                marking.mark_published([other.address])

        def check_time() -> None:
            raise TimeoutError

        marking.beat, marking.check_time = beat, check_time
        marking.mark_published([one.address])
        assert sorted(seen.items()) == sorted(expected.items())
        with pytest.raises(TimeoutError):
            marking.mark_refs()
