"""Crafted stores of a few objects that count any number of elements: every call ends, and costs in proportion to what is stored."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from fractions import Fraction
from typing import Any
from zoneinfo import ZoneInfo

import msgpack
import pytest
from blake3 import blake3

from tests.support.processes import run
from versioned_state import Memory, Repository, Versioned
from versioned_state.errors import CorruptObjectError, LimitExceededError, StateError
from versioned_state.objects.envelope import seal
from versioned_state.objects.keys import ref_key
from versioned_state.objects.record import write_record
from versioned_state.repository.history.commit import ROOT_ID
from versioned_state.storage import Counting
from versioned_state.values.cells import Code

Put = Callable[[bytes], bytes]


def craft(make: Callable[[Put], tuple[int, Any]]) -> Memory:
    """A store whose branch main points to a commit with a crafted tree."""
    store = Memory()
    state = Versioned(store)
    state["ok"] = 1
    state.commit()

    def put(raw: bytes) -> bytes:
        address = blake3(raw).digest(length=24)
        store.set("o/" + address.hex(), seal(raw))
        return address

    count, top = make(put)
    root = bytes.fromhex(ROOT_ID)
    head = put(b"\x01" + msgpack.packb([count, top, root, 1, None, "m", None, 1, None, root]))
    key = ref_key("branch", "main")
    store.set(key, write_record(key, msgpack.packb(["main", head, 0, None])))
    return store


def leaf(cells: dict[bytes, bytes]) -> bytes:
    header: bytes = msgpack.Packer().pack_map_header(len(cells))
    return b"\x12" + header + b"".join(msgpack.packb(key) + cell for key, cell in sorted(cells.items()))


def fan(put: Put, address: bytes, count: int, levels: int, keys: tuple[bytes, ...] = ()) -> tuple[bytes, int]:
    """Inner nodes of `levels` levels, each of which names the one below it 44 times."""
    for level in range(1, levels + 1):
        body = [level, [count] * 44, address * 44, *([list(keys) * 44] if keys else [])]
        address = put((b"\x13" if keys else b"\x11") + msgpack.packb(body))
        count *= 44
    return address, count


def one(cell: bytes) -> tuple[int, Any]:
    return 1, [leaf({b"ka": cell})]


def tree(code: Code, *parts: Any) -> bytes:
    packed: bytes = msgpack.packb(msgpack.ExtType(code, msgpack.packb(list(parts))))
    return packed


def fan_list(code: Code, levels: int = 4) -> Callable[[Put], tuple[int, Any]]:
    def make(put: Put) -> tuple[int, Any]:
        address, count = fan(put, put(b"\x10" + b"\xdc\xff\xff" + b"\xa1x" * 65535), 65535, levels)
        return one(tree(code, count, address))

    return make


def fan_blob(code: Code, *more: Any) -> Callable[[Put], tuple[int, Any]]:
    def make(put: Put) -> tuple[int, Any]:
        address, count = fan(put, put(b"\x14" + b"x\n" * 30_000), 60_000, 4)
        return one(tree(code, count, address, *more))

    return make


def fan_map(put: Put) -> tuple[int, Any]:
    address, count = fan(put, put(leaf({b"ka%05d" % number: b"\xc0" for number in range(20_000)})), 20_000, 3, (b"ka00000",))
    return count, address


def fan_dict(*, ordered: bool) -> Callable[[Put], tuple[int, Any]]:
    def make(put: Put) -> tuple[int, Any]:
        address, count = fan(put, put(leaf({b"sa%05d" % number: b"\xc0" for number in range(20_000)})), 20_000, 3, (b"sa00000",))
        order = b"".join(msgpack.packb(f"a{number:05}") for number in range(20_000))
        keys, many = fan(put, put(b"\x10\xdc\x4e\x20" + order), 20_000, 3)
        return one(tree(Code.DICT_TREE, count, address, *([many, keys] if ordered else [])))

    return make


def lying_counts(put: Put) -> tuple[int, Any]:
    """Empty leaves that are said to have elements: a walk that went by what it finds would look into all of them."""
    address, count = fan(put, put(b"\x10\x90"), 1, 5)
    return one(tree(Code.LIST_TREE, count, address))


HOSTILE: dict[str, Callable[[Put], tuple[int, Any]]] = {
    "list": fan_list(Code.LIST_TREE),
    "taller list": fan_list(Code.LIST_TREE, 8),
    "tuple": fan_list(Code.TUPLE_TREE),
    "set": fan_list(Code.SET_TREE),
    "text": fan_blob(Code.TEXT),
    "bytes": fan_blob(Code.BYTES_BLOB),
    "packed": fan_blob(Code.PACKED),
    "array": fan_blob(Code.ARRAY_BLOB, "<f8", [1 << 30]),
    "map": fan_map,
    "dict": fan_dict(ordered=False),
    "ordered dict": fan_dict(ordered=True),
    "lying counts": lying_counts,
}

CALLS: dict[str, Callable[[Repository], object]] = {
    "keys": lambda repository: sum(1 for _ in repository.snapshot()),
    "copy": lambda repository: repository.snapshot(describe=True).copy(),
    "keys_at": lambda repository: repository.snapshot().keys_at("a"),
    "at": lambda repository: repository.snapshot(describe=True).at("a"),
    "element": lambda repository: repository.snapshot(describe=True).at("a[5]"),
    "grep": lambda repository: list(repository.grep("zzz")),
    "blame": lambda repository: repository.blame("a"),
    "blame all": lambda repository: repository.blame(),
    "stats": lambda repository: repository.stats(),
    "stats 2": lambda repository: repository.stats(depth=2),
    "diff": lambda repository: str(repository.diff("HEAD~1", "HEAD")),
    "diff back": lambda repository: str(repository.diff("HEAD", "HEAD~1")),
    "folded": lambda repository: repository.diff("HEAD~1", "HEAD").folded(),
    "history": lambda repository: list(repository.history("a")),
    "log path": lambda repository: list(repository.log(path="a")),
    "log changed": lambda repository: list(repository.log(changed="zzz")),
    "fsck": lambda repository: repository.fsck(),
    "gc": lambda repository: repository.gc(),
    "purge": lambda repository: repository.purge("a.b", dry_run=True),
    "prune": lambda repository: repository.prune(keep_last=1, dry_run=True),
}


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
from tests.repository.test_hostile_stores import CALLS, HOSTILE, craft
from versioned_state import Repository
from versioned_state.errors import StateError
for name, make in HOSTILE.items():
    for call, work in CALLS.items():
        try:
            work(Repository(craft(make)))
        except (StateError, KeyError):
            pass
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 500 << 10, (name, call)
"""


def test_all_calls_together_stay_within_500_megabytes():
    run(LIMITED)


def test_a_list_that_repeats_itself_is_searched_once():
    """An honest one: ten million zeros are a few nodes."""
    state = Versioned()
    state["zeros"] = ["x"] * 300_000
    state["same"] = {"again": ["x"] * 300_000}
    state.commit()
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


def test_values_of_many_types_are_no_findings():
    state = Versioned()
    state["values"] = [Fraction(1, 3), {1, (2, "x"), frozenset({3})}, ZoneInfo("Europe/Rome"), {(1, 2): {b"x"}}, 1 << 200]
    state["large"] = {number: {Fraction(number, 7)} for number in range(500)}
    state["set"] = {(number, "x" * 50) for number in range(500)}
    value: list[Any] = []
    state["deep"] = value
    for _ in range(120):
        value.append([])
        value = value[0]
    state.commit()
    assert state.repository.fsck().findings == ()
