"""The decoders of stored bytes as functions, with samples of their input. Run as a program, it fuzzes one of them.

``python -m tests.support.decoders NAME CORPUS [options of libFuzzer]`` needs atheris. A decoder gives a value, which it
checks, or raises a ``StateError``; anything else is a finding.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    import atheris

    # What is imported within counts its branches, by which the fuzzer steers.
    instrumented: Any = atheris.instrument_imports(include=["versioned_state"])
else:
    instrumented = nullcontext()

with instrumented:
    from blake3 import blake3

    from tests.support.codec import Codec
    from tests.support.data_samples import CONTAINERS, SCALARS
    from tests.support.mutations import sample
    from tests.support.strategies import make_large
    from versioned_state import Memory, Repository, StateError, Versioned
    from versioned_state.objects.address import address_of
    from versioned_state.objects.envelope import MAX_OBJECT, join, seal, segments_in, unseal
    from versioned_state.objects.keys import address_in, object_key
    from versioned_state.repository.format import read_format
    from versioned_state.repository.refs.ref import parse_ref
    from versioned_state.repository.refs.reflog import read_entry
    from versioned_state.values.cells import array, pack
    from versioned_state.values.trees.nodes import Shape, read_node
    from versioned_state.values.trees.segments import NO_CUTS, leaf_in_segments


@dataclass(frozen=True)
class Decoder:
    """One decoder, and bytes that it takes."""

    decode: Callable[[bytes], Any]
    samples: tuple[bytes, ...]


def _cells() -> Decoder:
    bench = Codec()
    values = [
        sample(random.Random(1), 2),
        *(value for value in SCALARS.values() if type(value) is not int),
        [*CONTAINERS.values(), 2**70],
        *(make_large(kind, 300, 1) for kind in ("list", "dict", "text", "array", "set")),
    ]
    # One store for all: what a cell refers to is there, and a cell that is made up finds it.
    return Decoder(bench.decode, tuple(bench.encode(value) for value in values))


def _nodes() -> Decoder:
    """Return a decoder of nodes whose first byte says the shape."""
    bench = Codec()
    for kind in ("list", "dict", "text"):
        bench.encode(make_large(kind, 300, 1))
    shapes = list(Shape)
    raws = [bytes(bench.objects.read(address_in(key))) for key in bench.kv.keys("o/")][:12]

    def decode(data: bytes) -> None:
        if data:
            shape = shapes[data[0] % len(shapes)]
            node = read_node(shape, data[1:])
            assert node.counts is None or len(node.counts) == len(node.items)
            assert node.keys is None or len(node.keys) == len(node.items)
            assert (node.keys is None) == (shape is not Shape.MAP)
            assert all(type(item) is bytes for item in node.items)

    return Decoder(decode, tuple(bytes([number]) + raw[:600] for raw in raws for number in range(len(shapes))))


def _envelopes() -> Decoder:
    cells = [pack(f"{number:>120}") for number in range(20)]
    leaf, _, parts = leaf_in_segments(b"\x10" + array(cells), cells, NO_CUTS)
    segments = dict(parts)

    def decode(data: bytes) -> None:
        try:
            names = segments_in(data)
            raw = join(data, names, {name: segments.get(name, b"\x15?") for name in names}) if names else unseal(data)
        except ValueError as error:  # of which the object store makes an error of ours, since it knows the address
            raise StateError(str(error)) from error
        assert isinstance(raw, bytes)
        assert len(raw) <= MAX_OBJECT

    raws = (leaf, b"short", b"long " * 300, random.Random(1).randbytes(500), b"")
    return Decoder(decode, tuple(map(seal, raws)))


def _commits() -> Decoder:
    state = Versioned(author="someone")
    state["a"] = {"b": [1]}
    state.commit("first", meta={"task": "plan", "n": 1})
    state.commit("second \ud800", allow_empty=True)
    raws = [state.repository.database.objects.read(commit.address) for commit in state.log()]

    def decode(raw: bytes) -> Any:
        store = Memory()
        repository = Repository(store)
        address = address_of(raw)
        store.set(object_key(address), seal(raw))
        commit = repository.database.commits.read(address)
        assert type(commit.time) is type(commit.height) is type(commit.generation) is int
        assert 0 <= commit.height <= commit.generation
        assert type(commit.message) is str
        assert commit.author is None or type(commit.author) is str
        assert all(len(bytes.fromhex(id)) == 24 for id in (*commit.parents, commit.jump or commit.id))
        with suppress(StateError):
            assert len(bytes.fromhex(commit.root)) == 24
        with suppress(StateError):
            assert isinstance(commit.meta, Mapping)
        return repr(commit), commit.datetime

    return Decoder(decode, tuple(raws))


def _log_entries() -> Decoder:
    state = Versioned()
    state.commit(allow_empty=True)
    state.reset("HEAD~1")
    log = state.repository.database.ref("branch", "main").log
    assert log is not None

    def decode(raw: bytes) -> None:
        entry = read_entry(address_of(raw), raw)
        assert all(map(is_address, (entry.old, entry.new, entry.previous)))
        assert (type(entry.time), type(entry.action)) == (int, str)

    return Decoder(decode, (state.repository.database.objects.read(log),))


def is_address(found: Any) -> bool:
    return found is None or (type(found) is bytes and len(found) == 24)


def _refs() -> Decoder:
    """Without the checksum, which is computed for every input."""
    state = Versioned()
    state.commit(allow_empty=True)
    stored = state.repository.store.get("ref/branch/main") or b""

    def decode(body: bytes) -> None:
        ref = parse_ref("branch", "main", body + blake3(b"ref/branch/main\0" + body).digest(length=8))
        assert is_address(ref.head)
        assert is_address(ref.log)

    return Decoder(decode, (stored[:-8],))


def _formats() -> Decoder:
    store = Memory()
    Repository(store)
    return Decoder(lambda body: read_format(body + blake3(body).digest(length=8)), ((store.get("format") or b"")[:-8],))


DECODERS: dict[str, Callable[[], Decoder]] = {
    "cells": _cells,
    "nodes": _nodes,
    "envelopes": _envelopes,
    "commits": _commits,
    "log entries": _log_entries,
    "refs": _refs,
    "format records": _formats,
}


def main() -> None:
    name, corpus, *options = sys.argv[1:]
    decoder = DECODERS[name]()
    for number, data in enumerate(decoder.samples):
        (Path(corpus) / f"sample-{number}").write_bytes(data)

    def one(data: bytes) -> None:
        with suppress(StateError):
            decoder.decode(data)

    atheris.Setup([sys.argv[0], *options, corpus], one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
