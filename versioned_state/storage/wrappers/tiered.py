"""``Tiered``, one store made of several, from a fast one to a lasting one. Layer: storage.

::

    reads      hot ── miss ──> warm ── miss ──> cold           what is found goes to the hotter tiers
    writes     objects: hot, warm, cold        everything else: cold alone
    deletes    hot, warm, cold, and hot and warm once more

The coldest tier is the store: it holds everything, and it alone holds refs and markers, carries conditions and lists
keys. The others hold copies of objects, which are never stale. They may lose any of them at any time, and fail, but in
a deletion.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

from versioned_state.errors import InvalidArgumentError, StorageError, StorageFullError
from versioned_state.storage.backend import check_batch, check_key, check_keys, raise_closed
from versioned_state.storage.base import KVStore, is_object
from versioned_state.storage.kept import drop_kept
from versioned_state.storage.wrapper import Wrapper

_REST_S: Final = (1.0, 30.0)
"""Seconds that a tier is left alone after a failure: the first time, and at most.

A server that is down costs a timeout at each call.
"""


class Tier:
    """One tier above the coldest.

    Attributes:
        store: holds the copies.
        hits: the objects that were found here.
        failures: the calls that failed.
        error: the last failure, while the tier is left alone because of it, or None while the tier is in use.
    """

    def __init__(self, store: KVStore) -> None:
        self.store = store
        self.hits: int = 0
        self.failures: int = 0
        self.error: StorageError | None = None
        self._rest = 0.0
        self._until = 0.0
        self._owed: set[str] = set()  # objects to delete before the tier is used again

    def __repr__(self) -> str:
        return f"<Tier {self.store!r}{'' if self.error is None else ', which fails'}: {self.hits} hits>"

    def find(self, keys: list[str]) -> dict[str, bytes]:
        """Return the copies of objects, as far as there are any."""
        if not keys or not self._is_in_use():
            return {}
        try:
            self._settle()
            found = self.store.get_many(keys)
        except StorageError as error:
            self._rests(error)
            return {}
        self._works()
        self.hits += len(found)
        return found

    def keep(self, objects: Mapping[str, bytes]) -> None:
        """Take copies of objects, if that is possible."""
        if not objects or not self._is_in_use():
            return
        try:
            self._settle()
            self.store.apply({}, {}, objects=objects)
        except StorageFullError as error:  # it goes on with the copies that it has
            self.failures += 1
            self.error = error
        except StorageError as error:
            self._rests(error)
        else:
            self._works()

    def delete(self, keys: Collection[str]) -> None:
        """Delete copies. Raises ``StorageError``."""
        self._settle()
        self.store.delete_many(keys)

    def delete_later(self, keys: Collection[str]) -> None:
        """Delete copies now, or before the tier is used again."""
        self._owed.update(keys)
        if self._is_in_use():
            try:
                self._settle()
            except StorageError as error:
                self._rests(error)

    def _settle(self) -> None:
        while self._owed:
            owed = self._owed.copy()
            self.store.delete_many(owed)
            self._owed.difference_update(owed)

    def _is_in_use(self) -> bool:
        return not self._until or time.monotonic() >= self._until

    def _works(self) -> None:
        if self._until or self.error is not None:
            self._rest = self._until = 0.0
            self.error = None

    def _rests(self, error: StorageError) -> None:
        self.failures += 1
        self.error = error
        least, most = _REST_S
        self._rest = min(max(2 * self._rest, least), most)
        self._until = time.monotonic() + self._rest


class Tiered(KVStore):
    """A store over two stores or more, the hottest first: ``Tiered(Memory(), Redis(url), Postgres(url))``.

    An object is read from the hottest tier that has it, and copied to the hotter ones. A write goes to every tier, and
    is done once the coldest has it: a commit is as durable as the coldest tier makes it. A tier above that fails is
    left alone for up to 30 seconds, and reads and writes go on without it; ``tiers`` shows which and why. A deletion of
    objects, by ``gc`` or ``purge``, fails instead, and deletes nothing: no copy may remain. A copy is verified when it
    is used, like any object.

    ``in``, ``sizes`` and ``keys`` read the coldest tier. Tiers above may be shared by several stores, and lost or
    emptied at any time; one without a bound of its own, such as ``Memory``, grows with what is read. Closing it closes
    all tiers.

    Args:
        stores: two or more, the coldest last.

    Raises:
        InvalidArgumentError: there are fewer than two stores, or one is not a ``KVStore``.

    Attributes:
        tiers: those above the coldest, each with its hits and failures.
        cold: the coldest store.
        cold_reads: the objects that were found in the coldest tier alone.
    """

    cold: KVStore

    def __init__(self, *stores: KVStore) -> None:
        if len(stores) < 2 or not all(isinstance(store, KVStore) for store in stores):
            raise InvalidArgumentError(
                "Tiered takes two stores or more, the hottest first", hint="Tiered(Memory(), Disk('./agent-state'))"
            )
        *hotter, self.cold = stores
        self.tiers: Final = tuple(map(Tier, hotter))
        self.cold_reads: int = 0
        self.private: bool = all(store.private for store in stores)
        self.max_expected: int | None = self.cold.max_expected
        self._closed = False

    def __repr__(self) -> str:
        return f"<Tiered {', '.join(repr(store) for store in self.stores)}>"

    @property
    def stores(self) -> list[KVStore]:
        """The stores, the hottest first."""
        return [*(tier.store for tier in self.tiers), self.cold]

    def get(self, key: str) -> bytes | None:
        if not is_object(key):
            return self._open().get(key)
        return self.get_many((key,)).get(key)

    def get_many(self, keys: Iterable[str]) -> dict[str, bytes]:
        wanted = check_keys(keys)
        cold = self._open()
        objects = [key for key in wanted if is_object(key)]
        found: dict[str, bytes] = {}
        passed: list[tuple[Tier, list[str]]] = []
        for tier in self.tiers:
            here = tier.find(objects)
            found.update(here)
            objects = [key for key in objects if key not in here]
            if objects:
                passed.append((tier, objects))
        rest = [key for key in wanted if key not in found]
        if rest or not wanted:
            fetched = cold.get_many(rest)
            self.cold_reads += sum(map(is_object, fetched))
            found.update(fetched)
        self._promote(passed, found)
        return found

    def _promote(self, passed: list[tuple[Tier, list[str]]], found: Mapping[str, bytes]) -> None:
        """Copy objects to the tiers that did not have them."""
        copied: set[str] = set()
        for tier, missed in passed:
            copies = {key: found[key] for key in missed if key in found}
            tier.keep(copies)
            copied.update(copies)
        if not copied:
            return
        # A deletion may have come between the read and the copy. A deletion deletes the copies once more after the
        # original, so either it deletes these, or the originals are gone by now.
        try:
            sizes = self.cold.sizes(copied)
            kept: Collection[str] = self.cold.get_many(copied) if sizes is None else sizes
        except StorageError:  # the read is done, and needs no copies
            kept = ()
        gone = copied.difference(kept)
        if gone:
            self._forget(gone)

    def apply(
        self,
        expected: Mapping[str, bytes | None],
        puts: Mapping[str, bytes],
        deletes: Collection[str] = (),
        *,
        objects: Mapping[str, bytes] | None = None,
    ) -> bool:
        added: Mapping[str, bytes] = objects or {}
        check_batch(expected, puts, deletes, added, self.max_expected)
        cold = self._open()
        leaving = [key for key in deletes if is_object(key)]
        if leaving:
            for tier in self.tiers:
                tier.delete(leaving)
        # Copies come first: gc, which lists the coldest tier, cannot delete an object there and miss a copy that comes
        # later.
        for tier in self.tiers:
            tier.keep(added)
        try:
            return cold.apply(expected, puts, deletes, objects=added)
        except BaseException:
            if added:
                self._forget(added)
            raise
        finally:
            if leaving:
                self._forget(leaving)

    def _forget(self, keys: Collection[str]) -> None:
        for tier in self.tiers:
            tier.delete_later(keys)

    def drop_derived(self, sources: Collection[str] | None = None) -> None:
        for store in self.stores:
            store.drop_derived(sources)

    def sizes(self, keys: Iterable[str]) -> dict[str, int] | None:
        return self._open().sizes(keys)

    def keys(self, prefix: str = "") -> Iterator[str]:
        check_key(prefix)
        return self._open().keys(prefix)

    def page(self, prefix: str = "", *, after: str | None = None, limit: int, reverse: bool = False) -> list[str]:
        return self._open().page(prefix, after=after, limit=limit, reverse=reverse)

    def __contains__(self, key: str) -> bool:
        return key in self._open()

    def _open(self) -> KVStore:
        if self._closed:
            raise_closed()
        return self.cold

    def close(self) -> None:
        self._closed = True
        drop_kept(self)
        failure: StorageError | None = None
        for store in self.stores:
            try:
                store.close()
            except StorageError as error:  # the others are closed all the same
                failure = failure or error
        if failure is not None:
            raise failure


def backends(store: KVStore) -> list[KVStore]:
    """Return the stores that hold the bytes of a store, beneath all wrappers, the coldest tier first."""
    if isinstance(store, Wrapper):
        return backends(store.store)
    return (
        [backend for each in reversed(store.stores) for backend in backends(each)]
        if isinstance(store, Tiered)
        else [store]
    )
