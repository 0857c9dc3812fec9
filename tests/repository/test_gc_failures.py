"""A gc that fails, is killed, stopped or overtaken leaves a whole store, and delays the next no longer than it must."""

from __future__ import annotations

import itertools
import os
import signal
import time
from contextlib import suppress
from typing import Any

import pytest

from tests.support.concurrent_stores import ActsBeforeCall
from tests.support.garbage import NOW, append, assert_whole, contents, prepare, recommit, set_gc_record
from tests.support.long_runs import first
from tests.support.processes import start
from versioned_state import Disk, Memory, Repository, Versioned
from versioned_state.errors import (
    StorageError,
    StorageFullError,
    StoreBusyError,
)
from versioned_state.objects.keys import GC
from versioned_state.repository.maintenance.gc.collector import TAKEOVER_US
from versioned_state.repository.refs.gc_fence import read_gc_record
from versioned_state.storage import Fault, Faulty, InjectedCrash, Wrapper


# One that dies after a call leaves what one leaves that dies before the next.
@pytest.mark.parametrize(
    ("fault", "crash"),
    first(5, [*((fault, False) for fault in Fault), (Fault.BEFORE, True), (Fault.PARTIAL, True), (Fault.AFTER, True)]),
    ids=lambda value: value.value if isinstance(value, Fault) else "crashes" if value else "fails",
)
def test_gc_that_fails_at_any_call_leaves_a_whole_store(fault, crash, long_run, monkeypatch):
    monkeypatch.setattr("versioned_state.repository.maintenance.gc.collector._BATCH", 40)
    for k in itertools.count(1, 1 if long_run else 2):
        store = Memory()
        prepare(store)
        before = contents(store)
        faulty = Faulty(store, at=k, fault=fault, crash=crash)
        with suppress(StorageError, InjectedCrash):
            Repository(faulty).gc(expire=NOW)
        assert contents(store) == before
        assert_whole(store)
        append(store)
        before = contents(store)
        Repository(store).gc(expire=NOW)  # neither a failed gc nor a dead one is waited for
        assert contents(store) == before
        assert_whole(store)
        assert Repository(store).gc(expire=NOW).freed == 0
        assert read_gc_record(store.get(GC)).owner is None
        if not faulty.fired:
            break


def test_a_gc_whose_place_was_taken_deletes_nothing_more(monkeypatch):
    """A gc sleeps before any of its calls.

    Meanwhile another gc runs, and a writer stores again what both took for garbage.
    """
    monkeypatch.setattr("versioned_state.repository.maintenance.gc.collector._BATCH", 40)
    stopped = 0
    for k in itertools.count(1):
        store = Memory()
        prepare(store)

        def sleep(store: Memory = store) -> None:
            if read_gc_record(store.get(GC)).owner is not None:
                with pytest.raises(StoreBusyError, match="sign of life"):
                    Repository(store).gc(expire=NOW)
            Repository(store).gc(expire=NOW, force=True)
            recommit(store)

        between = ActsBeforeCall(store, sleep, at=k)
        try:
            Repository(between).gc(expire=NOW)
        except StoreBusyError as error:
            assert "took this one's place" in str(error)  # noqa: PT017 - whether it is raised depends on where it slept
            stopped += 1
        assert_whole(store)
        contents(store)
        if not between.fired:
            break
    # not before it begins, which takes three calls more to look for refs of unknown kinds, nor after its end
    assert stopped >= k - 9


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_gc_that_marks_what_another_has_deleted_meanwhile_is_told_so(dry_run):
    """Not that an object is missing: the branch that led to it was moved, and the store is whole."""
    stopped = 0
    for k in itertools.count(1):
        store = Memory()
        prepare(store)

        def drop_and_collect(store: Memory = store) -> None:
            Versioned(store).reset("main~2")
            Repository(store).tags.delete("v1")
            for _ in range(2):  # the second expires what the first run's refs led to
                Repository(store).gc(expire=NOW, force=True)

        between = ActsBeforeCall(store, drop_and_collect, at=k)
        with suppress(StoreBusyError):
            stopped += 1
            Repository(between).gc(expire=NOW, dry_run=dry_run)
            stopped -= 1
        assert_whole(store)
        if not between.fired:
            break
    assert stopped


