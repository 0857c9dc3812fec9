"""What an object refers to, and walks over all that is reachable from some objects. Never unpickles. Layer: repository.

A *reference* is an address and the *role* in which it is named: what a reader must find there. Which objects a tree needs is
here in one place, for gc, fsck and whatever else follows references without looking at values.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

import msgpack

from versioned_state.errors import CorruptObjectError, StateError, StorageError
from versioned_state.objects.address import Address, Kind
from versioned_state.objects.store import Reader
from versioned_state.repository.history.commit import Commit, read_commit
from versioned_state.repository.history.shallow import Shallow
from versioned_state.repository.refs.reflog import read_entry
from versioned_state.values.cells import Code
from versioned_state.values.codec.scalars import RAW_READERS
from versioned_state.values.trees.nodes import Node, Shape, read_node
from versioned_state.values.trees.references import read_tree
from versioned_state.values.trees.tree import Tree

if TYPE_CHECKING:
    import sqlite3

BATCH: Final = 512
"""Objects of one read: of 4 KB each they are 2 MB in memory."""

_LEAF: Final = re.compile(rb"[\xd4-\xd8][\x20-\x29]|\xc7.[\x20-\x29]|\xc8..[\x20-\x29]|\xc9....[\x20-\x29]", re.DOTALL)
"""The header of an extension that is a tree, as it lies in a leaf however deep the tree is nested. Where it does not occur, nothing is
referred to, and the leaf need not be decoded: for most leaves this is ten times faster."""


class Role(Enum):
    """In which role an object is named: the value is the kinds that it may have."""

    COMMIT = frozenset({Kind.COMMIT})
    LOG_ENTRY = frozenset({Kind.LOG_ENTRY})
    SEQUENCE = frozenset({Kind.SEQUENCE_LEAF, Kind.SEQUENCE_NODE})
    MAP = frozenset({Kind.MAP_LEAF, Kind.MAP_NODE})
    BLOB = frozenset({Kind.CHUNK, Kind.SEQUENCE_NODE})
    CHUNK = frozenset({Kind.CHUNK})
    """What lies under a blob's inner node of level 1; such a one need not be read, since it refers to nothing."""


class Reference(NamedTuple):
    """An address, and what it is taken for.

    ``level``, ``size`` (elements, or bytes), ``key`` (the first one) and ``end`` (a key that all of them come before) are what an inner
    node or a cell says of what is there: None, where it does not. ``code`` is that of the cell whose tree it belongs to; the elements of
    a set and the keys of a dict must be hashable.
    """

    address: Address
    role: Role
    level: int | None = None
    size: int | None = None
    key: bytes | None = None
    end: bytes | None = None
    code: int | None = None


_ROLES: Final = {Shape.SEQUENCE: Role.SEQUENCE, Shape.MAP: Role.MAP, Shape.BLOB: Role.BLOB}
_SHAPES: Final = {role: shape for shape, role in _ROLES.items()} | {Role.CHUNK: Shape.BLOB}
_DECODING_ERRORS: Final = (ValueError, TypeError, LookupError, ArithmeticError, struct.error, msgpack.UnpackException)


_WHOLE: Final = Shallow({})


def references(address: Address, raw: bytes, role: Role) -> list[Reference]:
    """What an object refers to by itself, in the order in which it names it; a few may be named twice.

    A commit refers to its parents and its tree. Its jump is no reference: it leads to an ancestor, which the parents lead to as well,
    unless history was cut in between. ``meta`` refers to nothing.

    Args:
        address: that of the object, for errors.
        raw: its raw bytes, kind first.
        role: what it was taken for.

    Raises:
        CorruptObjectError: it does not have that role, or does not decode.
    """
    kind = raw[0] if raw else None
    if kind not in role.value:
        raise CorruptObjectError(address.hex(), f"expected a {role.name.lower().replace('_', ' ')}, found kind {kind}")
    if kind == Kind.CHUNK:
        return []
    if kind == Kind.COMMIT:
        return _of_commit(read_commit(address, raw))
    if kind == Kind.LOG_ENTRY:
        entry = read_entry(address, raw)
        commits = [Reference(each, Role.COMMIT) for each in (entry.old, entry.new) if each is not None]
        return commits if entry.previous is None else [*commits, Reference(entry.previous, Role.LOG_ENTRY)]
    if kind in (Kind.SEQUENCE_LEAF, Kind.MAP_LEAF):
        return [] if _LEAF.search(raw) is None else _guarded(address, lambda: _of_cells(memoryview(raw)[1:]))
    return _of_inner(_SHAPES[role], read_node(_SHAPES[role], raw))


