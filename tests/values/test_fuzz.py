"""Whoever can write to a store can write anything: whatever the bytes, a decoder gives a value or a ``StateError``.

It never gives another exception, never unpickles, never takes memory out of proportion, and never hangs. Each decoder
is fed bytes of its own kind with random damage, and some that were made to do harm.
"""

from __future__ import annotations

import pickle
import random
import time
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgpack
import pytest
import zstandard

from tests.support.codec import Codec
from tests.support.decoders import DECODERS
from tests.support.processes import run
from tests.support.strategies import make_large
from versioned_state import Memory, Repository, Versioned
from versioned_state.errors import StateError
from versioned_state.objects.address import address_of
from versioned_state.objects.envelope import MAX_OBJECT, seal, unseal
from versioned_state.objects.keys import address_in, object_key
from versioned_state.repository.format import read_format
from versioned_state.repository.refs.ref import parse_ref
from versioned_state.values.cells import MAX_ELEMENTS, Code, array, extension, typed_cell

ROUNDS = 3000
"""Damaged versions of the samples of a decoder."""


def damaged(rng: random.Random, sample: bytes) -> bytes:
    """A sample with a few bytes changed, removed, repeated or put in, or something else altogether."""
    if rng.random() < 0.02:
        return rng.randbytes(rng.randrange(40))
    data = bytearray(sample)
    for _ in range(rng.choice((1, 1, 2, 5))):
        at = rng.randrange(len(data) + 1)
        match rng.randrange(6):
            case 0 | 1:
                data[at : at + 1] = bytes(
                    [rng.choice((0, 1, 0x7F, 0x80, 0xC0, 0xC1, 0xC7, 0xD4, 0xDD, 0xDF, 0xFF, rng.randrange(256)))]
                )
            case 2:
                del data[at : at + rng.randrange(1, 9)]
            case 3:
                data[at:at] = rng.randbytes(rng.randrange(1, 5))
            case 4:
                data[at:at] = data[rng.randrange(len(data) + 1) :][: rng.randrange(1, 30)]
            case 5:
                del data[at:]
    return bytes(data)


