"""The cells of an ``S3`` store, one at a time: reading, replacing, and what the batches in them came to.

Every write here is conditional, so that it is known who wrote what lies there. Above ``client``, which sends requests again whose
answer was lost; here that is told from a write of another.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from threading import Lock
from typing import Final

from versioned_state.errors import CorruptStoreError, StateError, StoreBusyError, UnknownOutcomeError, UnreachableStoreError
from versioned_state.storage.base import is_object
from versioned_state.storage.s3.client import Client, pause
from versioned_state.storage.s3.format import Cell, name_of, read_cell, write_cell

COMMITTED: Final = b"committed"
ABORTED: Final = b"aborted"

# How long a writer waits for a batch that is in its way before it decides against it, as a part of the timeout: 2 s of 30, time for a
# live one to be decided, and no more than a pause where its writer died. Large batches take longer.
_PATIENCE: Final = 1 / 15
_PATIENCE_PER_KEY_S: Final = 0.005

# Cells of mutable keys remembered, so that a write to one that this store saw last needs no read before it.
_SEEN: Final = 4096
_SEEN_BYTES: Final = 4096


@dataclass(frozen=True, slots=True)
class Seen:
    """A cell as it was stored, and the ETag that a write must name to replace it."""

    etag: str
    cell: Cell


class Cells:
    """Cells by key. Safe for threads.

    A method that replaces something raises ``UnknownOutcomeError`` where nobody can tell whether it did, and any other error only
    where it did not.
    """

    def __init__(self, client: Client, *, timeout: float) -> None:
        self._client = client
        self._timeout = timeout
        self._lock = Lock()
        self._seen: OrderedDict[str, Seen] = OrderedDict()

    # Reading

    def read(self, key: str) -> Seen | None:
        """The cell of a key, as it is now; None if nothing lies there."""
        seen = self.read_name(name_of(key))
        if seen is not None and seen.cell.key != key:
            raise CorruptStoreError(f"{self._client.place}: in the place of {key!r} lies {seen.cell.key!r}")
        if not is_object(key):
            self._remember(key, seen)
        return seen

    def read_name(self, name: str) -> Seen | None:
        """The cell under a name of the bucket, whatever its key."""
        found = self._client.get(name)
        if found is None:
            return None
        try:
            return Seen(found.etag, read_cell(found.body))
        except ValueError as error:
            what = f"{self._client.place}: {name} is damaged: {error}"
            raise CorruptStoreError(what, hint="restore it from a backup or another copy") from error

    def value(self, key: str) -> bytes | None:
        """The value of a key now, or None."""
        return self.value_in(self.read(key))

    def value_in(self, seen: Seen | None) -> bytes | None:
        """The value in a cell that was read; what a batch in it wants counts once that is decided. Never writes."""
        while seen is not None:
            pending = seen.cell.pending
            if pending is None:
                return seen.cell.value
            if self._decision(pending.batch) == COMMITTED:
                return pending.value
            # Either there was no such decision until now, or all is done and it was removed (and another, who was late, decided
            # against what is done). The cell tells.
            again = self.read(seen.cell.key)
            if again is not None and again.etag == seen.etag:
                return seen.cell.value
            seen = again
        return None

    # Replacing

    def before(
        self, key: str, expected: Mapping[str, bytes | None], wanted: bytes | None, *, read: bool
    ) -> tuple[Seen | None, bytes | None]:
        """The cell that a write of ``wanted`` is to replace, and its value.

        If not asked to read: as it was last seen, or none for a key that never was, if such a write could then go on. The write
        itself finds out where that is stale. That there is nothing to do, or that it may not be done, is never said without a read.
        """
        if not read:
            with self._lock:
                last = self._seen.get(key)
            seen, value = self.settled(last)
            if value == expected.get(key, value) and not (value is None and wanted is None):
                return seen, value
        return self.settled(self.read(key))

    def settled(self, seen: Seen | None) -> tuple[Seen | None, bytes | None]:
        """A cell and its value for somebody who is about to replace it: if a batch is in it, that is decided by then.

        A batch that is under way is waited for. One that takes too long, because its writer died or is stuck, is decided against.
        """
        start = time.monotonic()
        batch = b""
        for attempt in count():
            if seen is None or seen.cell.pending is None:
                break
            pending = seen.cell.pending
            if pending.batch != batch:
                batch, start = pending.batch, time.monotonic()
            decision = self._decision(batch)
            if decision == COMMITTED:
                return seen, pending.value
            if decision == ABORTED:
                pass
            elif time.monotonic() - start > self._timeout * _PATIENCE + _PATIENCE_PER_KEY_S * pending.size:
                try:
                    self.decide(batch, ABORTED)
                except UnknownOutcomeError as error:
                    # Unknown is the other batch; of ours nothing was written.
                    raise UnreachableStoreError(error.what, remains="nothing of this call was written") from error
            else:
                pause(min(attempt, 3))
            # The batch may have been done, and its decision removed, since the cell was read.
            again = self.read(seen.cell.key)
            if decision == ABORTED and again is not None and again.etag == seen.etag:
                return seen, seen.cell.value
            seen = again
        return seen, None if seen is None else seen.cell.value

    def swap(self, base: Seen | None, cell: Cell) -> Seen | None:
        """Replace a cell if it is still ``base`` (None: nothing lies there): the cell then, or None if it was not.

        Where a write is refused, whose write lies there tells: a refused one may have been done before, its answer lost, and
        another's may lie on top of it already.
        """
        key = cell.key
        lost = False
        try:
            for _ in self.attempts():
                put = self._client.put(name_of(key), write_cell(cell), etag=None if base is None else base.etag)
                lost = lost or put.lost
                if put.etag is not None:
                    seen = Seen(put.etag, cell)
                    if not is_object(key):
                        self._remember(key, seen)
                    return seen
                found = self.read(key)
                if found is not None and found.cell.remembers(cell.write):
                    return found
                if (found and found.etag) == (base and base.etag):
                    continue  # refused for a write that came to nothing
                if lost and not _tells(found, base):
                    raise UnknownOutcomeError(
                        f"{self._client.place}: so many wrote to {key!r} since that it cannot be told whether a write was done"
                    )
                return None
        except UnknownOutcomeError:
            raise
        except StateError as error:
            if lost:
                raise UnknownOutcomeError(error.what, remains="whether an earlier sending was done is not known") from error
            raise
        raise AssertionError("unreachable: attempts end with an error")

    # Decisions

    def decide(self, batch: bytes, wanted: bytes) -> bytes:
        """Decide a batch, once and for all; what it was decided, by us or by who came first.

        Only its own writer decides for it, so one that finds that word after a lost answer reads its own.
        """
        lost = False
        try:
            for _ in self.attempts():
                put = self._client.put(_decision_name(batch), wanted, etag=None)
                lost = lost or put.lost
                if put.etag is not None:
                    return wanted
                decision = self._decision(batch)
                if decision is not None:
                    return decision
        except UnknownOutcomeError:
            raise
        except StateError as error:
            if lost:
                raise UnknownOutcomeError(error.what, remains="whether a batch was decided is not known") from error
            raise
        raise AssertionError("unreachable: attempts end with an error")

    def forget(self, batch: bytes) -> None:
        """Remove the decision of a batch that is in no cell any more."""
        self._client.remove(_decision_name(batch))

    def _decision(self, batch: bytes) -> bytes | None:
        """What a batch was decided; None while it is open, and after all its cells are plain again."""
        name = _decision_name(batch)
        found = self._client.get(name)
        if found is not None and found.body not in (COMMITTED, ABORTED):
            raise CorruptStoreError(f"{self._client.place}: {name} is damaged", hint="restore it from a backup or another copy")
        return None if found is None else found.body

    # Helpers

    def attempts(self) -> Iterator[int]:
        """0, 1, 2 … until the timeout, then ``StoreBusyError``; from the second on with a pause before the next."""
        start = time.monotonic()
        for attempt in count():
            yield attempt
            if time.monotonic() - start > self._timeout:
                raise StoreBusyError(
                    f"{self._client.place}: other writers were faster for {self._timeout:g} s", remains="nothing was written"
                )
            if attempt:
                pause(attempt)

    def clear(self) -> None:
        """Forget what was seen."""
        with self._lock:
            self._seen.clear()

    def _remember(self, key: str, seen: Seen | None) -> None:
        with self._lock:
            self._seen.pop(key, None)
            if seen is not None and seen.cell.pending is None and len(seen.cell.value or b"") <= _SEEN_BYTES:
                self._seen[key] = seen
                if len(self._seen) > _SEEN:
                    self._seen.popitem(last=False)


def _tells(found: Seen | None, base: Seen | None) -> bool:
    """Whether a write that was to replace ``base`` and is not among those of ``found`` was surely not done."""
    return found is not None and (found.cell.remembers_all or (base is not None and found.cell.remembers(base.cell.write)))


def _decision_name(batch: bytes) -> str:
    return f"t/{batch.hex()}!"
