"""Garbage collection beside writers: mark every object that refs and their logs lead to, delete the rest in batches.

Layer: repository.

The fence (``refs/gc_fence``) makes it safe. Each batch is deleted on the condition that the fence's record is as this
gc left it, so a gc that was delayed, and that another gc has replaced, deletes nothing more; and every ref that moves
meanwhile is in the record. ``docs/design/014-gc-beside-writers.md`` goes through the failures.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from itertools import chain, islice
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

from versioned_state import arguments
from versioned_state.errors import (
    CorruptObjectError,
    InvalidArgumentError,
    MissingObjectError,
    StorageError,
    StorageFullError,
    StoreBusyError,
    UnsafeStoreError,
)
from versioned_state.objects.address import Address
from versioned_state.objects.keys import (
    GC,
    KEEPERS,
    NOTES,
    OBJECTS,
    SHALLOW,
    SHALLOW_PAGES,
    SHARED,
    address_in,
    commit_in,
    ref_key,
)
from versioned_state.repository.history.keepers import KeeperSet
from versioned_state.repository.history.shallow import all_cuts
from versioned_state.repository.maintenance.gc.keeper_table import (
    drop_older,
    drop_pages,
    new_salt,
    read_table,
    write_pages,
)
from versioned_state.repository.maintenance.gc.marking import Marking, Progress
from versioned_state.repository.maintenance.gc.marks import clear_marks, load_marks, save_marks
from versioned_state.repository.maintenance.index_meta import drop_wrong_entries
from versioned_state.repository.maintenance.owner import Life, Owner, life_of
from versioned_state.repository.refs.gc_fence import GcRecord, read_gc_record
from versioned_state.repository.refs.lock_record import remove_unused_locks
from versioned_state.repository.refs.ref import Ref, check_ref_kinds, keys_of
from versioned_state.repository.refs.reflog import DEFAULT_EXPIRE
from versioned_state.storage import KVStore
from versioned_state.storage.wrappers.tiered import backends

if TYPE_CHECKING:
    from versioned_state.repository.database import Database

TAKEOVER_US: Final = 30 * 1_000_000
"""After this many microseconds without a beat a gc counts as dead.