@pytest.mark.parametrize("name", DECODERS)
def test_damaged_bytes_are_decoded_to_something_sound_or_are_an_error_of_ours(name):
    decoder = DECODERS[name]()
    rng = random.Random(7)
    decoded = 0
    for original in decoder.samples:
        for _ in range(ROUNDS // len(decoder.samples) + 1):
            data = damaged(rng, original)
            try:
                decoder.decode(data)
            except StateError:
                continue
            except Exception as error:
                raise AssertionError(f"{type(error).__name__}: {error}, for {data!r}") from error
            decoded += 1
    assert decoded, "damage that is never let through is no test of what follows"


@pytest.mark.parametrize(
    ("key", "read"),
    [("ref/branch/main", lambda stored: parse_ref("branch", "main", stored)), ("format", read_format)],
    ids=["ref", "format"],
)
def test_no_damaged_record_passes_its_checksum(key, read):
    state = Versioned()
    state.commit(allow_empty=True)
    stored = state.repository.store.get(key) or b""
    read(stored)
    rng = random.Random(7)
    for data in {damaged(rng, stored) for _ in range(ROUNDS)} - {stored}:
        with pytest.raises(StateError):
            read(data)


def test_objects_that_are_parts_of_a_value():
    """Damage below the hash: each object is put in its store under the address of what it has become."""
    for kind in ("list", "dict", "text", "bytes", "array", "set", "tuple"):
        value = make_large(kind, 400, 1)
        bench = Codec()
        bench.encode(value)
        before = dict(bench.kv.items("o/"))
        raws = {key: bytes(bench.objects.read(address_in(key))) for key in before}
        cell = bench.encode(value)
        rng = random.Random(3)
        for _ in range(60):
            # A reference to damaged bytes is as good as any other: their address is put where the old one stood.
            key = rng.choice(sorted(raws))
            bad = damaged(rng, raws[key])[:MAX_OBJECT]
            store = Memory()
            swapped = {k: raw.replace(bytes.fromhex(key[2:]), address_of(bad)) for k, raw in raws.items()}
            top = cell.replace(bytes.fromhex(key[2:]), address_of(bad))
            for raw in (*swapped.values(), bad):
                store.set(object_key(address_of(raw)), seal(raw))
            with suppress(StateError):
                Codec(store).decode(top)


# Made to do harm


def peak(work: Callable[[], Any]) -> int:
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_an_envelope_cannot_take_more_memory_than_it_says():
    bomb = zstandard.ZstdCompressor(write_content_size=True).compress(bytes(64 << 20))
    streamed = zstandard.ZstdCompressor(write_content_size=False).compress(bytes(64 << 20))
    for size in (b"\0\0\0", b"\0\0\x0a", b"\x0f\xff\xff", b"\xff\xff\xff", b""):
        for frame in (bomb, streamed):

            def work(data: bytes = b"\x01" + size + frame) -> None:
                with pytest.raises(ValueError):
                    unseal(data)

            assert peak(work) < 4 << 20


def ext(code: int, payload: Any) -> bytes:
    return extension(code, payload if isinstance(payload, bytes) else msgpack.packb(payload))


CELLS: dict[str, bytes] = {
    "array that says it has many elements": b"\xdd\xff\xff\xff\xff",
    "map that says it has many entries": b"\xdf\xff\xff\xff\xff",
    "text that says it is long": b"\xdb\xff\xff\xff\xff",
    "tuple that says it has many elements": ext(Code.TUPLE, b"\xdd\xff\xff\xff\xff"),
    "numpy array without data": ext(Code.NUMPY_ARRAY, ["<f8", [1 << 28], b""]),
    "numpy array of many nothings": ext(Code.NUMPY_ARRAY, ["<f8", [0, 1 << 62], b""]),
    "numpy array with a negative shape": ext(Code.NUMPY_ARRAY, ["<f8", [-1], b"12345678"]),
    "numpy array of objects": ext(Code.NUMPY_ARRAY, ["|O", [1], b"12345678"]),
    "numpy array of objects in a structure": ext(Code.NUMPY_ARRAY, [[["a", "|O"]], [1], b"12345678"]),
    "numpy array of a wide type": ext(Code.NUMPY_ARRAY, ["V2000000000", [1], b"1"]),
    "numpy scalar of objects": ext(Code.NUMPY_SCALAR, ["O", b"12345678"]),
    "numpy dtype that is no dtype": ext(Code.NUMPY_ARRAY, ["i4, (2,", [1], b"1"]),
    "range without a step": ext(Code.RANGE, [1, 2, 0]),
    "date out of range": ext(Code.DATE, [0, 0, 0]),
    "timedelta out of range": ext(Code.TIMEDELTA, [10**18, 0, 0]),
    "timezone out of range": ext(Code.TIMEZONE, [9, 0, 0]),
    "zone without a name": ext(Code.ZONEINFO, b""),
    "decimal of no number": ext(Code.DECIMAL, b"1e999999999999999999999999"),
    "path of no kind": ext(Code.PATH, ["Path", "/"]),
    "path of bytes": ext(Code.PATH, ["PosixPath", b"a"]),
    "object without parts": ext(Code.OBJECT, []),
    "tree without a top": ext(Code.LIST_TREE, [5]),
    "tree that counts wrongly": ext(Code.LIST_TREE, [5, [b"\x10\x91\x01"]]),
    "tree that counts below zero": ext(Code.LIST_TREE, [-5, [b"\x10\x91\x01"]]),
    "tree of another shape": ext(Code.DICT_TREE, [1, [b"\x10\x91\x01"]]),
    "msgpack's own bytes": msgpack.packb(b"abc"),
    "bytes after the end": b"\x01\x02",
    "nothing": b"",
}


HARMLESS = ("numpy array of many nothings", "msgpack's own bytes")
"""Odd, but values all the same."""


@pytest.mark.parametrize("name", CELLS)
def test_a_cell_made_to_do_harm(name):
    cell = CELLS[name]

    def work() -> None:
        start = time.process_time()
        try:
            value = Codec().decode(cell)
        except StateError:
            pass
        else:
            assert name in HARMLESS, value
        assert time.process_time() - start < 2

    assert peak(work) < 8 << 20


def test_nesting_without_end():
    for unit in (b"\x91", b"\x81\x01"):
        for depth in (5000, 200_000):
            data = unit * depth + b"\x01"
            with pytest.raises(StateError):
                Codec().decode(data)


@pytest.mark.parametrize("code", ["TUPLE", "FROZENSET", "TYPED", "LIST_TREE"])
def test_nesting_of_extensions_without_end(code):
    """In a process of its own, since what this is about ends a process without a word."""
    program = """
        import sys
        import msgpack
        from tests.support.codec import Codec
        from versioned_state.errors import StateError
        from versioned_state.values.cells import Code, array, extension, typed_cell
        for depth in (100, 130, 400, 3000):
            cell = b"\\x01"
            for _ in range(depth):
                match sys.argv[1]:
                    case "TYPED":
                        cell = typed_cell(b"\\xa1x", None, cell)
                    case "LIST_TREE":
                        leaf = msgpack.packb(b"\\x10\\x91" + cell)
                        cell = extension(Code.LIST_TREE, array([b"\\x01", array([leaf])]))
                    case name:
                        cell = extension(Code[name], array([cell]))
            try:
                Codec().decode(cell)
                print(depth, "read")
            except StateError as error:
                print(depth, type(error).__name__)
    """
    lines = run(program, code).stdout.splitlines()
    assert lines[0] == "100 read"
    # Typed values are nested as lists are, which MessagePack itself refuses from some depth on.
    assert lines[2:] == [
        "400 LimitExceededError",
        f"3000 {'CorruptObjectError' if code == 'TYPED' else 'LimitExceededError'}",
    ]


LAUGHS = """
    import resource, sys
    resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))
    import msgpack
    from tests.support.codec import Codec
    from versioned_state import Memory
    from versioned_state.errors import StateError
    from versioned_state.objects.address import Kind, address_of
    from versioned_state.objects.envelope import seal
    from versioned_state.values.codec.scalars import Code, extension
    from versioned_state.values.decode import decoder
    decoder.MAX_ELEMENTS = int(sys.argv[2])
    store = Memory()

    def put(raw):
        store.set("o/" + address_of(raw).hex(), seal(raw))
        return address_of(raw)

    if sys.argv[1] == "shared nodes":
        # Each inner node names the one below it ten times: 10**20 elements in 20 objects, and all counts add up.
        count, address = 10, put(bytes([Kind.SEQUENCE_LEAF]) + msgpack.packb([0] * 10))
        for level in range(1, 20):
            address = put(bytes([Kind.SEQUENCE_NODE]) + msgpack.packb([level, [count] * 10, address * 10]))
            count *= 10
        cell = extension(Code.LIST_TREE, msgpack.packb([min(count, 2**63), address]))
    elif sys.argv[1] == "shared values":
        # A list of ten references to a list of ten references, and so on: a billion laughs.
        cell = b"\\x01"
        for level in range(20):
            leaf = put(bytes([Kind.SEQUENCE_LEAF]) + bytes([0x9A]) + cell * 10)
            cell = extension(Code.LIST_TREE, msgpack.packb([10, leaf]))
    else:
        # One chunk a million times.
        chunk = put(bytes([Kind.CHUNK]) + bytes(1 << 16))
        node = put(bytes([Kind.SEQUENCE_NODE]) + msgpack.packb([1, [1 << 16] * 20_000, chunk * 20_000]))
        top = put(bytes([Kind.SEQUENCE_NODE]) + msgpack.packb([2, [20_000 << 16] * 20_000, node * 20_000]))
        cell = extension(Code.BYTES_BLOB, msgpack.packb([20_000 * 20_000 << 16, top]))
    try:
        Codec(store).decode(cell)
    except StateError as error:
        print(type(error).__name__)
"""


@pytest.mark.parametrize(
    ("kind", "most"),
    [
        ("shared nodes", MAX_ELEMENTS),
        ("shared chunks", MAX_ELEMENTS),
        ("shared values", 1 << 20),
        # all of them are made, which takes six seconds
        pytest.param("shared values", MAX_ELEMENTS, marks=pytest.mark.long),
    ],
)
def test_a_few_objects_cannot_become_more_than_memory_holds(kind, most):
    """What is read is bounded by what is stored, not by what sharing makes of it."""
    assert run(LAUGHS, kind, str(most)).stdout in ("LimitExceededError\n", "CorruptObjectError\n")


def test_ints_that_are_slow_to_make_are_not_made():
    """Of a megabyte of digits, in a fraction: the greatest common divisor would take minutes."""
    rng = random.Random(1)
    big = [rng.randbytes(400_000) for _ in range(2)]
    cell = extension(Code.FRACTION, array([extension(Code.BIGINT, b"\x01" + digits) for digits in big]))
    start = time.process_time()
    with pytest.raises(StateError):
        Codec().decode(cell)
    assert time.process_time() - start < 5


class Harmful:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def test_whoever_only_looks_never_unpickles(tmp_path):
    """Log, status, diff, show and every reader of data, over a commit with a planted pickle that leaves a trace."""
    trace = tmp_path / "trace"
    store = Memory()
    state = Versioned(store)
    state["data"] = {"a": [1]}
    state.commit("before")
    state["bad"] = [Harmful(trace), {"in": Harmful(trace)}]
    state["large"] = ["x" * 3000, Harmful(trace), *range(2000)]
    state.commit("planted")
    state["data"]["a"].append(2)
    after = state.commit("after")
    assert not trace.exists()

    repository = Repository(store)
    list(repository.log())
    for revision in ("HEAD", "HEAD~1", "HEAD~2"):
        described = repository.snapshot(revision, describe=True)
        repr(described.copy())
        assert repository.snapshot(revision)["data"]["a"][0] == 1
        diff = repository.diff("HEAD~2", revision)
        str(diff), diff.to_json(), diff.stat(), [change.lines() for change in diff], [change.old for change in diff]
    reader = Versioned(Repository(store))
    reader["data"]["a"].append(3)
    str(reader.status())
    reader.commit()
    reader.sequence("large")[0]
    other = Versioned(Repository(store), branch="other")
    other["data"] = 5
    other.commit()
    other.reset(after)
    refusing = Versioned(Repository(store, pickle="refuse"))
    for key in ("bad", "large"):
        with pytest.raises(StateError):
            refusing[key]
    assert refusing["data"]["a"] == [1, 2, 3]
    assert not trace.exists()

    pickle.loads(pickle.dumps(Harmful(trace)))
    assert trace.exists(), "the trap does work"


def test_pickles_in_every_place_of_a_cell_are_only_described(tmp_path):
    trace = tmp_path / "trace"
    data = pickle.dumps(Harmful(trace))
    planted = extension(Code.OBJECT, array([msgpack.packb("x"), b"\xc0", b"\xc2", extension(Code.BYTES, data)]))
    bench = Codec()
    typed_cells = [
        typed_cell(msgpack.packb(name), notes, planted) for name in ("deque", "x:Y") for notes in (None, planted)
    ]
    for cell in (
        planted,
        array([planted]),
        extension(Code.TUPLE, array([planted])),
        *typed_cells,
        data,
        b"\x80\x04" + data,
    ):
        with suppress(StateError):
            repr(bench.decode(cell))
    assert not trace.exists()
