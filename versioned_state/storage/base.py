"""``KVStore``, the contract between the engine and the store that holds its bytes. Layer: storage.

Keys are ``str``, values are ``bytes``. Storage has two kinds of key, and does not look at the content: a key that
starts with ``o/`` is an **object**, immutable, its value a function of its key; any other key is **mutable** (refs and
markers, few). ``versioned_state.storage.testing.KVStoreContract`` tests every promise made here; ``Backend`` is the
base of most stores.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from heapq import nlargest, nsmallest
from itertools import islice
from types import MappingProxyType, TracebackType
from typing import Final, NamedTuple, Self

from versioned_state.errors import StateError

OBJECT_PREFIX = "o/"

# The number of values that items() fetches at once: 256 objects of 4 KB take 1 MB of memory.
_ITEMS_BATCH = 256


_NONE: Final[Mapping[str, bytes]] = MappingProxyType({})


class Batch(NamedTuple):
    """The arguments of a call of ``KVStore.apply``."""

    expected: Mapping[str, bytes | None]
    puts: Mapping[str, bytes]
    deletes: Collection[str] = ()
    objects: Mapping[str, bytes] = _NONE


def derived_id(source: str) -> bytes:
    """Return the id of the data that was derived from a source.

    It is a hash: it does not show the name, and has one length.
    """
    from hashlib import blake2b

    return blake2b(source.encode("utf-8", "surrogatepass"), digest_size=20).digest()


class KVStore(ABC):
    """Bytes by key. The abstract methods suffice for a store. The others are built on them.

    A key is any ``str`` that encodes to UTF-8, of any length; the empty one too. A value is exactly ``bytes``, possibly
    empty. Any other type raises ``TypeError``, and a key with a lone surrogate ``InvalidArgumentError``, before
    anything is written. Every method may be called from any thread. A failure of the driver raises ``StorageError``
    with the driver's error as its cause. Every call after ``close()`` raises ``StoreClosedError``. Only ``apply`` may
    leave its outcome unknown, and only if the store is across a network, or on a disk that fails to sync. An exception
    of any kind, such as ``KeyboardInterrupt``, leaves a store that works.
    """

    private: bool = False
    """Whether only this user can write there. Wrappers pass it on."""

    max_expected: int | None = None
    """The number of conditions that one ``apply`` can carry, or None for any number."""

    sends_together: bool = False
    """Whether ``apply_each`` sends its batches in one round trip.

    If so, none of them waits for another one longer than for the store.
    """

    @abstractmethod
    def get(self, key: str) -> bytes | None:
        """Return the value, or None if there is none."""

    @abstractmethod
    def get_many(self, keys: Iterable[str]) -> dict[str, bytes]:
        """Return the values of those keys that exist, in any order.

        Not a snapshot: another write may fall between two of the reads.
        """

    @abstractmethod
    def keys(self, prefix: str = "") -> Iterator[str]:
        """Yield each key that starts with ``prefix``, once, streaming, in any order.

        Writes may go on meanwhile: a key that exists from the first step to the last is listed; one that is created or
        deleted in between may be. Outside ``o/`` the cost is that of the keys listed.
        """

    @abstractmethod
    def apply(
        self,
        expected: Mapping[str, bytes | None],
        puts: Mapping[str, bytes],
        deletes: Collection[str] = (),
        *,
        objects: Mapping[str, bytes] | None = None,
    ) -> bool:
        """Write a batch if every key in ``expected`` holds its value (None: the key must not exist).

        ``puts`` and ``deletes`` are all or nothing. No other writer comes between the check and the write, so a backend
        never emulates this by a check followed by a write. Deleting a key that does not exist is not an error. Returns
        False, with no put and no delete done, if an expectation does not hold.

        ``objects`` are stored if absent, and are durable before ``puts`` become visible. They do not depend on the
        conditions: they stay after False, so that a retry sends only the ref. After an error any of them may have been
        stored.

        ``expected`` and ``puts`` name mutable keys, ``objects`` names objects, ``deletes`` either kind. A key in the
        wrong argument, a key that is both stored and deleted, and more conditions than ``max_expected`` raise
        ``InvalidArgumentError``; nothing is written then.
        """

    @abstractmethod
    def close(self) -> None:
        """Close files and connections. Idempotent. From then on every other call raises ``StoreClosedError``."""

    def apply_each(self, batches: Sequence[Batch]) -> list[bool | StateError]:
        """Apply several batches independently, in any order.

        Returns for each the result of ``apply``, or the error that it raises.
        """
        outcomes: list[bool | StateError] = []
        for batch in batches:
            try:
                outcomes.append(self.apply(batch.expected, batch.puts, batch.deletes, objects=batch.objects))
            except StateError as error:
                outcomes.append(error)
        return outcomes

    def page(self, prefix: str = "", *, after: str | None = None, limit: int, reverse: bool = False) -> list[str]:
        """Return the first ``limit`` mutable keys that start with ``prefix``, in the order of their characters.

        Cost: the returned keys, in a store that keeps its keys in order; here, a listing of the prefix.

        Args:
            after: only keys beyond this one.
            reverse: the last keys, the last one first; ``after`` then means keys before that one.
        """
        found = (key for key in self.keys(prefix) if not key.startswith(OBJECT_PREFIX))
        if after is not None:
            found = (key for key in found if (key < after if reverse else key > after))
        return nlargest(limit, found) if reverse else nsmallest(limit, found)

    def page_items(
        self, prefix: str = "", *, after: str | None = None, limit: int, reverse: bool = False
    ) -> dict[str, bytes | None]:
        """Return what ``page`` does, with the values, or None for a key that was deleted while the values were read."""
        keys = self.page(prefix, after=after, limit=limit, reverse=reverse)
        found = self.get_many(keys) if keys else {}
        return {key: found.get(key) for key in keys}

    def drop_derived(self, sources: Collection[str] | None = None) -> None:  # noqa: B027 - most stores have nothing beside their content
        """Erase the data that other modules derived from the content and keep with it, such as search indexes.

        They rebuild it when needed.

        ``sources``: only what was derived from these, such as branches: see ``derived_id``. A purge calls this, so that
        no index keeps erased data.
        """

    def set(self, key: str, value: bytes) -> None:
        """Store one value, atomically. An object that exists already stays as it is."""
        if is_object(key):
            self.apply({}, {}, objects={key: value})
        else:
            self.apply({}, {key: value})

    def sizes(self, keys: Iterable[str]) -> dict[str, int] | None:
        """Return the lengths of the values of those keys that exist.

        Returns None if this store must read a value to tell its length.
        """
        check_iterable(keys)
        return None

    def set_many(self, items: Mapping[str, bytes]) -> None:
        """Store several values: the mutable ones all or nothing, the objects if absent."""
        if not isinstance(items, Mapping):
            raise TypeError(f"set_many takes a mapping of keys to values, such as a dict, not {type(items).__name__}")
        objects = {key: value for key, value in items.items() if is_object(key)}
        self.apply({}, {key: value for key, value in items.items() if key not in objects}, objects=objects)

    def delete(self, key: str) -> None:
        """Remove one key of either kind, if it exists."""
        self.apply({}, {}, (key,))

    def delete_many(self, keys: Iterable[str]) -> None:
        """Remove several keys of either kind, all or nothing."""
        check_iterable(keys)
        self.apply({}, {}, tuple(keys))

    def compare_and_set(self, key: str, expected: bytes | None, value: bytes) -> bool:
        """Set a mutable key if it holds ``expected`` (None: it does not exist), and return whether it did."""
        return self.apply({key: expected}, {key: value})

    def items(self, prefix: str = "") -> Iterator[tuple[str, bytes]]:
        """Yield keys with their values, streaming. A key that is deleted meanwhile is left out."""
        keys = self.keys(prefix)
        while batch := tuple(islice(keys, _ITEMS_BATCH)):
            yield from self.get_many(batch).items()

    def __contains__(self, key: str) -> bool:
        return self.get(key) is not None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def is_object(key: str) -> bool:
    """Return whether ``key`` is the key of an object. Raises ``TypeError`` if it is not a ``str``."""
    if type(key) is not str:
        raise TypeError(f"a key must be a str, not {type(key).__name__}")
    return key.startswith(OBJECT_PREFIX)


def may_list_objects(prefix: str) -> bool:
    """Return whether the key of an object can start with ``prefix``."""
    return prefix.startswith(OBJECT_PREFIX) or OBJECT_PREFIX.startswith(prefix)


def check_iterable(keys: Iterable[str]) -> None:
    """Raise ``TypeError`` for a single ``str``: its characters would be taken for keys."""
    if isinstance(keys, (str, bytes)):
        raise TypeError("keys must be an iterable of str, not one str")
