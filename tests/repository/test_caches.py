"""Caches of decoded nodes and commits belong to a store object: all databases over it share them, and nobody else."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from datetime import timedelta
from itertools import count
from threading import Event, Thread
from typing import Any

import pytest

from tests.support.damage import damage
from tests.support.handles import committed
from tests.support.processes import fork, join
from versioned_state import Disk, Memory, Migrations, Repository, Versioned
from versioned_state.errors import CorruptObjectError, PickleRefusedError, StoreClosedError
from versioned_state.objects.address import Address
from versioned_state.objects.keys import object_key
from versioned_state.repository.caches import caches_of
from versioned_state.storage import Counting, KVStore, ReadOnly, Tiered, Wrapper
from versioned_state.storage.wrappers.encrypted.store import Encrypted
from versioned_state.values.trees.nodes import Node, NodeCache

MESSAGES = [{"role": "user", "content": f"{n} " * 50} for n in range(300)]


def filled(store: KVStore) -> Versioned:
    state = committed(store, messages=deepcopy(MESSAGES))
    assert Versioned(store)["messages"] == MESSAGES
    return state


def nodes_of(store: KVStore) -> NodeCache:
    return caches_of(store).nodes


def test_the_next_request_reads_the_records_and_no_object():
    store = Counting(Memory())
    filled(store)
    store.reset()
    with Versioned(store) as state:
        assert state.sequence("messages")[-1] == MESSAGES[-1]
        state.sequence("messages").append(MESSAGES[0])
        state.commit()
    assert store.counts.round_trips == 3, "the records of the store, the branch, the commit"
    with Versioned(store) as state:
        assert state.sequence("messages")[-1] == MESSAGES[0]
    assert store.counts.objects_read == 0


def test_a_wrapper_shares_nothing_with_the_store_below(tmp_path):
    store = Disk(tmp_path)
    filled(store)
    here = set(nodes_of(store))
    for other in (Wrapper(store), ReadOnly(store), Tiered(Memory(), store)):
        counting = Counting(other)
        with Versioned(counting) as state:
            assert not nodes_of(counting)
            assert not nodes_of(other)
            assert state["messages"] == MESSAGES
            assert counting.counts.objects_read
    assert set(nodes_of(store)) == here


def test_two_keys_share_nothing():
    store = Memory()
    one = Encrypted(store, bytes(32))
    filled(one)
    other = Encrypted(store, b"\x01" * 32, old_keys=[bytes(32)])
    assert nodes_of(one)
    assert not nodes_of(other)
    assert not nodes_of(store)
    assert Versioned(other)["messages"] == MESSAGES


class Opaque:
    """A class that is pickled."""

    def __reduce__(self) -> tuple[type[Opaque], tuple[()]]:
        return Opaque, ()


def test_values_are_decoded_anew_for_each_handle(tmp_path):
    store = Disk(tmp_path)
    committed(store, objects=[Opaque(), *deepcopy(MESSAGES)])
    first, second = Versioned(store), Versioned(store)
    assert type(first["objects"][0]) is Opaque
    with pytest.raises(PickleRefusedError):
        Versioned(store, pickle="refuse")["objects"]
    first["objects"][1]["content"] = "changed"
    assert second["objects"][1:] == MESSAGES


def test_gc_and_purge_empty_them_for_all_databases_of_the_store():
    store = Memory()
    state, other = filled(store), Repository(store)
    old = state.head
    del state["messages"]
    state.commit()
    assert other.snapshot(old)["messages"] == MESSAGES
    assert nodes_of(store)
    other.purge("messages")
    assert not nodes_of(store)
    assert caches_of(store).commits.get(old.address) is None


def test_a_sweep_of_another_process_empties_them_when_it_is_learned():
    store = Memory()
    filled(store)
    there = Versioned(Wrapper(store), branch="side")
    there["x"] = MESSAGES[::-1]
    there.commit()
    there.repository.branches.delete("side", force=True)
    kept = set(nodes_of(store))
    there.repository.gc(expire=timedelta(0))
    assert set(nodes_of(store)) == kept, "nothing tells of it yet"
    Repository(store)
    assert not nodes_of(store)


def test_a_database_that_has_not_heard_of_the_sweep_empties_nothing():
    caches = caches_of(Memory())
    caches.begin(0)
    caches.advance(5)
    caches.nodes.keep(b"address", Node(0, [b"\x01"]), 10)
    caches.advance(4)
    assert caches.since == 5
    caches.advance(5)
    assert list(caches.nodes) == [b"address"]
    caches.advance(6)
    assert not caches.nodes
    caches.nodes.keep(b"address", Node(0, [b"\x01"]), 10)
    caches.begin(3)  # a backup was restored under this store
    assert not caches.nodes
    assert caches.since == caches.nodes.since == 3


class Slow(Wrapper):
    """A store whose nth read of objects waits before it returns them."""

    def __init__(self, store: KVStore, nth: int) -> None:
        super().__init__(store)
        self.nth, self.held = nth, set[str]()
        self.reading, self.go_on = Event(), Event()

    def get(self, key: str) -> bytes | None:
        return self.get_many((key,)).get(key)

    def get_many(self, keys: Iterable[str]) -> dict[str, bytes]:
        found = self.store.get_many(keys)
        if objects := {key for key in found if key.startswith("o/")}:
            if self.nth == 0:
                self.held = objects
                self.reading.set()
                assert self.go_on.wait(20)
            self.nth -= 1
        return found


READS: dict[str, Callable[[KVStore], object]] = {
    "a node": lambda store: Repository(store).snapshot("main").get("messages[7]"),
    "a level": lambda store: Repository(store).snapshot("main")["messages"],
    "a commit": lambda store: Repository(store).commit("main"),
    "a node for a handle": lambda store: Versioned(store).sequence("messages")[7],
}


@pytest.mark.parametrize("read", READS)
def test_what_is_being_read_when_they_are_emptied_does_not_come_back(read):
    content = Memory()
    filled(content)
    for nth in count():  # emptied within the first read of objects, within the second, ...
        store = Slow(content, nth)
        thread = Thread(target=lambda store=store: (READS[read](store), store.reading.set()))
        thread.start()
        assert store.reading.wait(20)
        if not store.held:
            break
        caches_of(store).forget()
        store.go_on.set()
        thread.join()
        caches = caches_of(store)
        assert not store.held & {object_key(Address(address)) for address in [*caches.nodes, *caches.commits._commits]}
    thread.join()
    assert nth > 0


def test_what_is_damaged_never_enters():
    store = Memory()
    state = filled(store)
    fresh = Wrapper(store)
    damaged = [key for key in store.keys("o/") if key != object_key(state.head.address)]
    for key in damaged:
        damage(store, key)
    with pytest.raises(CorruptObjectError):
        Versioned(fresh)["messages"]
    assert not nodes_of(fresh)


@pytest.mark.parametrize("wrap", [lambda store: store, Wrapper, lambda store: Tiered(Memory(), store)])
def test_a_closed_store_releases_them(wrap):
    store = wrap(Memory())
    state = filled(store)
    nodes = nodes_of(store)
    assert nodes
    store.close()
    assert not nodes
    assert nodes.size == 0
    with pytest.raises(StoreClosedError):
        Versioned(store)
    state["messages"].append(1)
    with pytest.raises(StoreClosedError):
        state.commit()
    assert not nodes_of(store)


def test_a_store_that_nobody_holds_releases_them():
    store = Memory()
    filled(store)
    nodes = weakref.ref(caches_of(store))
    del store
    gc.collect()
    assert nodes() is None


def test_stores_that_are_equal_share_nothing():
    class Equal(Wrapper):
        def __eq__(self, other: object) -> bool:
            return isinstance(other, Equal)

        __hash__ = None  # type: ignore[assignment]

    one, other = Equal(Memory()), Equal(Memory())
    filled(one)
    with Versioned(other) as state:
        assert not state.repository.database.nodes
        assert "messages" not in state
    one.close()


def test_an_emptied_store_begins_anew():
    store = Memory()
    filled(store)
    store.delete_many(list(store.keys()))
    state = Versioned(store)
    assert not nodes_of(store)
    state["messages"] = deepcopy(MESSAGES)
    state.commit()
    assert Repository(store).fsck().ok


def test_threads_keep_to_the_bound():
    cache = NodeCache(100_000)

    def fill(thread: int) -> None:
        for number in range(2000):
            cache.keep(b"%d %d" % (thread % 4, number), Node(0, [b"x"] * 5), 100)
            cache.used(b"0 %d" % number)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as threads:
            list(threads.map(fill, range(8)))
    finally:
        sys.setswitchinterval(before)
    assert cache.size == sum(node.size for node in cache.values()) <= 100_000


def test_a_fork_begins_with_empty_ones_even_if_a_thread_was_writing_to_them():
    store = Memory()
    filled(store)
    caches = caches_of(store)
    held, done = Event(), Event()

    def hold() -> None:
        with caches.nodes._lock, caches.commits._lock:
            held.set()
            done.wait(20)

    def child() -> None:
        assert not caches.nodes
        assert Versioned(store).sequence("messages")[7] == MESSAGES[7]
        assert caches.nodes

    thread = Thread(target=hold)
    thread.start()
    assert held.wait(20)
    try:
        join(fork(child))
    finally:
        done.set()
        thread.join()
    assert caches.nodes, "those of the parent stay"


def test_what_is_not_stored_yet_never_enters():
    """A migrated root's objects are in memory until they are committed: other handles must not count them as stored."""
    store = Memory()
    state = filled(store)
    migrations = Migrations()

    @migrations.to(2)
    def longer(state: Any) -> None:
        state["messages"] = [*state["messages"], *MESSAGES, *MESSAGES]

    migrated = Versioned(store, migrations=migrations)
    assert len(migrated["messages"]) == len(migrated.checkout("main", migrated=True)["messages"]) == 900
    assert list(migrated.checkout("main").diff(migrated.checkout("main", migrated=True)))
    assert len(migrated.sequence("messages")) == 900
    stored = set(store.keys("o/"))
    assert {object_key(Address(address)) for address in nodes_of(store)} <= stored
    assert state.head == migrated.head
