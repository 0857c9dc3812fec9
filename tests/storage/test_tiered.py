"""`Tiered`: the contract of a store over several, and failures of the tiers above the coldest."""

from __future__ import annotations

from datetime import timedelta
from hashlib import blake2b
from pathlib import Path

import pytest

from tests.support.servers.postgres import PostgresServer
from tests.support.servers.redis import RedisServer
from tests.support.stores import DictStore, OneCondition
from versioned_state import Repository, Versioned
from versioned_state.errors import InvalidArgumentError, StorageFullError, StoreClosedError, UnreachableStoreError
from versioned_state.storage import (
    Counting,
    Disk,
    Fault,
    Faulty,
    InjectedFaultError,
    KVStore,
    Memory,
    Postgres,
    Redis,
    Tiered,
)
from versioned_state.storage.testing.contract import KVStoreContract
from versioned_state.storage.wrapper import Wrapper


class TestThreeInMemory(KVStoreContract):
    tells_sizes = True

    def open_store(self, place: Path) -> KVStore:
        return Tiered(Memory(), Memory(), Memory())


class TestMemoryOverDisk(KVStoreContract):
    tells_sizes = True
    persistent = True

    def open_store(self, place: Path) -> KVStore:
        return Tiered(Memory(), Disk(place))


class TestMemoryOverRedisOverPostgres(KVStoreContract):
    tells_sizes = True
    persistent = True

    @pytest.fixture(autouse=True)
    def _servers(self, redis_server: RedisServer, postgres_server: PostgresServer) -> None:
        self.redis, self.postgres = redis_server.url, postgres_server.url

    def open_store(self, place: Path) -> KVStore:
        name = f"t_{blake2b(bytes(place), digest_size=12).hexdigest()}"
        return Tiered(Memory(), Redis(self.redis, prefix=name), Postgres(self.postgres, schema=name))


class Down(Wrapper):
    """A store whose server can be shut down."""

    is_down = False
    calls = 0
    last_call: int | None = None

    def _check(self) -> KVStore:
        self.calls += 1
        if self.last_call is not None and self.calls > self.last_call:
            self.is_down, self.last_call = True, None
        if self.is_down:
            raise UnreachableStoreError("the server does not answer")
        return self.store

    def get(self, key):
        return self._check().get(key)

    def get_many(self, keys):
        return self._check().get_many(keys)

    def apply(self, expected, puts, deletes=(), *, objects=None):
        return self._check().apply(expected, puts, deletes, objects=objects)


def two() -> tuple[Down, Memory, Tiered]:
    hot, cold = Down(Memory()), Memory()
    return hot, cold, Tiered(hot, cold)


def wake(tiered: Tiered) -> None:
    """Let the time pass for which a tier is left alone."""
    for tier in tiered.tiers:
        tier._until = 0.0


def test_the_coldest_holds_everything_and_the_others_objects_only():
    hot, warm, cold = Memory(), Memory(), Memory()
    state = Versioned(Tiered(hot, warm, cold))
    state["messages"] = ["hello " * 400]
    state.commit("first")
    assert set(hot.keys()) == set(warm.keys()) == set(cold.keys("o/")) != set()
    assert set(cold.keys("ref/")) == {"ref/branch/main"}
    assert Versioned(cold)["messages"] == state["messages"]


def test_a_read_copies_objects_to_the_tiers_that_lack_them():
    hot, warm, cold = Memory(), Memory(), Memory()
    cold.set_many({"o/aa": b"A", "o/bb": b"B", "ref": b"1"})
    warm.set("o/bb", b"B")
    counting = Counting(cold)
    tiered = Tiered(hot, warm, counting)
    assert tiered.get_many(["o/aa", "o/bb", "o/cc", "ref"]) == {"o/aa": b"A", "o/bb": b"B", "ref": b"1"}
    assert set(hot.keys()) == set(warm.keys()) == {"o/aa", "o/bb"}
    assert [tier.hits for tier in tiered.tiers] == [0, 1]
    assert tiered.cold_reads == 1
    counting.reset()
    assert tiered.get("o/aa") == b"A"
    assert counting.counts.round_trips == 0
    assert [tier.hits for tier in tiered.tiers] == [1, 1]


