"""Crafted stores: a few objects that claim to hold any number of elements, and the calls that have to survive them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgpack
from blake3 import blake3

from versioned_state import KVStore, Memory, Repository, Versioned
from versioned_state.objects.envelope import seal
from versioned_state.objects.keys import ref_key
from versioned_state.objects.record import write_record
from versioned_state.repository.history.commit import ROOT_ID
from versioned_state.values.cells import Code

Put = Callable[[bytes], bytes]


def craft(make: Callable[[Put], tuple[int, Any]]) -> Memory:
    """Return a store whose branch main points to a commit with a crafted tree."""
    store = Memory()
    craft_in(store, make)
    return store


def craft_in(store: KVStore, make: Callable[[Put], tuple[int, Any]]) -> None:
    """The same in an empty store."""
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
    address, count = fan(
        put, put(leaf({b"ka%05d" % number: b"\xc0" for number in range(20_000)})), 20_000, 3, (b"ka00000",)
    )
    return count, address


def fan_dict(*, ordered: bool) -> Callable[[Put], tuple[int, Any]]:
    def make(put: Put) -> tuple[int, Any]:
        address, count = fan(
            put, put(leaf({b"sa%05d" % number: b"\xc0" for number in range(20_000)})), 20_000, 3, (b"sa00000",)
        )
        order = b"".join(msgpack.packb(f"a{number:05}") for number in range(20_000))
        keys, many = fan(put, put(b"\x10\xdc\x4e\x20" + order), 20_000, 3)
        return one(tree(Code.DICT_TREE, count, address, *([many, keys] if ordered else [])))

    return make


def lying_counts(put: Put) -> tuple[int, Any]:
    """Empty leaves that claim to have elements: a walk that trusted the leaves would look into all of them."""
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
