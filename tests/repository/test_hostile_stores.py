"""Small crafted stores that count any number of elements: each call ends, and costs in proportion to what is stored."""

from __future__ import annotations

from contextlib import suppress
from fractions import Fraction
from typing import Any
from zoneinfo import ZoneInfo

import msgpack
import pytest

from tests.support.crafted_stores import CALLS, HOSTILE, Put, craft, craft_in, leaf, one, tree
from tests.support.handles import committed
from tests.support.processes import run
from versioned_state import Memory, Repository, Versioned
from versioned_state.errors import CorruptObjectError, LimitExceededError, StateError, UnmergedBranchError
from versioned_state.objects.address import address_of
from versioned_state.objects.envelope import seal
from versioned_state.objects.keys import object_key, ref_key
from versioned_state.objects.record import write_record
from versioned_state.repository.history.commit import ROOT_ID, read_commit
from versioned_state.repository.refs.ref import write_ref
from versioned_state.storage import Counting
from versioned_state.values.cells import Code


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("name", HOSTILE)
def test_a_call_reads_no_more_than_what_is_stored(name, call):
    store = craft(HOSTILE[name])
    stored = sum(1 for _ in store.keys("o/"))
    counting = Counting(store)
    with suppress(CorruptObjectError, LimitExceededError, KeyError):
        CALLS[call](Repository(counting))
    assert counting.counts.objects_read <= 12 * stored + 20


LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
resource.setrlimit(resource.RLIMIT_CPU, (40, 40))
from tests.support.crafted_stores import CALLS, HOSTILE, craft
from versioned_state import Repository
from versioned_state.errors import StateError
for name, make in HOSTILE.items():
    for call, work in CALLS.items():
        try:
            work(Repository(craft(make)))
        except (StateError, KeyError):
            pass
        # Not ru_maxrss, which begins with that of the process that started this one.
        peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
        assert int(peak.split()[1]) < 500 << 10, (name, call)