def test_a_coldest_tier_without_sizes():
    hot, cold = Memory(), DictStore()
    cold.set("o/aa", b"A")
    tiered = Tiered(hot, cold)
    assert tiered.get("o/aa") == hot.get("o/aa") == b"A"
    assert tiered.sizes(["o/aa"]) is None


def test_a_hot_tier_may_lose_everything():
    hot, cold = Memory(), Memory()
    state = Versioned(Tiered(hot, cold))
    state["text"] = "hello " * 1000
    state.commit("first")
    hot.delete_many(list(hot.keys()))
    assert Repository(state.repository.store).fsck().ok
    assert Versioned(state.repository.store)["text"] == "hello " * 1000
    assert list(hot.keys())


def test_reads_and_writes_go_on_without_a_tier_that_fails_and_it_comes_back():
    hot, cold, tiered = two()
    state = Versioned(tiered)
    state["n"] = 1
    state.commit("first")
    hot.is_down = True
    state["n"] = 2
    state.commit("second")
    assert Versioned(tiered)["n"] == 2
    (tier,) = tiered.tiers
    assert "does not answer" in str(tier.error)
    asked = hot.calls
    assert tiered.get("o/absent") is None
    assert hot.calls == asked, "a tier that fails is left alone for a while"
    hot.is_down = False
    wake(tiered)
    state["text"] = "hello " * 1000
    state.commit("third")
    assert tier.error is None
    assert set(hot.store.keys()) < set(cold.keys("o/"))


def test_a_full_tier_still_gives_what_it_has():
    class Full(Memory):
        def _apply(self, expected, puts, deletes, objects):
            if objects:
                raise StorageFullError("full")
            return super()._apply(expected, puts, deletes, objects)

    hot, cold = Full(), Memory()
    hot._objects["o/aa"] = b"A"
    tiered = Tiered(hot, cold)
    tiered.set("o/bb", b"B")
    assert tiered.get_many(["o/aa", "o/bb"]) == {"o/aa": b"A", "o/bb": b"B"}
    assert tiered.tiers[0].failures == 2
    assert cold.get("o/bb") == b"B"


def test_gc_deletes_from_every_tier():
    hot, warm, cold = Memory(), Memory(), Memory()
    state = Versioned(Tiered(hot, warm, cold))
    state["text"] = "hello " * 1000
    state.commit("first")
    state.reset("HEAD~1")
    before = len(list(cold.keys("o/")))
    state.repository.gc(expire=timedelta(0))
    left = set(cold.keys("o/"))
    assert len(left) < before
    assert set(hot.keys()) <= left
    assert set(warm.keys()) <= left


def test_a_deletion_fails_if_a_tier_cannot_be_asked_and_deletes_nothing_in_the_coldest():
    hot, cold, tiered = two()
    tiered.set("o/aa", b"A")
    hot.is_down = True
    with pytest.raises(UnreachableStoreError):
        tiered.delete("o/aa")
    assert cold.get("o/aa") == b"A"
    assert tiered.apply({}, {"ref": b"1"}), "refs need the coldest tier alone"
    tiered.delete("ref")
    hot.is_down = False
    tiered.delete("o/aa")
    assert cold.get("o/aa") is hot.store.get("o/aa") is None


def test_presence_is_that_in_the_coldest():
    hot, _, tiered = two()
    hot.store.set("o/aa", b"A")
    assert "o/aa" not in tiered
    assert tiered.sizes(["o/aa"]) == {}
    assert list(tiered.keys()) == []


