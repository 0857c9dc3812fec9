"""``S3``, a store in a bucket of S3, or of another server with its protocol and conditional writes, through obstore.

Layer: storage.

Each key has an S3 object of its own, its cell (``cells``), which is replaced by conditional PUT only. A batch of one
key is one such PUT. A batch of several keys first plants a pending value in each cell; then the creation of one small
object, the decision, commits all of them at once. docs/design/010-s3.md has the reasons and the failures.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import suppress
from typing import Any, Final, TypeVar

from versioned_state.arguments import seconds
from versioned_state.errors import (
    InvalidArgumentError,
    StateError,
    StorageError,
    StoreClosedError,
    UnknownOutcomeError,
    UnreachableStoreError,
    UnsafeStoreError,
)
from versioned_state.storage.backend import Backend
from versioned_state.storage.base import is_object
from versioned_state.storage.s3.cells import ABORTED, COMMITTED, Cells, Seen
from versioned_state.storage.s3.client import FORK_HINT, PAGE, Client
from versioned_state.storage.s3.format import (
    ABSENT,
    PRESENT,
    Pending,
    key_in,
    kind_of,
    name_of,
    names_below,
    next_cell,
    write_cell,
)

K = TypeVar("K")
T = TypeVar("T")

# A writer tries out conditional writes on it. Every opener reads it, to see that the bucket is there.
_PROBE: Final = "t/conditions!"
_PROBE_TEXT: Final = b"Writers test here whether the server honours conditional writes.\n"


class S3(Backend):
    """The store under ``prefix`` in a bucket that exists.

    ``options`` are those of obstore's ``S3Store``: ``endpoint``, ``region``, ``access_key_id``, ``secret_access_key``,
    ``client_options``, ``credential_provider`` and so on. The driver takes missing ones from the environment
    (``AWS_…``) or from the machine's role. Opening costs one request. The first write costs two more, which test
    whether the server honours conditional writes; if it does not, ``UnsafeStoreError`` is raised before anything is
    stored.

    ``timeout``: for about how many seconds a failed request is retried; one sending has a third of that.
    ``concurrency``: how many requests run at once, on the store's own threads.

    Each key that is read or written is one request (5 to 50 ms on S3). ``get_many``, and the objects of a batch, run in
    parallel. A batch with one mutable key is published by one request, after its objects. A batch with n mutable keys
    takes 2n + 2 requests, most of them in parallel. A deleted key leaves a cell of about 100 bytes. The driver does not
    work after a fork: in a forked child every call raises ``StorageError``.
    """

    max_expected: int | None = 1

    def __init__(
        self, bucket: str, prefix: str = "", *, timeout: float = 30.0, concurrency: int = 32, **options: Any
    ) -> None:
        _check_place(bucket, prefix)
        seconds("timeout", timeout, above=True, endless=True)
        if not 1 <= concurrency <= 1024:
            raise InvalidArgumentError(f"concurrency must be 1 to 1024: {concurrency}")
        for name in ("bucket", "prefix", "retry_config", "config"):
            if name in options:
                raise InvalidArgumentError(f"S3 has no option {name!r}")
        self._client = Client(bucket, prefix, timeout=timeout, options=dict(options))
        self._cells = Cells(self._client, timeout=timeout)
        self._threads = ThreadPoolExecutor(concurrency, thread_name_prefix="versioned-state-s3")
        self._conditions_hold = False
        self._pid = os.getpid()
        # A missing bucket, a wrong endpoint or insufficient credentials fail here, instead of looking like an empty
        # store.
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
            # A batch that creates several keys may have been committed between two of these reads. Reading the missing
            # keys again, after the others were found, keeps such a batch from showing in part.
            found |= {key: value for key, value in self._together(self._pair, missing) if value is not None}
        return found

    def _keys(self, prefix: str) -> Iterator[str]:
        self._check_usable()
        return self._list(prefix)

    def _list(self, prefix: str) -> Iterator[str]:
        # Page by page, each a request of its own that starts after the last name: nothing stays open between two pages.
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
        """Return the key of a name in a listing, or None if it does not exist."""
        try:
            key = key_in(name)
        except ValueError:
            return None  # not a cell of this store
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
        self,
        expected: Mapping[str, bytes | None],
        puts: Mapping[str, bytes],
        deletes: Collection[str],
        objects: Mapping[str, bytes],
    ) -> bool:
        self._check_usable()
        changes: dict[str, bytes | None] = {**puts, **dict.fromkeys(deletes)}
        if changes or objects:
            self._check_conditions()
        try:
            self._together(self._add_object, objects.items())
        except UnknownOutcomeError as error:
            # The outcome that matters to the caller is that of the puts and deletes, and those were not sent.
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
        """Test that the server honours conditional writes. Some servers accept the conditions and ignore them."""
        if self._conditions_hold:
            return
        try:
            # If the first creates the probe, the second must be refused.
            refused = any(self._client.put(_PROBE, _PROBE_TEXT, etag=None).etag is None for _ in range(2))
            refused = refused and self._client.put(_PROBE, _PROBE_TEXT, etag=f'"{"0" * 32}"').etag is None
        except UnknownOutcomeError as error:
            raise UnreachableStoreError(error.what, remains="nothing else was written") from error
        if not refused:
            raise UnsafeStoreError(
                f"{self._client.place}: the server ignores the conditions of writes, "
                "so writers would overwrite each other",
                hint="use a server that honours If-None-Match and If-Match of PUT, as Amazon S3 does",
            )
        self._conditions_hold = True

    def _add_object(self, item: tuple[str, bytes]) -> None:
        """Store an object if it is absent.

        This takes one request, as nearly all objects are new, and a second one if there is a cell.
        """
        key, value = item
        cell = next_cell(key, None, value)
        for _ in self._cells.attempts():
            if self._client.put(name_of(key), write_cell(cell), etag=None).etag is not None:
                return
            seen, present = self._cells.decided(self._cells.read(key))
            # No cell: the write that refused this one failed in the end. Try again.
            if present is not None or (seen is not None and self._cells.swap(seen, next_cell(key, seen.cell, value))):
                return

    def _change_one(self, key: str, expected: Mapping[str, bytes | None], wanted: bytes | None) -> bool:
        """Publish a batch of one key: one request if this store remembers the key's latest cell."""
        for attempt in self._cells.attempts():
            seen, value = self._cells.base_for(key, expected, wanted, read=attempt > 0)
            if value != expected.get(key, value):
                return False
            if value is None and wanted is None:
                return True
            if self._cells.swap(seen, next_cell(key, seen.cell if seen else None, wanted)):
                return True
        return False

    # Batches of several keys

    def _change_several(self, expected: Mapping[str, bytes | None], changes: Mapping[str, bytes | None]) -> bool:
        """Plant the pending values of the batch in their cells, decide the batch, then make the cells plain again.

        The key with a condition goes first, or else the least key. So of two batches on the same keys one waits for the
        other at their first key, and if the condition does not hold no other cell was touched.
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
                # The batch will not be committed. The server answers, so abort it now: others need not wait for it.
                self._finish(batch, planted, ABORTED)
                raise
            self._finish(batch, planted, decision)
            if decision == COMMITTED:
                return True
        return False

    def _plant(self, key: str, expected: Mapping[str, bytes | None], pending: Pending) -> Seen | None:
        """Put the pending value of a batch into the cell of a key, beside its value.

        None if the expectation does not hold.
        """
        for attempt in self._cells.attempts():
            seen, value = self._cells.base_for(key, expected, pending.value, read=attempt > 0)
            if value != expected.get(key, value):
                return None
            try:
                planted = self._cells.swap(seen, next_cell(key, seen.cell if seen else None, value, pending))
            except UnknownOutcomeError as error:
                # Without a decision the pending value never counts, even if the write arrives later.
                raise UnreachableStoreError(error.what, remains="no put and no delete of the batch was done") from error
            if planted is not None:
                return planted
        return None

    def _finish(self, batch: bytes, planted: Mapping[str, Seen], decision: bytes) -> None:
        """Make the cells of a decided batch plain, then remove its decision.

        The outcome of the batch is fixed by now. If this is interrupted, the cells and the decision stay and mean the
        same.
        """

        def finish(item: tuple[str, Seen]) -> None:
            key, seen = item
            pending = seen.cell.pending
            if pending is not None and pending.batch == batch:
                value = pending.value if decision == COMMITTED else seen.cell.value
                self._cells.swap(seen, next_cell(key, seen.cell, value))

        with suppress(StateError):
            self._together(finish, planted.items())
            self._cells.forget(batch)

    # Helpers

    def _together(self, work: Callable[[K], T], items: Collection[K]) -> list[T]:
        """Call ``work`` for each item in parallel, and return the results in order.

        When it raises, no call is running any more.
        """
        if len(items) < 2:
            return [work(item) for item in items]
        try:
            running = [self._threads.submit(work, item) for item in items]
        except RuntimeError as error:
            raise StoreClosedError from error
        _, rest = wait(running, return_when=FIRST_EXCEPTION)
        for future in rest:
            future.cancel()
        wait(rest)
        failures = [
            failure for future in running if not future.cancelled() and (failure := future.exception()) is not None
        ]
        if failures:
            raise failures[0]
        return [future.result() for future in running]

    def _check_usable(self) -> None:
        self._check_open()
        if os.getpid() != self._pid:
            raise StorageError(
                f"{self._client.place} was opened before this process was forked, "
                "and the S3 driver does not work in a forked process",
                hint=FORK_HINT,
            )


def _check_place(bucket: str, prefix: str) -> None:
    if type(bucket) is not str or not bucket or not all(char.isalnum() or char in "-._" for char in bucket):
        # Not shown: in a malformed URL a password may stand in its place.
        raise InvalidArgumentError("bad name for a bucket", hint="letters, digits and - . _")
    parts = prefix.split("/") if type(prefix) is str and prefix else []
    plain = type(prefix) is str and prefix.isascii() and all(char.isalnum() or char in "-._=/" for char in prefix)
    if not plain or len(prefix) > 300 or any(part in ("", ".", "..") for part in parts):
        raise InvalidArgumentError(
            f"bad prefix: {prefix!r}",
            hint="folders of letters, digits and - . _ =, with / between them and at neither end; 300 characters",
        )
