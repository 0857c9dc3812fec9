"""Garbage collection, beside writers: mark what refs and their logs lead to, delete the rest in batches. Layer: repository.

What makes it safe is the record that ``epoch`` is about: each batch is deleted on the condition that the record is as this gc left it,
so a gc that was delayed, and whose place another one took, deletes nothing any more; and every ref that moved meanwhile is in it.
``docs/design/014-gc-beside-writers.md`` goes through the failures.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

from versioned_state.errors import (
    CorruptObjectError,
    InvalidArgumentError,
    MissingObjectError,
    StorageError,
    StoreBusyError,
    UnsafeStoreError,
)
from versioned_state.objects.address import Address
from versioned_state.objects.keys import GC, OBJECTS, RefKind, address_in, object_key
from versioned_state.objects.store import verified
from versioned_state.repository.history.commit import ROOT_ID
from versioned_state.repository.history.reach import AddressSet, Reference, Role, walk
from versioned_state.repository.refs.gc_fence import GcRecord, read_gc_record
from versioned_state.repository.refs.ref import iter_refs
from versioned_state.storage import KVStore, Wrapper

if TYPE_CHECKING:
    from versioned_state.repository.repository import Repository

DEFAULT_EXPIRE: Final = timedelta(days=30)
"""How long the reflog keeps what nothing else leads to, as git does."""

TAKEOVER_US: Final = 10 * 60 * 1_000_000
"""After how long without a sign of life a gc is taken for dead. It is safe at any time; a living one would have worked in vain."""

Progress = Callable[[int, int | None], None]

_BATCH: Final = 1000
"""Objects deleted at once: on ``Disk`` a writer waits for some 10 ms then."""

_BEAT_S: Final = 2.0
_PATIENCE: Final = 3
"""Batches that writers came in between of, before they are asked to wait for a moment."""

_KINDS: Final[tuple[RefKind, ...]] = ("branch", "tag")


@dataclass(frozen=True, slots=True)
class GcReport:
    """What a gc did, or with ``dry_run`` would have done.

    Attributes:
        refs: how many refs were followed, deleted ones whose log has not expired included.
        kept, freed: objects that are reachable, and that were deleted.
        kept_bytes, freed_bytes: the bytes of their values in the store; of chunks that are kept, which are not read, those of the content.
        seconds: how long it took.
        compacted: by how many bytes the store shrank afterwards; None where that was not asked for.
        dry_run: nothing was deleted.
    """

    refs: int
    kept: int
    kept_bytes: int
    freed: int
    freed_bytes: int
    seconds: float
    compacted: int | None = None
    dry_run: bool = False


@runtime_checkable
class _Compacting(Protocol):
    def compact(self) -> int: ...


def collect(
    repository: Repository,
    *,
    expire: timedelta = DEFAULT_EXPIRE,
    dry_run: bool = False,
    compact: bool = False,
    force: bool = False,
    progress: Progress | None = None,
    in_memory: int = 1_000_000,
) -> GcReport:
    """Delete every object that no ref and no log entry of the last ``expire`` leads to, while others go on reading and writing.

    Cost: reading all that is kept, but for chunks, and listing all keys. Memory: what ``AddressSet`` says. A failure, or the death of
    the process, leaves a store in which everything that is reachable is whole; the next gc does the rest.

    Args:
        expire: how long the reflog keeps commits that nothing else leads to. Zero: not at all.
        dry_run: only look, and write nothing. What a writer is about to commit may be counted as garbage then.
        compact: rewrite the store afterwards, so that the room is given back (``Disk``).
        force: begin although another gc seems to be at work, which then stops; or although the record of gc is damaged.
        progress: told from time to time how many objects were looked at, and of how many; None: not known, while they are marked.
        in_memory: addresses to hold in memory before a temporary file is used.

    Raises:
        StoreBusyError: another gc is at work, or took this one's place. What was deleted so far was garbage.
        UnsafeStoreError: the store takes too few conditions at once for gc to run beside writers.
        MissingObjectError, CorruptObjectError, CorruptRefError: something reachable is damaged, so nothing can be told to be garbage.
    """
    if expire < timedelta(0):
        raise InvalidArgumentError(f"expire={expire}: it is 0 or more")
    base = _innermost(repository.store)
    if compact and not isinstance(base, _Compacting):
        raise InvalidArgumentError(f"{base!r} cannot be compacted")
    start = time.monotonic()
    cutoff = max(repository.now() - expire // timedelta(microseconds=1), 0)
    with AddressSet(in_memory=in_memory) as seen:
        marking = _Marking(repository, seen, progress)
        if dry_run:
            # What an earlier gc took for expired may be gone, whatever is asked for now.
            marking.expired = max(cutoff, repository.guard.refresh().expired)
            marking.mark_refs()
            freed, freed_bytes = _measure(repository.store, seen, progress)
        else:
            freed, freed_bytes = _Sweep(repository, marking, cutoff, force=force).run()
            repository.guard.refresh()
        result = GcReport(marking.refs, len(seen), marking.bytes, freed, freed_bytes, 0.0, None, dry_run)
    compacted = base.compact() if compact and not dry_run and isinstance(base, _Compacting) else None
    return GcReport(result.refs, result.kept, result.kept_bytes, freed, freed_bytes, time.monotonic() - start, compacted, dry_run)


def _innermost(store: KVStore) -> KVStore:
    while isinstance(store, Wrapper):
        store = store.store
    return store


class _Marking:
    """Marks what is reachable. ``refs`` counts the refs, ``bytes`` what the objects take."""

    def __init__(self, repository: Repository, seen: AddressSet, progress: Progress | None) -> None:
        self._repository = repository
        self.seen = seen
        self.progress = progress
        self.expired = 0
        self.refs = 0
        self.bytes = 0
        self.beat: Callable[[], None] = lambda: None

    # A reader: what is marked is read through here

    def read(self, address: Address) -> bytes:
        return self.read_many([address])[address]

    def read_many(self, addresses: Iterable[Address]) -> dict[Address, bytes]:
        self.beat()
        keys = {object_key(address): address for address in addresses}
        found = self._repository.store.get_many(keys)
        if len(found) < len(keys):
            raise MissingObjectError(next(address for key, address in keys.items() if key not in found).hex())
        self.bytes += sum(map(len, found.values()))
        if self.progress is not None:
            self.progress(len(self.seen), None)
        return {keys[key]: verified(keys[key], stored) for key, stored in found.items()}

    def mark(self, starts: Iterable[Reference]) -> None:
        for reference, raw in walk(
            self, starts, self.seen, cuts=self._repository.cuts, expired=self.expired, chunks=False, unread=self._count
        ):
            del reference, raw

    def _count(self, chunk: Reference) -> None:
        self.bytes += chunk.size or 0

    def mark_refs(self) -> None:
        """Mark from all refs as they are now, deleted ones included for the sake of their logs."""
        self._repository.refresh_cuts()
        self.mark(self._roots())

    def _roots(self) -> Iterator[Reference]:
        yield Reference(Address(bytes.fromhex(ROOT_ID)), Role.COMMIT)
        for kind in _KINDS:
            for ref in iter_refs(self._repository.store, kind, deleted=True):
                self.refs += 1
                if ref.head is not None:
                    yield Reference(ref.head, Role.COMMIT)
                if ref.log is not None:
                    yield Reference(ref.log, Role.LOG_ENTRY)

    def mark_published(self, addresses: Iterable[Address]) -> None:
        """Mark from what the record of gc has: commits and log entries, which only their kind tells apart."""
        new = [address for address in addresses if address not in self.seen]
        if new:
            roles = {0x01: Role.COMMIT, 0x02: Role.LOG_ENTRY}
            raws = self.read_many(new)
            starts = []
            for address in new:
                role = roles.get(raws[address][0])
                if role is None:
                    raise CorruptObjectError(address.hex(), "a ref was moved to it, and it is no commit")
                starts.append(Reference(address, role))
            self.mark(starts)


class _Sweep:
    """One gc at work: it owns the record from its beginning to its end."""

    def __init__(self, repository: Repository, marking: _Marking, cutoff: int, *, force: bool) -> None:
        self._repository = repository
        self._store = repository.store
        self._marking = marking
        self._cutoff = cutoff
        self._force = force
        self._owner = secrets.token_bytes(8)
        self._record = GcRecord()
        self._beaten = time.monotonic()
        self._beating = False

    def run(self) -> tuple[int, int]:
        if not self._repository.guard.enabled:
            raise UnsafeStoreError(
                f"gc cannot run beside writers on {_innermost(self._store)!r}, which takes one condition a batch; nothing was deleted",
                hint="vstate gc --dry-run says what would be freed; a store of another kind can be collected",
            )
        self._begin()
        try:
            self._marking.beat = self._beat
            self._marking.mark_refs()
            freed = self._sweep()
        except BaseException:
            # Left as it is, it would keep the next gc waiting, and make each commit write down where it went.
            with suppress(StorageError):
                self._end()
            raise
        self._end()
        return freed

    # The record

    def _begin(self) -> None:
        while True:
            stored = self._store.get(GC)
            record = self._read(stored)
            now = self._repository.now()
            if record.owner is not None and not self._force and 0 <= now - record.beat < TAKEOVER_US:
                raise StoreBusyError(
                    f"another gc is at work, and gave a sign of life {(now - record.beat) // 1_000_000} s ago; nothing was deleted",
                    hint="wait for it; where its process has died, vstate gc --force takes its place",
                )
            mine = record.but(
                epoch=record.epoch + 1,
                owner=self._owner,
                beat=now,
                expired=max(record.expired, self._cutoff),
                hold=False,
                published=(),
            )
            if self._put(stored, mine):
                self._marking.expired = mine.expired
                return

    def _read(self, stored: bytes | None) -> GcRecord:
        try:
            return read_gc_record(stored)
        except CorruptObjectError:
            if not self._force:
                raise
            # Numbers that no record before it can have had, so that nobody takes it for one that he knows.
            now = self._repository.now()
            return GcRecord(epoch=now, sweeps=now)

    def _put(self, before: bytes | None, after: GcRecord, deletes: list[str] | None = None) -> bool:
        assert after.stored is not None
        if not self._store.apply({GC: before}, {GC: after.stored}, deletes or ()):
            return False
        self._record = after
        self._beaten = time.monotonic()
        return True

    def _look(self) -> GcRecord:
        """The record as it is now, which is still ours. Raises ``StoreBusyError``."""
        record = read_gc_record(self._store.get(GC))
        if record.owner != self._owner:
            raise StoreBusyError("another gc took this one's place, or a writer called it off; what was deleted so far was garbage")
        self._record = record
        return record

    def _beat(self) -> None:
        """Every few seconds, take note of what writers have published, so that what they write there stays short, and say that we live."""
        if self._beating or time.monotonic() - self._beaten < _BEAT_S:
            return
        self._beating = True  # marking reads, and each read comes by here
        try:
            self._beaten = time.monotonic()
            record = self._look()
            self._marking.mark_published(record.published)
            # Where a writer came in between, it is done the next time.
            self._put(record.stored, record.but(beat=self._repository.now(), published=()))
        finally:
            self._beating = False

    def _end(self) -> None:
        while not self._put(self._record.stored, self._record.ended()):
            self._look()

    # Deleting

    def _sweep(self) -> tuple[int, int]:
        freed = freed_bytes = 0
        for batch in _garbage(self._store, self._marking.seen, self._marking.progress, self._beat):
            count, size = self._delete(batch)
            freed += count
            freed_bytes += size
        return freed, freed_bytes

    def _delete(self, batch: list[str]) -> tuple[int, int]:
        sizes = {key: len(stored) for key, stored in self._store.get_many(batch).items()}
        attempt = 0
        while True:
            record = self._record
            if record.published:
                # They may lead to what was garbage when this batch was listed.
                self._marking.mark_published(record.published)
                batch = [key for key in batch if address_in(key) not in self._marking.seen]
            after = record.but(sweeps=record.sweeps + 1, beat=self._repository.now(), hold=False, published=())
            if not batch:
                return 0, 0
            if self._put(record.stored, after, batch):
                return len(batch), sum(sizes.get(key, 0) for key in batch)
            attempt += 1
            record = self._look()
            if attempt >= _PATIENCE and not record.hold:
                # Writers come in between each time. This write alone has a better chance than one after marking.
                self._put(record.stored, record.but(hold=True))


def _garbage(store: KVStore, seen: AddressSet, progress: Progress | None, beat: Callable[[], None] = lambda: None) -> Iterator[list[str]]:
    """The keys of objects that are not marked, some at a time."""
    looked = 0
    keys = store.keys(OBJECTS)
    while True:
        page = list(islice(keys, _BATCH))
        if not page:
            return
        beat()
        looked += len(page)
        batch = [key for key in page if address_in(key) not in seen]
        if progress is not None:
            progress(looked, max(looked, len(seen)))
        if batch:
            yield batch


def _measure(store: KVStore, seen: AddressSet, progress: Progress | None) -> tuple[int, int]:
    freed = size = 0
    for batch in _garbage(store, seen, progress):
        freed += len(batch)
        size += sum(map(len, store.get_many(batch).values()))
    return freed, size
