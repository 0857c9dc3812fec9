"""An exception at any line (Ctrl-C) leaves a working store: no lock held, no transaction open, no half of a batch."""

from __future__ import annotations

import gc
import sqlite3
import sys
import threading
import weakref
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from types import FrameType
from typing import Any, Self

import pytest

from tests.support.stores import DictStore
from versioned_state.storage import Cache, Counting, Disk, DiskCache, Encrypted, Faulty, KVStore, Memory
from versioned_state.storage.call_lock import is_running

KEY = bytes(range(32))
BEFORE = {"ref": b"1", "gone": b"1", "o/aa": b"A", "o/bb": b"B"}
AFTER = {"ref": b"2", "new": b"2", "o/aa": b"A", "o/cc": b"C"}

STORES: dict[str, Callable[[Path], KVStore]] = {
    "Memory": lambda _: Memory(),
    "SingleProcessStore": lambda _: DictStore(),
    "Disk": lambda place: Disk(place, timeout=2),
    "Disk with a limit": lambda place: Disk(place, timeout=2, size_limit=10_000_000),
    "Disk with power": lambda place: Disk(place, timeout=2, durability="power"),
    "DiskCache": lambda place: DiskCache(place, timeout=2),
    "Cache": lambda _: Cache(Memory()),
    "Counting": lambda _: Counting(Memory()),
    "Faulty": lambda _: Faulty(Memory()),
    "Encrypted": lambda _: Encrypted(Memory(), KEY),
}


def write(store: KVStore) -> None:
    assert store.apply({"ref": b"1", "new": None}, {"ref": b"2", "new": b"2"}, ["gone", "o/bb"], objects={"o/cc": b"C"})


def write_in_vain(store: KVStore) -> None:
    assert not store.apply({"ref": b"0"}, {"ref": b"2"}, ["gone"], objects={"o/aa": b"A"})


def read(store: KVStore) -> None:
    assert store.get("ref") == b"1"
    assert store.get("o/aa") == b"A"
    assert store.get_many(BEFORE) == BEFORE
    assert "o/aa" in store


def list_all(store: KVStore) -> None:
    assert dict(store.items()) == BEFORE


CALLS = (write, write_in_vain, read, list_all, KVStore.close)


class Interrupt:
    """Raises `KeyboardInterrupt` at the `at`-th line that is executed in the package."""

    def __init__(self, at: int) -> None:
        self.left = at
        self.place = ""

    def __enter__(self) -> Self:
        gc.disable()  # an interrupt in the finalizer of another test's store would say nothing of this one
        self._before = sys.gettrace()
        sys.settrace(self._call)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)
        gc.enable()

    def _call(self, frame: FrameType, event: str, argument: object) -> Any:
        return self._line if "versioned_state/storage" in frame.f_code.co_filename else None

    def _line(self, frame: FrameType, event: str, argument: object) -> Any:
        if event == "line" and not self.place:
            self.left -= 1
            if self.left == 0:
                self.place = f"{frame.f_code.co_filename.rpartition('/')[2]}:{frame.f_lineno}"
                raise KeyboardInterrupt
        return self._line


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.__name__)
@pytest.mark.parametrize("kind", STORES)
def test_interrupt_at_any_line_leaves_a_store_that_works(
    kind: str, call: Callable[[KVStore], None], tmp_path: Path, *, long_run: bool
) -> None:
    # Each line in the long run; every day a sample, which waits for the disk as seldom as it can.
    step = 1 if long_run else {"DiskCache": 41, "Disk": 5, "Disk with power": 23}.get(kind, 3)
    store = STORES[kind](tmp_path / "0")
    for number, at in enumerate(range(1 + CALLS.index(call), 100_000, step)):
        if call is KVStore.close and number:
            store = STORES[kind](tmp_path / str(number))
        store.delete_many(list(store.keys()))
        store.set_many(BEFORE)
        with Interrupt(at) as interrupt, suppress(KeyboardInterrupt):
            call(store)
        check(store, call, tmp_path / "0", interrupt.place)
        if not interrupt.place:
            break
    store.close()
    left_open = [path.name for path in tmp_path.glob("*/*-wal")]
    assert left_open == []


def check(store: KVStore, call: Callable[[KVStore], None], place: Path, at: str) -> None:
    if call is KVStore.close:
        store.close()
        return
    if isinstance(store, (Disk, DiskCache)):
        (file,) = (path for path in place.iterdir() if path.suffix in (".sqlite3", ".db"))
        with closing(sqlite3.connect(file, timeout=0, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")  # no transaction was left open
            other.execute("ROLLBACK")
    found = dict(store.items())
    objects = {key for key in found if key.startswith("o/")}
    if call is write:
        refs = {key: found[key] for key in found.keys() - objects}
        assert refs in ({"ref": b"2", "new": b"2"}, {"ref": b"1", "gone": b"1"}), at
        assert refs != {"ref": b"2", "new": b"2"} or found == AFTER, at
        assert "ref" not in refs or refs["ref"] == b"1" or "o/cc" in found, at
    else:
        assert found == BEFORE, at
    # In another thread too: a lock that was left may be one that its own thread passes.
    failures: list[BaseException] = []

    def work() -> None:
        try:
            assert store.apply({"ref": found["ref"]}, {"ref": b"3"}, ["new", "gone"], objects={"o/dd": b"D"})
            assert store.get_many(["ref", "o/dd", "o/aa"]) == {"ref": b"3", "o/dd": b"D", "o/aa": b"A"}
        except BaseException as error:  # noqa: BLE001 - looked at below
            failures.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(20)
    assert not thread.is_alive(), f"the store hangs after an interrupt at {at}"
    assert failures == [], at
    assert store.compare_and_set("ref", b"3", b"4"), at
    assert store.get("ref") == b"4", at


def test_interrupted_cache_knows_its_size() -> None:
    with Cache(Memory(), max_bytes=10_000) as store:
        for at in range(1, 100_000):
            with Interrupt(at) as interrupt, suppress(KeyboardInterrupt):
                store.apply({}, {}, ["o/aa"], objects={f"o/{at:08x}": b"v" * 1000, "o/bb": b"v"})
                store.set("o/aa", b"v")
            assert store.size <= 10_000, interrupt.place
            if not interrupt.place:
                break
        for number in range(20):
            store.set(f"o/{number:08x}ff", b"w" * 1000)
        assert 8_000 < store.size <= 10_000
        store.delete_many(list(store.keys()))
        assert store.size == 0


@pytest.mark.usefixtures("without_collector")
def test_a_look_at_the_stacks_keeps_no_value_of_a_caller_alive():
    """It sees its own frame: kept, that would be a cycle, and a store would stay open until the collector runs."""

    class Value:
        pass

    def frame_of_a_call() -> FrameType:
        return sys._getframe()

    def call() -> weakref.ref[Value]:
        value = Value()
        assert is_running(sys._getframe())
        assert not is_running(frame_of_a_call())
        return weakref.ref(value)

    assert call()() is None
