"""References of an object name exactly the objects that reading its values reads; a walk over them reads each once."""

from __future__ import annotations

import random
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, strategies as st

from tests.support.codec import Codec
from tests.support.histories import numbered
from tests.support.mutations import sample
from tests.support.segments import in_segments
from tests.support.strategies import any_values, make_large
from tests.support.worlds import reached
from versioned_state import KVStore, Memory, Repository, Versioned
from versioned_state.errors import CorruptObjectError, MissingObjectError
from versioned_state.objects.address import Address, Role
from versioned_state.objects.keys import address_in, object_key
from versioned_state.objects.store import ObjectStore
from versioned_state.repository.history.address_set import AddressSet
from versioned_state.repository.history.commit import ROOT_ID
from versioned_state.repository.history.reach import (
    Reference,
    iter_new,
    references,
    references_of_cell,
    references_of_tree,
)
from versioned_state.repository.maintenance.gc.collector import collect
from versioned_state.repository.maintenance.prune import prune
from versioned_state.storage import Counting
from versioned_state.values.cells import Code, extension
from versioned_state.values.decode.decoder import Decoder
from versioned_state.values.trees.nodes import Nodes
from versioned_state.values.trees.tree import iter_items


class Recording:
    """A reader that notes down what is read."""

    def __init__(self, objects: ObjectStore) -> None:
        self.objects = objects
        self.read_so_far: set[Address] = set()

    def read(self, address: Address) -> bytes:
        self.read_so_far.add(address)
        return self.objects.read(address)

    def read_many(self, addresses: Iterable[Address]) -> dict[Address, bytes]:
        addresses = list(addresses)
        self.read_so_far.update(addresses)
        return self.objects.read_many(addresses)


def by_decoder(objects: ObjectStore, cell: bytes) -> set[Address]:
    """The objects that reading a value touches."""
    reader = Recording(objects)
    Decoder(Nodes(reader)).decode(cell)
    return reader.read_so_far


def by_references(objects: ObjectStore, cell: bytes) -> set[Address]:
    return {address for address, role in reached(objects, references_of_cell(cell)).items() if role is not Role.SEGMENT}


@given(any_values)
def test_references_are_what_reading_a_value_reads(value):
    bench = Codec()
    cell = bench.encode(value)
    found = by_references(bench.objects, cell)
    assert found == by_decoder(bench.objects, cell)
    segments = {object_key(name) for _, names in in_segments(bench.kv) for name in names}
    assert {object_key(address) for address in found} | segments == set(bench.kv.keys("o/")), (
        "all that was written for the value"
    )


class Thing:
    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)


def test_references_of_every_form():
    """Each kind of value, objects with buffers too, as a value of the state, in a list, and below a namespace."""
    import numpy as np

    store = Memory()
    state = Versioned(store)
    kinds = (
        "list",
        "numbers",
        "dict",
        "text",
        "surrogates",
        "bytes",
        "bytearray",
        "tuple",
        "set",
        "frozenset",
        "array",
        "deque",
        "nested",
    )
    for kind in kinds:
        value = make_large(kind, 900, 7)
        state[kind] = value
        state["in a list of " + kind] = [value, {"deeper": (value, [1])}]
        state.namespace("n")[kind] = value
    state["object"] = Thing(buffer=np.arange(50_000), text="x" * 9000)
    state["objects"] = [Thing(n=n, array=np.zeros(5000)) for n in range(3)]
    state["sample"] = sample(random.Random(1), 60)
    head = state.commit()
    objects = state.repository.database.objects
    cells = [cell for _, cell in iter_items(Nodes(objects), head.tree)]
    every: set[Address] = set()
    for cell in cells:
        found = by_references(objects, cell)
        assert found == by_decoder(objects, cell)
        every |= found
    led = reached(objects, [Reference(Address(bytes.fromhex(head.id)), Role.COMMIT)])
    assert every < set(led) == {address_in(key) for key in store.keys("o/")}, (
        "all that one commit wrote is reachable from it"
    )
    segments = {name for _, names in in_segments(store) for name in names}
    assert {address for address, role in led.items() if role is Role.SEGMENT} == segments
    assert set(led.values()) - {Role.SEGMENT} == {Role.COMMIT, Role.SEQUENCE, Role.MAP, Role.BLOB, Role.CHUNK}


def history(store: KVStore, rounds: int) -> Repository:
    state = Versioned(store)
    numbered(state, range(rounds))
    return state.repository


def test_a_long_line_of_commits_is_read_in_a_few_batches():
    store = Counting(Memory())
    repository = history(store, 2000)
    store.reset()
    repository.gc()
    assert store.counts.get_manys < 60, "by jumps; by parents it would be one read for each commit"


def test_where_history_was_cut_nothing_beyond_is_walked():
    store = Memory()
    repository = history(store, 100)
    prune(repository.database, keep_last=10)
    assert repository.database.commits.shallow
    start = Reference(Address(bytes.fromhex(repository.branches["main"].id)), Role.COMMIT)
    assert len(reached(repository.database.objects, [start], shallow=repository.database.commits.shallow)) == 10


def test_what_is_missing_ends_a_walk():
    store = Memory()
    repository = history(store, 3)
    head = repository.branches["main"]
    store.delete(object_key(Address(bytes.fromhex(head.parents[0]))))
    start = Reference(Address(bytes.fromhex(head.id)), Role.COMMIT)
    with pytest.raises(MissingObjectError) as caught:
        reached(repository.database.objects, [start])
    assert caught.value.id in {head.parents[0], head.jump}


