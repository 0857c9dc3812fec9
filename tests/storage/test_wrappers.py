"""`Cache`, `Counting`, `Faulty`, `ReadOnly` and `SingleProcessStore` beyond the contract."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from itertools import count
from pathlib import Path
from random import Random
from threading import Event, Thread
from time import sleep

import pytest

from tests.support.stores import DictStore, OneCondition
from versioned_state.errors import InvalidArgumentError, ReadOnlyError, StorageError, StoreClosedError
from versioned_state.storage import (
    Cache,
    Counting,
    Counts,
    Disk,
    Encrypted,
    Fault,
    Faulty,
    InjectedCrash,
    InjectedFaultError,
    KVStore,
    Memory,
    ReadOnly,
    Wrapper,
)


@pytest.mark.parametrize(
    "wrap", [Cache, Counting, lambda store: Encrypted(store, b"k" * 32), Faulty, ReadOnly, Wrapper]
)
def test_wrapper_passes_on_what_the_store_is(wrap: Callable[[KVStore], Wrapper], tmp_path: Path) -> None:
    assert wrap(Memory()).private
    assert not wrap(DictStore()).private
    assert wrap(Memory()).max_expected is None
    assert wrap(OneCondition()).max_expected == 1
    with Disk(tmp_path) as store:
        wrapped = wrap(store)
        assert wrapped.private
        assert "Disk" in repr(wrapped)
        assert Wrapper(wrapped).private


def test_the_class_of_a_wrapper_may_say_that_it_is_not_private() -> None:
    class Shared(Wrapper):
        private = False

    class Trusting(Wrapper):
        private = True

    assert not Shared(Memory()).private
    assert not Cache(Shared(Memory())).private
    assert not Trusting(DictStore()).private


# Cache


def cached(max_bytes: int = 1_000_000) -> tuple[Memory, Counting, Cache]:
    memory = Memory()
    counting = Counting(memory)
    return memory, counting, Cache(counting, max_bytes)


def test_cache_asks_once_for_an_object() -> None:
    memory, counting, cache = cached()
    memory.set_many({"o/aa": b"A", "o/bb": b"B", "ref": b"1"})
    for _ in range(3):
        assert cache.get("o/aa") == b"A"
        assert cache.get_many(["o/aa", "o/bb"]) == {"o/aa": b"A", "o/bb": b"B"}
    assert (counting.counts.gets, counting.counts.get_manys) == (1, 1)
    assert (cache.hits, cache.misses) == (7, 2)
    assert counting.counts.objects_read == 2


def test_cache_never_keeps_a_ref_or_an_absence() -> None:
    memory, _, cache = cached()
    assert cache.get("o/aa") is None
    assert cache.get_many(["o/aa", "ref"]) == {}
    memory.set_many({"o/aa": b"A", "ref": b"1"})
    assert cache.get("o/aa") == b"A"
    assert cache.get("ref") == b"1"
    memory.set("ref", b"2")
    assert cache.get("ref") == b"2"
    assert cache.get_many(["ref", "o/aa"]) == {"ref": b"2", "o/aa": b"A"}
    memory.delete("ref")
    assert cache.get("ref") is None
    assert cache.misses == 3  # the refs asked for are neither hits nor misses


def test_cache_keeps_what_was_written_through_it() -> None:
    _, counting, cache = cached()
    cache.set("o/aa", b"A")
    cache.apply({}, {"ref": b"1"}, objects={"o/bb": b"B"})
    counting.reset()
    assert cache.get_many(["o/aa", "o/bb"]) == {"o/aa": b"A", "o/bb": b"B"}
    assert counting.counts.round_trips == 0


@pytest.mark.parametrize("fault", Fault)
def test_cache_keeps_nothing_of_a_failed_write(fault: Fault) -> None:
    for write in (lambda cache: cache.apply({}, {}, objects={"o/aa": b"A"}), lambda cache: cache.set("o/aa", b"A")):
        faulty = Faulty(Memory(), at=1, fault=fault)
        cache = Cache(faulty)
        with pytest.raises(InjectedFaultError):
            write(cache)
        assert cache.size == 0


def test_cache_keeps_nothing_of_a_batch_whose_condition_failed() -> None:
    _, _, cache = cached()
    assert not cache.apply({"ref": b"1"}, {}, objects={"o/aa": b"A"})
    assert cache.size == 0


def test_cache_forgets_what_is_deleted() -> None:
    _, _, cache = cached()
    cache.set_many({"o/aa": b"A", "o/bb": b"B"})
    cache.delete("o/aa")
    assert cache.get("o/aa") is None
    assert "o/aa" not in cache
    cache.delete_many(["o/bb"])
    assert cache.get_many(["o/aa", "o/bb"]) == {}
    assert cache.size == 0


def test_in_asks_the_store() -> None:
    memory, _, cache = cached()
    cache.set("o/aa", b"A")
    assert "o/aa" in cache
    memory.delete("o/aa")  # as another process would
    assert "o/aa" not in cache


@pytest.mark.parametrize("touch", [lambda cache: cache.get("o/00"), lambda cache: cache.get_many(["o/00"])])
def test_cache_is_bounded_and_drops_what_was_used_least_recently(touch: Callable[[Cache], object]) -> None:
    _, counting, cache = cached(max_bytes=10_000)
    for number in range(100):
        cache.set(f"o/{number:02x}", b"v" * 1000)
        touch(cache)
        assert cache.size <= 10_000
    assert counting.counts.objects_read == 0
    counting.reset()
    assert cache.get("o/00") == cache.get("o/63") == b"v" * 1000
    assert counting.counts.round_trips == 0
    assert cache.get("o/50") == b"v" * 1000
    assert counting.counts.round_trips == 1
    cache.set("o/ff", b"v" * 20_000)  # larger than all of it: not kept, and nothing dropped for it
    counting.reset()
    assert cache.get("o/00") == b"v" * 1000
    assert counting.counts.round_trips == 0
    assert cache.get("o/ff") == b"v" * 20_000


@pytest.mark.parametrize(("more", "most"), [("", 120), ("e" * 5000, 6)], ids=["tiny objects", "long keys"])
def test_cache_counts_the_memory_of_keys_and_entries(more: str, most: int) -> None:
    _, _, cache = cached(max_bytes=30_000)
    for number in range(200):
        cache.set(f"o/{number:04x}{more}", b"")
    assert 1 < len(cache._kept) <= most


def test_cache_shared_by_threads_serves_nothing_stale_and_counts_right() -> None:
    """Each thread deletes and stores objects of its own while the others read them, and all move one counter."""

    class Yielding(Memory):
        """Others run between a read and its return, as with a store across a network."""

        def get_many(self, keys: Iterable[str]) -> dict[str, bytes]:
            found = super().get_many(keys)
            sleep(0)
            return found

    store = Cache(Yielding(), max_bytes=20_000)
    wrong: list[object] = []

    def value(key: str) -> bytes:
        return key.encode() * (1 + sum(key.encode()) % 200)

    def work(own: int) -> None:
        random = Random(own)
        newest = 0
        for step in range(400):
            key = f"o/{own:02x}{random.randrange(20):02x}"
            other = f"o/{random.randrange(8):02x}{random.randrange(20):02x}"
            store.apply({}, {}, objects={key: value(key)})
            found = store.get_many([key, other, "counter"])
            counter = int(found.get("counter", b"0"))
            if found.get(key) != value(key) or found.get(other) not in (None, value(other)) or counter < newest:
                wrong.append(found)
            newest = counter
            store.compare_and_set("counter", found.get("counter"), b"%d" % (counter + 1))
            if step % 3 == 0:
                store.delete(key)
                if store.get(key) is not None:
                    wrong.append(key)
            if store.size > store.max_bytes:
                wrong.append(store.size)

    threads = [Thread(target=work, args=(number,), daemon=True) for number in range(8)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(interval / 1000)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    finally:
        sys.setswitchinterval(interval)
    assert not any(thread.is_alive() for thread in threads)
    assert wrong == []
    assert store.hits
    assert store.misses
    for key in list(store._kept):
        store.delete(key)
    assert store.size == 0


def test_cache_of_nothing_and_of_less() -> None:
    _, counting, cache = cached(max_bytes=0)
    cache.set("o/aa", b"A")
    assert cache.get("o/aa") == cache.get("o/aa") == b"A"
    assert counting.counts.gets == 2
    with pytest.raises(InvalidArgumentError):
        Cache(Memory(), max_bytes=-1)


def test_read_that_a_delete_overtakes_is_not_kept() -> None:
    class Slow(Memory):
        def get(self, key: str) -> bytes | None:
            value = super().get(key)
            reading.set()
            deleted.wait(30)
            return value

    reading, deleted = Event(), Event()
    store = Slow()
    store.set("o/aa", b"A")
    cache = Cache(store)
    reader = Thread(target=cache.get, args=("o/aa",))
    reader.start()
    assert reading.wait(30)
    cache.delete("o/aa")
    deleted.set()
    reader.join()
    assert cache.size == 0
    assert cache.get("o/aa") is None


def test_closed_cache_answers_nothing_from_memory() -> None:
    cache = Cache(Memory())
    cache.set("o/aa", b"A")
    cache.close()
    for call in (lambda: cache.get("o/aa"), lambda: cache.get_many(["o/aa"])):
        with pytest.raises(StoreClosedError):
            call()


# Counting


def test_counts() -> None:
    store = Counting(Memory())
    store.set("k", b"12")
    store.set("o/aa", b"123")
    store.apply({"k": b"12"}, {"k": b"1234"}, objects={"o/bb": b"12345", "o/cc": b"1"})
    store.get("k")
    store.get("o/aa")
    store.get("absent")
    store.get_many(["o/aa", "o/bb", "k", "o/dd"])
    list(store.keys())
    assert "k" in store
    store.delete("k")
    wanted = Counts(
        gets=4,
        sets=2,
        get_manys=1,
        listings=1,
        applies=2,
        objects_read=3,
        objects_written=3,
        bytes_read=4 + 3 + 3 + 5 + 4,
        bytes_written=15,
    )
    assert store.counts == wanted
    assert store.counts.round_trips == 10
    assert str(store.counts) == (
        "10 round trips (get 4, get_many 1, keys 1, set 2, apply 2); "
        "read 3 objects, 19 bytes in all; wrote 3 objects, 15 bytes in all"
    )
    assert str(Counts()).startswith("0 round trips (none)")
    assert store.reset() == wanted
    assert store.counts == Counts()
    with pytest.raises(TypeError):
        store.set("k", "text")  # type: ignore[arg-type]


# Faulty


def work(store: KVStore) -> None:
    """Seven calls."""
    store.set("a", b"1")
    assert store.apply({"a": b"1"}, {"a": b"2"}, ["gone"], objects={"o/aa": b"A"})
    assert store.get("a") == b"2"
    assert store.get_many(["a"]) == {"a": b"2"}
    assert list(store.keys()) == ["a", "o/aa"]
    assert "a" in store
    store.delete("a")


@pytest.mark.parametrize("error", [InjectedFaultError, InjectedCrash])
@pytest.mark.parametrize("fault", Fault)
def test_faulty_fails_at_each_call_in_turn(fault: Fault, error: type[BaseException]) -> None:
    crash = error is InjectedCrash
    before: list[dict[str, bytes]] = [
        {"gone": b"0"},
        {"gone": b"0", "a": b"1"},
        *[{"a": b"2", "o/aa": b"A"}] * 5,
        {"o/aa": b"A"},
    ]
    for k in count(1):
        memory = Memory()
        memory.set("gone", b"0")
        faulty = Faulty(memory, at=k, fault=fault, crash=crash)
        if k == 8:
            work(faulty)
            assert (faulty.calls, faulty.fired) == (7, False)
            return
        with pytest.raises(error, match=str(k)):
            work(faulty)
        assert faulty.fired
        left = dict(before[k - 1])
        if fault is Fault.AFTER:
            left = before[k]
        elif fault is Fault.PARTIAL and k == 2:
            left["o/aa"] = b"A"
        assert dict(memory.items()) == left
        if crash:
            for call in (lambda faulty=faulty: faulty.get("a"), lambda faulty=faulty: faulty.set("b", b"1")):
                with pytest.raises(InjectedCrash):
                    call()
            assert dict(memory.items()) == left
        else:
            assert faulty.calls == k
            faulty.set("later", b"1")
        faulty.close()
        with pytest.raises(StoreClosedError):
            memory.get("a")


def test_faulty_cuts_a_listing_short() -> None:
    memory = Memory()
    memory.set_many({f"k/{number}": b"v" for number in range(10)})
    faulty = Faulty(memory, at=1, fault=Fault.AFTER)
    listing = faulty.keys()
    seen = [next(listing) for _ in range(5)]
    with pytest.raises(InjectedFaultError):
        next(listing)
    assert len(set(seen)) == 5


def test_faulty_can_be_armed_again() -> None:
    faulty = Faulty(Memory())
    faulty.set("k", b"1")
    assert (faulty.calls, faulty.fired) == (1, False)
    faulty.arm(2, fault=Fault.AFTER)
    faulty.set("k", b"2")
    with pytest.raises(InjectedFaultError) as caught:
        faulty.set("k", b"3")
    assert isinstance(caught.value, StorageError)
    assert faulty.get("k") == b"3"
    assert not issubclass(InjectedCrash, Exception)


# ReadOnly


def test_read_only_store_can_be_looked_at() -> None:
    memory = Memory()
    memory.set_many({"k": b"1", "o/aa": b"A"})
    store = ReadOnly(memory)
    assert store.get("k") == b"1"
    assert store.get_many(["o/aa"]) == {"o/aa": b"A"}
    assert dict(store.items()) == {"k": b"1", "o/aa": b"A"}
    assert "k" in store
    writes: list[Callable[[], object]] = [
        lambda: store.set("k", b"2"),
        lambda: store.set_many({"k": b"2"}),
        lambda: store.delete("k"),
        lambda: store.delete_many(["k"]),
        lambda: store.compare_and_set("k", b"1", b"2"),
        lambda: store.apply({}, {}, objects={"o/bb": b"B"}),
    ]
    for write in writes:
        with pytest.raises(ReadOnlyError):
            write()
    assert dict(memory.items()) == {"k": b"1", "o/aa": b"A"}


# SingleProcessStore


class Breaking(DictStore):
    """Fails at its n-th write of a value or removal."""

    left = 10**9

    def write_value(self, key: str, value: bytes) -> None:
        self.step()
        super().write_value(key, value)

    def remove_value(self, key: str) -> None:
        self.step()
        super().remove_value(key)

    def step(self) -> None:
        self.left -= 1
        if self.left == 0:
            raise OSError("the disk is gone")


def test_batch_that_fails_half_way_is_taken_back() -> None:
    start: Mapping[str, bytes] = {"a": b"1", "b": b"1", "d": b"1", "o/dd": b"D"}
    for failing in range(1, 8):
        store = Breaking()
        store.set_many(start)
        store.left = failing
        try:
            done = store.apply({"a": b"1"}, {"a": b"2", "b": b"2", "c": b"2"}, ["d", "o/dd"], objects={"o/aa": b"A"})
        except OSError:
            done = False
        found = dict(store.items())
        found.pop("o/aa", None)
        assert found == ({"a": b"2", "b": b"2", "c": b"2"} if done else start)
        assert done is (failing == 7)


def test_release_is_called_once() -> None:
    released: list[int] = []

    class Releasing(DictStore):
        def release(self) -> None:
            released.append(1)

    store = Releasing()
    store.close()
    store.close()
    assert released == [1]


def test_set_many_of_a_list_is_an_error_that_asks_for_a_mapping() -> None:
    with pytest.raises(TypeError, match="takes a mapping of keys to values, such as a dict, not list"):
        Memory().set_many([("r/a", b"1")])  # type: ignore[arg-type]
