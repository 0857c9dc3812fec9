"""The fence between gc and writers: one record in the store, and the condition on it that every move of a ref carries.

Layer: repository.

Objects are deleted only in batches that check and change this record. So if a ref update is conditioned on the record
and succeeds, nothing was deleted since the record was read. While a gc is at work, the update also adds its new head to
the record, and gc keeps the objects that the head leads to. ``docs/design/014-gc-beside-writers.md`` has the protocol,
and the failures without it.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, Final, NamedTuple

import msgpack

from versioned_state.errors import CorruptObjectError, FormatError, MissingObjectError, StateError, StoreBusyError
from versioned_state.objects.address import ADDRESS_SIZE, Address
from versioned_state.objects.keys import GC, REFS, moved_key
from versioned_state.objects.record import read_record, write_record
from versioned_state.objects.store import Staging
from versioned_state.records import dataclass, field, replace
from versioned_state.repository.format import FORMAT_VERSION
from versioned_state.storage import KVStore
from versioned_state.storage.base import Batch

MAX_PUBLISHED: Final = 4096
"""The most heads that may wait in the record.

A gc at work takes them every few seconds, so if this many wait, that gc has died. The record, which every commit then
writes, must not grow for ever: the writer ends that gc.
"""

_HEADS_KEPT: Final = 256
_MOVED_KEPT: Final = 65_536
_ATTEMPTS: Final = 1000
_LATER: Final[tuple[Any, ...]] = (0, 1, (), ())
"""``marking``, ``version``, ``indexed`` and ``searchable`` where the record does not have them.