That is 15 missed beats, since one slow call of the store may delay a few. A takeover is safe at any time; it only
costs a living gc its work. On the same machine the process itself is checked (``owner``).
"""

_BATCH: Final = 1000
"""Objects of one deletion: on ``Disk`` it keeps a writer waiting for about 10 ms."""

_REFS: Final = 32
"""Records of deleted refs that are removed in one batch: PostgreSQL takes a lock for each key."""

_BEAT_S: Final = 2.0
_PATIENCE: Final = 3
"""Failed attempts at one batch, each because a writer moved a ref, before writers are made to wait for a moment."""


@dataclass(frozen=True, slots=True)
class GcReport:
    """The result of a gc, or of a dry run.

    Attributes:
        refs: how many refs were followed; deleted refs count as long as their reflog has not expired.
        kept, freed: how many objects are reachable, and how many were deleted.
        kept_bytes, freed_bytes: the stored bytes of those objects, as ``stats`` counts them, or None if the store
            cannot tell the size of a value without reading it.
        seconds: how long it took.
        compacted: by how many bytes the store shrank afterwards, or None without ``compact``.
        dry_run: nothing was deleted.
        finished: False if the time limit came first: the next gc with a time limit continues.
    """

    refs: int
    kept: int
    kept_bytes: int | None
    freed: int
    freed_bytes: int | None
    seconds: float
    compacted: int | None = None
    dry_run: bool = False
    finished: bool = True


@runtime_checkable
class _Compacting(Protocol):
    def compact(self) -> int: ...


def collect(
    database: Database,
    *,
    expire: timedelta = DEFAULT_EXPIRE,
    dry_run: bool = False,
    compact: bool = False,
    force: bool = False,
    time_limit: float | None = None,
    progress: Progress | None = None,
    in_memory: int = 1_000_000,
) -> GcReport:
    """Delete every object that no ref and no log entry younger than ``expire`` leads to.

    Others may go on reading and writing. Cost: reads every reachable object except chunks, and lists all keys; garbage
    is not read. Memory: see ``AddressSet``. If gc fails, or its process dies, every reachable object is still there,
    and the next gc does the rest.

    Args:
        expire: the age up to which a reflog keeps commits that nothing else leads to. Zero: it keeps none.
        dry_run: count only, and write nothing. The objects that a writer is about to commit may count as garbage.
        compact: rewrite the store afterwards, so that the file shrinks (``Disk``).
        force: begin even if another gc seems to be at work, which then stops, or if the record of gc is damaged.
        time_limit: stop after about this many seconds. The marks are kept in the store, at 25 bytes an object, and the
            next gc with a time limit continues there; it keeps what became garbage meanwhile. A gc without one starts
            from the beginning.
        progress: called now and then with the number of objects done and their total; the total is None while objects
            are being marked.
        in_memory: how many addresses to hold in memory before a temporary file is used.

    Raises:
        StoreBusyError: another gc is at work, or has replaced this one. The objects deleted so far were garbage.
        UnsafeStoreError: the store takes only one condition a batch, so gc cannot run beside writers; or it has refs of
            a kind that this release does not have, which may lead to any object.
        MissingObjectError, CorruptObjectError, CorruptRefError: a reachable object is damaged, so garbage cannot be
            told from the rest.
    """
    arguments.age("expire", expire)
    base = backends(database.store)[0]
    if compact and not isinstance(base, _Compacting):
        raise InvalidArgumentError(f"{base!r} cannot be compacted")
    if time_limit is not None:
        arguments.seconds("time_limit", time_limit, above=True, endless=True)
    start = time.monotonic()
    cutoff = max(database.now() - expire // timedelta(microseconds=1), 0)
    with KeeperSet(in_memory=in_memory) as seen:
        marking = Marking(database, seen, progress)
        tally = _Tally(database.store)
        finished = True
        if dry_run:
            # An earlier gc may have deleted commits that had expired by its own ``expire``.
            record = database.fence.refresh()
            marking.expired = max(cutoff, record.expired)
            _count_garbage(database, marking, tally, record.sweeps)
        else:
            sweep = _Sweep(database, marking, tally, cutoff, force=force)
            if time_limit is not None:
                sweep.deadline = start + time_limit
            finished = sweep.run()
            remove_unused_locks(database)
            if database.fence.refresh().indexed or force:  # a damaged record may have named indexes
                drop_wrong_entries(database)
        kept = len(seen)
    compacted = base.compact() if compact and not dry_run and isinstance(base, _Compacting) else None
    seconds = time.monotonic() - start
    return GcReport(
        marking.refs, kept, tally.kept_bytes, tally.freed, tally.freed_bytes, seconds, compacted, dry_run, finished
    )


def _count_garbage(database: Database, marking: Marking, tally: _Tally, sweeps: int) -> None:
    """Mark, and count the unmarked objects. ``sweeps`` is the number of batches that gc had deleted before."""
    check_ref_kinds(database.store)
    try:
        marking.mark_refs()
        for garbage in _garbage(marking, tally):
            tally.freed += len(garbage)
    except MissingObjectError as error:
        if database.fence.refresh().sweeps == sweeps:
            raise
        raise StoreBusyError("another gc deleted objects meanwhile", hint="try again") from error


class _TimeOverError(Exception):
    """The time limit has come."""


class _Tally:
    """The number of freed objects, and the stored bytes of garbage and of the rest.

    The bytes are None if the store cannot return sizes.
    """

    def __init__(self, store: KVStore) -> None:
        self._store = store
        self.freed = 0
        self.freed_bytes: int | None = 0
        self.kept_bytes: int | None = 0
        self._sizes: dict[str, int] = {}

    def measure(self, keys: list[str], garbage: list[str]) -> None:
        """Count the bytes of a page of keys, some of which are garbage.

        Reads sizes from the store's index, and no value.
        """
        sizes = self._store.sizes(keys)
        if sizes is None or self.kept_bytes is None or self.freed_bytes is None:
            self.kept_bytes = self.freed_bytes = None
            return
        self._sizes = {key: sizes.get(key, 0) for key in garbage}
        freed = sum(self._sizes.values())
        self.freed_bytes += freed
        self.kept_bytes += sum(sizes.values()) - freed

    def spare(self, keys: Iterable[str]) -> None:
        """Count garbage of the last page as kept, because a writer uses it now."""
        size = sum(self._sizes.get(key, 0) for key in keys)
        if self.kept_bytes is not None and self.freed_bytes is not None:
            self.kept_bytes += size
            self.freed_bytes -= size


class Collector:
    """A process that deletes objects. It owns the fence's record from beginning to end.

    Attributes:
        record: the fence's record as the collector last read or wrote it.
    """

    def __init__(self, database: Database, cutoff: int = 0, *, force: bool = False) -> None:
        self.record: GcRecord = GcRecord()
        self._database = database
        self._store = database.store
        self._cutoff = cutoff
        self._force = force
        self._owner = Owner()
        self._last_beat = time.monotonic()

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Run the block, and take this collector out of the record after it, however it ends."""
        if not self._database.fence.enabled:
            raise UnsafeStoreError(
                f"gc cannot run beside writers on {backends(self._store)[0]!r}, which takes one condition a batch",
                remains="nothing was deleted",
                hint="vstate gc --dry-run says what would be freed; a store of another kind can be collected",
            )
        try:
            yield
        except BaseException:
            # No other gc must wait for one that failed, and no commit must publish its head to it.
            with suppress(StorageError):
                self.give_up()
            raise
        finally:
            # If the record still names this owner (because the disk is full, for example), the next gc sees that it is
            # dead.
            self._owner.end()

    def begin(self, *, marks: bool) -> None:
        """Become the owner. Raises ``StoreBusyError`` if another collector is at work.

        Args:
            marks: whether this collector begins to mark: see ``GcRecord.marking``.
        """
        while True:
            stored, record = self.check_free()
            mine = record.but(
                generation=record.generation + 1,
                owner=self._owner.id,
                beat=self._database.now(),
                expired=max(record.expired, self._cutoff),
                hold=False,
                published=(),
                marking=record.generation + 1 if marks else record.marking,
            )
            # If the record was lost, refs have moved without a trace, so the table of keepers is not valid any more.
            if self.put(stored, mine, () if record.marking else (KEEPERS,)):
                return

    def check_free(self) -> tuple[bytes | None, GcRecord]:
        """Return the stored record, and what it says.

        Raises ``StoreBusyError`` if another collector is at work, and ``UnsafeStoreError`` as ``check_ref_kinds``.
        """
        check_ref_kinds(self._store)
        stored = self._store.get(GC)
        record = self._read(stored)
        now = self._database.now()
        fresh = not self._force and 0 <= now - record.beat < TAKEOVER_US
        if record.owner is not None and fresh and life_of(record.owner) is not Life.ENDED:
            raise StoreBusyError(
                f"another gc is at work; its last sign of life was {(now - record.beat) // 1_000_000} s ago",
                remains="nothing was deleted",
                hint="wait for it; if its process has died, vstate gc --force takes its place",
            )
        return stored, record

    def _read(self, stored: bytes | None) -> GcRecord:
        try:
            return read_gc_record(stored, version=self._database.format_version)
        except CorruptObjectError:
            if not self._force:
                raise
            # No earlier record can have had these numbers, so this record cannot be mistaken for an earlier one.
            now = self._database.now()
            return GcRecord(generation=now, sweeps=now, version=self._database.format_version)

    def put(self, before: bytes | None, after: GcRecord, deletes: Collection[str] = ()) -> bool:
        """Replace the record if it has not changed, and delete some keys in the same batch. Returns whether it did."""
        assert after.stored is not None
        if not self._store.apply({GC: before}, {GC: after.stored}, deletes):
            return False
        self.record = after
        self._last_beat = time.monotonic()
        return True

    def look(self) -> GcRecord:
        """Read the record. Raises ``StoreBusyError`` if this gc no longer owns it."""
        record = read_gc_record(self._store.get(GC), version=self._database.format_version)
        if record.owner != self._owner.id:
            raise StoreBusyError(
                "another gc took this one's place, or a writer called it off",
                remains="the objects deleted so far were garbage",
            )
        self.record = record
        return record

    def end(self) -> None:
        """Stop being the owner."""
        while not self.put(self.record.stored, self.record.ended()):
            self.look()

    def give_up(self) -> None:
        """Remove this gc from the record if it is there: a write whose reply was lost may have put it there."""
        while (
            record := read_gc_record(self._store.get(GC), version=self._database.format_version)
        ).owner == self._owner.id:
            self.put(record.stored, record.ended())


