"""`Encrypted`: secrecy, detection of damage, cost, and a change of the key."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from hashlib import sha256
from itertools import combinations, count
from pathlib import Path

import pytest

from tests.support.store_workload import work
from tests.support.stores import DictStore, OneCondition
from versioned_state import Versioned
from versioned_state.errors import (
    CorruptObjectError,
    CorruptStoreError,
    FormatError,
    InvalidArgumentError,
    NotAStoreError,
    PickleRefusedError,
    ReadOnlyError,
    StoreNotFoundError,
    WrongKeyError,
)
from versioned_state.storage import (
    Cache,
    Counting,
    Disk,
    Encrypted,
    Fault,
    Faulty,
    InjectedFaultError,
    KVStore,
    Memory,
    ReadOnly,
)
from versioned_state.storage.testing.contract import KVStoreContract
from versioned_state.storage.testing.writers import count_up, run_together
from versioned_state.storage.wrappers.encrypted.cipher import Cipher, EntryNames
from versioned_state.storage.wrappers.encrypted.keyring import KEYRING

KEY, NEW, OTHER = (sha256(name).digest() for name in (b"key", b"new", b"other"))
ADDRESS = "o/" + "ab" * 24


class TestEncryptedMemory(KVStoreContract):
    tells_sizes = True

    def open_store(self, place: Path) -> KVStore:
        return Encrypted(Memory(), KEY)


class TestEncryptedDisk(KVStoreContract):
    tells_sizes = True
    persistent = True
    shared = True
    forks = True

    def open_store(self, place: Path) -> KVStore:
        return Encrypted(Disk(place), KEY)


class TestEncryptedWithOldKeys(KVStoreContract):
    """What was written under the old key is there as well."""

    tells_sizes = True

    def open_store(self, place: Path) -> KVStore:
        store = Memory()
        Encrypted(store, KEY)
        return Cache(Encrypted(store, NEW, old_keys=[KEY]))


def everything(store: KVStore) -> dict[str, bytes]:
    return dict(store.items())


# What can be seen


def test_nothing_of_keys_and_values_is_in_the_files(tmp_path: Path) -> None:
    with Versioned(Encrypted(Disk(tmp_path / "s"), KEY), branch="secret-branch", author="secret-author") as state:
        state["secret-key"] = ["secret-value", "another secret-value" * 200]
        ids = [state.commit("secret-message", meta={"secret-meta": 1}).id]
        state["secret-key"].append(1)
        ids.append(state.commit().id)
        state.repository.tags.create("secret-tag", "secret-branch")
        names = list(state.repository.store.keys())
    (file,) = (tmp_path / "s").iterdir()
    raw = file.read_bytes()
    assert raw.startswith(b"SQLite format 3")  # it is this file that is searched
    assert b"versioned-state encryption" in raw
    for word in (b"secret", b"main", b"branch", b"ref/", b"versioned-state\n", KEY, KEY[:8]):
        assert word not in raw
    for name in names:
        if name.startswith("o/"):
            assert bytes.fromhex(name[2:]) not in raw
            assert name[2:12].encode() not in raw
    assert {f"o/{id}" for id in ids} < set(names)


def test_equal_folders_and_parts_look_unlike_each_other() -> None:
    memory = Memory()
    Encrypted(memory, KEY).set_many(
        dict.fromkeys(["a/x", "b/x", "x", "x/a", "/x", "x/", "//", "ref/branch/x", "born/branch/x"], b"same")
    )
    parts = [part for key in memory.keys("e/") for part in key.split("/")[1:]]
    # Equal: the two folders "" of "/x" and "//", and the folder "x" of "x/a" and "x/" and the entry "x".
    assert len(parts) - len(set(parts)) == 3
    values = list(memory.get_many(memory.keys("e/")).values())
    assert len(set(values)) == len(values)


def test_one_key_looks_different_in_every_store() -> None:
    one, other = Memory(), Memory()
    for store in (one, other):
        Encrypted(store, KEY).set_many({"k": b"v", ADDRESS: b"w"})
    assert set(one.keys()) & set(other.keys()) == {KEYRING}
    assert not set(one.get_many(one.keys()).values()) & set(other.get_many(other.keys()).values())


def test_keys_are_not_shown() -> None:
    store = Encrypted(Memory(), KEY, old_keys=[NEW])
    shown = repr(store) + repr(vars(store)) + repr([vars(cipher) for cipher in store._ciphers.values()])
    for key in (KEY, NEW):
        assert repr(key)[2:-1] not in shown
        assert key.hex() not in shown
    for bad in (b"short-key", KEY + b"x", KEY.hex(), bytearray(KEY), None):
        for call in (
            lambda bad=bad: Encrypted(Memory(), bad),
            lambda bad=bad: Encrypted(Memory(), KEY, old_keys=[bad]),
        ):
            with pytest.raises(InvalidArgumentError) as caught:
                call()
            assert "short-key" not in str(caught.value)


def test_sizes_are_those_of_values_and_32_bytes() -> None:
    memory = Memory()
    store = Encrypted(memory, KEY)
    for size in (0, 1, 100, 5000):
        store.set("k", b"v" * size)
        assert len(memory.get(next(memory.keys("e/"))) or b"") == size + 32


def test_the_stored_bytes_are_those_of_this_format() -> None:
    """Pinned: a format that changes by accident makes stores unreadable. docs/design/011 describes the bytes."""
    cipher = Cipher(bytes(range(32)), bytes(32))
    assert cipher.id.hex() == "2fd6d549"
    assert cipher.object_name(ADDRESS) == (
        "o/a5f62fd6d549fa21d297e75ed3ecafb83eb1d176a57b8f8886c88bd7b5e94da4ec5f1662b43babd039ec3a8eac8077"
    )
    assert cipher.object_name("o/x") == "o/e03b2fd6d54984b8d18d0d26a8eeb5d22affdda0f39c142b"
    assert cipher.seal("ref/branch/main", b"value").hex() == (
        "2fd6d549214a8648b7a3f43859e7de52e893aa50c11ba1a514699a1ae4f3444f6b7fa58ef3"
    )
    assert EntryNames(bytes(range(64))).name("ref/branch/main") == (
        "e/-qafyroxHI0ohbBnVHrKwTffAw/hmAqCscjTcHLLzxF1CIvF6PGpEgOtg/CUlhngUWHsFrE8ktxhn-1grz4V0"
    )


# Opening


def test_wrong_key_changes_nothing(tmp_path: Path) -> None:
    memory = Memory()
    Encrypted(memory, KEY).set_many({"k": b"v", ADDRESS: b"w"})
    before = everything(memory)
    for call in (lambda: Encrypted(memory, OTHER), lambda: Encrypted(memory, OTHER, old_keys=[NEW])):
        with pytest.raises(WrongKeyError, match="another key; nothing was changed"):
            call()
    assert everything(memory) == before


def test_plain_store_is_not_taken_for_an_encrypted_one_nor_the_other_way_round() -> None:
    plain = Memory()
    Versioned(plain)["x"] = 1
    before = everything(plain)
    with pytest.raises(NotAStoreError, match="not encrypted; it was not touched"):
        Encrypted(plain, KEY)
    assert everything(plain) == before

    encrypted = Memory()
    Versioned(Encrypted(encrypted, KEY))
    before = everything(encrypted)
    with pytest.raises(WrongKeyError, match="encrypted, and no key was given"):
        Versioned(encrypted)
    assert everything(encrypted) == before


def test_empty_store_is_not_made_through_a_read_only_one(tmp_path: Path) -> None:
    memory = Memory()
    with pytest.raises(StoreNotFoundError):
        Encrypted(ReadOnly(memory), KEY)
    assert everything(memory) == {}
    Encrypted(memory, KEY).set("k", b"v")
    store = Encrypted(ReadOnly(memory), KEY)
    assert store.get("k") == b"v"
    with pytest.raises(ReadOnlyError):
        store.set("k", b"w")
    # A new key is written down with its first write, which there is none of here.
    assert Encrypted(ReadOnly(memory), NEW, old_keys=[KEY]).get("k") == b"v"


def test_of_two_that_make_a_store_at_once_one_wins() -> None:
    class Meets(DictStore):
        """Another makes the store, and writes to it, just before the `at`-th call."""

        def __init__(self, at: int) -> None:
            super().__init__()
            self.left = at

        def _meet(self) -> None:
            self.left -= 1
            if self.left == 0:
                Encrypted(self, KEY).set("k", b"v")

        def read_value(self, key: str) -> bytes | None:
            self._meet()
            return super().read_value(key)

        def list_keys(self, prefix: str) -> list[str]:
            self._meet()
            return list(super().list_keys(prefix))

        def write_value(self, key: str, value: bytes) -> None:
            self._meet()
            super().write_value(key, value)

    met = 0
    for at in range(1, 4):  # looking for a keyring, looking for anything, looking again under the lock
        store = Meets(at)
        late = Encrypted(store, KEY)
        met += store.left <= 0 and late.get("k") == b"v"
        late.set("k2", b"v2")
        assert Encrypted(store, KEY).get("k2") == b"v2"
    assert met == 3


def test_another_store_of_the_same_key_does_not_fit() -> None:
    one, other = Memory(), Memory()
    for store in (one, other):
        Encrypted(store, KEY).set("k", b"v")
    ring = other.get(KEYRING)
    assert ring is not None
    one.set(KEYRING, ring)
    assert Encrypted(one, KEY).get("k") is None
    with pytest.raises(CorruptStoreError):
        list(Encrypted(one, KEY).keys())


def test_newer_and_damaged_keyrings() -> None:
    memory = Memory()
    Encrypted(memory, KEY)
    ring = memory.get(KEYRING)
    assert ring is not None
    memory.set(KEYRING, ring.replace(b'"version": 1', b'"version": 2'))
    with pytest.raises(FormatError):
        Encrypted(memory, KEY)
    for number in range(0, len(ring), 3):
        memory.set(KEYRING, ring[:number] + bytes([ring[number] ^ 1]) + ring[number + 1 :])
        with pytest.raises((WrongKeyError, CorruptStoreError, FormatError)):
            Encrypted(memory, KEY).set("k", b"v")
        memory.set(KEYRING, ring[:number])
        with pytest.raises(CorruptStoreError):
            Encrypted(memory, KEY)
    assert list(memory.keys()) == [KEYRING]


def test_a_keyring_that_is_gone() -> None:
    memory = Memory()
    store = Encrypted(memory, KEY)
    store.set("k", b"v")
    memory.delete(KEYRING)
    with pytest.raises(NotAStoreError):
        Encrypted(memory, KEY)
    with pytest.raises(CorruptStoreError, match="missing"):
        store.get(ADDRESS)
    with pytest.raises(CorruptStoreError, match="missing"):
        store.reencrypt()


# Tampering


def stored_names(memory: KVStore) -> list[str]:
    return [key for key in memory.keys() if key != KEYRING]  # noqa: SIM118 - a store is not a dict


def test_every_flipped_bit_and_every_cut_is_noticed() -> None:
    memory = Memory()
    store = Encrypted(memory, KEY)
    store.set_many({"k": b"value", ADDRESS: b"object"})
    for name, key, error in zip(
        stored_names(memory), ("k", ADDRESS), (CorruptStoreError, CorruptObjectError), strict=True
    ):
        stored = memory.get(name)
        assert stored is not None
        damaged = [
            stored[:at] + bytes([stored[at] ^ 1 << bit]) + stored[at + 1 :]
            for at in range(len(stored))
            for bit in range(8)
        ]
        for bad in (*damaged, *(stored[:at] for at in range(len(stored))), stored + b"\0"):
            memory.delete(name)
            memory.set(name, bad)
            for read in (store.get, lambda key: store.get_many([key]), lambda _: dict(store.items())):
                with pytest.raises(error):
                    read(key)
        memory.delete(name)
        memory.set(name, stored)
    assert everything(store) == {"k": b"value", ADDRESS: b"object"}


@pytest.mark.parametrize("prefix", ["e/", "o/"])
def test_names_that_nobody_made_are_noticed(prefix: str) -> None:
    memory = Memory()
    store = Encrypted(memory, KEY)
    store.set_many({"a/b": b"1", ADDRESS: b"2"})
    (name,) = memory.keys(prefix)
    bad = [
        name[:-1] + ("A" if name[-1] != "A" else "B"),
        name[:-2],
        name + "0",
        name + "00",
        name + "/",
        name + "=",
        prefix + name[2:].upper(),
    ]
    bad += [name[:12] + ("0" if name[12] != "0" else "1") + name[13:], prefix + "\u0660", prefix + "zz", prefix]
    if prefix == "e/":
        bad += [name.rpartition("/")[0] + "/" + name.split("/")[1], name + "\n", "e/" + name.rpartition("/")[2]]
    for planted in bad:
        memory.set(planted, b"planted")
        with pytest.raises(CorruptStoreError):
            list(store.keys())
        memory.delete(planted)
    assert sorted(store.keys()) == ["a/b", ADDRESS]


# Cost


def test_round_trips_are_those_of_a_store_without_encryption() -> None:
    memory = Memory()
    counting = Counting(memory)
    store = Encrypted(counting, KEY)
    assert counting.reset().round_trips == 4  # looked for a keyring, for anything else, wrote one, read it
    Encrypted(counting, KEY)
    assert counting.reset().round_trips == 1
    objects = {f"o/{number:048x}": b"v" for number in range(10)}
    assert store.apply({"ref": None}, {"ref": b"1", "born": b"1"}, objects=objects)
    assert store.apply({"ref": b"1", "born": b"1"}, {"ref": b"2"})
    assert not store.apply({"ref": b"1"}, {"ref": b"3"})
    assert counting.reset().round_trips == 3
    assert store.get_many(["ref", *objects]) == {"ref": b"2", **objects}
    assert store.get("ref") == b"2"
    assert store.get("absent") is None
    assert store.get(f"o/{0:048x}") == b"v"
    assert ("ref" in store, f"o/{1:048x}" in store, ADDRESS in store) == (True, True, False)
    assert counting.reset().round_trips == 7
    assert store.get(ADDRESS) is None
    assert counting.reset().round_trips == 2


@pytest.mark.no_oracle("it counts what the store beneath is asked")
def test_a_commit_is_one_round_trip() -> None:
    counting = Counting(Memory())
    state = Versioned(Encrypted(counting, KEY))
    state["messages"] = ["message"] * 1000
    state.commit()
    counting.reset()
    state["messages"] += ["one", "two"]
    state.commit()
    assert (counting.counts.applies, counting.counts.round_trips) == (1, 1)


class Listed(Memory):
    """Knows how many keys it has listed."""

    listed = 0

    def keys(self, prefix: str = "") -> Iterator[str]:
        for key in super().keys(prefix):
            self.listed += 1
            yield key


def test_a_listing_costs_what_it_lists() -> None:
    memory = Listed()
    store = Encrypted(memory, KEY)
    store.set_many({f"o/{number * 2**180:048x}": b"v" for number in range(4096)})  # one for each 3 digits
    store.set_many(
        {f"ref/branch/{number}": b"v" for number in range(100)} | {f"ref/tag/{number}": b"v" for number in range(100)}
    )
    for prefix, most, wanted in (
        ("o/abc", 3, 1),
        ("o/abc0", 3, 1),
        ("o/abcd", 3, 0),
        ("ref/branch/", 100, 100),
        ("ref/tag/1", 100, 11),
    ):
        memory.listed = 0
        assert len(list(store.keys(prefix))) == wanted
        assert memory.listed <= most, prefix
    assert len(list(store.keys("ref/"))) == 200


# Another key


def in_both(memory: KVStore) -> tuple[dict[str, bytes], Encrypted]:
    """Return a store, and what it holds: values under the old key, under the new one, and one object under both."""
    old = Encrypted(memory, KEY)
    wanted = {f"o/{number:048x}": b"old" for number in range(100)} | {"kept": b"1", "moved": b"1", "gone": b"1"}
    old.set_many(wanted)
    new = Encrypted(memory, NEW, old_keys=[KEY])
    more = {f"o/{number:048x}": b"old" for number in range(95, 105)} | {"moved": b"2"}
    new.set_many(more)
    new.delete_many(["gone", f"o/{0:048x}"])
    return {key: value for key, value in (wanted | more).items() if key not in ("gone", f"o/{0:048x}")}, new


def test_values_are_readable_with_any_key_that_was_given() -> None:
    memory = Memory()
    wanted, _ = in_both(memory)
    for first, *rest in ((NEW, KEY), (KEY, NEW), (OTHER, KEY, NEW)):
        store = Encrypted(memory, first, old_keys=rest)
        assert store.get_many(wanted) == wanted
        assert {key: store.get(key) for key in wanted} == wanted
        assert sorted(store.keys()) == sorted(wanted)
        assert sorted(store.keys("o/00000")) == sorted(key for key in wanted if key.startswith("o/"))
        assert all(key in store for key in wanted)
        assert ADDRESS not in store
    with pytest.raises(WrongKeyError, match="a key that was not given"):
        Encrypted(memory, NEW)
    with pytest.raises(WrongKeyError, match="a key that was not given"):
        Encrypted(memory, KEY)


def test_compare_and_set_of_what_is_stored_under_an_old_key() -> None:
    memory = Memory()
    Encrypted(memory, KEY).set_many({"a": b"1", "b": b"1", "c": b"1"})
    counting = Counting(memory)
    new = Encrypted(counting, NEW, old_keys=[KEY])
    counting.reset()
    assert new.apply({"a": b"1", "b": b"1", "none": None}, {"a": b"2"}, objects={ADDRESS: b"v"})
    assert (counting.counts.round_trips, counting.reset().objects_written) == (3, 1)
    assert new.compare_and_set("a", b"2", b"3")
    assert counting.reset().round_trips == 1
    assert not new.compare_and_set("a", b"2", b"4")
    assert not new.apply({"a": b"3", "b": b"2"}, {"a": b"4"})
    assert not new.apply({"a": b"3", "b": b"1", "c": None}, {"a": b"4"})
    assert new.get_many(["a", "b", "c"]) == {"a": b"3", "b": b"1", "c": b"1"}
    old = Encrypted(memory, KEY, old_keys=[NEW])
    assert old.compare_and_set("a", b"3", b"5")
    assert new.compare_and_set("a", b"5", b"6")
    with Encrypted(OneCondition(), KEY) as one:
        assert one.max_expected == 1
        assert one.compare_and_set("a", None, b"1")


def test_counter_of_writers_with_different_first_keys_is_exact() -> None:
    memory = Memory()
    Encrypted(memory, KEY)
    stores = [Encrypted(memory, first, old_keys=[second]) for first, second in ((KEY, NEW), (NEW, KEY)) * 2]
    run_together(partial(count_up, store, 50) for store in stores)
    assert Encrypted(memory, NEW, old_keys=[KEY]).get("counter") == b"200"


def test_reencrypt_ends_the_use_of_old_keys(tmp_path: Path) -> None:
    for store in (Memory(), Disk(tmp_path)):
        wanted, new = in_both(store)
        assert new.reencrypt() == 99 + 1
        assert everything(new) == wanted
        assert everything(Encrypted(store, NEW)) == wanted
        with pytest.raises(WrongKeyError):
            Encrypted(store, KEY)
        assert new.reencrypt() == 0
        old_id = next(cipher.id for cipher in new._old_ciphers)
        assert not any(value.startswith(old_id) for value in store.get_many(store.keys()).values())
        assert sorted(everything(new)) == sorted(wanted)
        store.close()


def test_reencrypt_needs_every_key() -> None:
    memory = Memory()
    wanted, new = in_both(memory)
    third = Encrypted(memory, OTHER, old_keys=[NEW, KEY])
    third.set("third", b"3")
    before = everything(memory)
    with pytest.raises(WrongKeyError):
        new.reencrypt()
    with pytest.raises(WrongKeyError):
        new.get("third")
    with pytest.raises(WrongKeyError):
        new.get(ADDRESS)  # it may be there, under the third key
    assert everything(memory) == before
    assert third.reencrypt() == len(wanted) + 5  # five objects lay under both keys
    assert everything(Encrypted(memory, OTHER)) == {**wanted, "third": b"3"}


@pytest.mark.parametrize("fault", Fault)
def test_reencrypt_that_fails_anywhere_is_taken_up_again(fault: Fault) -> None:
    for at in count(1):
        memory = Memory()
        wanted, _ = in_both(memory)
        faulty = Faulty(memory)
        store = Encrypted(faulty, NEW, old_keys=[KEY])
        faulty.arm(at, fault=fault)
        try:
            store.reencrypt()
        except InjectedFaultError:
            assert everything(Encrypted(memory, NEW, old_keys=[KEY])) == wanted
            store.reencrypt()
        assert everything(Encrypted(memory, NEW)) == wanted
        if not faulty.fired:
            break
    assert at > 8


def test_readers_and_writers_beside_reencrypt_miss_nothing() -> None:
    """A reader and a lister at every call of the store that `reencrypt` makes."""

    class Watched(Memory):
        look: Callable[[], None] | None = None

        def apply(self, *args: object, **kwargs: object) -> bool:
            applied = super().apply(*args, **kwargs)  # type: ignore[arg-type]
            look, self.look = self.look, None  # what it does itself is not looked at
            if look is not None:
                look()
                self.look = look
            return applied

    memory = Watched()
    wanted, new = in_both(memory)
    reader = Encrypted(memory, KEY, old_keys=[NEW])
    looks = count()

    def look() -> None:
        number = next(looks)
        assert reader.get_many(wanted) == wanted
        assert sorted(reader.keys()) == sorted(wanted)
        new.set("written", b"%d" % number)
        wanted["written"] = b"%d" % number

    memory.look = look
    new.reencrypt()
    memory.look = None
    assert next(looks) > 4
    assert everything(Encrypted(memory, NEW)) == wanted


def test_what_moves_during_a_listing_or_between_two_reads_is_not_missed() -> None:
    memory = Memory()
    wanted, new = in_both(memory)
    reader = Encrypted(memory, KEY, old_keys=[NEW])
    listed = []
    for number, key in enumerate(reader.keys("o/")):
        listed.append(key)
        if number == 10:
            new.reencrypt()
    assert sorted(listed) == sorted(key for key in wanted if key.startswith("o/"))

    class Between(Memory):
        """A move takes place after a key of the first read was looked up, and before the others are."""

        move: Callable[[], object] | None = None

        def get_many(self, keys: object) -> dict[str, bytes]:
            names = list(keys)  # type: ignore[call-overload]
            first = super().get_many(names[:1])
            move, self.move = self.move, None
            if move is not None:
                move()
            return {**first, **super().get_many(names[1:])}

    between = Between()
    Encrypted(between, KEY).set(ADDRESS, b"v")
    new = Encrypted(between, NEW, old_keys=[KEY])
    between.move = Encrypted(between, NEW, old_keys=[KEY]).reencrypt
    assert new.get(ADDRESS) == b"v"


# With the engine


def test_a_state_over_an_encrypted_store(tmp_path: Path) -> None:
    with Versioned(Encrypted(Disk(tmp_path / "s"), KEY)) as state:
        assert state.repository.store.private
        state["messages"] = [{"role": "user", "content": "hi"}]
        first = state.commit("first")
        state["messages"].append({"role": "assistant", "content": "hello"})
        state.commit("second")
        assert state.checkout(first.id[:11])["messages"] == [{"role": "user", "content": "hi"}]
    with Versioned(Encrypted(Disk(tmp_path / "s"), NEW, old_keys=[KEY])) as state:
        state["more"] = 1
        state.commit("third")
        store = state.repository.store
        assert isinstance(store, Encrypted)
        store.reencrypt()
    with Versioned(Encrypted(Disk(tmp_path / "s"), NEW)) as state:
        assert [commit.message for commit in state.log()] == ["third", "second", "first"]
        assert len(state["messages"]) == 2
        assert list(state.repository.branches) == ["main"]


def test_the_engine_does_the_same_over_it() -> None:
    expected, found = work(Memory()), work(Encrypted(Memory(), KEY))
    found[-4].sort()  # the branches, which an encrypted store lists in no order
    assert found == expected


def test_pickles_are_refused_where_others_can_write() -> None:
    store = Encrypted(DictStore(), KEY)
    assert not store.private
    state = Versioned(store)
    state["x"] = object()
    with pytest.raises(PickleRefusedError):
        state.commit()


def test_every_swap_of_two_stored_values_is_noticed() -> None:
    """A value is bound to its key, and so to the kind of it."""
    memory = Memory()
    with Versioned(Encrypted(memory, KEY)) as state:
        state["messages"] = ["text" * 100] * 40
        state.commit("first")
        state["messages"].append("more")
        state.commit("second")
        state.repository.branches.create("other", "main~1")
        state.repository.tags.create("tag")
        stored = dict(memory.items())
    keys = [key for key in stored if key != KEYRING]
    assert len(keys) > 8
    for one, other in combinations(keys, 2):
        swapped = Memory()
        swapped.set_many({**stored, one: stored[other], other: stored[one]})
        store = Encrypted(swapped, KEY)
        for name in (one, other):
            with pytest.raises((CorruptObjectError, CorruptStoreError)):
                store.get(store._key(name))
