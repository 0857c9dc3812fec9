"""Objects: one address for one content, and nothing is read that does not match it."""

from __future__ import annotations

import random
from contextlib import suppress
from functools import partial

import pytest
from blake3 import blake3
from hypothesis import given, strategies as st

from tests.support.interrupts import Interrupt, interrupts
from versioned_state import Memory
from versioned_state.errors import CorruptObjectError, LimitExceededError, MissingObjectError
from versioned_state.objects import envelope
from versioned_state.objects.address import ADDRESS_SIZE, Address, Kind, address_of, expect
from versioned_state.objects.envelope import MAX_OBJECT, seal, unseal
from versioned_state.objects.keys import address_in, birth_key, object_key, ref_key
from versioned_state.objects.store import ObjectStore, Staging

RAWS = [
    b"",
    b"\x10",
    b"\x14" + b"x" * 99,
    b"\x14" + b"x" * 5000,
    b"\x14" + random.Random(1).randbytes(70_000),
    b"\0" * MAX_OBJECT,
]


@given(st.binary(max_size=2000) | st.binary(max_size=30).map(lambda part: part * 200))
def test_sealed_and_unsealed(raw):
    assert unseal(seal(raw)) == raw


def test_an_interrupt_at_the_first_use_leaves_contexts_that_work():
    for trace in interrupts(1):
        codecs = envelope._Codecs()
        with suppress(Interrupt):
            trace.run(partial(getattr, codecs, "error"))
        frame = codecs.compress(RAWS[2])
        assert (codecs.decompress(frame), codecs.size_of(frame)) == (RAWS[2], len(RAWS[2]))


@pytest.mark.parametrize("raw", RAWS, ids=len)
def test_stored_and_read(raw):
    store = ObjectStore(Memory())
    staging = Staging(store)
    address = staging.add(raw)
    assert staging.read(address) == raw
    with pytest.raises(MissingObjectError):
        store.read(address)
    store.kv.apply({}, {}, objects=staging.sealed())
    assert store.read(address) == raw
    assert store.read_many([address, address]) == {address: raw}
    assert address == blake3(raw).digest(length=24)


def test_what_compresses_is_compressed_and_what_does_not_is_left():
    assert len(seal(b"\x14" + b"abc" * 1000)) < 100
    noise = random.Random(2).randbytes(1000)
    assert seal(noise) == b"\0" + noise
    assert seal(b"short") == b"\0short"


def test_an_object_beyond_the_limit():
    assert unseal(seal(bytes(MAX_OBJECT)))
    with pytest.raises(LimitExceededError):
        seal(bytes(MAX_OBJECT + 1))
    with pytest.raises(ValueError, match="limit"):
        unseal(b"\0" + bytes(MAX_OBJECT + 1))


def test_every_flipped_bit_is_noticed():
    raw = (
        b"\x14"
        + b"some text that compresses, some text that compresses, some text that compresses, some more of it" * 3
    )
    address = address_of(raw)
    for stored in (seal(raw), b"\0" + raw):
        for position in range(len(stored)):
            for bit in range(8):
                bad = bytearray(stored)
                bad[position] ^= 1 << bit
                store = Memory()
                store.set(object_key(address), bytes(bad))
                # A few bits mean nothing to zstd: what comes out is right, or it is no result.
                with suppress(CorruptObjectError):
                    assert ObjectStore(store).read(address) == raw


def test_missing_objects_are_named():
    store = ObjectStore(Memory())
    present, absent = address_of(b"\x14here"), address_of(b"\x14gone")
    store.kv.set(object_key(present), seal(b"\x14here"))
    for call in (lambda: store.read(absent), lambda: store.read_many([present, absent])):
        with pytest.raises(MissingObjectError) as caught:
            call()
        assert caught.value.id == absent.hex()
    assert store.read_many([]) == {}


def test_kinds_are_told_apart():
    raw = bytes([Kind.COMMIT]) + b"x"
    expect(raw, address_of(raw), Kind.COMMIT)
    expect(raw, address_of(raw), Kind.CHUNK, Kind.COMMIT)
    for bad in (raw, b"", b"\xff"):
        with pytest.raises(CorruptObjectError, match="expected a chunk"):
            expect(bad, address_of(bad), Kind.CHUNK)


def test_numbers_of_kinds_are_never_used_again():
    assert {kind.name: kind.value for kind in Kind} == {
        "COMMIT": 0x01,
        "LOG_ENTRY": 0x02,
        "SEQUENCE_LEAF": 0x10,
        "SEQUENCE_NODE": 0x11,
        "MAP_LEAF": 0x12,
        "MAP_NODE": 0x13,
        "CHUNK": 0x14,
        "SEGMENT": 0x15,
    }


def test_keys():
    address = address_of(b"x")
    assert len(address) == ADDRESS_SIZE
    assert object_key(address) == "o/" + address.hex()
    assert address_in(object_key(address)) == address
    assert ref_key("branch", "a/b") == "ref/branch/a/b"
    assert birth_key("tag", "v1") == "born/tag/v1"
    for bad in ("o/", "o/zz", "o/" + "a" * 47, "o/" + "a" * 50):
        with pytest.raises(ValueError, match=r"key|hex"):
            address_in(bad)


def test_addresses_by_prefix():
    store = ObjectStore(Memory())
    addresses = sorted(address_of(bytes([n])) for n in range(200))
    for address in addresses:
        store.kv.set(object_key(address), b"\0")
    for address in addresses[:20]:
        assert list(store.iter_addresses(address.hex())) == [address]
        assert address in store.iter_addresses(address.hex()[:6])
    assert sorted(store.iter_addresses("")) == addresses
    assert list(store.iter_addresses("f" * 48)) == []


def test_staging_stores_ahead_what_is_too_much_to_hold():
    store = Memory()
    staging = Staging(ObjectStore(store), flush_at=10_000)
    added: list[Address] = [staging.add(b"\x14" + random.Random(n).randbytes(3000)) for n in range(20)]
    assert len(list(store.keys("o/"))) >= 12
    assert len(staging) < 4
    assert set(staging.read_many(added)) == set(added)
    assert all(address_of(staging.read(address)) == address for address in added)
    assert list(store.keys("o/")) == list(store.keys())


def test_staging_holds_one_content_once():
    staging = Staging(ObjectStore(Memory()))
    assert staging.add(b"\x14a") == staging.add(b"\x14a")
    assert len(staging) == 1
    assert address_of(b"\x14a") in staging
    assert len(staging.sealed()) == 1