class _Sweep(Collector):
    """One gc at work."""

    def __init__(self, database: Database, marking: Marking, tally: _Tally, cutoff: int, *, force: bool) -> None:
        super().__init__(database, cutoff, force=force)
        self._marking = marking
        self._tally = tally
        self._beating = False
        self._since: int | None = None
        self._cuts: Collection[bytes] = ()
        self.deadline: float | None = None

    def run(self) -> bool:
        """Mark and delete. Returns whether this was finished before the deadline."""
        with self.at_work():
            try:
                self._mark_and_delete()
            except _TimeOverError:
                save_marks(
                    self._store,
                    self._marking.seen,
                    self._marking.pending,
                    self.record.sweeps,
                    self._since,
                    put=self._put_as_owner,
                )
                self.end()
                return False
        return True

    def _mark_and_delete(self) -> None:
        self.begin(marks=True)
        self._marking.expired = self.record.expired
        self._since = self.record.marking
        self._marking.beat = self._beat
        self._marking.drop = self._drop
        if self.deadline is None:
            # Do this first: if this gc dies after deleting marked objects, they may come back with references that are
            # not marked.
            clear_marks(self._store)
        else:
            marks = load_marks(self._store, self._marking.seen, self.record.sweeps)
            if marks is not None:
                self._marking.pending, self._since = marks
            self._marking.check_time = self._check_time
        if self._since != self.record.marking and self._is_overtaken():
            self._since = None
        self._cuts = self._database.commits.refresh_shallow()  # later entries are of commits that were reachable since
        try:
            self._marking.mark_refs()
            for garbage in _garbage(self._marking, self._tally):
                self._tally.freed += self._delete(garbage, address_in)
                self._check_time()
            for lost in _of_lost_commits(self._marking):
                self._delete(lost, commit_in)
            self._drop_cuts()
            if self._since is not None:
                self._keep_keepers(self._since)
            clear_marks(self._store)
            self.end()
        except MissingObjectError:
            # Only the gc that owns the record deletes. If another gc owns it by now, that one may have deleted objects
            # that a ref led to when this gc read the ref, and the store is sound.
            self.look()
            raise

    def _check_time(self) -> None:
        if self.deadline is not None and time.monotonic() > self.deadline:
            raise _TimeOverError

    def _is_overtaken(self) -> bool:
        """Return whether another gc left its table after the first slice of this one.

        Then it is not known which refs moved before that.
        """
        with suppress(CorruptObjectError):
            table = read_table(self._store)
            return table is not None and self._since is not None and self._since <= table.marking
        return True

    def _keep_keepers(self, marking: int) -> None:
        """Keep the keeper of each object, for reclaiming single branches later, unless the store is full."""
        salt = new_salt()
        try:
            top = write_pages(self._store, self._marking.seen, marking, salt, self._beat)
            self._put_as_owner({KEEPERS: top})
        except StorageFullError:
            drop_pages(self._store, of=salt)
        else:
            drop_older(self._store, marking, salt)

    def _put_as_owner(self, puts: Mapping[str, bytes]) -> None:
        """Put some keys, on the condition that this gc is still the owner.

        A delayed gc must not overwrite the keys of another one.
        """
        while not self._store.apply({GC: self.record.stored}, puts):
            self.look()

    def _drop_cuts(self) -> None:
        """Drop the deleted commits from the record of shallow history, provided that no writer uses one of them."""
        commits, seen, before = self._database.commits, self._marking.seen, self._cuts
        while True:
            self._marking.mark_published(self.record.published)
            shallow = commits.refresh_shallow()
            live = {address: cut for address, cut in shallow.items() if address in seen or address not in before}
            if len(live) == len(shallow):
                return
            puts = all_cuts(live)
            gone = [key for key in self._store.keys(SHALLOW_PAGES) if key not in puts]
            if self._store.apply({GC: self.record.stored, SHALLOW: shallow.stored}, puts, gone):
                commits.refresh_shallow()
                return
            self.look()

    def _drop(self, gone: list[Ref]) -> list[Ref]:
        """Remove the records of deleted refs.

        Returns the refs that stay, perhaps because another writer has brought them back.

        The fence's record has the new head of such a ref, but not the log entry that its record had already.
        """
        kept = []
        for start in range(0, len(gone), _REFS):
            some = gone[start : start + _REFS]
            if not self._remove(some):
                self.look()
                kept += [ref for ref in some if not self._remove([ref])]
        return kept

    def _remove(self, refs: list[Ref]) -> bool:
        expected = {ref_key(ref.kind, ref.name): ref.stored for ref in refs}
        # Without the record nobody can tell that the ref was there at the last marking. An object to which only this
        # ref led then would end the walk of a reclaiming, above objects that belong to a group and are to be deleted.
        keys = [KEEPERS, *(key for ref in refs for key in keys_of(ref))]
        return self._store.apply({GC: self.record.stored, **expected}, {}, keys)

    def _beat(self) -> None:
        """Mark the commits that writers have published, and show that this gc lives, every few seconds.

        Marking them so often keeps their list short.
        """
        if self._beating or time.monotonic() - self._last_beat < _BEAT_S:
            return
        self._beating = True  # marking reads, and each read beats
        try:
            self._last_beat = time.monotonic()
            record = self.look()
            self._marking.mark_published(record.published)
            # If a writer comes first, the next beat does it.
            self.put(record.stored, record.but(beat=self._database.now(), published=()))
        finally:
            self._beating = False

    # Deleting

    def _delete(self, batch: list[str], address_of: Callable[[str], Address]) -> int:
        """Delete keys of objects or notes, unless a writer uses them now. Returns how many were deleted."""
        attempt = 0
        while True:
            record = self.record
            if record.published:
                # They may lead to objects that were garbage when this batch was listed.
                self._marking.mark_published(record.published)
                spared = [key for key in batch if address_of(key) in self._marking.seen]
                self._tally.spare(spared)
                batch = [key for key in batch if address_of(key) not in self._marking.seen]
            after = record.but(sweeps=record.sweeps + 1, beat=self._database.now(), hold=False, published=())
            if not batch:
                return 0
            # An object may come back with other references, in segments or with more of its history, so the keepers
            # that an earlier gc found must be dropped with it. If this gc dies before it leaves its own table, there is
            # none.
            if self.put(record.stored, after, [*batch, KEEPERS]):
                return len(batch)
            attempt += 1
            record = self.look()
            if attempt >= _PATIENCE and not record.hold:
                # Writers come first each time. This write alone has a better chance than one after marking.
                self.put(record.stored, record.but(hold=True))


def _garbage(marking: Marking, tally: _Tally) -> Iterator[list[str]]:
    """Yield the keys of objects that are not marked, page by page."""
    looked = 0
    keys = marking.store.keys(OBJECTS)
    while page := list(islice(keys, _BATCH)):
        marking.beat()
        looked += len(page)
        batch = [key for key in page if address_in(key) not in marking.seen]
        tally.measure(page, batch)
        if marking.progress is not None:
            marking.progress(looked, max(looked, len(marking.seen)))
        if batch:
            yield batch


def _of_lost_commits(marking: Marking) -> Iterator[list[str]]:
    """Yield the keys of the notes, and of the records of shared commits, whose commit is not marked, page by page."""
    keys = chain(marking.store.keys(NOTES), marking.store.keys(SHARED))
    while page := list(islice(keys, _BATCH)):
        marking.beat()
        batch = [key for key in page if commit_in(key) not in marking.seen]
        if batch:
            yield batch