def check_cells(address: Address, raw: bytes) -> None:
    """Raise ``CorruptObjectError`` unless all cells of a leaf decode as far as they can be without reading anything else."""
    _guarded(address, lambda: _of_cells(memoryview(raw)[1:], thoroughly=True))


def check_order(address: Address, node: Node | bytes) -> None:
    """Raise ``CorruptObjectError`` where the keys of a node of a map are not in order, so that looking one up would miss it."""
    if isinstance(node, Node) and node.keys is not None and any(a >= b for a, b in pairwise(node.keys)):
        raise CorruptObjectError(address.hex(), "its keys are not in order")


def references_of_cell(cell: bytes) -> list[Reference]:
    """What a cell refers to by itself. Raises ``CorruptObjectError``."""
    return [] if _LEAF.search(cell) is None else _guarded(Address(b""), lambda: _of_cells(cell))


def references_of_tree(tree: Tree) -> list[Reference]:
    """What a tree refers to by itself: its top, or what an inlined top refers to. Raises ``CorruptObjectError``."""
    return _guarded(Address(b""), lambda: _of_tree(tree))


def _guarded(address: Address, find: Callable[[], list[Reference]]) -> list[Reference]:
    try:
        return find()
    except StateError:
        raise
    except _DECODING_ERRORS as error:
        raise CorruptObjectError(address.hex() or "(a value)", f"it does not decode: {type(error).__name__}: {error}") from error


def _of_commit(commit: Commit) -> list[Reference]:
    parents = [Reference(address, Role.COMMIT) for address in commit.parent_addresses]
    return parents + _guarded(commit.address, lambda: _of_tree(commit.tree))


def _of_tree(tree: Tree, code: int | None = None) -> list[Reference]:
    top = tree.top
    if isinstance(top, bytes):
        return [Reference(Address(top), _ROLES[tree.shape], None, tree.count, code=code)]
    if top.count != tree.count:
        raise ValueError(f"{top.count} elements where {tree.count} were counted")
    if top.level:
        return _of_inner(tree.shape, top, code)
    if tree.shape is Shape.BLOB:
        return []
    return [reference for cell in top.items if _LEAF.search(cell) for reference in _of_cells(cell)]


def _of_inner(shape: Shape, node: Node, code: int | None = None) -> list[Reference]:
    role = Role.CHUNK if shape is Shape.BLOB and node.level == 1 else _ROLES[shape]
    assert node.counts is not None
    below = node.level - 1
    keys: Sequence[bytes | None] = node.keys or [None] * len(node.items)
    parts = zip(node.items, node.counts, keys, (*keys[1:], None), strict=True)
    return [Reference(Address(item), role, below, count, key, end, code) for item, count, key, end in parts]


