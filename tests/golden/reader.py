"""A reader of version 1, written from ``docs/format.md`` alone.

It imports nothing of this library, and checks what section 11 says.

``Reader`` takes a store as a dict of keys and values; ``from_disk`` and its neighbours make that dict from what each
backend keeps. Values come back as Python's own where there is one, and else as the small classes below.
"""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import fractions
import itertools
import json
import lzma
import pathlib
import re
import sqlite3
import struct
import uuid
import zlib
import zoneinfo
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgpack
import zstandard
from blake3 import blake3
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, AESSIV
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

MOST = 1 << 20
ROOT = bytes.fromhex("600f5c0df2cd20c58e59fb02b6779d91af1df631072024a9")
NAME = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//|^[-/]|/$|^(HEAD|@)$")

COMMIT, LOG, LEAF, NODE, MAP_LEAF, MAP_NODE, CHUNK, SEGMENT = 0x01, 0x02, 0x10, 0x11, 0x12, 0x13, 0x14, 0x15


class Damage(Exception):  # noqa: N818 - the word of the page
    """The store is not what the page says."""


class Typed(NamedTuple):
    name: str
    data: Any
    notes: Any


class Array(NamedTuple):
    dtype: Any
    shape: tuple[int, ...]
    data: bytes


class Scalar(NamedTuple):
    dtype: Any
    data: bytes


class Pickled(NamedTuple):
    type: str
    mac: bytes | None
    data: bytes
    buffers: tuple[tuple[bool, bytes], ...]


class Commit(NamedTuple):
    id: bytes
    size: int
    top: Any
    parents: tuple[bytes, ...]
    time: int
    author: str | None
    message: str
    meta: dict[str, Any] | None
    generation: int
    height: int
    merge_height: int | None
    jump: bytes | None
    tag: str | None
    signature: bytes | None
    raw: bytes


class Ref(NamedTuple):
    name: str
    head: bytes | None
    place: int
    log: bytes | None
    moved: int | None
    ttl: int
    due: int


class Entry(NamedTuple):
    kind: str
    name: str
    old: bytes | None
    new: bytes | None
    time: int
    author: str | None
    action: str
    previous: bytes | None


def check(condition: object, what: str) -> None:
    if not condition:
        raise Damage(what)


def hashed(data: bytes, size: int) -> bytes:
    return blake3(data).digest(length=size)


def unpack(data: bytes, **options: Any) -> Any:
    try:
        return msgpack.unpackb(data, strict_map_key=False, unicode_errors="surrogatepass", **options)
    except Damage:
        raise
    except Exception as error:
        raise Damage(f"it does not decode: {error!r}") from error


def hashable(value: Any) -> Any:
    """A stand-in for a dict's key or a set's element that this reader has no hashable value for."""
    if isinstance(value, Typed):
        return Typed(value.name, hashable(value.data), hashable(value.notes))
    if isinstance(value, dict):
        return tuple((hashable(key), hashable(each)) for key, each in value.items())
    if isinstance(value, list):
        return ("list", *map(hashable, value))
    return tuple(map(hashable, value)) if type(value) is tuple else value