def test_log_entries_refer_to_commits_until_they_expire():
    store = Memory()
    now = 1_000_000
    state = Versioned(store, clock=lambda: now)
    state["a"] = 1
    first = state.commit()
    state["a"] = 2
    second = state.commit()
    state.reset(first)
    ref = state.repository.database.ref("branch", "main")
    assert ref.log is not None
    start = Reference(ref.log, Role.LOG_ENTRY)
    for expired, commits in (
        (None, {first.id, second.id, ROOT_ID}),
        (now, {first.id, second.id, ROOT_ID}),
        (now + 1, set()),
    ):
        found = reached(state.repository.database.objects, [start], expired=expired)
        assert {address.hex() for address, role in found.items() if role is Role.COMMIT} == commits


@pytest.mark.parametrize("role", list(Role), ids=lambda role: role.name)
def test_an_object_of_another_kind_is_refused(role):
    raws = {
        Role.COMMIT: b"\x01",
        Role.LOG_ENTRY: b"\x02",
        Role.SEQUENCE: b"\x10\x90",
        Role.MAP: b"\x12\x80",
        Role.CHUNK: b"\x14x",
    }
    for raw in (*raws.values(), b"", b"\x99"):
        if not raw or raw[0] not in role.value:
            with pytest.raises(CorruptObjectError, match="expected a"):
                references(Address(bytes(24)), raw, role)


@pytest.mark.parametrize(
    "cell",
    [
        extension(Code.LIST_TREE, b"\x92\x05"),
        extension(Code.LIST_TREE, b"\x92\x05\xc4\x03abc"),
        extension(Code.LIST_TREE, b"\x92\x05\x91\xc4\x02\x10\x90"),
        extension(Code.DICT_TREE, b"\x94\x00\x91\xc4\x02\x12\x80\x01\x91\xc4\x03\x10\x91\xc0"),
        extension(Code.TEXT, b"\x92\x05\x91\xc4\x02\x14x"),
        extension(Code.TUPLE, b"\x91" + extension(Code.LIST_TREE, b"\xc0")),
        b"\x91" + extension(99, b"x" + extension(Code.LIST_TREE, b"\x92")),
    ],
)
def test_a_cell_that_does_not_decode_is_corrupt(cell):
    with pytest.raises(CorruptObjectError):
        references_of_cell(cell)


@given(st.binary(max_size=60), st.sampled_from(list(Role)), st.integers(1, 0x15))
def test_any_bytes_are_refused_or_refer_to_something(body, role, kind):
    raw = bytes((kind,)) + body
    try:
        found = references(Address(bytes(24)), raw, role)
    except CorruptObjectError:
        return
    assert all(len(reference.address) == 24 for reference in found)


def test_depth_of_nested_extensions_is_no_limit():
    """As deep as bytes allow: a reader on a small stack must not fall over what somebody planted."""
    cell = extension(Code.LIST_TREE, b"\x92\x05\xc4\x18" + b"a" * 24)
    for _ in range(5000):
        cell = extension(Code.TUPLE, b"\x91" + cell)
    assert [reference.address for reference in references_of_cell(cell)] == [b"a" * 24]


def test_what_is_new_between_two_trees():
    """Exactly what the one reaches and the other does not, at the cost of what differs."""
    store = Counting(Memory())
    state = Versioned(store)
    state.update({f"key {n:05}": n for n in range(20_000)})
    state["messages"] = make_large("list", 20_000, 1)
    first = state.commit()
    state["key 10000"] = "changed"
    state["messages"].append({"n": 1})
    state["new"] = make_large("nested", 300, 2)
    del state["key 00017"]
    second = state.commit()
    objects = state.repository.database.objects

    def whole(commit: Any) -> set[Address]:
        return {
            address
            for address, role in reached(objects, references_of_tree(commit.tree)).items()
            if role is not Role.SEGMENT
        }

    for old, new in ((first, second), (second, first)):
        store.reset()
        found = {
            reference.address
            for reference, _ in iter_new(objects, references_of_tree(old.tree), references_of_tree(new.tree))
        }
        counts = store.counts
        assert found == whole(new) - whole(old)
        assert counts.get_manys <= 12
        assert counts.objects_read < 0.1 * len(whole(old))
    assert not list(iter_new(objects, references_of_tree(first.tree), references_of_tree(first.tree)))


@given(st.lists(st.tuples(st.integers(0, 40), st.sampled_from([None, *Role])), max_size=120), st.integers(1, 8))
def test_a_set_that_spills_is_a_set(steps, in_memory):
    plain: set[tuple[bytes, Role | None]] = set()
    with AddressSet(in_memory=in_memory) as found:
        for number, role in steps:
            address = number.to_bytes(24, "big")
            bit = Role.COMMIT if role is None else role  # without a role is one of them
            assert found.add(address, role) == ((address, bit) not in plain)
            plain.add((address, bit))
            assert len(found) == len({each for each, _ in plain})
        for number in range(41):
            address = number.to_bytes(24, "big")
            assert (address in found) == any(each == address for each, _ in plain)


def test_gc_with_a_set_that_spills():
    store = Memory()
    repository = history(store, 300)
    state = Versioned(repository)
    state.reset("HEAD~150")
    report = collect(repository.database, expire=timedelta(0), in_memory=20)
    assert report.freed == 150
    assert repository.fsck().ok