class Full(Wrapper):
    """A store that has no room for any write after the `left`-th."""

    left: int | None = None

    def apply(self, *args: Any, **kwargs: Any) -> bool:
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise StorageFullError("no room")
        return super().apply(*args, **kwargs)


@pytest.mark.parametrize("left", range(4))
def test_a_gc_that_had_no_room_is_not_waited_for(left):
    """Not even its own name could it take out of the record."""
    store = Full(Memory())
    prepare(store)
    store.left = left
    with suppress(StorageFullError):
        Repository(store).gc(expire=NOW)
    store.left = None
    Repository(store).gc(expire=NOW)
    assert read_gc_record(store.get(GC)).owner is None
    assert_whole(store)


@pytest.mark.parametrize("at", [2, 3, 5, 9])
def test_an_interrupted_gc_gives_up_its_name(at):
    store = Memory()
    prepare(store)

    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Repository(ActsBeforeCall(store, interrupt, at=at)).gc(expire=NOW)
    assert read_gc_record(store.get(GC)).owner is None
    assert Repository(store).gc(expire=NOW).freed > 0


def test_a_gc_in_another_thread_is_waited_for():
    store = Memory()
    prepare(store)

    def try_another() -> None:
        if read_gc_record(store.get(GC)).owner is not None:
            with pytest.raises(StoreBusyError, match="sign of life"):
                Repository(store).gc(expire=NOW)
            refused.append(True)

    refused: list[bool] = []
    Repository(ActsBeforeCall(store, try_another, at=8)).gc(expire=NOW)
    assert refused


KILLED = """
import os, signal, sys
from datetime import timedelta
from versioned_state import Disk, Repository
from versioned_state.storage.wrapper import Wrapper

class Killed(Wrapper):
    left = int(sys.argv[2])

    def apply(self, *args, **kwargs):
        self.left -= 1
        if self.left < 0:
            os.kill(os.getpid(), signal.SIGSTOP if sys.argv[3] == "stop" else signal.SIGKILL)
        return super().apply(*args, **kwargs)

repository = Repository(Killed(Disk(sys.argv[1])))
print("ready", flush=True)
repository.gc(expire=timedelta(0))
"""


@pytest.mark.parametrize("left", [1, 2])
def test_a_gc_that_was_killed_is_not_waited_for(left, tmp_path):
    """Its process is gone, or not even reaped yet: its id, its start and the machine are in the record."""
    with Disk(tmp_path / "store") as store:
        prepare(store)
        process = start(KILLED, tmp_path / "store", left, "kill")
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert read_gc_record(store.get(GC)).owner is not None
        assert Repository(store).gc(expire=NOW).freed >= 0, "it is not even reaped"
        assert process.wait(10) == -signal.SIGKILL
        assert read_gc_record(store.get(GC)).owner is None
        assert_whole(store)
        process.communicate()


def test_a_gc_whose_process_is_stopped_is_waited_for_a_while(tmp_path):
    with Disk(tmp_path / "store") as store:
        prepare(store)
        process = start(KILLED, tmp_path / "store", 1, "stop")
        os.waitpid(process.pid, os.WUNTRACED)
        try:
            with pytest.raises(StoreBusyError, match="sign of life"):
                Repository(store).gc(expire=NOW)
            later = time.time_ns() // 1000 + TAKEOVER_US
            assert Repository(store, clock=lambda: later).gc(expire=NOW).freed > 0
            before = contents(store)
            recommit(store)
        finally:
            os.kill(process.pid, signal.SIGCONT)
        _, said = process.communicate(timeout=20)
        assert "took this one's place" in said, "it wakes up and deletes nothing more"
        assert contents(store).items() >= before.items()
        assert_whole(store)


def test_a_gc_on_another_machine_is_succeeded_after_a_while():
    store = Memory()
    prepare(store)
    now = 5_000_000
    set_gc_record(store, owner=b"dead", beat=now, generation=1)
    with pytest.raises(StoreBusyError) as caught:
        Repository(store, clock=lambda: now + TAKEOVER_US - 1).gc(expire=NOW)
    assert "--force" in caught.value.hint
    assert Repository(store, clock=lambda: now + TAKEOVER_US).gc(expire=NOW).freed > 0
