"""References between objects, and walks over everything that is reachable. Nothing is unpickled. Layer: repository.

A *reference* is an address and a *role*: the kind of object that a reader expects there. Gc, fsck and others follow
references without reading values; this module alone finds the objects that a tree needs.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

import msgpack

from versioned_state.errors import CorruptObjectError, StateError
from versioned_state.objects.address import Address, Kind, Role
from versioned_state.objects.envelope import Segmented
from versioned_state.objects.store import Reader
from versioned_state.repository.history.commit import Commit, read_commit
from versioned_state.repository.history.shallow import Shallow
from versioned_state.repository.refs.ref import Ref
from versioned_state.repository.refs.reflog import read_entry
from versioned_state.values.cells import Code
from versioned_state.values.codec.scalars import RAW_READERS
from versioned_state.values.trees.nodes import Node, Shape, read_node
from versioned_state.values.trees.references import may_refer, read_tree
from versioned_state.values.trees.tree import Tree

BATCH: Final = 512
"""The number of objects of one read: 2 MB in memory, at 4 KB each."""


UNREAD: Final = frozenset({Role.CHUNK, Role.SEGMENT})
"""The roles of objects that refer to nothing, so that a walk need not read them."""


class Reference(NamedTuple):
    """An address, and the expected properties of the object there.

    An inner node or a cell may state the ``level``, the ``size`` (elements or bytes), the first ``key`` and the
    ``end``, a key that all keys come before, or None if it does not. ``code`` is that of the cell whose tree the object
    belongs to: the elements of a set and the keys of a dict must be hashable.
    """

    address: Address
    role: Role
    level: int | None = None
    size: int | None = None
    key: bytes | None = None
    end: bytes | None = None
    code: int | None = None


ROLES: Final = {Shape.SEQUENCE: Role.SEQUENCE, Shape.MAP: Role.MAP, Shape.BLOB: Role.BLOB}
"""The role of the nodes of a tree of each shape."""

OWN_ROLES: Final[dict[int, Role]] = {
    Kind.COMMIT: Role.COMMIT,
    Kind.LOG_ENTRY: Role.LOG_ENTRY,
    Kind.SEQUENCE_LEAF: Role.SEQUENCE,
    Kind.SEQUENCE_NODE: Role.SEQUENCE,  # also for a blob, which has the same references
    Kind.MAP_LEAF: Role.MAP,
    Kind.MAP_NODE: Role.MAP,
    Kind.CHUNK: Role.CHUNK,
    Kind.SEGMENT: Role.SEGMENT,
}
"""The role in which an object is read of which only the kind is known."""

_SHAPES: Final = {role: shape for shape, role in ROLES.items()} | {Role.CHUNK: Shape.BLOB}
_DECODING_ERRORS: Final = (ValueError, TypeError, LookupError, ArithmeticError, struct.error, msgpack.UnpackException)


_WHOLE: Final = Shallow({})


def references(address: Address, raw: bytes, role: Role) -> list[Reference]:
    """Return the references in one object, in its order. A few may occur twice.

    A commit refers to its parents and its tree. Its jump is not a reference: the parents lead to that ancestor as well,
    unless history ends in between. ``meta`` refers to nothing.

    Args:
        address: that of the object, for errors.
        raw: its raw bytes, kind first.
        role: the role in which it was named.

    Raises:
        CorruptObjectError: it does not fit the role, or does not decode.
    """
    kind = raw[0] if raw else None
    if kind not in role.value:
        raise CorruptObjectError(address.hex(), f"expected a {role.name.lower().replace('_', ' ')}, found kind {kind}")
    if kind in (Kind.CHUNK, Kind.SEGMENT):
        return []
    if kind == Kind.COMMIT:
        return _of_commit(read_commit(address, raw))
    if kind == Kind.LOG_ENTRY:
        entry = read_entry(address, raw)
        commits = [Reference(each, Role.COMMIT) for each in (entry.old, entry.new) if each is not None]
        return commits if entry.previous is None else [*commits, Reference(entry.previous, Role.LOG_ENTRY)]
    if kind in (Kind.SEQUENCE_LEAF, Kind.MAP_LEAF):
        return [] if may_refer(raw) is None else _guarded(address, lambda: _of_cells(memoryview(raw)[1:]))
    return _of_inner(_SHAPES[role], read_node(_SHAPES[role], raw))


def references_of_ref(ref: Ref) -> list[Reference]:
    """Return the references of a ref: its head, and the last entry of its log."""
    found = [] if ref.head is None else [Reference(ref.head, Role.COMMIT)]
    return found if ref.log is None else [*found, Reference(ref.log, Role.LOG_ENTRY)]


def check_cells(address: Address, raw: bytes) -> None:
    """Raise ``CorruptObjectError`` unless all cells of a leaf decode, as far as that needs no other object."""
    _guarded(address, lambda: _of_cells(memoryview(raw)[1:], thoroughly=True))


def check_order(address: Address, node: Node | bytes) -> None:
    """Raise ``CorruptObjectError`` if the keys of a map's node are not in order, so that a lookup would miss one."""
    if isinstance(node, Node) and node.keys is not None and any(a >= b for a, b in pairwise(node.keys)):
        raise CorruptObjectError(address.hex(), "its keys are not in order")