def _of_cells(data: bytes | memoryview, *, thoroughly: bool = False) -> list[Reference]:
    """The references in packed cells, however deep. Extensions are taken one after the other, so that no depth of theirs is too deep.

    Args:
        thoroughly: read also the values that refer to nothing, for their errors.
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
            if thoroughly and code != Code.ZONEINFO:  # which zones there are is this machine's affair
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
                    raise ValueError(f"{parts[2]} keys in order where there are {parts[0]} entries")
                found += _of_tree(read_tree(Shape.SEQUENCE, parts[2:]))
    return found


_KNOWN: Final = frozenset(Code)


def _shape_of(code: int) -> Shape:
    """What the tree of this code is."""
    if code == Code.DICT_TREE:
        return Shape.MAP
    return Shape.BLOB if code >= Code.TEXT else Shape.SEQUENCE


class AddressSet:
    """A set of addresses, each in some roles, that does not outgrow memory: beyond ``in_memory`` of them it goes to a temporary file.

    It takes about 150 bytes an address in memory, and 40 in the file, which SQLite removes by itself. Not for two threads at once.
    """

    def __init__(self, *, in_memory: int = 1_000_000) -> None:
        self._in_memory = in_memory
        self._here: dict[bytes, int] = {}
        self._file: sqlite3.Connection | None = None
        self._count = 0

    def add(self, address: bytes, role: Role | None = None) -> bool:
        """Add an address; whether it was not there in that role."""
        bit = 1 if role is None else _BITS[role]
        here = self._here
        known = here.get(address)
        if known is None:
            known = self._stored(address) if self._file is not None else 0
            self._count += not known
        if known & bit:
            return False
        here[address] = known | bit
        if len(here) > self._in_memory:
            self._spill()
        return True

    def __contains__(self, address: bytes) -> bool:
        return address in self._here or (self._file is not None and bool(self._stored(address)))

    def __len__(self) -> int:
        return self._count

    def _stored(self, address: bytes) -> int:
        assert self._file is not None
        row = self._file.execute("SELECT roles FROM seen WHERE address = ?", (address,)).fetchone()
        return 0 if row is None else int(row[0])

    def _spill(self) -> None:
        import sqlite3

        try:
            if self._file is None:
                # An empty name is a file that SQLite makes in the system's folder for temporary ones, and removes.
                self._file = sqlite3.connect("", isolation_level=None, check_same_thread=False)
                self._file.execute("PRAGMA journal_mode = OFF")
                self._file.execute("CREATE TABLE seen(address BLOB PRIMARY KEY, roles INTEGER) WITHOUT ROWID")
            self._file.execute("BEGIN")
            # Sorted, so that each page of the file is written once.
            self._file.executemany("INSERT OR REPLACE INTO seen VALUES(?, ?)", sorted(self._here.items()))
            self._file.execute("COMMIT")
        except sqlite3.Error as error:
            raise StorageError(f"the temporary file of a walk over all objects failed: {error}; nothing was changed") from error
        self._here.clear()

    def close(self) -> None:
        """Let go of memory and file."""
        self._here.clear()
        if self._file is not None:
            self._file.close()
            self._file = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


_BITS: Final = {role: 1 << index for index, role in enumerate(Role)}


def walk(
    reader: Reader,
    starts: Iterable[Reference],
    seen: AddressSet,
    *,
    shallow: Shallow = _WHOLE,
    expired: int | None = None,
    chunks: bool = True,
    unread: Callable[[Reference], None] = lambda _: None,
) -> Iterator[tuple[Reference, bytes]]:
    """Every object that is reachable, with its raw bytes, each once.

    What is in ``seen`` is not walked again, and all that was found is in it afterwards. At most ``BATCH`` objects are read at once, those
    that were found last first, so that what is still to be read stays small. The jumps of commits are followed too, where no history
    was cut below them: they lead to ancestors, so a long line of commits is read in a few batches instead of one by one.

    Args:
        shallow: where history was cut: those parents are not followed.
        expired: log entries older than this, in microseconds, are given, but what they refer to is not followed.
        chunks: whether to read and give what is known to be a chunk. It is in ``seen`` in any case.
        unread: told of each chunk that is not read.

    Raises:
        MissingObjectError, CorruptObjectError: the walk cannot go on.
    """
    pending = [start for start in starts if seen.add(start.address, start.role)]
    while pending:
        batch = pending[-BATCH:]
        del pending[-BATCH:]
        raws = reader.read_many({reference.address for reference in batch})
        for reference in batch:
            raw = raws[reference.address]
            yield reference, raw
            for found in followed(reference, raw, shallow=shallow, expired=expired):
                if not seen.add(found.address, found.role):
                    continue
                if chunks or found.role is not Role.CHUNK:
                    pending.append(found)
                else:
                    unread(found)


def followed(reference: Reference, raw: bytes, *, shallow: Shallow = _WHOLE, expired: int | None = None) -> list[Reference]:
    """What a walk follows from an object: its references, as history is now; of a commit, its jump too. Raises the same."""
    address, role = reference.address, reference.role
    if role is Role.COMMIT:
        commit = shallow.graft(read_commit(address, raw))
        jump = [] if commit.jump_address is None else [Reference(commit.jump_address, Role.COMMIT)]
        return jump + _of_commit(commit)
    if role is Role.LOG_ENTRY and expired is not None and read_entry(address, raw).time < expired:
        return []
    return references(address, raw, role)


def iter_new(reader: Reader, old: Iterable[Reference], new: Iterable[Reference]) -> Iterator[tuple[Reference, bytes]]:
    """The objects that are reachable from ``new`` and not from ``old``, with their raw bytes. Cost: about what differs.

    Both sides are walked level by level, each level in one read, and what both name is left out. Where an equal part lies at
    another level on the two sides, it may be walked all the same. Commits are not followed to their parents.

    Raises:
        MissingObjectError, CorruptObjectError: an object of either side cannot be read.
    """
    ours, theirs = list(new), list(old)
    known = {reference.address for reference in theirs}
    seen: set[tuple[Address, Role]] = set()
    while ours:
        named = {each.address for each in ours}
        theirs = [each for each in theirs if each.address not in named and each.role is not Role.CHUNK]
        ours = [each for each in dict.fromkeys(ours) if each.address not in known and (each.address, each.role) not in seen]
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