class Reader:
    """A store. Raises ``Damage``."""

    def __init__(self, keys: Mapping[str, bytes]) -> None:
        self.keys = keys
        record = self.value_of("format")
        check(record.startswith(b"versioned-state\n") and hashed(record[:-8], 8) == record[-8:], "the format record")
        self.version = unpack(record[16:-8])
        check(type(self.version) is int and self.version <= 1, "a newer format")
        self.depth = 0

    def value_of(self, key: str) -> bytes:
        check(key in self.keys, f"{key} is missing")
        return self.keys[key]

    # Sections 2 and 3

    def object(self, address: bytes, *kinds: int) -> bytes:
        stored = self.value_of("o/" + address.hex())
        form, rest = stored[0], stored[1:]
        check(form <= 3, "an envelope of another form")
        names: list[bytes] = []
        head = 0
        if form >= 2:
            check(kinds != (SEGMENT,), "a segment in segments")
            count, head = rest[0], rest[1]
            check(count and head, "no segments")
            names = [rest[at : at + 24] for at in range(2, 2 + 24 * count, 24)]
            rest = rest[2 + 24 * count :]
        if form % 2:
            size = zstandard.frame_content_size(rest)
            check(0 <= size <= MOST, "a frame without a size, or too large")
            rest = zstandard.ZstdDecompressor(max_window_size=2 * MOST).decompress(rest)
            check(len(rest) == size, "another size than its frame states")
        check(not names or (len(rest) >= head and rest[0] in (LEAF, NODE)), "a node that has no segments")
        bodies = [self.object(name, SEGMENT)[1:] for name in names]
        check(all(len(body) < 8192 for body in bodies), "a segment that is too large")
        raw = rest[:head] + b"".join(bodies) + rest[head:]
        check(len(raw) <= MOST, "an object that is too large")
        check(hashed(raw, 24) == address, f"{address.hex()} is not what its address says")
        check(raw and raw[0] in kinds, f"an object of kind {raw[:1].hex()} where one of {kinds} should be")
        return raw

    def record(self, key: str) -> bytes:
        stored = self.value_of(key)
        check(
            hashed(key.encode("utf-8", "surrogatepass") + b"\0" + stored[:-8], 8) == stored[-8:],
            f"the checksum of {key}",
        )
        return stored[:-8]

    # Section 4

    def value(self, cell: bytes) -> Any:
        return self._typed(unpack(cell, ext_hook=self._extension, object_pairs_hook=Pairs))

    def _typed(self, value: Any) -> Any:
        """What MessagePack gave, with typed values in place of their arrays."""
        if type(value) is list:
            if value and isinstance(value[0], Head):
                check(len(value) == 2, "a typed value of more than two parts")
                return Typed(value[0].name, self._typed(value[1]), value[0].notes)
            return [self._typed(each) for each in value]
        if type(value) is Pairs:
            found = [(self._typed(key), self._typed(each)) for key, each in value]
            return {hashable(key): each for key, each in found}
        check(type(value) is not bytes, "a bin where a value should be")
        return value.value if type(value) is Done else value

    def parts(self, payload: bytes) -> list[Any]:
        """The cells of a payload in brackets. ``bin`` may be among them."""
        found = unpack(payload, ext_hook=self._extension, object_pairs_hook=Pairs)
        check(type(found) is list, "a payload that is not an array")
        return list(found)

    def _extension(self, code: int, payload: bytes) -> Any:
        self.depth += 1
        check(self.depth <= 128, "too deep")
        try:
            found = self._of_code(code, payload)
            return found if type(found) is Head else Done(found)
        except (ValueError, TypeError, IndexError, KeyError, struct.error, ArithmeticError) as error:
            raise Damage(f"code {code} does not decode: {error!r}") from error
        finally:
            self.depth -= 1

    def _of_code(self, code: int, payload: bytes) -> Any:  # noqa: C901 - as long as the table of codes
        match code:
            case 1:
                return payload
            case 2:
                return bytearray(payload)
            case 3:
                number = int.from_bytes(payload, "big", signed=True)
                check(len(payload) == abs(number).bit_length() // 8 + 1, "an int in more bytes than it needs")
                return number
            case 4:
                return complex(*struct.unpack(">dd", payload))
            case 14:
                return zoneinfo.ZoneInfo(payload.decode())
            case 15:
                return decimal.Decimal(payload.decode("ascii"))
            case 17:
                safe = {None: uuid.SafeUUID.unknown, 0: uuid.SafeUUID.safe, 1: uuid.SafeUUID.unsafe}
                return uuid.UUID(bytes=payload[:16], is_safe=safe[payload[16] if len(payload) > 16 else None])
        parts = self.parts(payload)
        match code:
            case 18:
                return getattr(pathlib, parts[0])(parts[1])
            case 19:
                return Scalar(self._dtype(parts[0]), parts[1])
            case 20:
                return Array(self._dtype(parts[0]), tuple(parts[1]), parts[2])
            case 21 if len(parts) == 3:
                return Typed(parts[0], self._typed(parts[2]), self._typed(parts[1]))
            case 21:
                return Head(parts[0], self._typed(parts[1]) if len(parts) > 1 else None)
            case 40:
                return Array(self._dtype(parts[2]), tuple(parts[3]), self.blob(parts[0], parts[1]))
        if 32 <= code <= 41:
            return self._tree(code, parts)
        parts = [self._typed(part) for part in parts]
        match code:
            case 5:
                return tuple(parts)
            case 6 | 7:
                found = {6: set, 7: frozenset}[code](map(hashable, parts))
                check(len(found) == len(parts), "a set with an element twice")
                return found
            case 8:
                return range(*parts)
            case 9:
                return dt.date(*parts)
            case 10:
                *numbers, fold, zone = parts
                return dt.datetime(*numbers).replace(tzinfo=zone, fold=fold)
            case 11:
                *numbers, fold, zone = parts
                return dt.time(*numbers).replace(tzinfo=zone, fold=fold)
            case 12:
                return dt.timedelta(*parts)
            case 13:
                return dt.timezone(dt.timedelta(*parts[:3]), *parts[3:])
            case 16:
                return fractions.Fraction(*parts)
            case 22:
                type_name, mac, never, data, *rest = parts
                check(never is False, "an object that is neither")
                buffers = zip(rest[::2], rest[1::2], strict=True)
                return Pickled(
                    type_name, mac, bytes(data), tuple((writable, bytes(buffer)) for writable, buffer in buffers)
                )
        raise Damage(f"code {code} has no meaning")

    def _dtype(self, dtype: Any) -> Any:
        dtype = dtype.value if type(dtype) is Done else dtype
        if isinstance(dtype, list):
            return [self._dtype(each) for each in dtype]
        return tuple(map(self._dtype, dtype)) if isinstance(dtype, tuple) else dtype

    # Section 5

    def _tree(self, code: int, parts: list[Any]) -> Any:
        count, top, *order = parts
        match code:
            case 32 | 33 | 34 | 35:
                found = self.sequence(count, top)
                if code in (32, 33):
                    return found if code == 32 else tuple(found)
                elements = {34: set, 35: frozenset}[code](map(hashable, found))
                check(len(elements) == count, "a set with an element twice")
                return elements
            case 36:
                return self.dict_tree(count, top, *order)
            case 37:
                return self.blob(count, top).decode("utf-8", "surrogatepass")
            case 38:
                return self.blob(count, top)
            case 39:
                return bytearray(self.blob(count, top))
            case _:
                return self.value(self.blob(count, top))

    def leaves(self, count: int, top: Any, *kinds: int) -> Iterator[tuple[bytes, int]]:
        """A tree's leaves: raw bytes, and how many elements or bytes each must have (-1: the parent does not say)."""
        check(type(count) is int and count >= 0, "a tree without a count")
        inner = MAP_NODE if MAP_LEAF in kinds else NODE
        if type(top) is list:
            (raw,) = top
            check(type(raw) is bytes and raw[0] in kinds and raw[0] != CHUNK, "an inlined top that is no node")
        else:
            check(type(top) is bytes and len(top) == 24, "a tree without a top")
            raw = self.object(top, *kinds)
        yield from self._below(raw, count, None, inner, kinds)

    def _below(
        self, raw: bytes, count: int, first: bytes | None, inner: int, kinds: tuple[int, ...]
    ) -> Iterator[tuple[bytes, int]]:
        if raw[0] != inner:
            yield raw, count
            return
        level, counts, addresses, *keys = unpack(raw[1:])
        check(1 <= level <= 64 and min(counts, default=0) >= 1 and len(addresses) == 24 * len(counts), "a node")
        check(sum(counts) == count, "a node with another count than its parent says")
        check(
            (len(keys) == 1 and len(keys[0]) == len(counts)) if inner == MAP_NODE else not keys,
            "a node with other keys",
        )
        check(first is None or keys[0][0] == first, "a node with another first key than its parent says")
        below = (inner,) if level > 1 else tuple(kind for kind in kinds if kind != inner)
        for at, number in enumerate(counts):
            child = self.object(addresses[24 * at : 24 * at + 24], *below)
            if level > 1:
                check(unpack(child[1:])[0] == level - 1, "a node of another level than its parent says")
            key = keys[0][at] if keys else None
            for leaf, size in self._below(child, number, key, inner, kinds):
                if key is not None:
                    check(
                        self._first_key(leaf) == key or level > 1, "a leaf with another first key than its parent says"
                    )
                yield leaf, size

    @staticmethod
    def _first_key(leaf: bytes) -> bytes:
        return next(iter(unpack(leaf[1:], object_pairs_hook=Pairs, ext_hook=lambda *_: None)))[0]  # type: ignore[no-any-return]

    def sequence(self, count: int, top: Any) -> list[Any]:
        found: list[Any] = []
        for raw, size in self.leaves(count, top, LEAF, NODE):
            values = self.value(raw[1:])
            check(len(values) == size, "a leaf with another count than its parent says")
            found += values
        check(len(found) == count, "a sequence with another count")
        return found

    def map(self, count: int, top: Any) -> dict[bytes, Any]:
        found: dict[bytes, Any] = {}
        for raw, size in self.leaves(count, top, MAP_LEAF, MAP_NODE):
            entries = unpack(raw[1:], ext_hook=self._extension, object_pairs_hook=Pairs)
            check(len(entries) == size, "a leaf with another count than its parent says")
            for key, value in entries:
                check(type(key) is bytes and key > (next(reversed(found)) if found else b""), "keys that do not ascend")
                found[key] = self._typed(value)
        check(len(found) == count, "a map with another count")
        return found

    def blob(self, count: int, top: Any) -> bytes:
        found = b"".join(raw[1:] for raw, _ in self.leaves(count, top, CHUNK, NODE))
        check(len(found) == count > 0, "a blob with another count")
        return found

    def dict_tree(self, count: int, top: Any, *order: Any) -> dict[Any, Any]:
        found = {}
        for key, value in self.map(count, top).items():
            check(key[:1] in (b"s", b"x"), "an order key of another kind")
            name = key[1:].decode("utf-8", "surrogatepass") if key[:1] == b"s" else hashable(self.value(key[1:]))
            found[name] = value
        if not order:
            return found
        keys = [hashable(key) for key in self.sequence(*order)]
        check(len(keys) == len(found), "another number of keys in order")
        return {key: found[key] for key in keys}

    # Section 9

    def commit(self, address: bytes) -> Commit:
        raw = self.object(address, COMMIT)
        fields = unpack(raw[1:])
        count, top, parents, time, author, message, meta, generation, heights, jump, *rest = fields
        tag = rest.pop(0) if rest and type(rest[0]) is str else None
        signature = rest.pop(0) if rest else None
        check(not rest, "a commit with more fields")
        if signature is not None:
            check(
                raw[1] in (0x9B, 0x9C) and raw[-74:-72] == b"\xc4\x48" and raw[-72:] == signature,
                "a signature in another form",
            )
        check(len(parents) % 24 == 0 and (jump is None or len(jump) == 24), "an address of another size")
        check(-62_135_596_800_000_000 <= time <= 253_402_300_799_999_999, "a time outside of the years 1 to 9999")
        height, merge_height = (generation, None) if heights is None else heights
        found = tuple(parents[at : at + 24] for at in range(0, len(parents), 24))
        check(
            0 <= height <= generation and (merge_height is None or 0 <= merge_height <= height),
            "the place of a commit in history",
        )
        check(bool(found) == (height > 0), "parents where there should be none, or none")
        check(
            (len(found) > 1) == (merge_height is not None and height == merge_height),
            "several parents where it is not a merge",
        )
        values = self.value(meta) if meta is not None else None
        return Commit(
            address,
            count,
            top,
            found,
            time,
            author,
            message,
            values,
            generation,
            height,
            merge_height,
            jump,
            tag,
            signature,
            raw,
        )

    def signed_by(self, commit: Commit, public_key: bytes) -> None:
        """Check the signature of a commit. Raises ``InvalidSignature``."""
        assert commit.signature is not None
        check(commit.signature[:8] == hashed(public_key, 8), "another key")
        unsigned = commit.raw[:1] + bytes([commit.raw[1] - 1]) + commit.raw[2:-74]
        Ed25519PublicKey.from_public_bytes(public_key).verify(
            commit.signature[8:], b"versioned-state commit 1\0" + unsigned
        )

    def state(self, commit: Commit) -> dict[tuple[str, ...], Any]:
        """The values of a state by namespaces and key, such as ``("k",)`` and ``("space", "inner", "k")``.

        Those of the engine are behind ``"engine"``.
        """
        found = {}
        for key, value in self.map(commit.size, commit.top).items():
            path: tuple[str, ...] = ()
            while key[:1] == b"n":
                name, nul, key = key[1:].partition(b"\0")  # noqa: PLW2901 - the rest of it
                check(nul, "a namespace without an end")
                path += ("@" + name.decode("utf-8", "surrogatepass"),)
            check(key[:1] in (b"k", b"e"), "a key of the root of another kind")
            path += ("engine",) if key[:1] == b"e" else ()
            found[(*path, key[1:].decode("utf-8", "surrogatepass"))] = value
        return found

    @staticmethod
    def series(value: list[dict[str, Any]]) -> dict[str, Any]:
        complete, last, newest = value
        merged = {**complete, **last, **newest}
        check(list(merged) == sorted(merged), "a series that is not in order")
        return merged

    # Section 10

    def ref(self, kind: str, name: str) -> Ref:
        named, head, place, log, *rest = unpack(self.record(f"ref/{kind}/{name}"))
        check(
            named == name and f"born/{kind}/{name}" in self.keys and self.keys[f"born/{kind}/{name}"] == b"\x01",
            "the record of a ref",
        )
        check(not NAME.search(name) and 1 <= len(name.encode()) <= 255, "a name that no ref has")
        check(len(rest) <= 3, "a ref with more fields")
        moved, ttl, due = [*rest, None, 0, 0][: max(len(rest), 0)] + [None, 0, 0][len(rest) :]
        for index, at in (("gone" if head is None else "recent", place), ("due", due)):
            check(not at or self.keys.get(f"{index}/{at:016x}/{name}") == b"", f"{name} is not in the index {index}")
        return Ref(name, head, place, log, moved, ttl, due)

    def refs(self, kind: str) -> dict[str, Ref]:
        start = f"ref/{kind}/"
        found = {
            key[len(start) :]: self.ref(kind, key[len(start) :]) for key in sorted(self.keys) if key.startswith(start)
        }
        born = {key[len(f"born/{kind}/") :] for key in self.keys if key.startswith(f"born/{kind}/")}
        check(born <= set(found), "a ref was lost")
        return found

    def reflog(self, ref: Ref) -> list[Entry]:
        found, at = [], ref.log
        while at is not None:
            entry = Entry(*unpack(self.object(at, LOG)[1:]))
            found.append(entry)
            at = entry.previous
        return found

    def history(self, head: bytes) -> list[Commit]:
        """A commit and its first parents, as far as history reaches."""
        cuts = self.cuts()
        found: list[Commit] = []
        at: bytes | None = head
        while at is not None:
            commit = self.commit(at)
            if found:
                check(found[-1].height == commit.height + 1, "heights")
            found.append(commit)
            kept = cuts.get(at, (commit.height, 1))[1]
            at = commit.parents[0] if commit.parents and kept & 1 else None
        for commit, parent in itertools.pairwise(found):
            self._check_jump(commit, parent, found)
        return found

    def _check_jump(self, commit: Commit, parent: Commit, line: list[Commit]) -> None:
        by_id = {each.id: each for each in line}
        middle = by_id.get(parent.jump) if parent.jump is not None else None
        far = by_id.get(middle.jump) if middle is not None and middle.jump is not None else None
        if far is not None and middle is not None and parent.height - middle.height == middle.height - far.height:
            check(commit.jump == far.id, "a jump that leads elsewhere")
        elif parent.jump is None or (middle is not None and (middle.jump is None or far is not None)):
            check(commit.jump == parent.id, "a jump that leads elsewhere")

    def cuts(self) -> dict[bytes, tuple[int, int]]:
        """The shallow commits: the height of each, and the parents that it keeps, as bits."""
        if "cuts" not in self.keys:
            return {}

        def entries(key: str) -> tuple[dict[bytes, tuple[int, int]], list[str]]:
            joined, heights, kept, *pages = unpack(self.record(key))
            addresses = [joined[at : at + 24] for at in range(0, len(joined), 24)]
            check(addresses == sorted(addresses), "cuts that are not in order")
            return dict(zip(addresses, zip(heights, kept, strict=True), strict=True)), pages[0] if pages else []

        own, pages = entries("cuts")
        found: dict[bytes, tuple[int, int]] = {}
        for page in pages:
            check(page == "cuts/" + hashed(self.record(page), 16).hex(), "a page under another key")
            found |= entries(page)[0]
        return found | own

    def notes(self) -> dict[bytes, dict[str, Any]]:
        found = {}
        for key in self.keys:
            if key.startswith("note/"):
                body = self.record(key)
                raw = body[1:] if body[0] == 0 else zstandard.ZstdDecompressor().decompress(body[1:])
                check(body[0] in (0, 1) and raw[0] == CHUNK, "a note in another form")
                found[base64.urlsafe_b64decode(key[5:])] = self.value(raw[1:])
        return found

    def _parts(self, parts: list[bytes]) -> Any:
        raws = [part[1:] if part[0] == 0 else zstandard.ZstdDecompressor().decompress(part[1:]) for part in parts]
        check(
            all(part[0] in (0, 1) for part in parts) and all(raw[0] == CHUNK and len(raw) <= 524_289 for raw in raws),
            "a part",
        )
        return self.value(b"".join(raw[1:] for raw in raws))

    def records(self) -> dict[str, dict[str, Any]]:
        return {
            key[7:]: self._parts(unpack(self.record(key))) for key in sorted(self.keys) if key.startswith("record/")
        }

    def effects(self) -> list[tuple[str | None, int, bytes | None, Any, list[Any] | None]]:
        found = []
        for name in sorted(self.keys):
            if name.startswith("effect/"):
                key, since, owner, parts, *facts = unpack(self.record(name))
                check(
                    key is None or name == "effect/" + hashed(key.encode("utf-8", "surrogatepass"), 24).hex(),
                    "an effect elsewhere",
                )
                check(owner is None or len(owner) in (0, 28), "an owner")
                found.append((key, since, owner, self._parts(parts) if parts else None, facts[0] if facts else None))
        return found

    def policies(self) -> dict[str, str]:
        return dict(unpack(self.record("merge"))) if "merge" in self.keys else {}

    def lock(self, branch: str) -> tuple[Any, ...]:
        token, owner, held, ttl, beat, time, wanted = unpack(self.record(f"lock/{branch}"))
        check(len(owner) == 28 and type(held) is bool and type(wanted) is bool, "a lock")
        return token, owner, held, ttl, beat, time, wanted

    def gc(self) -> dict[str, Any]:
        names = "generation owner beat sweeps expired hold published marking version indexed searchable".split()
        fields = unpack(self.record("gc"))
        return dict(zip(names, fields + [0, 1, [], []][len(fields) - 7 :], strict=True))

    def meta_index(self) -> set[str]:
        """The keys of meta's index, each checked: its ref's head has a value with that hash under an indexed key."""
        found = {key for key in self.keys if key.startswith("meta/")}
        right: set[str] = set()
        for kind in ("branch", "tag"):
            for name, ref in self.refs(kind).items():
                meta = self.commit(ref.head).meta if ref.head else None
                for key in self.gc()["indexed"]:
                    value = (meta or {}).get(key, ...)
                    if (
                        value is None
                        or type(value) in (bool, str)
                        or (type(value) is int and -(1 << 63) <= value < 1 << 64)
                    ):
                        cell = msgpack.packb(value, unicode_errors="surrogatepass")
                        right.add(f"meta/{hashed(key.encode(), 4).hex()}/{hashed(cell, 8).hex()}/{kind}/{name}")
                    elif type(value) is int:  # its cell is an extension
                        start, end = f"meta/{hashed(key.encode(), 4).hex()}/", f"/{kind}/{name}"
                        right |= {each for each in found if each.startswith(start) and each.endswith(end)}
        check(found == right, "the index of meta")
        return found

    def shared(self) -> dict[bytes, list[str]]:
        return {
            base64.urlsafe_b64decode(key[7:]): unpack(self.record(key))
            for key in self.keys
            if key.startswith("shared/")
        }

    def keepers(self) -> dict[bytes, bytes]:
        """The id of the keeper of each object, or nothing if there is no table."""
        if "keepers" not in self.keys:
            return {}
        _, bits, salt, _ = unpack(self.record("keepers"))
        found: dict[bytes, bytes] = {}
        for key in sorted(self.keys):
            if key.startswith(f"keepers/{salt.hex()}/"):
                page, body = int(key.rpartition("/")[2], 16), self.record(key)
                check(len(body) % 32 == 0, "a page of keepers")
                for at in range(0, len(body), 32):
                    address = body[at : at + 24]
                    check(int.from_bytes(address, "big") >> (192 - bits) == page, "a keeper on another page")
                    found[address] = body[at + 24 : at + 32]
        return found


class Done(NamedTuple):
    """The value of an extension, so that a list or bytes in it are not taken for MessagePack's array or ``bin``."""

    value: Any


class Head(NamedTuple):
    name: str
    notes: Any


class Pairs(list[tuple[Any, Any]]):
    """The entries of a MessagePack map, in its order."""


# Section 15: where the backends keep their keys


def from_disk(file: Path) -> dict[str, bytes]:
    database = sqlite3.connect(f"file:{file}?mode=ro&immutable=1", uri=True)
    check(database.execute("PRAGMA application_id").fetchone() == (0x76737461,), "not a file of ours")
    check(database.execute("PRAGMA user_version").fetchone() == (1,), "another layout")
    found = {key.decode(): value for key, value in database.execute("SELECT key, value FROM entries")}
    found |= {"o/" + key.hex(): value for key, value in database.execute("SELECT key, value FROM objects")}
    database.close()
    return found


def from_diskcache(file: Path) -> dict[str, bytes]:
    database = sqlite3.connect(f"file:{file}?mode=ro&immutable=1", uri=True)
    rows = database.execute("SELECT key, raw, mode, value FROM Cache").fetchall()
    database.close()
    check(all((raw, mode) == (1, 1) for _, raw, mode, _ in rows), "a row that is not raw bytes")
    return {"o/" + key.hex() if type(key) is bytes else key: value for key, _, _, value in rows}


def from_tables(dump: dict[str, Any]) -> dict[str, bytes]:
    """The rows of a schema of PostgreSQL."""
    check(dump["format"] == [[1]], "another layout")
    found = {bytes.fromhex(key).decode(): bytes.fromhex(value) for key, value in dump["entries"]}
    return found | {"o/" + key: bytes.fromhex(value) for key, value in dump["objects"]}


def from_redis(dump: dict[str, Any]) -> dict[str, bytes]:
    """The keys of a server, without the prefix in braces."""
    check(dump["layout"] == "1", "another layout")
    found = {bytes.fromhex(key).decode(): bytes.fromhex(value) for key, value in dump["entries"].items()}
    check(
        sorted(bytes.fromhex(name).decode() for name in dump["names"]) == sorted(found),
        "names that are not those of the entries",
    )
    for number in range(64):
        for address, value in dump.get(f"o:{number:02x}", {}).items():
            check(int(address[:2], 16) >> 2 == number, "an object in another hash")
            found["o/" + address] = bytes.fromhex(value)
    return found


def from_bucket(dump: dict[str, str]) -> dict[str, bytes]:
    """The objects of a bucket, without the prefix."""
    found = {}
    for name, cell in dump.items():
        if not name.startswith(("o/", "e/")):
            continue
        body = bytes.fromhex(cell)
        magic, flags, writes, key_size, size = struct.unpack_from(">4sBBIQ", body)
        check(magic == b"vs3\x01" and not flags & 6, "a cell in another form, or undecided")
        at = 18 + 8 * (writes + 1)
        key = body[at : at + key_size].decode()
        at += key_size
        check(struct.unpack_from(">I", body, at) == (zlib.crc32(body[:at]),), "the checksum of a cell")
        check(len(name) > 600 or name == cell_name(key), "a cell under another name")
        if flags & 1:
            found[key] = body[at + 4 : at + 4 + size]
    return found


def from_encrypted(below: Mapping[str, bytes], key: bytes) -> dict[str, bytes]:
    """The keys of an encrypted store, from those of the store below (design note 011)."""
    magic, _, ring = below["encryption"].partition(b"\n")
    check(magic == b"versioned-state encryption", "not a keyring")
    kept = json.loads(ring)
    check(kept["version"] == 1, "another keyring")
    derived = HKDF(SHA256(), 196, bytes.fromhex(kept["salt"]), b"versioned-state encrypted store 1").derive(key)
    id, values, names = derived[:4], AESGCM(derived[4:36]), AESSIV(derived[100:164])
    wrapped = bytes.fromhex(kept["keys"][id.hex()])
    entry_names = AESSIV(AESGCM(derived[68:100]).decrypt(wrapped[:12], wrapped[12:], None))
    found = {}
    for name, stored in below.items():
        plain = ""
        if name.startswith("o/"):
            plain = "o/" + names.decrypt(bytes.fromhex(name[2:])[6:], None)[1:].hex()
        elif name.startswith("e/"):
            for part in name[2:].split("/"):
                plain += "/" if plain else ""
                plain += entry_names.decrypt(base64.urlsafe_b64decode(part + "=="), [plain.encode()]).decode()
        else:
            continue
        check(stored[:4] == id, "a value under another key")
        found[plain] = values.decrypt(stored[4:16], stored[16:], id + plain.encode())
    return found


def cell_name(key: str) -> str:
    """The name of the cell of a key that is not too long."""
    folder, text = ("o/", key[2:]) if key.startswith("o/") else ("e/", key)
    plain = {
        char: char
        if char.isascii() and (char.isalnum() or char == "_")
        else "-"
        if char == "/"
        else "".join(f".{b:02x}" for b in char.encode())
        for char in text
    }
    return folder + "".join(plain[char] for char in text) + "!"


def load(file: Path) -> Any:
    """A dump: JSON, compressed by xz."""
    return json.loads(lzma.decompress(file.read_bytes()))