def references_of_cell(cell: bytes) -> list[Reference]:
    """Return the references in a cell. Raises ``CorruptObjectError``."""
    return [] if may_refer(cell) is None else _guarded(Address(b""), lambda: _of_cells(cell))


def references_of_tree(tree: Tree) -> list[Reference]:
    """Return the references of a tree: its top, or those in an inlined top. Raises ``CorruptObjectError``."""
    return _guarded(Address(b""), lambda: _of_tree(tree))


def _guarded(address: Address, find: Callable[[], list[Reference]]) -> list[Reference]:
    try:
        return find()
    except StateError:
        raise
    except _DECODING_ERRORS as error:
        raise CorruptObjectError(
            address.hex() or "(a value)", f"it does not decode: {type(error).__name__}: {error}"
        ) from error


def _of_commit(commit: Commit) -> list[Reference]:
    parents = [Reference(address, Role.COMMIT) for address in commit.parent_addresses]
    return parents + _guarded(commit.address, lambda: _of_tree(commit.tree))


def _of_tree(tree: Tree, code: int | None = None) -> list[Reference]:
    top = tree.top
    if isinstance(top, bytes):
        return [Reference(Address(top), ROLES[tree.shape], None, tree.count, code=code)]
    if top.count != tree.count:
        raise ValueError(f"{top.count} elements where {tree.count} were counted")
    if top.level:
        return _of_inner(tree.shape, top, code)
    if tree.shape is Shape.BLOB:
        return []
    return [reference for cell in top.items if may_refer(cell) for reference in _of_cells(cell)]


def _of_inner(shape: Shape, node: Node, code: int | None = None) -> list[Reference]:
    role = Role.CHUNK if shape is Shape.BLOB and node.level == 1 else ROLES[shape]
    assert node.counts is not None
    below = node.level - 1
    keys: Sequence[bytes | None] = node.keys or [None] * len(node.items)
    parts = zip(node.items, node.counts, keys, (*keys[1:], None), strict=True)
    return [Reference(Address(item), role, below, count, key, end, code) for item, count, key, end in parts]