The record is cut before the last fields that have these values.
"""

_COURTESY_S: Final = 0.25
"""The longest time that a writer waits at the request of gc, which may have died since."""


@dataclass(frozen=True, slots=True)
class GcRecord:
    """The content of the record. A store without one was never collected.

    Attributes:
        generation: how often a gc began or ended.
        owner: the id of the gc at work, or None if there is none.
        beat: when the owner last wrote the record, in microseconds.
        sweeps: how many batches were ever deleted. If the number has not changed, nothing was deleted in between.
        expired: log entries older than this, in microseconds, keep nothing.
        hold: whether the owner requests writers to pause.
        published: the commits and log entries that refs were moved to since the owner last read the record.
        marking: the ``generation`` of the gc that last began to mark; 0 if none ever did. The first move of a ref after
            that leaves a record under this number (``moved_key``), so that the refs that moved since a marking are
            known.
        version: the format version of the store. A writer that opened the store at a lower one must not write to it any
            more.
        indexed: the keys of meta by whose values every batch that moves a ref indexes it: see ``refs/meta_index``.
        searchable: those of them whose index has all refs.
        stored: the bytes of the record, or None if there is none.
    """

    generation: int = 0
    owner: bytes | None = None
    beat: int = 0
    sweeps: int = 0
    expired: int = 0
    hold: bool = False
    published: tuple[Address, ...] = ()
    marking: int = 0
    version: int = 1
    indexed: tuple[str, ...] = ()
    searchable: tuple[str, ...] = ()
    stored: bytes | None = field(default=None, compare=False)

    def but(self, **changes: object) -> GcRecord:
        """Return the record with these fields changed, and its bytes."""
        changed: GcRecord = replace(self, **changes)  # type: ignore[arg-type]
        return replace(changed, stored=_write(changed))

    def ended(self) -> GcRecord:
        """Return the record after the end of the gc at work."""
        return self.but(generation=self.generation + 1, owner=None, hold=False, published=())


def _write(record: GcRecord) -> bytes:
    fields: list[object] = [
        record.generation,
        record.owner,
        record.beat,
        record.sweeps,
        record.expired,
        record.hold,
        b"".join(record.published),
    ]
    later = [record.marking, record.version, record.indexed, record.searchable]
    while later and later[-1] == _LATER[len(later) - 1]:
        later.pop()
    fields += later
    body: bytes = msgpack.packb(fields)
    return write_record(GC, body)


def read_gc_record(stored: bytes | None, *, version: int = FORMAT_VERSION) -> GcRecord:
    """Return the record in these bytes.

    Args:
        version: the greatest format version that the caller can write.

    Raises:
        FormatError: the store was upgraded to a higher one.
        CorruptObjectError: the record is damaged.
    """
    if stored is None:
        return GcRecord()
    try:
        generation, owner, beat, sweeps, expired, hold, joined, *rest = msgpack.unpackb(read_record(GC, stored))
        marking, found, *lists = rest + list(_LATER[len(rest) :])
        if (
            not all(type(number) is int for number in (generation, beat, sweeps, expired, marking, found))
            or type(hold) is not bool
        ):
            raise ValueError("a field of another type")
        if found > version:
            raise FormatError(found, version)
        indexed, searchable = lists
        if not all(type(keys) in (list, tuple) and all(type(key) is str for key in keys) for keys in lists):
            raise ValueError("a field of another type")
        if not (owner is None or type(owner) is bytes) or type(joined) is not bytes or len(joined) % ADDRESS_SIZE:
            raise ValueError("a field of another type")
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise CorruptObjectError(GC, f"the record of gc is damaged: {error}") from error
    published = tuple(Address(joined[i : i + ADDRESS_SIZE]) for i in range(0, len(joined), ADDRESS_SIZE))
    return GcRecord(
        generation,
        owner,
        beat,
        sweeps,
        expired,
        hold,
        published,
        marking,
        found,
        tuple(indexed),
        tuple(searchable),
        stored,
    )


_NO_RECORD: Final = GcRecord()


Indexing = Callable[
    [tuple[str, ...], Mapping[str, bytes | None], Mapping[str, bytes], Collection[str], Staging],
    tuple[dict[str, bytes], list[str]],
]
"""Returns what to put and to delete beside a batch, so that the index of some keys of meta is right after it."""


def _no_index(*_: object) -> tuple[dict[str, bytes], list[str]]:
    return {}, []


class FencedBatch(NamedTuple):
    """The arguments of ``GcFence.apply`` that a batch has which nothing needs to be secured for."""

    expected: Mapping[str, bytes | None]
    puts: Mapping[str, bytes]
    deletes: Collection[str]
    staging: Staging
    since: int


class GcFence:
    """The record as one database last saw it, and writing beside gc. Safe for many threads.

    Args:
        index: called for each batch on a store with an index of meta.

    Attributes:
        enabled: False for a store that takes one condition a batch: gc refuses to run on it, and moves carry no
            condition.
        version: the format version of the store when it was opened. Calls that find a higher one raise ``FormatError``.
    """

    def __init__(self, store: KVStore, index: Indexing = _no_index) -> None:
        self._store = store
        self.version = FORMAT_VERSION
        self._index = index
        self._record: GcRecord | None = None
        self._damaged = False
        self._heads: OrderedDict[Address, int] = OrderedDict()
        # by key, the refs that are known to have moved since a marking, with the number of the marking
        self._moved: dict[str, int] = {}
        self.enabled: Final = store.max_expected is None or store.max_expected > 1

    def learn(self, stored: bytes | None) -> None:
        """Take the bytes of the record, read just now.

        Damage raises only when the record is needed: it must not stop a reader.
        """
        self._record, self._damaged = None, False
        try:
            self._record = read_gc_record(stored, version=self.version)
        except CorruptObjectError:
            self._damaged = True

    def refresh(self) -> GcRecord:
        """Read the record. Raises ``CorruptObjectError``."""
        stored = self._store.get(GC)
        self.learn(stored)
        return read_gc_record(stored, version=self.version) if self._record is None else self._record

    @property
    def record(self) -> GcRecord:
        """The record as last read. Cost: a read the first time. Raises ``CorruptObjectError``."""
        record = self._record
        return self.refresh() if record is None else record

    @property
    def sweeps(self) -> int:
        """The number of deleted batches, as last read: an object that is found from now on existed after all of them.

        -1, which equals no such number, if the record is damaged.
        """
        if not self.enabled:
            return 0
        return -1 if self._damaged else self.record.sweeps

    def expired(self) -> int:
        """Return the time up to which log entries have expired, in microseconds. Cost: a read."""
        if self.enabled:
            with suppress(CorruptObjectError):
                return self.refresh().expired
        return 0

    @property
    def is_quiet(self) -> bool:
        """Whether no gc is at work, by the record as last read. Only then does ``apply_each`` send batches."""
        return not self.enabled or (not self._damaged and self.record.owner is None)

    def saw(self, head: Address, sweeps: int) -> None:
        """Record that a ref pointed to this commit after ``sweeps`` batches were deleted.

        Args:
            sweeps: the number from before the ref was read, or at which the ref was moved. The present number may be a
                later one, since another thread may have learned of a sweep that deleted the commit after the ref was
                read.
        """
        if self.enabled:
            known = self._heads.get(head, -1)
            self._heads[head] = sweeps if sweeps > known else known  # noqa: FURB136 - every commit comes here, and max() takes longer
            self._heads.move_to_end(head)
            if len(self._heads) > _HEADS_KEPT:
                self._heads.popitem(last=False)

    def known_at(self, head: Address) -> int:
        """Return the number of ``sweeps`` after which a ref pointed to this commit, or 0 if none is known to have."""
        return max(self._heads.get(head, 0), 0)

    def knows(self, head: Address, sweeps: int) -> bool:
        """Return whether a ref pointed to this commit after ``sweeps`` batches were deleted."""
        return self._heads.get(head, -1) >= sweeps >= 0

    def known_heads(self, limit: int, sweeps: int) -> list[Address]:
        """Return commits for which ``knows`` is true, the last seen first."""
        return list(islice((head for head in list(reversed(self._heads)) if self.knows(head, sweeps)), limit))

    def apply(
        self,
        expected: Mapping[str, bytes | None],
        puts: Mapping[str, bytes],
        deletes: Collection[str] = (),
        *,
        staging: Staging,
        keep: Iterable[Address],
        instead_of: Collection[Address] = (),
        since: int = 0,
        secure: Callable[[int], None] = lambda _: None,
    ) -> int | None:
        """Do ``KVStore.apply`` for a batch that makes objects reachable, safe beside gc.

        Cost: one round trip if no gc is at work. If a condition fails, one more finds out whether it was the record or
        one of ``expected``.

        Args:
            staging: has the objects that the batch stores.
            keep: the commits and log entries that the batch makes reachable.
            instead_of: their ancestors, which the record then need not name.
            since: the number of ``sweeps`` at which all objects that the batch relies on existed.
            secure: called with the present number if it is another one: uploads again the objects that may be gone, or
                raises ``MissingObjectError``.

        Returns:
            The number of ``sweeps`` at the write, or None if one of ``expected`` does not hold, and nothing was
            changed.

        Raises:
            StoreBusyError: gc kept changing the record. Nothing was changed.
        """
        if not self.enabled:
            done = self._store.apply(expected, puts, deletes, objects=staging.sealed())
            staging.sent()
            return 0 if done else None
        waited = 0.0
        for attempt in range(_ATTEMPTS):
            record = self.record
            if record.hold and waited < _COURTESY_S:
                waited += _pause(attempt)
                self.refresh()
                continue
            if record.sweeps != since:
                # Objects found earlier may have been deleted since. The number is read before the search, so an object
                # that is found or uploaded from here on cannot be gone when the batch succeeds.
                staging.resend()
                try:
                    secure(record.sweeps)
                except MissingObjectError:
                    if self.refresh().sweeps == record.sweeps:
                        raise
                    continue  # a head that the old record names is gone
                since = record.sweeps
            after = record if record.owner is None else _published(record, keep, instead_of)
            told = {} if after is record else {GC: _bytes(after)}
            moved = self._unrecorded_moves(expected, puts, record.marking) if record.marking else {}
            said = {moved_key(record.marking, key): b"" for key in moved} if moved else {}
            added, removed = (
                self._index(record.indexed, expected, puts, deletes, staging) if record.indexed else ({}, ())
            )
            done = self._store.apply(
                {**expected, GC: record.stored},
                {**puts, **told, **said, **added},
                [*deletes, *removed] if removed else deletes,
                objects=staging.sealed(),
            )
            staging.sent()
            if done:
                self._record = after
                if moved:
                    self._note_moved(moved)
                return record.sweeps
            if self.refresh().stored == record.stored:
                return None
            if attempt > 1:
                _pause(attempt)
        raise StoreBusyError("gc is at work and keeps changing its record", hint="try again")

    def apply_each(self, batches: Sequence[FencedBatch]) -> list[int | StateError | None]:
        """Do ``apply`` for several batches, each by itself. Cost: one round trip, if the store sends them together.

        Returns for each its result or its error. The result is None also for a batch that ``apply`` would have tried
        again or secured: the caller must repeat such a batch alone.
        """
        outcomes: list[int | StateError | None] = [None] * len(batches)
        if not self.is_quiet:  # otherwise each batch would change the record that the next one expects
            return outcomes
        record = self.record if self.enabled else _NO_RECORD
        fence = {GC: record.stored} if self.enabled else {}
        sent: list[int] = []
        all_moved: list[dict[str, int]] = []
        ready: list[Batch] = []
        for number, each in enumerate(batches):
            if each.since == record.sweeps:
                moved = self._unrecorded_moves(each.expected, each.puts, record.marking) if record.marking else {}
                said = {moved_key(record.marking, key): b"" for key in moved}
                added, removed = (
                    self._index(record.indexed, each.expected, each.puts, each.deletes, each.staging)
                    if record.indexed
                    else ({}, ())
                )
                deletes = [*each.deletes, *removed] if removed else each.deletes
                ready.append(
                    Batch({**each.expected, **fence}, {**each.puts, **said, **added}, deletes, each.staging.sealed())
                )
                sent.append(number)
                all_moved.append(moved)
        for number, moved, done in zip(sent, all_moved, self._store.apply_each(ready), strict=True):
            if isinstance(done, StateError):
                outcomes[number] = done
                continue
            batches[number].staging.sent()
            if done:
                outcomes[number] = record.sweeps
                if moved:
                    self._note_moved(moved)
        return outcomes

    def _unrecorded_moves(
        self, expected: Mapping[str, bytes | None], puts: Mapping[str, bytes], marking: int
    ) -> dict[str, int]:
        """Return the refs that a batch moves and that may not yet have a record that they moved since the marking."""
        # A ref that is created may have been erased before, and what was said of it with it.
        keys = (key for key in puts if key.startswith(REFS))
        return {key: marking for key in keys if self._moved.get(key) != marking or expected.get(key) is None}

    def _note_moved(self, moved: Mapping[str, int]) -> None:
        if len(self._moved) > _MOVED_KEPT:
            self._moved = {}
        self._moved.update(moved)


def _published(record: GcRecord, keep: Iterable[Address], instead_of: Collection[Address]) -> GcRecord:
    kept = [address for address in record.published if address not in instead_of]
    kept += [address for address in keep if address not in kept]
    return record.but(published=tuple(kept)) if len(kept) <= MAX_PUBLISHED else record.ended()


def _bytes(record: GcRecord) -> bytes:
    assert record.stored is not None
    return record.stored


def _pause(attempt: int) -> float:
    import random

    seconds = random.uniform(0, min(0.02, 0.0005 * 2 ** min(attempt, 10)))  # noqa: S311 - spreading, not secrecy
    time.sleep(seconds)
    return seconds