"""


def test_all_calls_together_stay_within_500_megabytes():
    run(LIMITED)


def test_a_list_that_repeats_itself_is_searched_once():
    """An honest one: ten million zeros are a few nodes."""
    state = committed(zeros=["x"] * 300_000, same={"again": ["x"] * 300_000})
    counting = Counting(state.repository.store)
    repository = Repository(counting)
    assert list(repository.grep("zzz")) == []
    assert counting.counts.objects_read < 100
    assert str(next(repository.grep("x", path="same")).path) == "same.again[0]"


# Values that do not decode


def ext(code: int, payload: bytes) -> bytes:
    packed: bytes = msgpack.packb(msgpack.ExtType(code, payload))
    return packed


UNREADABLE = {
    "fraction": ext(Code.FRACTION, msgpack.packb([1, 0])),
    "set of lists": ext(Code.SET, b"\x91\x91\x01"),
    "set of dicts": ext(Code.FROZENSET, b"\x91\x81\xa1a\x01"),
    "date": ext(Code.DATE, b"\xff" * 12),
    "unknown extension": ext(99, b"x"),
    "deep": b"\x91" * 1000 + b"\xc0",
    "deep dicts": b"\x81\xa1a" * 500 + b"\xc0",
}


@pytest.mark.parametrize("inline", [True, False], ids=["in the commit", "in a leaf"])
@pytest.mark.parametrize("name", UNREADABLE)
def test_fsck_names_a_value_that_cannot_be_read(name, inline):
    cell = UNREADABLE[name]

    def make(put: Put) -> tuple[int, Any]:
        return (1, [leaf({b"ka": cell})]) if inline else (1, put(leaf({b"ka": cell})))

    report = Repository(craft(make)).fsck()
    (finding,) = report.findings
    assert finding.problem in ("corrupt", "misplaced")
    assert finding.what in ("commit", "map")
    assert "cannot be read" in finding.error or "does not decode" in finding.error


@pytest.mark.parametrize("kind", ["set", "dict"])
def test_fsck_looks_into_large_sets_and_the_keys_of_large_dicts(kind):
    def make(put: Put) -> tuple[int, Any]:
        if kind == "set":
            return one(tree(Code.SET_TREE, 2, put(b"\x10\x92\x01\x91\x01")))
        return one(tree(Code.DICT_TREE, 1, put(leaf({b"k\x91\x01": b"\x01"}))))

    store = craft(make)
    (finding,) = Repository(store).fsck().findings
    assert "cannot be read" in finding.error
    with pytest.raises(StateError):
        Repository(store).snapshot()["a"]


def planted_deep_leaf(put: Put) -> tuple[int, Any]:
    """A list of two elements in a leaf of its own, the first of them 300 lists deep."""
    return one(tree(Code.LIST_TREE, 2, put(b"\x10\x92" + b"\x91" * 300 + b"\xc0" + b"\xa1x")))


def test_a_deep_value_in_a_leaf_is_refused_when_a_handle_reads_it_where_others_can_write():
    state = Versioned(craft(planted_deep_leaf), pickle="refuse")
    with pytest.raises(LimitExceededError, match="depth"):
        state["a"]


@pytest.mark.no_oracle("a tree made by hand")
def test_a_deep_value_in_a_leaf_is_never_committed_again():
    """Where nobody else can write, a handle saves the walk when it reads."""
    store = craft(planted_deep_leaf)
    state = Versioned(store)
    head = state.head
    state["a"].append("more")
    state["b"] = 1
    with pytest.raises(LimitExceededError, match="depth of a value at a "):
        state.commit()
    assert state.status().under("b")
    state.discard()
    assert state["a"][1:] == ["x"]
    state["b"] = 1
    assert state.commit().parents == (head.id,)
    assert Versioned(store)["b"] == 1


def test_values_of_many_types_are_no_findings():
    state = Versioned()
    state["values"] = [
        Fraction(1, 3),
        {1, (2, "x"), frozenset({3})},
        ZoneInfo("Europe/Rome"),
        {(1, 2): {b"x"}},
        1 << 200,
    ]
    state["large"] = {number: {Fraction(number, 7)} for number in range(500)}
    state["set"] = {(number, "x" * 50) for number in range(500)}
    value: list[Any] = []
    state["deep"] = value
    for _ in range(120):
        value.append([])
        value = value[0]
    state.commit()
    assert state.repository.fsck().findings == ()


@pytest.mark.parametrize(
    "cell",
    [
        b"\xd4\x20\x91",
        b"\xd5\x20\x91\x01",
        b"\xc7\x03\x16\x91\x91\x01",
        b"\x92\xd5\x15\x91\xc1\x01",
        b"\xc7\x03\x26\x91\x91\x01",
    ],
)
def test_a_value_that_does_not_decode_is_corrupt_to_blame_and_can_be_replaced(cell):
    store = craft(lambda _put: one(cell))
    state = committed(store, a=1)
    assert state["a"] == 1
    with pytest.raises(CorruptObjectError):
        Repository(store).blame("a")


@pytest.mark.parametrize("tag", ["\ud800", "x" * 70_000, "a\0b", ""])
def test_a_commit_that_names_a_tag_that_no_ref_can_have_is_in_nobody_s_way(tag):
    def make(put: Put) -> tuple[int, Any]:
        root = bytes.fromhex(ROOT_ID)
        fields = [1, [leaf({b"ka": b"\x01"})], root, 1, None, "m", None, 1, None, root, tag]
        head = put(b"\x01" + msgpack.packb(fields, unicode_errors="surrogatepass"))
        store.set(key, write_record(key, msgpack.packb(["b", head, 0, None])))
        return one(b"\x01")

    store, key = Memory(), ref_key("branch", "b")
    craft_in(store, make)
    repository = Repository(store)
    assert repository.prune(keep_last=1, branches="*").removed == 0
    with pytest.raises(UnmergedBranchError):
        repository.branches.delete("b")


@pytest.mark.parametrize("top", [b"short", [b"\x12"], [b"\x12\x81\xa1a\x01\x00"], [], None, 7], ids=repr)
def test_a_commit_whose_tree_is_damaged_is_read_for_its_history_and_refused_for_its_content(top):
    store = Memory()
    state = Versioned(store)
    state["n"] = 1
    made = state.commit("before", meta={"run": "a"})
    stored = store.get(object_key(made.address))
    assert stored is not None
    body = msgpack.unpackb(stored[2:])
    body[1], body[5] = top, "damaged"
    raw = b"\x01" + msgpack.packb(body)
    address = address_of(raw)
    ref = ref_key("branch", "main")
    store.apply({}, {ref: write_ref("branch", "main", address, None)}, objects={object_key(address): seal(raw)})
    assert read_commit(address, raw).message == "damaged"
    repository = Repository(store)
    assert next(repository.branches.iter_info()).meta == {"run": "a"}
    assert [commit.message for commit in repository.log("main")] == ["damaged"]
    for call in (
        lambda: repository.snapshot("main"),
        lambda: Versioned(store),
        repository.gc,
        lambda: repository.branches["main"].root,
    ):
        with pytest.raises(CorruptObjectError):
            call()
    assert [finding.problem for finding in repository.fsck().findings if finding.id == address.hex()] == ["corrupt"]