def _of_cells(data: bytes | memoryview, *, thoroughly: bool = False) -> list[Reference]:
    """Return the references in packed cells at any depth.

    Nested extensions are processed in a loop, so their depth is not limited.

    Args:
        thoroughly: also read the values without references, to find errors in them.
    """
    found: list[Reference] = []
    pending: list[tuple[int, bytes]] = []

    def note(code: int, payload: bytes) -> None:
        pending.append((code, payload))

    def unpack(data: bytes | memoryview) -> Any:
        return msgpack.unpackb(data, ext_hook=note, strict_map_key=False, unicode_errors="surrogatepass")

    unpack(data)
    while pending:
        code, payload = pending.pop()
        if code in RAW_READERS:
            if thoroughly and code != Code.ZONEINFO:  # the known time zones depend on the machine
                RAW_READERS[code](payload)
            continue
        if code not in _KNOWN:
            raise ValueError(f"unknown extension {code}")
        parts = unpack(payload)
        if code >= Code.LIST_TREE:
            tree = read_tree(_shape_of(code), parts)
            if thoroughly:
                check_order(Address(b""), tree.top)
            found += _of_tree(tree, code)
            if code == Code.DICT_TREE and len(parts) > 2:
                if parts[2] != parts[0]:
                    raise ValueError(f"{parts[2]} keys in order, but {parts[0]} entries")
                found += _of_tree(read_tree(Shape.SEQUENCE, parts[2:]))
    return found


_KNOWN: Final = frozenset(Code)


def _shape_of(code: int) -> Shape:
    """Return the shape of the tree for this code."""
    if code == Code.DICT_TREE:
        return Shape.MAP
    return Shape.BLOB if code >= Code.TEXT else Shape.SEQUENCE


def segments_of(raw: bytes) -> list[Address]:
    """Return the segments that an object was read from. They are objects that it needs too."""
    return [address for address, _ in raw.segments] if isinstance(raw, Segmented) else []


def followed(
    reference: Reference, raw: bytes, *, shallow: Shallow = _WHOLE, expired: int | None = None
) -> list[Reference]:
    """Return the references that a walk follows from an object, as history is now, and the jump of a commit.

    Raises as ``references``.

    Gc and reclaiming must use only this function to find the objects that an object needs.
    """
    address, role = reference.address, reference.role
    if role is Role.COMMIT:
        commit = shallow.graft(read_commit(address, raw))
        jump = [] if commit.jump_address is None else [Reference(commit.jump_address, Role.COMMIT)]
        return jump + _of_commit(commit)
    if role is Role.LOG_ENTRY and expired is not None and read_entry(address, raw).time < expired:
        return []
    return references(address, raw, role)


def iter_new(reader: Reader, old: Iterable[Reference], new: Iterable[Reference]) -> Iterator[tuple[Reference, bytes]]:
    """Yield the objects that are reachable from ``new`` and not from ``old``, with their raw bytes.

    Cost: reads about the difference.

    Both sides are walked level by level, each level in one read, without the objects that both name. An equal part is
    walked nevertheless if it is at different levels on the two sides. Parents of commits are not followed.

    Raises:
        MissingObjectError, CorruptObjectError: an object of either side cannot be read.
    """
    ours, theirs = list(new), list(old)
    known = {reference.address for reference in theirs}
    seen: set[tuple[Address, Role]] = set()
    while ours:
        named = {each.address for each in ours}
        theirs = [each for each in theirs if each.address not in named and each.role is not Role.CHUNK]
        ours = [
            each for each in dict.fromkeys(ours) if each.address not in known and (each.address, each.role) not in seen
        ]
        if not ours:
            return
        seen.update((each.address, each.role) for each in ours)
        raws = reader.read_many({each.address for each in (*ours, *theirs)})
        below = []
        for each in theirs:
            below += _below(each, raws[each.address])
        theirs = [each for each in dict.fromkeys(below) if each.address not in known]
        known.update(each.address for each in theirs)
        below = []
        for each in ours:
            yield each, raws[each.address]
            below += _below(each, raws[each.address])
        ours = below


def _below(reference: Reference, raw: bytes) -> list[Reference]:
    found = references(reference.address, raw, reference.role)
    return [each for each in found if each.role is not Role.COMMIT] if reference.role is Role.COMMIT else found
