"""What gc and writers tell each other: one record, and the condition on it that every move of a ref carries. Layer: repository.

The protocol, and what goes wrong without it, is in ``docs/design/014-gc-beside-writers.md``. In short: objects are deleted only in
batches that check and change this record, so whoever moves a ref on the condition that the record is what he last saw knows that
nothing was deleted since. While gc is at work he also puts down in it where the ref goes, and gc keeps that.
"""

from __future__ import annotations

import random
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final

import msgpack

from versioned_state.errors import CorruptObjectError, StoreBusyError
from versioned_state.objects.address import ADDRESS_SIZE, Address
from versioned_state.objects.keys import GC
from versioned_state.objects.record import read_record, write_record
from versioned_state.objects.store import Staging
from versioned_state.storage import KVStore

MAX_PUBLISHED: Final = 4096
"""Heads that wait in the record for gc to take note of them. A gc at work takes them every few seconds; where so many wait it has died,
and the record, which every commit writes, must not grow for ever: the writer calls that gc off."""

_HEADS_KEPT: Final = 256
_ATTEMPTS: Final = 1000
_COURTESY_S: Final = 0.25
"""How long a writer waits where gc asks for it. No more: gc may have died after it asked."""


@dataclass(frozen=True, slots=True)
class GcRecord:
    """What the record says; without one, that gc never ran.

    Attributes:
        epoch: how often gc began or ended.
        owner: whose gc is at work, a random id; None: none is.
        beat: when the owner last wrote the record, in microseconds.
        sweeps: how many batches were ever deleted. Who sees the same number twice knows that nothing was deleted in between.
        expired: log entries older than this, in microseconds, keep nothing.
        hold: the owner asks writers to wait for a moment.
        published: where refs were moved since the owner last looked: commits and log entries.
        stored: the record's bytes, None where there is none.
    """

    epoch: int = 0
    owner: bytes | None = None
    beat: int = 0
    sweeps: int = 0
    expired: int = 0
    hold: bool = False
    published: tuple[Address, ...] = ()
    stored: bytes | None = field(default=None, compare=False)

    def but(self, **changes: object) -> GcRecord:
        """The record with these fields changed, and its bytes."""
        changed: GcRecord = replace(self, **changes)  # type: ignore[arg-type]
        return replace(changed, stored=_write(changed))

    def ended(self) -> GcRecord:
        """The record once the gc that is at work has ended, or was called off."""
        return self.but(epoch=self.epoch + 1, owner=None, hold=False, published=())


def _write(record: GcRecord) -> bytes:
    fields = [record.epoch, record.owner, record.beat, record.sweeps, record.expired, record.hold, b"".join(record.published)]
    body: bytes = msgpack.packb(fields)
    return write_record(GC, body)


def read_gc_record(stored: bytes | None) -> GcRecord:
    """The record in these bytes. Raises ``CorruptObjectError``."""
    if stored is None:
        return GcRecord()
    try:
        epoch, owner, beat, sweeps, expired, hold, joined = msgpack.unpackb(read_record(GC, stored))
        if not all(type(number) is int for number in (epoch, beat, sweeps, expired)) or type(hold) is not bool:
            raise ValueError("a field of another type")
        if not (owner is None or type(owner) is bytes) or type(joined) is not bytes or len(joined) % ADDRESS_SIZE:
            raise ValueError("a field of another type")
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise CorruptObjectError(GC, f"the record of gc is damaged: {error}") from error
    published = tuple(Address(joined[i : i + ADDRESS_SIZE]) for i in range(0, len(joined), ADDRESS_SIZE))
    return GcRecord(epoch, owner, beat, sweeps, expired, hold, published, stored)


