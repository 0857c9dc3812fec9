"""The sizes of a store: by branch, path, kind and commit. Layer: repository.

*Stored* bytes are those of the values in the store, after compression; *raw* bytes are those before it. The store is
read once, in its own order; the references between objects are then followed in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final

from versioned_state.arguments import count
from versioned_state.errors import CorruptObjectError, LimitExceededError, MissingObjectError
from versioned_state.objects.address import Address, Kind, Role
from versioned_state.objects.envelope import IN_SEGMENTS, Segmented
from versioned_state.objects.keys import OBJECTS, REF_KINDS, address_in
from versioned_state.objects.store import joined, verified
from versioned_state.repository.history import graph
from versioned_state.repository.history.commit import ROOT_ADDRESS, ROOT_ID, Commit
from versioned_state.repository.history.reach import BATCH, OWN_ROLES, references, references_of_cell, segments_of
from versioned_state.repository.history.shallow import Shallow
from versioned_state.repository.names.resolve import resolve
from versioned_state.repository.refs.ref import iter_refs
from versioned_state.values.containers import container_of, order_keys
from versioned_state.values.decode.decoder import Decoder
from versioned_state.values.keys import path_of
from versioned_state.values.paths.path import StatePath
from versioned_state.values.trees.nodes import Nodes, Shape
from versioned_state.values.trees.tree import find, iter_cells, iter_items

if TYPE_CHECKING:
    from versioned_state.repository.database import Database
    from versioned_state.storage import KVStore

_SHARED: Final = -1
_MAX_PATHS: Final = 1 << 20
"""Paths that are measured at most. A crafted list of six nodes can count 10**11 elements."""

_KIND_NAMES: Final = {
    Kind.COMMIT: "commits",
    Kind.LOG_ENTRY: "log entries",
    Kind.SEQUENCE_LEAF: "list leaves",
    Kind.SEQUENCE_NODE: "list nodes",
    Kind.MAP_LEAF: "map leaves",
    Kind.MAP_NODE: "map nodes",
    Kind.CHUNK: "chunks",
    Kind.SEGMENT: "list segments",
}


@dataclass(frozen=True, slots=True)
class Size:
    """The number of some objects, and their bytes."""

    objects: int
    stored: int
    raw: int


@dataclass(frozen=True, slots=True)
class BranchSize:
    """The objects that a branch and its reflog reach: all of them, and those that no other ref reaches."""

    name: str
    total: Size
    unique: Size


@dataclass(frozen=True, slots=True)
class PathSize:
    """The size of the value at a path, at one commit.

    An object that several paths share counts for the first of them only.
    """

    path: str
    stored: int
    raw: int


@dataclass(frozen=True, slots=True)
class Growth:
    """The bytes that one commit added to the store."""

    commit: Commit
    stored: int


@dataclass(frozen=True, slots=True)
class Stats:
    """The sizes of a store.

    Attributes:
        total: all objects of the store.
        reachable: the objects that branches, tags and reflogs lead to. The rest is garbage for gc.
        kinds: by kind of object.
        branches: by branch, the one with the most bytes of its own first.
        shared: the objects that several refs reach.
        paths: by path at the given commit, largest first.
        growth: the last commits, oldest first.
    """

    total: Size
    reachable: Size
    kinds: Mapping[str, Size]
    branches: tuple[BranchSize, ...]
    shared: Size
    paths: tuple[PathSize, ...]
    growth: tuple[Growth, ...]

    @property
    def ratio(self) -> float:
        """Stored over raw bytes: 0.4 means that compression saved 60 %."""
        return self.total.stored / self.total.raw if self.total.raw else 1.0


def stats(
    database: Database, rev: str | Commit = "HEAD", *, depth: int = 1, commits: int = 100, top: int = 20
) -> Stats:
    """Measure a store. Nothing is unpickled. Cost: reads the store once, and holds about 200 bytes an object in memory.

    Args:
        rev: the commit whose paths, and whose last commits by first parents, are measured.
        depth: the length of those paths: 1 for keys, 2 for the parts of their values.
        commits: how many of the last commits.
        top: how many paths, largest first.

    Raises:
        InvalidArgumentError: a number is too small.
        LimitExceededError: a value has more than a million parts, and ``depth`` goes into it.
        UnknownRevisionError: ``rev`` names nothing, and the store is not empty.
        MissingObjectError, CorruptObjectError: the store is damaged.
    """
    for name, number, least in (("depth", depth, 1), ("commits", commits, 0), ("top", top, 0)):
        count(name, number, least=least)
    census = _Census(database)
    refs = [ref for kind in REF_KINDS for ref in iter_refs(database.store, kind, deleted=True)]
    starts = [[address for address in (ref.head, ref.log) if address is not None] for ref in refs]
    owners = census.owners(starts)
    own: dict[int, list[int]] = {}
    for number, owner in owners.items():
        own.setdefault(owner, []).append(number)
    branches = [
        BranchSize(ref.name, census.size(census.reach(starts[index])), census.size(own.get(index, ())))
        for index, ref in enumerate(refs)
        if ref.kind == "branch" and ref.head is not None
    ]
    branches.sort(key=lambda branch: (-branch.unique.stored, -branch.total.stored, branch.name))
    commit = (
        resolve(database, rev) if any(ref.head is not None for ref in refs) else database.commits.read(ROOT_ADDRESS)
    )
    return Stats(
        total=census.size(range(len(census))),
        reachable=census.size(owners),
        kinds=census.by_kind(),
        branches=tuple(branches),
        shared=census.size(own.get(_SHARED, ())),
        paths=tuple(islice(_paths(database, census, commit, depth), top)),
        growth=tuple(_growth(database, census, commit, commits)),
    )


class _Census:
    """All objects of a store by number: their kinds, their sizes, and the numbers of the objects that they refer to."""

    def __init__(self, database: Database) -> None:
        self._numbers: dict[bytes, int] = {}
        self._kinds = bytearray()
        self._stored: list[int] = []
        self._raw: list[int] = []
        self._below: list[tuple[bytes, ...]] = []
        shallow = database.commits.shallow
        items = database.store.items(OBJECTS)
        while page := {address_in(key): stored for key, stored in islice(items, BATCH)}:
            leaves = _leaves_in_segments(page, database.store)
            for address, stored in page.items():
                raw = leaves[address] if address in leaves else verified(address, stored)
                self._numbers[address] = len(self._stored)
                self._stored.append(len(stored))
                if raw is None:  # garbage
                    self._kinds.append(Kind.SEQUENCE_LEAF)
                    self._raw.append(len(stored))
                    self._below.append(())
                    continue
                kind = Kind(raw[0])
                self._kinds.append(kind)
                # Segments are objects of their own.
                self._raw.append(len(raw) - (raw.tail - raw.head) if isinstance(raw, Segmented) else len(raw))
                self._below.append((*_below(address, raw, kind, shallow), *segments_of(raw)))

    def __len__(self) -> int:
        return len(self._stored)

    def reach(self, starts: Iterable[bytes], seen: set[int] | None = None) -> set[int]:
        """Return the numbers of all reachable objects but those in ``seen``, to which they are added."""
        found: set[int] = set()
        known = set() if seen is None else seen
        pending = [number for address in starts if (number := self._number(address)) is not None]
        while pending:
            number = pending.pop()
            if number not in known:
                known.add(number)
                found.add(number)
                pending += [below for address in self._below[number] if (below := self._number(address)) is not None]
        return found

    def _number(self, address: bytes) -> int | None:
        # The commits of an expired log entry may be gone; fsck reports other missing objects.
        return self._numbers.get(address)

    def owners(self, starts: Iterable[Iterable[bytes]]) -> dict[int, int]:
        """Return for each reachable object the index of the only start that reaches it, or ``_SHARED``.

        Cost: at most two visits an object.
        """
        owners: dict[int, int] = {}
        if (root := self._number(ROOT_ADDRESS)) is not None:
            owners[root] = _SHARED
        for index, addresses in enumerate(starts):
            pending = [number for address in addresses if (number := self._number(address)) is not None]
            while pending:
                number = pending.pop()
                owner = owners.get(number)
                if owner in (index, _SHARED):
                    continue
                owners[number] = index if owner is None else _SHARED
                pending += [below for address in self._below[number] if (below := self._number(address)) is not None]
        return owners

    def size(self, numbers: Iterable[int]) -> Size:
        count = stored = raw = 0
        for number in numbers:
            count += 1
            stored += self._stored[number]
            raw += self._raw[number]
        return Size(count, stored, raw)

    def by_kind(self) -> dict[str, Size]:
        numbers: dict[int, list[int]] = {}
        for number, kind in enumerate(self._kinds):
            numbers.setdefault(kind, []).append(number)
        return {_KIND_NAMES[Kind(kind)]: self.size(numbers[kind]) for kind in sorted(numbers)}


def _leaves_in_segments(page: Mapping[Address, bytes], store: KVStore) -> dict[Address, bytes | None]:
    """Return the raw bytes of those objects that are in segments. Garbage may lack some of these, and is None then."""
    found = {address: stored for address, stored in page.items() if stored[:1] in IN_SEGMENTS}
    with suppress(MissingObjectError):
        return {**joined(found, store.get_many)} if found else {}
    raws: dict[Address, bytes | None] = dict.fromkeys(found)
    for address, stored in found.items():
        with suppress(MissingObjectError):
            raws.update(joined({address: stored}, store.get_many))
    return raws


def _below(address: Address, raw: bytes, kind: Kind, shallow: Shallow) -> Iterator[bytes]:
    found = references(address, raw, OWN_ROLES[kind])
    if kind is Kind.COMMIT and address in shallow:
        kept = set(shallow.kept_parents(address, [each.address for each in found if each.role is Role.COMMIT]))
        found = [each for each in found if each.role is not Role.COMMIT or each.address in kept]
    for each in found:
        yield each.address


def _growth(database: Database, census: _Census, commit: Commit, count: int) -> Iterator[Growth]:
    line = [
        each for each in islice(graph.first_parents(commit, database.commits.read), count + 1) if each.id != ROOT_ID
    ]
    seen: set[int] = set()
    if len(line) > count:
        census.reach([line.pop().address], seen)
    census.reach([ROOT_ADDRESS], seen)
    for each in reversed(line):
        yield Growth(each, census.size(census.reach([each.address], seen)).stored)


def _paths(database: Database, census: _Census, commit: Commit, depth: int) -> list[PathSize]:
    nodes = Nodes(database.objects)
    decoder = Decoder(nodes)
    seen: set[int] = set()
    found: list[PathSize] = []

    def measure(path: StatePath, cell: bytes, left: int) -> None:
        opened = container_of(nodes, cell) if left else None
        if len(found) + (0 if opened is None else opened.tree.count) > _MAX_PATHS:
            raise LimitExceededError(f"stats of more than {_MAX_PATHS:,} paths", limit=_MAX_PATHS, path=str(path))
        if opened is None or opened.tree.count == 0:
            size = census.size(census.reach([each.address for each in references_of_cell(cell)], seen))
            found.append(PathSize(str(path), size.stored + len(cell), size.raw + len(cell)))
        elif opened.tree.shape is Shape.SEQUENCE:
            for index, part in enumerate(iter_cells(nodes, opened.tree)):
                measure(path.index(index), part, left - 1)
        else:
            for key in order_keys(nodes, opened):
                entry = find(nodes, opened.tree, key)
                if entry is None:
                    raise CorruptObjectError("(a dict)", "the order of its keys has one that is not among its entries")
                measure(decoder.entry_path(path, key), entry, left - 1)

    for root_key, cell in iter_items(nodes, commit.tree):
        measure(path_of(root_key), cell, depth - 1)
    return sorted(found, key=lambda size: (-size.stored, size.path))
