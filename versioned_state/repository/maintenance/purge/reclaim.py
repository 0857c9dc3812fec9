"""``reclaim``, which erases branches with the objects that only they lead to, at the cost of these objects.

Layer: repository.

It does not walk over other branches: the last gc left the keeper of each object that it marked (``keeper_table``), and
each ref that moved since then left a record. So an object of the branches is garbage if no other ref led to it at the
last gc, and no ref that moved since leads to it now. A commit that others led to, such as the one that a fork began at,
stays with all before it if a ref is found that leads to it now (``witnesses``). The fence makes this safe beside
writers, as it does for gc. ``docs/design/026-reclaiming-one-branch.md`` has the proof.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from versioned_state.errors import CorruptObjectError, MissingObjectError, StoreBusyError
from versioned_state.objects.address import Address, Role
from versioned_state.objects.keys import (
    GC,
    KEEPERS,
    MOVED,
    lock_key,
    note_key,
    object_key,
    read_moved_key,
    read_ref_key,
    ref_key,
    shared_key,
)
from versioned_state.objects.store import ObjectStore
from versioned_state.repository.history.commit import ROOT_ADDRESS
from versioned_state.repository.history.keepers import groups_of
from versioned_state.repository.history.reach import BATCH, UNREAD, Reference, followed, references_of_ref, segments_of
from versioned_state.repository.maintenance.gc.collector import Collector, GcReport
from versioned_state.repository.maintenance.gc.keeper_table import KeeperTable, read_table
from versioned_state.repository.maintenance.purge.journal import Findings, Journal
from versioned_state.repository.maintenance.purge.witnesses import Witnesses
from versioned_state.repository.refs.gc_fence import GcRecord
from versioned_state.repository.refs.meta_index import entry_changes
from versioned_state.repository.refs.ref import Ref, keys_of, literal_in, match_refs, parse_ref
from versioned_state.storage import Disk
from versioned_state.storage.wrappers.cache import uncached
from versioned_state.storage.wrappers.tiered import backends

if TYPE_CHECKING:
    from versioned_state.repository.database import Database

_ATTEMPTS: Final = 100
_PATIENCE: Final = 3
"""Attempts that writers may overtake before they are made to wait for a moment."""

_AT_ONCE: Final = 1000
"""Objects of one deletion, as of gc."""


@dataclass(frozen=True, slots=True)
class Reclaimed:
    """The result: the erased branches, and the counts of their objects that were deleted and that stay.

    ``branches`` has their names. An object stays because others led to it at the last gc, or do so now. ``shared`` has
    the ids of the latest commits that stay.
    """

    branches: tuple[str, ...]
    shared: tuple[str, ...]
    collected: GcReport


class _UnknownError(Exception):
    """The objects that only the branches lead to cannot be found at this cost."""


def reclaim(database: Database, patterns: Sequence[str], journal: Journal | None) -> Reclaimed | None:
    """Erase the branches that match, deleted ones too, and delete the objects that only they lead to.

    None, and nothing was changed, if no branch matches, if no gc has finished yet, or if others led to one of their
    commits and no ref is found that still does.

    Cost: reads the objects of the branches, a page of the table for each at most, O(log n) commits of a ref that leads
    to each commit from which they forked, and the objects that came to the refs that moved since the last gc. One batch
    for up to a thousand objects. If it fails, or its process dies, all branches are there, or none is; the next gc
    deletes the rest of their objects. The log of a ``Disk`` still has the deleted bytes.

    Args:
        journal: that of the purge, which is written in the batch that erases the branches, or None for a dry run.

    Raises:
        StoreBusyError: a gc is at work, or writers kept coming first.
    """
    start = time.monotonic()
    try:
        if journal is None:
            return _Plan(database, patterns, database.fence.refresh()).result(start, dry_run=True)
        if read_table(database.store) is None:
            return None
        return _Reclaim(database, patterns, journal).run(start)
    except (_UnknownError, CorruptObjectError, MissingObjectError):
        return None  # a gc finds out more


class _Plan:
    """The refs to erase, and the objects that only they lead to, as the store is now.

    Attributes:
        refs: the branches, deleted ones too.
        objects: the objects to delete, each in a role in which it was found.
        kept: the objects of the branches to which others led at the last gc, or lead now.
        shared: the latest of the commits of the branches that stay, by their addresses. Another ref leads to each of
            them.
        records: the records of these commits, without the names of the branches.
        rows: the keys that say that one of the refs has moved.
        table: what it relies on.
        are_erased: whether the branches are gone, so that one of that name is another one.
    """

    def __init__(self, database: Database, patterns: Sequence[str], record: GcRecord) -> None:
        self._database = database
        self._store = database.store
        self._objects = ObjectStore(uncached(database.store))  # as it is for gc
        table = read_table(self._store)
        # If the record of gc was lost and made again, refs may have moved without a record.
        if table is None or record.marking < table.marking:
            raise _UnknownError
        self.table: KeeperTable = table
        self.refs = list(match_refs(self._store, patterns, deleted=True))
        if not self.refs:
            raise _UnknownError
        self.keepers = {table.id(name) for name in _keepers_of(self.refs, patterns)}
        self.objects: dict[Address, Role] = {}
        self.kept: set[Address] = set()
        self.shared: list[Address] = []
        self.records: dict[str, bytes] = {}
        self.rows: list[str] = []
        self.are_erased = False
        self._foreign: set[Address] = set()  # commits that others led to at the marking
        self._spared: set[Address] = set()  # commits that others have come to lead to since
        self._collect()
        moved = self.spare(record)
        self._find_witnesses(moved, record.expired)

    def _are_theirs(self, references: Iterable[Reference]) -> list[Reference]:
        """Return those to which at the marking no ref led but the branches, or none at all."""
        some = list(references)
        keepers = self.table.find(each.address for each in some)
        return [
            each for each in some if each.address != ROOT_ADDRESS and keepers.get(each.address) in self.keepers | {None}
        ]

    def _collect(self) -> None:
        """Find the objects that the branches lead to, by their heads and all entries of their reflogs.

        It does not matter whether history still has them. Below an object of another keeper everything has another one
        too. If it is a commit, perhaps nobody but the branches leads there any more, and it holds data of theirs:
        ``_find_witnesses`` looks.
        """
        seen: set[tuple[Address, Role]] = set()
        pending = [start for ref in self.refs for start in references_of_ref(ref)]
        while pending:
            batch = _unseen(pending, seen)
            mine = self._are_theirs(batch)
            self.kept.update(
                {each.address for each in batch if each.address != ROOT_ADDRESS}.difference(
                    each.address for each in mine
                )
            )
            self._foreign.update(
                each.address for each in batch if each.role is Role.COMMIT and each.address in self.kept
            )
            raws = self._read({each.address for each in mine if each.role not in UNREAD})
            for each in mine:
                if each.role in UNREAD or each.address in raws:
                    self.objects[each.address] = each.role
                if raw := raws.get(each.address):
                    pending += [Reference(segment, Role.SEGMENT) for segment in segments_of(raw)]
                    with suppress(CorruptObjectError):
                        pending += followed(each, raw)

    def _read(self, addresses: Collection[Address]) -> dict[Address, bytes]:
        """Return the raw bytes of the objects that exist.

        A damaged one has none, since a damaged branch can be given up.
        """
        with suppress(MissingObjectError, CorruptObjectError):
            return self._objects.read_many(addresses)
        raws = {}
        for address in addresses:
            with suppress(MissingObjectError):
                try:
                    raws[address] = self._objects.read(address)
                except CorruptObjectError:
                    raws[address] = b""
        return raws

    def _find_witnesses(self, moved: Sequence[Ref], expired: int) -> None:
        """Find a ref that leads to each commit which others led to at the marking.

        Then the commit stays, with all that it leads to. If there is none, the commit may hold data that only the
        branches led to by now, and must go: only a gc can find that out.
        """
        witnesses = Witnesses(self._database, self.refs, moved, expired)
        latest = witnesses.cover(self._foreign, known=self._spared)
        if latest is None:
            raise _UnknownError
        self.shared = list(latest)
        self.records = witnesses.records(latest)

    def spare(self, record: GcRecord) -> list[Ref]:
        """Keep the objects that refs which moved since the marking lead to.

        All other refs lead to what they led to then, or to less.

        Returns the refs that moved.

        Args:
            record: the fence's record, read before: any move of a ref from now on changes it.
        """
        refs = self._moved()
        shallow = self._database.commits.refresh_shallow()
        seen: set[tuple[Address, Role]] = set()
        pending = [start for ref in refs for start in references_of_ref(ref)]
        while pending and self.objects:
            reached = self._are_theirs(_unseen(pending, seen))
            for each in reached:
                if self.objects.pop(each.address, None) is not None:
                    self.kept.add(each.address)
                    if each.role is Role.COMMIT:
                        self._spared.add(each.address)
            raws = self._objects.read_many({each.address for each in reached if each.role not in UNREAD})
            for each in reached:
                if each.address in raws:
                    pending += [Reference(segment, Role.SEGMENT) for segment in segments_of(raws[each.address])]
                    pending += followed(each, raws[each.address], shallow=shallow, expired=record.expired)
        return refs

    def _moved(self) -> list[Ref]:
        """Return the other refs that moved since the marking."""
        erased = set() if self.are_erased else {ref_key(ref.kind, ref.name) for ref in self.refs}
        self.rows, moved = [], set()
        for key in self._store.keys(MOVED):
            marking, ref = read_moved_key(key)
            if ref in erased:
                self.rows.append(key)
            elif marking >= self.table.marking:
                moved.add(ref)
        stored = self._store.get_many(moved)
        if len(stored) < len(moved):
            raise _UnknownError  # gc has removed the record of a deleted ref since; or the key is damaged
        return [parse_ref(*read_ref_key(key), value) for key, value in stored.items()]

    def keys(self) -> list[str]:
        """Return the keys of the objects, and of the notes and other records of commits."""
        keys = []
        for address, role in self.objects.items():
            keys += (
                [object_key(address), note_key(address), shared_key(address)]
                if role is Role.COMMIT
                else [object_key(address)]
            )
        return keys

    def findings(self, attempt: str, *, owed: bool) -> Findings:
        """Return the findings for the journal. ``owed``: objects are left that a further batch deletes."""
        return Findings(
            branches=dict.fromkeys(ref.name for ref in self.refs),
            shared=dict.fromkeys(address.hex() for address in self.shared),
            freed={attempt: len(self.objects)},
            kept={attempt: len(self.kept)},
            owed=owed,
        )

    def result(self, start: float, *, dry_run: bool = False) -> Reclaimed:
        report = GcReport(
            len(self.refs), len(self.kept), None, len(self.objects), None, time.monotonic() - start, dry_run=dry_run
        )
        shared = tuple(address.hex() for address in self.shared)
        return Reclaimed(tuple(ref.name for ref in self.refs), shared, report)


class _Reclaim(Collector):
    """A reclaiming at work."""

    def __init__(self, database: Database, patterns: Sequence[str], journal: Journal) -> None:
        super().__init__(database)
        self._patterns = patterns
        self._journal = journal

    def run(self, start: float) -> Reclaimed:
        with self.at_work():
            self.begin(marks=False)
            plan, keys = self._erase()
            self._delete(plan, keys)
        if self._journal.findings.owed:
            self._journal.findings.owed = False
            self._journal.save()
        self._database.fence.learn(self.record.stored)
        return plan.result(start)

    def _erase(self) -> tuple[_Plan, list[str]]:
        """Delete the records of the branches, and return the keys that are left.

        As many objects as go into one batch are deleted with the records.
        """
        for attempt in range(_ATTEMPTS):
            record = self._quiet(attempt) if attempt else self.record
            plan = _Plan(self._database, self._patterns, record)
            names = [key for ref in plan.refs for key in (*keys_of(ref), lock_key(ref.name))]
            expected = {ref_key(ref.kind, ref.name): ref.stored for ref in plan.refs} | {KEEPERS: plan.table.stored}
            names += (
                entry_changes(self._store, self._database.commits, record.indexed, expected, {}, names)[1]
                if record.indexed
                else ()
            )
            keys = plan.keys()
            puts = {KEEPERS: plan.table.without(plan.keepers), **plan.records}
            left = keys[_AT_ONCE:]
            before, journal = self._journal.draft(plan.findings(self._journal.attempt, owed=bool(left)))
            deletes = [*names, *plan.rows, *keys[:_AT_ONCE]]
            if self._apply(record, deletes, {**expected, **before}, {**puts, **journal}, is_last=not left):
                self._journal.accept()
                plan.are_erased = True
                return plan, left
            self._journal.refresh()
        raise StoreBusyError("writers keep changing the store", hint="try again")

    def _delete(self, plan: _Plan, keys: list[str]) -> None:
        """Delete the keys that are left, and stop being the owner with the last batch."""
        attempt = 0
        while self.record.owner is not None:  # also without keys: if writers came first, it is the owner still
            record = self.record
            if attempt:
                # A writer has moved a ref since, perhaps to some of the objects.
                record = self._quiet(attempt)
                plan.spare(record)
                left = set(plan.keys())
                keys = [key for key in keys if key in left]
            if self._apply(record, keys[:_AT_ONCE], is_last=len(keys) <= _AT_ONCE):
                keys, attempt = keys[_AT_ONCE:], 0
            else:
                attempt += 1

    def _quiet(self, attempt: int) -> GcRecord:
        """Return the present record, with an empty list of published commits.

        Any move of a ref from now on then changes it.
        """
        while True:
            record = self.look()
            if not record.published and (attempt < _PATIENCE or record.hold):
                return record
            self.put(record.stored, record.but(published=(), hold=attempt >= _PATIENCE, beat=self._database.now()))

    def _apply(
        self,
        record: GcRecord,
        deletes: Sequence[str],
        expected: Mapping[str, bytes | None] = MappingProxyType({}),
        puts: Mapping[str, bytes] = MappingProxyType({}),
        *,
        is_last: bool,
    ) -> bool:
        """Delete keys, on the condition that the record is as given: no ref has moved since it was read."""
        after = record.but(sweeps=record.sweeps + 1, beat=self._database.now(), hold=False)
        after = after.ended() if is_last else after
        assert after.stored is not None
        with ExitStack() as stack:
            for store in backends(self._store):
                if isinstance(store, Disk):
                    stack.enter_context(store.overwriting())
            if not self._store.apply({**expected, GC: record.stored}, {**puts, GC: after.stored}, deletes):
                return False
        self.record = after
        return True


def _keepers_of(refs: Sequence[Ref], patterns: Iterable[str]) -> set[str]:
    """Return the keepers that some refs are: each of them, and the groups all of whose names match a pattern."""
    names = {f"{ref.kind}/{ref.name}" for ref in refs}
    whole = tuple(
        f"branch/{pattern[:-1]}"
        for pattern in patterns
        if pattern.endswith("*") and literal_in(pattern) == pattern[:-1]
    )
    return names | {group for name in names for group in groups_of(name) if group.startswith(whole)}


def _unseen(pending: list[Reference], seen: set[tuple[Address, Role]]) -> list[Reference]:
    """Return the next references to look at, taken off the end of a list, each once."""
    batch = [each for each in dict.fromkeys(pending[-BATCH:]) if (each.address, each.role) not in seen]
    del pending[-BATCH:]
    seen.update((each.address, each.role) for each in batch)
    return batch
