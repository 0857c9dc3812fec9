"""``S3``, a store in a bucket of S3, or of a server that speaks its protocol with conditional writes, through obstore.

Each key has an S3 object of its own, a cell (``cells``), which is only ever replaced by conditional PUT. A batch of one key is one
such PUT. A batch of several plants what it wants in each of their cells, and is then decided, for all of them at once, by the
creation of one small object, its decision. The note on S3 in docs/design says why, and what happens at each failure.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import suppress
from typing import Any, Final, TypeVar

from versioned_state.errors import (
    InvalidArgumentError,
    StateError,
    StorageError,
    StoreClosedError,
    UnknownOutcomeError,
    UnreachableStoreError,
    UnsafeStoreError,
)
from versioned_state.storage.backend import Backend, raise_closed
from versioned_state.storage.base import is_object
from versioned_state.storage.s3.cells import ABORTED, COMMITTED, Cells, Seen
from versioned_state.storage.s3.client import FORK_HINT, PAGE, Client
from versioned_state.storage.s3.format import ABSENT, PRESENT, Pending, key_in, kind_of, name_of, names_below, next_cell, write_cell

K = TypeVar("K")
T = TypeVar("T")

# Written by the first writer, to try out conditions on; read by every opener, to see that the bucket is there.
_PROBE: Final = "t/conditions!"
_PROBE_TEXT: Final = b"Writers try out here whether the server honours the conditions of writes.\n"


class S3(Backend):
    """The store under ``prefix`` in a bucket that exists.

    ``options`` are those of obstore's ``S3Store``: ``endpoint``, ``region``, ``access_key_id``, ``secret_access_key``, ``client_options``,
    ``credential_provider`` and so on; what is not given the driver takes from the environment (``AWS_…``) or from the machine's role.
    Opening costs one request, and the first write two: they try whether the server honours conditions. One that does not raises
    ``UnsafeStoreError``, before anything of ours is written.

    ``timeout``: seconds, about, for which a request is sent again after failures; one sending has a third of it. ``concurrency``: requests
    under way at a time, on threads of the store's own.

    Each key that is read or written is a request (5 to 50 ms on S3): ``get_many`` and the objects of a batch go in parallel. A batch
    on one mutable key is published by one request, after its objects; on n keys it takes 2n + 2, of which the n go in parallel.
    What is deleted leaves a cell of about 100 bytes, without a value. A fork is not survived by the driver: a child gets
    ``StorageError``.
    """

    max_expected = 1

    def __init__(self, bucket: str, prefix: str = "", *, timeout: float = 30.0, concurrency: int = 32, **options: Any) -> None:
        _check_place(bucket, prefix)
        if not timeout > 0:
            raise InvalidArgumentError(f"timeout must be positive: {timeout}")
        if not 1 <= concurrency <= 1024:
            raise InvalidArgumentError(f"concurrency must be 1 to 1024: {concurrency}")
        for name in ("bucket", "prefix", "retry_config", "config"):
            if name in options:
                raise InvalidArgumentError(f"S3 takes no option {name!r}")
        self._client = Client(bucket, prefix, timeout=timeout, options=dict(options))
        self._cells = Cells(self._client, timeout=timeout)
        self._threads = ThreadPoolExecutor(concurrency, thread_name_prefix="versioned-state-s3")
        self._conditions_hold = False
        self._pid = os.getpid()
        # A missing bucket, a wrong endpoint and credentials that may not read show here, and not as an empty store.
        self._client.get(_PROBE)

    def __repr__(self) -> str:
        return f"<S3 {self._client.place!r}>"

    # Reads

    def _get(self, key: str) -> bytes | None:
        self._check_usable()
        return self._cells.value(key)

    def _get_many(self, keys: tuple[str, ...]) -> dict[str, bytes]:
        self._check_usable()
        found = {key: value for key, value in self._together(self._pair, keys) if value is not None}
        mutable = [key for key in keys if not is_object(key)]
        missing = [key for key in mutable if key not in found]
        if missing and len(missing) < len(mutable):
            # A batch that creates several keys may have been decided between the read of one and that of another. Those that were
            # missing are asked again now that the others were seen, so that no such batch shows in part.
            found |= {key: value for key, value in self._together(self._pair, missing) if value is not None}
        return found

    def _keys(self, prefix: str) -> Iterator[str]:
        self._check_usable()
        return self._list(prefix)

    def _list(self, prefix: str) -> Iterator[str]:
        # Page by page, each a request of its own that starts after the last name: nothing is open between two steps.
        for start in names_below(prefix):
            folder, after = start[:2], start if len(start) > 2 else ""
            while True:
                self._check_usable()
                page = self._client.page(folder, after)
                ours = [listed for listed in page if listed.name.startswith(start)]
                for name, size in ours:
                    key = self._listed(name, size)
                    if key is not None and key.startswith(prefix):
                        yield key
                if len(ours) < PAGE:
                    break
                after = page[-1].name

    def _listed(self, name: str, size: int) -> str | None:
        """The key of a name in a listing, or None if it does not exist."""
        try:
            key = key_in(name)
        except ValueError:
            return None  # a file that somebody else put there
        if kind_of(size) == ABSENT:
            return None
        if key is None or kind_of(size) != PRESENT:
            seen = self._cells.read_name(name)
            if seen is None or self._cells.value_in(seen) is None:
                return None
            key = seen.cell.key
        return key

    def _pair(self, key: str) -> tuple[str, bytes | None]:
        return key, self._cells.value(key)

    # Writes

    def _apply(
        self, expected: Mapping[str, bytes | None], puts: Mapping[str, bytes], deletes: Collection[str], objects: Mapping[str, bytes]
    ) -> bool:
        self._check_usable()
        changes: dict[str, bytes | None] = {**puts, **dict.fromkeys(deletes)}
        if changes or objects:
            self._check_conditions()
        try:
            self._together(self._add_object, objects.items())
        except UnknownOutcomeError as error:
            # It is the puts and deletes that the caller asks about, and those were not sent.
            raise UnreachableStoreError(error.what, remains="no put and no delete of the batch was done") from error
        if not changes:
            return all(self._cells.value(key) == value for key, value in expected.items())
        if len({*expected, *changes}) > 1:
            return self._change_several(expected, changes)
        return all(self._change_one(key, expected, value) for key, value in changes.items())

    def _close(self) -> None:
        self._cells.clear()
        self._threads.shutdown(wait=False)

    def _check_conditions(self) -> None:
        """See for ourselves that the server refuses what a condition forbids: some accept such requests, and overwrite."""
        if self._conditions_hold:
            return
        try:
            # Where the first creates it, the second must be refused.
            refused = any(self._client.put(_PROBE, _PROBE_TEXT, etag=None).etag is None for _ in range(2))
            refused = refused and self._client.put(_PROBE, _PROBE_TEXT, etag=f'"{"0" * 32}"').etag is None
        except UnknownOutcomeError as error:
            raise UnreachableStoreError(error.what, remains="nothing else was written") from error
        if not refused:
            raise UnsafeStoreError(
                f"{self._client.place}: the server ignores the conditions of writes, so that writers would overwrite each other; "
                "nothing was written",
                hint="it must honour If-None-Match and If-Match of PUT, as Amazon S3 does",
            )
        self._conditions_hold = True

    def _add_object(self, item: tuple[str, bytes]) -> None:
        """Store an object if it is absent. One request, as nearly all objects are new; a second where there is something."""
        key, value = item
        cell = next_cell(key, None, value)
        for _ in self._cells.attempts():
            if self._client.put(name_of(key), write_cell(cell), etag=None).etag is not None:
                return
            seen, present = self._cells.settled(self._cells.read(key))
            # Nothing there: what refused it came to nothing, or was deleted.
            if present is not None or (seen is not None and self._cells.swap(seen, next_cell(key, seen.cell, value))):
                return

    def _change_one(self, key: str, expected: Mapping[str, bytes | None], wanted: bytes | None) -> bool:
        """Publish a batch of one key: one request where this store saw the key last."""
        for attempt in self._cells.attempts():
            seen, value = self._cells.before(key, expected, wanted, read=attempt > 0)
            if value != expected.get(key, value):
                return False
            if value is None and wanted is None:
                return True
            if self._cells.swap(seen, next_cell(key, seen.cell if seen else None, wanted)):
                return True
        return False

    # Batches of several keys

    def _change_several(self, expected: Mapping[str, bytes | None], changes: Mapping[str, bytes | None]) -> bool:
        """Plant what the batch wants in each cell, decide it, then make the cells plain again.

        One key goes first, the one on which there is a condition, or the least: of two batches on the same keys one waits there
        for the other, and where the condition does not hold nothing else was touched.
        """
        first, *others = sorted({*expected, *changes}, key=lambda key: (key not in expected, key))
        for _ in self._cells.attempts():
            batch = os.urandom(16)
            size = len(others) + 1
            planted: dict[str, Seen] = {}

            def plant(key: str, batch: bytes = batch, size: int = size, planted: dict[str, Seen] = planted) -> bool:
                wanted = changes[key] if key in changes else expected[key]
                seen = self._plant(key, expected, Pending(batch, wanted, size))
                if seen is not None:
                    planted[key] = seen
                return seen is not None

            try:
                if not plant(first):
                    return False
                self._together(plant, others)
                decision = self._cells.decide(batch, COMMITTED)
            except UnreachableStoreError:
                raise
            except StateError:
                # It is not decided, and will not be. The server answers, so others need not find that out by waiting.
                self._finish(batch, planted, ABORTED)
                raise
            self._finish(batch, planted, decision)
            if decision == COMMITTED:
                return True
        return False

    def _plant(self, key: str, expected: Mapping[str, bytes | None], pending: Pending) -> Seen | None:
        """Put what a batch wants into the cell of a key, beside its value. None: the expectation does not hold."""
        for attempt in self._cells.attempts():
            seen, value = self._cells.before(key, expected, pending.value, read=attempt > 0)
            if value != expected.get(key, value):
                return None
            try:
                planted = self._cells.swap(seen, next_cell(key, seen.cell if seen else None, value, pending))
            except UnknownOutcomeError as error:
                # Without a decision it never counts, even if it arrives yet.
                raise UnreachableStoreError(error.what, remains="no put and no delete of the batch was done") from error
            if planted is not None:
                return planted
        return None

    def _finish(self, batch: bytes, planted: Mapping[str, Seen], decision: bytes) -> None:
        """Make the cells of a decided batch plain, and remove its decision, which nothing names then.

        The batch is done, or will not be, whatever happens here: if this is cut off, cells and decision stay, and mean the same.
        """

        def settle(item: tuple[str, Seen]) -> None:
            key, seen = item
            pending = seen.cell.pending
            if pending is not None and pending.batch == batch:
                value = pending.value if decision == COMMITTED else seen.cell.value
                self._cells.swap(seen, next_cell(key, seen.cell, value))

        with suppress(StateError):
            self._together(settle, planted.items())
            self._cells.forget(batch)

    # Helpers

    def _together(self, work: Callable[[K], T], items: Collection[K]) -> list[T]:
        """The results of many, in parallel. After a failure no other is begun, and none is under way any more."""
        if len(items) < 2:
            return [work(item) for item in items]
        try:
            running = [self._threads.submit(work, item) for item in items]
        except RuntimeError as error:
            raise StoreClosedError("the store is closed") from error
        _, rest = wait(running, return_when=FIRST_EXCEPTION)
        for future in rest:
            future.cancel()
        wait(rest)
        failures = [failure for future in running if not future.cancelled() and (failure := future.exception()) is not None]
        if failures:
            raise failures[0]
        return [future.result() for future in running]

    def _check_usable(self) -> None:
        if self._closed:
            raise_closed()
        if os.getpid() != self._pid:
            raise StorageError(
                f"{self._client.place} was opened before this process was forked, which its driver does not survive",
                hint=FORK_HINT,
            )


def _check_place(bucket: str, prefix: str) -> None:
    if type(bucket) is not str or not bucket or not all(char.isalnum() or char in "-._" for char in bucket):
        # Not shown: in a malformed URL a password stands in its place.
        raise InvalidArgumentError("bad name for a bucket", hint="letters, digits and - . _")
    parts = prefix.split("/") if type(prefix) is str and prefix else []
    plain = type(prefix) is str and prefix.isascii() and all(char.isalnum() or char in "-._=/" for char in prefix)
    if not plain or len(prefix) > 300 or any(part in ("", ".", "..") for part in parts):
        raise InvalidArgumentError(
            f"bad prefix: {prefix!r}", hint="folders of letters, digits and - . _ =, with / between them and at neither end; 300 characters"
        )