class GcFence:
    """What one repository knows of gc, and the condition that its moves of refs carry. Safe for many threads.

    ``enabled`` is False over a store that takes one condition a batch: there gc refuses to run, and moves carry no condition on it.
    """

    def __init__(self, store: KVStore) -> None:
        self._store = store
        self._record: GcRecord | None = None
        self._damaged = False
        self._heads: OrderedDict[Address, int] = OrderedDict()
        self.enabled = store.max_expected is None or store.max_expected > 1

    def learn(self, stored: bytes | None) -> None:
        """Take the record's bytes as they were read just now. Damage is told when it matters: it must not keep anybody from reading."""
        self._record, self._damaged = None, False
        try:
            self._record = read_gc_record(stored)
        except CorruptObjectError:
            self._damaged = True

    def refresh(self) -> GcRecord:
        """Read the record. Raises ``CorruptObjectError``."""
        stored = self._store.get(GC)
        self.learn(stored)
        return read_gc_record(stored) if self._record is None else self._record

    @property
    def record(self) -> GcRecord:
        """The record as it was last seen. Cost: a read, the first time. Raises ``CorruptObjectError``."""
        record = self._record
        return self.refresh() if record is None else record

    @property
    def sweeps(self) -> int:
        """How many batches gc has deleted, as far as is known here: what is found from now on was there after all of them.

        -1 where the record is damaged, which equals no number of theirs.
        """
        if not self.enabled:
            return 0
        return -1 if self._damaged else self.record.sweeps

    def expired(self) -> int:
        """Up to when log entries have expired, in microseconds. Cost: a read."""
        if self.enabled:
            with suppress(CorruptObjectError):
                return self.refresh().expired
        return 0

    def saw(self, head: Address) -> None:
        """Take note of a commit that a ref points to, as was read just now."""
        if self.enabled:
            self._heads[head] = self.sweeps
            self._heads.move_to_end(head)
            if len(self._heads) > _HEADS_KEPT:
                self._heads.popitem(last=False)

    def knows(self, head: Address) -> bool:
        """Whether a ref has pointed to this commit and nothing was deleted since, as far as is known here."""
        return self._heads.get(head, -1) == self.sweeps >= 0

    def known_heads(self, limit: int) -> list[Address]:
        """Some commits of which that is so, those that were seen last first."""
        return list(islice(filter(self.knows, list(reversed(self._heads))), limit))

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
        secure: Callable[[], None] = lambda: None,
    ) -> int | None:
        """``KVStore.apply`` of a batch that makes something reachable, with gc in mind.

        In one round trip where gc is not at work; a failed condition costs one more, to tell whose it was.

        Args:
            staging: has the objects that the batch takes along.
            keep: the commits and log entries that the batch makes reachable.
            instead_of: what those lead to, so that gc need not be told of it.
            since: for which number of ``sweeps`` it is known that all that the batch relies on is there.
            secure: makes sure of that for any other number: sends what may be gone, or raises ``MissingObjectError``.

        Returns:
            The number of ``sweeps`` at which it was done; None where one of ``expected`` does not hold, and nothing was done.

        Raises:
            StoreBusyError: gc would not leave the record alone. Nothing was changed.
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
                # What was found before may have been deleted since. The number is taken before the search: nothing that is found, or
                # sent, from here on can be gone when the batch goes through.
                staging.resend()
                secure()
                since = record.sweeps
            after = record if record.owner is None else _published(record, keep, instead_of)
            told = {} if after is record else {GC: _bytes(after)}
            done = self._store.apply({**expected, GC: record.stored}, {**puts, **told}, deletes, objects=staging.sealed())
            staging.sent()
            if done:
                self._record = after
                return record.sweeps
            if self.refresh().stored == record.stored:
                return None
            if attempt > 1:
                _pause(attempt)
        raise StoreBusyError("gc is at work and changes its record all the time; nothing was changed", hint="try again")


def _published(record: GcRecord, keep: Iterable[Address], instead_of: Collection[Address]) -> GcRecord:
    kept = [address for address in record.published if address not in instead_of]
    kept += [address for address in keep if address not in kept]
    return record.but(published=tuple(kept)) if len(kept) <= MAX_PUBLISHED else record.ended()


def _bytes(record: GcRecord) -> bytes:
    assert record.stored is not None
    return record.stored


def _pause(attempt: int) -> float:
    seconds = random.uniform(0, min(0.02, 0.0005 * 2 ** min(attempt, 10)))  # noqa: S311 - spreading, not secrecy
    time.sleep(seconds)
    return seconds
