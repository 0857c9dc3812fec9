"""Fsck: checks of every object, ref and record of a store, and that every reachable object exists in its place.

Layer: repository.

It reads each object once, unpickles nothing and writes nothing. Damage is reported, never raised.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from typing import Final, NamedTuple

from versioned_state.errors import (
    CorruptObjectError,
    FormatError,
    InvalidArgumentError,
    LimitExceededError,
    MissingObjectError,
    StateError,
)
from versioned_state.objects.address import Address, Kind, Role
from versioned_state.objects.keys import (
    EFFECTS,
    FORMAT,
    GC,
    LOCKS,
    MERGE_POLICIES,
    NOTES,
    OBJECTS,
    PURGES,
    RECORDS,
    REF_KINDS,
    REFS,
    SHALLOW,
    STAMPS,
    RefKind,
    address_in,
    birth_key,
    is_record,
    ref_key,
)
from versioned_state.objects.reading import DAMAGE, Reading
from versioned_state.objects.store import ObjectStore
from versioned_state.repository.format import FORMAT_VERSION, read_format
from versioned_state.repository.history.address_set import FREE_BIT, AddressSet
from versioned_state.repository.history.commit import ROOT_ADDRESS, ROOT_ID, Commit, read_commit
from versioned_state.repository.history.graph import jump_height
from versioned_state.repository.history.reach import (
    BATCH,
    OWN_ROLES,
    ROLES,
    Reference,
    check_cells,
    check_order,
    followed,
    references_of_ref,
    segments_of,
)
from versioned_state.repository.history.reader import CommitReader
from versioned_state.repository.history.shallow import Shallow
from versioned_state.repository.ledger import check_entry
from versioned_state.repository.maintenance.fsck_report import Finding, FsckReport, Problem
from versioned_state.repository.maintenance.purge.journal import check_journal
from versioned_state.repository.merging.policies import read_policies
from versioned_state.repository.refs.gc_fence import GcRecord, read_gc_record
from versioned_state.repository.refs.lock_record import parse_lock
from versioned_state.repository.refs.meta_index import entries_of
from versioned_state.repository.refs.named_records import read_named
from versioned_state.repository.refs.notes import read_note
from versioned_state.repository.refs.ref import BORN, Ref, check_name, keys_of, parse_ref
from versioned_state.storage import KVStore
from versioned_state.values.canonical import Below, Trait, examine, examine_top, path_of_trail, reasons
from versioned_state.values.decode.decoder import Decoder, decode_inline
from versioned_state.values.trees.nodes import Node, Nodes, Shape, read_node
from versioned_state.values.trees.tree import Tree

MAX_FINDINGS: Final = 1000
_MAX_UNKNOWN: Final = 100
_TRAITS: Final = FREE_BIT
_REFUSED: Final = FREE_BIT + len(Trait)
"""Where the traits of a node, and those refused where it is named, lie in its value in the set of addresses."""

_ATTEMPTS: Final = 3


def check(
    store: KVStore, *, progress: Callable[[int, int | None], None] | None = None, in_memory: int = 1_000_000
) -> FsckReport:
    """Check everything in a store. Others may write to it meanwhile, and collect garbage.

    Cost: reads everything once, and the parents of commits once more. Memory: see ``AddressSet``.

    Args:
        progress: called now and then with the number of objects checked and their total.
        in_memory: how many addresses to hold in memory before a temporary file is used.

    Raises:
        StorageError: the store cannot be reached. Damage does not raise.
    """
    start = time.monotonic()
    for attempt in range(1, _ATTEMPTS + 1):
        with AddressSet(in_memory=in_memory) as seen:
            check = _Check(store, seen, progress)
            check.run()
        if attempt == _ATTEMPTS or not check.findings or not check.swept():
            break
        # An object that was reachable at the start may have been dropped and collected meanwhile.
    seconds, unknown = time.monotonic() - start, tuple(sorted(check.unknown))
    return FsckReport(
        check.objects,
        check.commits,
        check.refs,
        check.deleted,
        check.dangling,
        tuple(check.findings),
        check.more,
        seconds,
        unknown,
    )


class _Step(NamedTuple):
    """A reference to follow, the object or ref that has it, and the commit whose content it belongs to."""

    reference: Reference
    named_by: str
    commit: str
    below: Below | None = None
    """The place of a node in its tree."""


class _Check:
    def __init__(self, store: KVStore, seen: AddressSet, progress: Callable[[int, int | None], None] | None) -> None:
        self._store = store
        self._seen = seen
        self._progress = progress
        self._total: int | None = None
        self._decoder = Decoder(Nodes(ObjectStore(store)))
        self._reading = Reading(store)
        self._shallow = Shallow({})
        self._gc = GcRecord()
        self.findings: list[Finding] = []
        self.unknown: set[str] = set()
        self.more = self.objects = self.commits = self.refs = self.deleted = self.dangling = 0

    def run(self) -> None:
        if self._progress is not None:
            self._total = sum(1 for _ in self._keys(OBJECTS))
        self._check_records()
        self._walk(self._check_refs())
        self._check_rest()

    def swept(self) -> bool:
        """Return whether gc has deleted anything since the check began."""
        try:
            return read_gc_record(self._store.get(GC)).sweeps != self._gc.sweeps
        except DAMAGE:
            return False

    def _find(
        self, problem: Problem, what: str, id: str, error: str, *, named_by: str = "", commit: str = "", path: str = ""
    ) -> None:
        if len(self.findings) >= MAX_FINDINGS:
            self.more += 1
            return
        self.findings.append(Finding(problem, what, id, named_by, commit, error, path))

    def _find_at(self, step: _Step, problem: Problem, error: str) -> None:
        role = step.reference.role.name.lower().replace("_", " ")
        path = "" if step.below is None else str(path_of_trail(step.below.trail))
        self._find(
            problem, role, step.reference.address.hex(), error, named_by=step.named_by, commit=step.commit, path=path
        )

    # Records and refs

    def _check_records(self) -> None:
        readers: dict[str, Callable[[bytes | None], object]] = {
            FORMAT: lambda stored: read_format(stored or b""),
            SHALLOW: self._read_shallow,
            GC: read_gc_record,
            MERGE_POLICIES: lambda _: read_policies(self._store),
        }
        for key, read in readers.items():
            try:
                stored = self._store.get(key)
                if stored is None and key == FORMAT:
                    self._find("missing", "record", key, "the store has no format record")
                    continue
                found = read(stored)
            except StateError as error:
                if not isinstance(error, DAMAGE) and key != FORMAT:
                    raise
                self._find("corrupt", "record", key, str(error))
                continue
            if isinstance(found, int) and found > FORMAT_VERSION:
                raise FormatError(found, FORMAT_VERSION)
            if isinstance(found, Shallow):
                self._shallow = found
            elif isinstance(found, GcRecord):
                self._gc = found

    def _read_shallow(self, stored: bytes | None) -> Shallow:
        return CommitReader(ObjectStore(self._store)).take_shallow(stored)

    def _check_refs(self) -> Iterator[_Step]:
        yield _Step(Reference(ROOT_ADDRESS, Role.COMMIT), "every store", "")
        for kind in REF_KINDS:
            start = ref_key(kind, "")
            lost = set(self._check_births(kind))
            for key in self._keys(start):
                self.refs += 1
                name = key[len(start) :]
                yield from self._check_ref(kind, name, born=name in lost)
                lost.discard(name)
            for name in sorted(lost):
                if self._get(kind, name) is None:  # one that was created since the first listing has its record by now
                    self._find("missing", kind, name, "it was created, and its record is gone")

    def _check_births(self, kind: RefKind) -> Iterator[str]:
        """Yield the names of the refs that have a birth record, sound or not."""
        start = birth_key(kind, "")
        keys = self._keys(start)
        while page := list(islice(keys, BATCH)):
            for key, stored in self._reading.values(page).items():
                name = key[len(start) :]
                if stored != BORN:
                    reason = (
                        str(stored) if isinstance(stored, StateError) else f"its value is {stored[:8]!r}, not {BORN!r}"
                    )
                    self._find(
                        "corrupt", "record", key, f"the record that {kind} {name!r} was created is damaged: {reason}"
                    )
                yield name

    def _get(self, kind: RefKind, name: str) -> bytes | None:
        try:
            return self._store.get(ref_key(kind, name))
        except DAMAGE:
            return None

    def _check_ref(self, kind: RefKind, name: str, *, born: bool) -> Iterator[_Step]:
        try:
            stored = self._store.get(ref_key(kind, name))
            if stored is None:
                return
            ref = parse_ref(kind, name, stored)
            check_name(kind, name)
            self._check_indexes(ref)
            if not born and self._store.get(birth_key(kind, name)) is None:
                self._find(
                    "missing",
                    "record",
                    birth_key(kind, name),
                    f"{kind} {name!r} is there, and the record of its creation is gone",
                )
        except InvalidArgumentError as error:
            self._find("misplaced", kind, name, str(error))
        except DAMAGE as error:
            self._find("corrupt", kind, name, str(error))
            return
        self.deleted += ref.head is None
        for reference in references_of_ref(ref):
            yield _Step(reference, f"{kind} {name}", "")

    def _check_indexes(self, ref: Ref) -> None:
        keys = keys_of(ref)[2:]
        if self._gc.searchable and ref.head is not None:
            raw = self._reading.objects([ref.head])[0].get(ref.head)
            # a damaged commit is a finding of its own, and so is a missing one
            with suppress(*DAMAGE, LimitExceededError):
                meta = {} if raw is None else read_commit(ref.head, raw).meta
                keys += sorted(entries_of(meta, self._gc.searchable, ref.kind, ref.name))
        for key in keys:
            # A branch that has moved since it was read may have another place by now.
            if self._store.get(key) is None and self._store.get(ref_key(ref.kind, ref.name)) == ref.stored:
                self._find(
                    "missing", "record", key, f"{ref.kind} {ref.name!r} is not in the index where its record says"
                )

    def _keys(self, prefix: str) -> Iterator[str]:
        try:
            yield from self._store.keys(prefix)
        except DAMAGE as error:
            self._find("corrupt", "record", prefix, f"the keys cannot be listed: {error}")

    def _check_each(self, what: str, keys: list[str], check: Callable[[str, bytes], object]) -> None:
        for key, stored in self._reading.values(keys).items():
            try:
                if isinstance(stored, StateError):
                    raise stored
                check(key, stored)
            except (*DAMAGE, LimitExceededError) as error:
                self._find("corrupt", what, key, str(error))
            except StateError:
                pass  # the result has a type that is not known on this machine, which is not damage

    # What is reachable

    def _walk(self, starts: Iterator[_Step]) -> None:
        pending: list[_Step] = []
        while True:
            for step in islice(starts, max(BATCH - len(pending), 0)):
                self._add(pending, step)
            if not pending:
                if (step := next(starts, None)) is None:  # type: ignore[assignment]
                    return
                self._add(pending, step)
                continue
            batch = pending[-BATCH:]
            del pending[-BATCH:]
            raws = self._read([step.reference.address for step in batch], batch)
            commits = []
            for step in batch:
                raw = raws.get(step.reference.address)
                if raw is None:
                    continue
                try:
                    found = followed(step.reference, raw, shallow=self._shallow, expired=self._gc.expired)
                    node = self._check_place(step, raw)
                    below = {} if node is None else self._check_form(step, node)
                except (CorruptObjectError, LimitExceededError) as error:
                    self._find_at(step, "misplaced" if _decodes(raw) else "corrupt", _reason(error))
                    continue
                id = step.reference.address.hex()
                commit = step.commit
                end = step.reference.end
                if step.reference.code is not None and raw[0] in (Kind.SEQUENCE_NODE, Kind.MAP_NODE):
                    found = [each._replace(code=step.reference.code) for each in found]
                # of a leaf, the last reference is to another tree
                if end is not None and raw[0] == Kind.MAP_NODE and found:
                    found[-1] = found[-1]._replace(end=end)
                if step.reference.role is Role.COMMIT:
                    commits.append((step, read_commit(step.reference.address, raw)))
                    commit = id
                for reference in found:
                    follows = "" if reference.role in (Role.COMMIT, Role.LOG_ENTRY) else commit
                    self._add(pending, _Step(reference, id, follows, below.get(reference.address)))
            self._check_commits(commits)
            self._tell(len(batch))

    def _add(self, pending: list[_Step], step: _Step) -> None:
        if self._seen.add(step.reference.address, step.reference.role):
            pending.append(step)

    def _tell(self, count: int) -> None:
        self.objects += count
        if self._progress is not None:
            self._progress(self.objects, self._total)

    def _read(self, addresses: list[Address], steps: list[_Step]) -> dict[Address, bytes]:
        """Return the raw bytes of the objects that exist and are sound, and add a finding for each of the others."""
        raws, errors = self._reading.objects(addresses)
        for step in steps:
            address = step.reference.address
            for error in errors.get(address, ()):
                at = step
                if isinstance(error, MissingObjectError | CorruptObjectError) and error.id not in ("", address.hex()):
                    segment = Address(bytes.fromhex(error.id))
                    if not self._seen.add(segment, Role.SEGMENT):  # another version of the leaf has the segment too
                        continue
                    at = _Step(Reference(segment, Role.SEGMENT), address.hex(), step.commit)
                if isinstance(error, MissingObjectError):
                    self._find_at(at, "missing", "it is not in the store")
                else:
                    self._find_at(at, "corrupt", _reason(error))
            if address in raws:
                self._tell(sum(self._seen.add(segment, Role.SEGMENT) for segment in segments_of(raws[address])))
        return raws

    def _check_place(self, step: _Step, raw: bytes) -> Tree | Node | None:
        """Return the tree of a commit, or a node.

        Raises ``CorruptObjectError`` if it does not match the reference to it, or is inconsistent.
        """
        address, role, level, size, first, end, code = step.reference
        if role is Role.COMMIT:
            commit = read_commit(address, raw)
            check_order(address, commit.tree.top)
            if isinstance(commit.tree.top, Node) and not commit.tree.top.level:
                for inline in commit.tree.top.items:
                    self._check_values(address, inline)
            cell = commit.meta_cell
            if cell is not None and type(decode_inline(cell)) is not dict:
                raise CorruptObjectError(address.hex(), "its meta is not a dict")
            return commit.tree
        if role is Role.LOG_ENTRY:
            return None
        if role in (Role.BLOB, Role.CHUNK):
            node = read_node(Shape.BLOB, raw)
        else:
            node = read_node(Shape.MAP if role is Role.MAP else Shape.SEQUENCE, raw)
            node.raw = raw
            check_order(address, node)
            if not node.level:
                check_cells(address, raw)
                self._check_values(address, memoryview(raw)[1:], code)
        if level is not None and node.level != level:
            raise CorruptObjectError(address.hex(), f"it is of level {node.level}, and should be of level {level}")
        if size is not None and node.count != size:
            raise CorruptObjectError(address.hex(), f"it has {node.count} elements, and should have {size}")
        if first is not None and node.keys is not None and node.keys[:1] != [first]:
            raise CorruptObjectError(address.hex(), "its first key is not the one that its parent has for it")
        if end is not None and node.keys is not None and node.keys[-1] >= end:
            raise CorruptObjectError(address.hex(), "its last key belongs under the node after it")
        return node

    # The canonical form of trees. Each node is examined when it is read, and the traits that it has, and those that are
    # refused where it is named, are kept with its address. So a node that many trees share is read once, and each place
    # that names it is checked.

    def _check_form(self, step: _Step, node: Tree | Node) -> dict[Address, Below]:
        """Check that a node, or the inlined top of a commit's tree, is in canonical form.

        Returns where it names others.
        """
        address, id = step.reference.address, step.reference.address.hex()
        commit, conflict = step.commit, 0
        if isinstance(node, Tree):
            commit = id
            examined = examine_top(node)
        elif step.below is None:
            return {}
        else:
            examined = examine(node, step.below.place, offset=step.below.offset, trail=step.below.trail)
            before = self._seen.note(address, examined.traits << _TRAITS)
            conflict = examined.traits & (before >> _REFUSED) & ~(before >> _TRAITS)
        faults = [*examined.faults, reasons(conflict)] if conflict else examined.faults
        if faults:
            named_by = (
                step.named_by if step.below is None or not conflict or conflict & step.below.place.refused else ""
            )
            self._find_form(step.below, step.reference, "; ".join(faults), named_by, commit)
        for below in examined.below:
            refused = below.place.refused
            before = self._seen.note(below.address, refused << _REFUSED)
            if conflict := refused & (before >> _TRAITS) & ~(before >> _REFUSED):
                self._find_form(
                    below, Reference(below.address, ROLES[below.place.form.shape]), reasons(conflict), id, commit
                )
        return {below.address: below for below in reversed(examined.below)}

    def _find_form(self, below: Below | None, reference: Reference, error: str, named_by: str, commit: str) -> None:
        path = ""
        if below is not None:
            path = str(path_of_trail(below.trail))
            error += f" ({below.extent})"
        what = reference.role.name.lower()
        self._find("not canonical", what, reference.address.hex(), error, named_by=named_by, commit=commit, path=path)

    def _check_values(self, address: Address, cells: bytes | memoryview, code: int | None = None) -> None:
        """Raise ``CorruptObjectError`` if a cell does not decode to a value.

        Nothing is unpickled, imported or followed.
        """
        try:
            self._decoder.check(cells, code=code)
        except (CorruptObjectError, LimitExceededError) as error:
            raise CorruptObjectError(address.hex(), f"a value in it cannot be read: {_reason(error)}") from error
        except StateError:
            pass  # a type or a time zone that is not known on this machine, which is not damage

    # The place of commits in history

    def _check_commits(self, commits: list[tuple[_Step, Commit]]) -> None:
        """Check generation, heights and jump of each, by its parents and the commit that the first parent jumps to."""
        self.commits += len(commits)
        parents = self._commits_at({parent for _, commit in commits for parent in commit.parent_addresses})
        middles = self._commits_at(
            {parent.jump_address for parent in parents.values() if parent.jump_address is not None}
        )
        for step, commit in commits:
            self._check_shallow(step, commit)
            found = [parents[parent] for parent in commit.parent_addresses if parent in parents]
            # beyond a boundary, or missing, which is a finding of its own
            if len(found) < len(commit.parent_addresses):
                continue
            if commit.generation != 1 + max((parent.generation for parent in found), default=-1):
                self._find_at(step, "misplaced", f"generation {commit.generation} does not follow from its parents")
            if not found:
                if commit.id != ROOT_ID:
                    self._find_at(step, "misplaced", "it has no parents, and is not the root commit")
                continue
            first = found[0]
            if commit.height != first.height + 1:
                self._find_at(
                    step, "misplaced", f"height {commit.height} does not follow from its first parent's, {first.height}"
                )
            elif len(found) == 1 and commit.merge_height != first.merge_height:
                self._find_at(
                    step,
                    "misplaced",
                    f"its newest merge is not that of its parent: at {commit.merge_height}, not {first.merge_height}",
                )
            elif not self._jumps_right(commit, first, middles):
                self._find_at(step, "misplaced", "its jump does not lead where it should")

    def _check_shallow(self, step: _Step, commit: Commit) -> None:
        shallow = self._shallow.get(step.reference.address)
        if shallow is None:
            return
        every = (1 << len(commit.parent_addresses)) - 1
        if shallow.height != commit.height or not 0 <= shallow.kept < every or (shallow.kept and not shallow.kept & 1):
            self._find("misplaced", "record", SHALLOW, f"history cannot end like that at {commit.id}")

    def _jumps_right(self, commit: Commit, parent: Commit, middles: dict[Address, Commit]) -> bool:
        if parent.jump_address is None:
            return commit.jump_address == parent.address
        middle = middles.get(parent.jump_address)
        if middle is None:
            return True  # beyond a boundary, or missing, which is a finding of its own
        far = middle.jump_address
        if self._shallow and commit.jump_address in (parent.address, far):
            # commits beyond a boundary may be gone: a jump made then is short, and so may be the jumps made from it
            return True
        equal = far is not None and parent.height - middle.height == middle.height - jump_height(middle.height)
        return commit.jump_address == (far if equal else parent.address)

    def _commits_at(self, addresses: set[Address]) -> dict[Address, Commit]:
        """Return those of these commits that exist and are sound."""
        found = {}
        for address, raw in self._reading.objects(addresses)[0].items():
            with suppress(CorruptObjectError):
                found[address] = read_commit(address, raw)
        return found

    # What is not reachable

    def _check_rest(self) -> None:
        keys = self._keys("")
        while page := list(islice(keys, BATCH)):
            rest = []
            self._check_each("effect", [key for key in page if key.startswith(EFFECTS)], check_entry)
            self._check_each("lock", [key for key in page if key.startswith(LOCKS)], parse_lock)
            self._check_each("note", [key for key in page if key.startswith(NOTES)], read_note)
            self._check_each("record", [key for key in page if key.startswith(RECORDS)], read_named)
            self._check_each("stamp", [key for key in page if key.startswith(STAMPS)], read_named)
            self._check_each("journal", [key for key in page if key.startswith(PURGES)], check_journal)
            for key in page:
                if not key.startswith(OBJECTS):
                    self._check_key(key)
                    continue
                try:
                    address = address_in(key)
                except ValueError:
                    self._find("corrupt", "object", key, "it is not the key of an object")
                    continue
                if address not in self._seen:
                    rest.append(address)
            raws, errors = self._reading.objects(rest)
            for address, raw in raws.items():
                if not _decodes(raw):
                    self._find("corrupt", "object", address.hex(), "it does not decode as what it claims to be")
                self.dangling += 1
            for address, found in errors.items():
                for error in found:
                    if not isinstance(error, MissingObjectError):  # garbage may be gone by now, or a segment of it
                        self._find("corrupt", "object", address.hex(), _reason(error))
                self.dangling += any(
                    not isinstance(error, MissingObjectError) or error.id != address.hex() for error in found
                )
            self._tell(len(rest))

    def _check_key(self, key: str) -> None:
        if is_record(key):
            return
        if key.startswith(REFS):  # what it leads to may be anything
            self._find(
                "misplaced",
                "record",
                key,
                "a ref of a kind that this release does not have: gc and purge refuse the store",
            )
        elif len(self.unknown) < _MAX_UNKNOWN:
            first, slash, _ = key.partition("/")
            self.unknown.add(first + slash)


def _reason(error: StateError) -> str:
    return error.reason if isinstance(error, CorruptObjectError) else str(error)


def _decodes(raw: bytes) -> bool:
    """Return whether an object decodes as its own kind."""
    address = Address(b"")
    role = OWN_ROLES.get(raw[0]) if raw else None
    if role is None:
        return False
    try:
        followed(Reference(address, role), raw)
        if role in (Role.SEQUENCE, Role.MAP) and raw[0] in (Kind.SEQUENCE_LEAF, Kind.MAP_LEAF):
            check_cells(address, raw)
            read_node(Shape.MAP if role is Role.MAP else Shape.SEQUENCE, raw)
    except (CorruptObjectError, LimitExceededError):
        return False
    return True