def test_a_copy_that_a_read_makes_beside_a_deletion_does_not_stay():
    class Deleting(Memory):
        """Deletes an object, as another process does, right after it was read."""

        def _get_many(self, keys):
            found = super()._get_many(keys)
            if "o/aa" in found:
                for store in (hot, self, hot):
                    store.delete("o/aa")
            return found

    hot = Memory()
    cold = Deleting()
    cold.set("o/aa", b"A")
    tiered = Tiered(hot, cold)
    assert tiered.get("o/aa") == b"A"
    assert hot.get("o/aa") is None


def test_a_deletion_that_comes_between_the_deletions_of_copies_and_original_takes_later_copies_along():
    hot, cold, tiered = two()
    tiered.set("o/aa", b"A")

    class Reading(Wrapper):
        def apply(self, expected, puts, deletes=(), *, objects=None):
            if deletes:
                hot.store.set("o/aa", b"A")  # the copy of a reader
            return self.store.apply(expected, puts, deletes, objects=objects)

    tiered.cold = Reading(cold)
    tiered.delete("o/aa")
    assert hot.store.get("o/aa") is None


def test_copies_that_could_not_be_deleted_go_before_the_tier_is_used_again():
    hot, cold, tiered = two()
    faulty = Faulty(cold)
    tiered.cold = faulty
    faulty.arm(1, fault=Fault.BEFORE)
    hot.last_call = 1
    with pytest.raises(InjectedFaultError):
        tiered.set("o/aa", b"A")
    assert hot.store.get("o/aa") == b"A"
    hot.is_down = False
    wake(tiered)
    assert tiered.get("o/aa") is None
    assert hot.store.get("o/aa") is None


@pytest.mark.parametrize("fault", list(Fault))
def test_a_commit_over_a_hot_tier_that_fails_at_any_call_is_made(fault):
    for at in range(1, 100):
        hot = Faulty(Memory(), at=at, fault=fault)
        cold = Memory()
        tiered = Tiered(hot, cold)
        state = Versioned(tiered)
        for number in range(3):
            state["text"] = f"hello {number} " * 500
            state.commit(f"round {number}")
            wake(tiered)
        assert Versioned(cold)["text"] == state["text"]
        assert state.repository.fsck().ok
        if not hot.fired:
            return
    raise AssertionError("it never ended")


def test_what_it_says_of_itself():
    hot = Memory()
    assert Tiered(hot, Memory()).private
    assert not Tiered(DictStore(), Memory()).private
    assert not Tiered(Memory(), DictStore()).private
    assert Tiered(OneCondition(), Memory()).max_expected is None
    assert Tiered(Memory(), OneCondition()).max_expected == 1
    assert (
        repr(Tiered(Memory(), Memory()))
        == "<Tiered <Memory 0 objects, 0 other keys>, <Memory 0 objects, 0 other keys>>"
    )
    assert "0 hits" in repr(Tiered(hot, Memory()).tiers[0])
    with pytest.raises(InvalidArgumentError):
        Tiered(hot)
    with pytest.raises(InvalidArgumentError):
        Tiered(hot, "disk")  # type: ignore[arg-type]


def test_nothing_reaches_any_tier_of_a_batch_that_is_refused():
    hot, _, tiered = two()
    with pytest.raises(TypeError):
        tiered.apply({}, {"ref": "1"}, objects={"o/aa": b"A"})  # type: ignore[dict-item]
    narrow = Tiered(hot, OneCondition())
    with pytest.raises(InvalidArgumentError):
        narrow.apply({"a": None, "b": None}, {}, objects={"o/aa": b"A"})
    assert list(hot.store.keys()) == []


def test_closing_it_closes_every_tier_even_if_one_fails():
    class Stuck(Memory):
        def _close(self):
            super()._close()
            raise UnreachableStoreError("stuck")

    stuck, cold = Stuck(), Memory()
    tiered = Tiered(stuck, cold)
    with pytest.raises(UnreachableStoreError):
        tiered.close()
    for store in (tiered, cold):
        with pytest.raises(StoreClosedError):
            store.get("o/aa")
