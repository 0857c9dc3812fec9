"""``Cells``: reading and replacing one cell of an ``S3`` store at a time, and deciding the batch that is pending in it.

Layer: storage.

Every write is conditional. ``client`` below sends a request again if its answer was lost; if such a write is refused,
this module finds out whether an earlier sending of it or another writer changed the cell.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from threading import Lock
from typing import Final

from versioned_state.errors import (
    CorruptStoreError,
    StateError,
    StoreBusyError,
    UnknownOutcomeError,
    UnreachableStoreError,
)
from versioned_state.storage.base import is_object
from versioned_state.storage.s3.client import Client, pause
from versioned_state.storage.s3.format import Cell, name_of, read_cell, write_cell

COMMITTED: Final = b"committed"
ABORTED: Final = b"aborted"

# How long a writer waits for a pending batch before it aborts that batch, as a fraction of the timeout: 2 s of 30. A
# live writer decides its batch within that time; if the writer died, 2 s is only a pause. Large batches are given
# longer.
_PATIENCE: Final = 1 / 15
_PATIENCE_PER_KEY_S: Final = 0.005

# Cells of mutable keys that are remembered: a write to a key whose latest cell is remembered needs no read before it.
_SEEN: Final = 4096
_SEEN_BYTES: Final = 4096


@dataclass(frozen=True, slots=True)
class Seen:
    """A stored cell, and the ETag that a write must name to replace it."""

    etag: str
    cell: Cell


class Cells:
    """Cells by key. Safe for threads.

    A method that replaces a cell raises ``UnknownOutcomeError`` if it is not known whether the cell was replaced, and
    any other error only if it was not.
    """

    def __init__(self, client: Client, *, timeout: float) -> None:
        self._client = client
        self._timeout = timeout
        self._lock = Lock()
        self._seen: OrderedDict[str, Seen] = OrderedDict()

    # Reading

    def read(self, key: str) -> Seen | None:
        """Return the current cell of a key, or None if there is none."""
        seen = self.read_name(name_of(key))
        if seen is not None and seen.cell.key != key:
            raise CorruptStoreError(f"{self._client.place}: the cell of {key!r} holds the key {seen.cell.key!r}")
        if not is_object(key):
            self._remember(key, seen)
        return seen

    def read_name(self, name: str) -> Seen | None:
        """Return the cell stored under a name, whatever its key."""
        found = self._client.get(name)
        if found is None:
            return None
        try:
            return Seen(found.etag, read_cell(found.body))
        except ValueError as error:
            what = f"{self._client.place}: {name} is damaged: {error}"
            raise CorruptStoreError(what, hint="restore it from a backup or another copy") from error

    def value(self, key: str) -> bytes | None:
        """Return the current value of a key, or None."""
        return self.value_in(self.read(key))

    def value_in(self, seen: Seen | None) -> bytes | None:
        """Return the value in a cell that was read: the pending value if its batch was committed, else the cell's own.

        Never writes.
        """
        while seen is not None:
            pending = seen.cell.pending
            if pending is None:
                return seen.cell.value
            if self._decision(pending.batch) == COMMITTED:
                return pending.value
            # Either the batch was not committed until now, or it was finished and its decision removed. (Then a late
            # writer may even have aborted the finished batch, without effect.) If it was finished, the cell has
            # changed.
            again = self.read(seen.cell.key)
            if again is not None and again.etag == seen.etag:
                return seen.cell.value
            seen = again
        return None

    # Replacing

    def base_for(
        self, key: str, expected: Mapping[str, bytes | None], wanted: bytes | None, *, read: bool
    ) -> tuple[Seen | None, bytes | None]:
        """Return the cell that a write of ``wanted`` would replace, and its value.

        Without ``read`` it may be the cell last seen, or None for a key that was never seen, if that allows the write;
        the conditional write fails if it is stale. The answers "nothing to do" and "the expectation does not hold"
        always come from a read.
        """
        if not read:
            with self._lock:
                last = self._seen.get(key)
            seen, value = self.decided(last)
            if value == expected.get(key, value) and not (value is None and wanted is None):
                return seen, value
        return self.decided(self.read(key))

    def decided(self, seen: Seen | None) -> tuple[Seen | None, bytes | None]:
        """Return a cell that is about to be replaced, and its value, once the batch pending in it is decided.

        Waits for a batch that is under way. A batch that takes too long, because its writer died or is stuck, is
        aborted.
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
                    # Only the outcome of the other batch is unknown; this call has written nothing.
                    raise UnreachableStoreError(error.what, remains="nothing of this call was written") from error
            else:
                pause(min(attempt, 3))
            # Since the cell was read, the batch may have been finished and its decision removed.
            again = self.read(seen.cell.key)
            if decision == ABORTED and again is not None and again.etag == seen.etag:
                return seen, seen.cell.value
            seen = again
        return seen, None if seen is None else seen.cell.value

    def swap(self, base: Seen | None, cell: Cell) -> Seen | None:
        """Replace a cell if it is still ``base``, which is None for no cell.

        Returns the new cell, or None if the cell was not ``base``. A refused write may have been done by an earlier
        sending whose answer was lost, and another write may have followed it. The history of writes in the cell shows
        it.
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
                    continue  # refused because of a write that failed in the end
                if lost and not _proves_not_done(found, base):
                    raise UnknownOutcomeError(
                        f"{self._client.place}: too many others have written to {key!r} "
                        "to tell whether a write was done"
                    )
                return None
        except UnknownOutcomeError:
            raise
        except StateError as error:
            if lost:
                raise UnknownOutcomeError(
                    error.what, remains="it is not known whether an earlier sending was done"
                ) from error
            raise
        raise AssertionError("unreachable: attempts end with an error")

    # Decisions

    def decide(self, batch: bytes, wanted: bytes) -> bytes:
        """Decide a batch once and for all, and return the decision, which another writer may have made first.

        Only the batch's own writer commits it. So if that writer finds ``COMMITTED`` after a lost answer, the decision
        is its own.
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
                raise UnknownOutcomeError(
                    error.what, remains="it is not known whether the batch was decided"
                ) from error
            raise
        raise AssertionError("unreachable: attempts end with an error")

    def forget(self, batch: bytes) -> None:
        """Remove the decision of a batch that is pending in no cell any more."""
        self._client.remove(_decision_name(batch))

    def _decision(self, batch: bytes) -> bytes | None:
        """Return the decision of a batch, or None while the batch is open, and after it was finished."""
        name = _decision_name(batch)
        found = self._client.get(name)
        if found is not None and found.body not in (COMMITTED, ABORTED):
            raise CorruptStoreError(
                f"{self._client.place}: {name} is damaged", hint="restore it from a backup or another copy"
            )
        return None if found is None else found.body

    # Helpers

    def attempts(self) -> Iterator[int]:
        """Yield 0, 1, 2 … until the timeout, then raise ``StoreBusyError``.

        Pauses before each attempt after the second.

        There are two at least: the first may have failed because nothing was known of the cell, however long it took.
        """
        start = time.monotonic()
        for attempt in count():
            yield attempt
            if attempt and time.monotonic() - start > self._timeout:
                raise StoreBusyError(f"{self._client.place}: other writers came first for {self._timeout:g} s")
            if attempt:
                pause(attempt)

    def clear(self) -> None:
        """Forget the remembered cells."""
        with self._lock:
            self._seen.clear()

    def _remember(self, key: str, seen: Seen | None) -> None:
        with self._lock:
            self._seen.pop(key, None)
            if seen is not None and seen.cell.pending is None and len(seen.cell.value or b"") <= _SEEN_BYTES:
                self._seen[key] = seen
                if len(self._seen) > _SEEN:
                    self._seen.popitem(last=False)


def _proves_not_done(found: Seen | None, base: Seen | None) -> bool:
    """Return whether ``found``, which does not remember a write over ``base``, proves that the write was not done."""
    return found is not None and (
        found.cell.remembers_all or (base is not None and found.cell.remembers(base.cell.write))
    )


def _decision_name(batch: bytes) -> str:
    return f"t/{batch.hex()}!"
