"""`KVStore`, the contract between the engine and whatever holds its bytes.

`str` keys, `bytes` values, and two kinds of key, which is all that storage knows of what it keeps:
a key that starts with `o/` is an **object**, immutable, its value a function of its key; any other
is **mutable** (refs and markers, few). The bottom layer: it imports nothing but `errors`.
`versioned_state.storage.testing.contract.KVStoreContract` tests every promise made here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice
from types import TracebackType
from typing import Self

from versioned_state.errors import InvalidArgumentError

OBJECT_PREFIX = "o/"

# Values fetched at once by items(): 256 objects of 4 KB are 1 MB held in memory.
_ITEMS_BATCH = 256


class KVStore(ABC):
    """Bytes by key. A backend gives the six abstract methods; the rest is built on them.

    A key is any `str` that encodes to UTF-8, of any length, the empty one too. A value is exactly
    `bytes`, possibly empty. Anything else raises `TypeError` (a key with a lone surrogate:
    `InvalidArgumentError`) before anything is written. Every method may be called from any thread.
    A failure of the driver raises `StorageError` with the driver's error as its cause, and any call
    after `close()` raises `StoreClosedError`. Only `apply` may leave its result unknown, and only
    where the store is across a network.
    """

    private: bool = False
    """Whether only this user can write there; wrappers pass it on."""

    max_expected: int | None = None
    """How many conditions one `apply` can carry; None where there is no bound."""

    @abstractmethod
    def get(self, key: str) -> bytes | None:
        """The value, or None where there is none."""

    @abstractmethod
    def set(self, key: str, value: bytes) -> None:
        """Store one value, atomically. An object that is there already is left as it is."""

    @abstractmethod
    def get_many(self, keys: Iterable[str]) -> dict[str, bytes]:
        """The values of those keys that exist, in any order. Not a snapshot: a write may fall in between."""

    @abstractmethod
    def keys(self, prefix: str = "") -> Iterator[str]:
        """Each key that starts with `prefix` once, streaming, in any order.

        Writes may go on meanwhile: a key that is there from the first step to the last is listed;
        one that comes or goes in between may be. Outside `o/` the cost is that of what is listed.
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
        """Write a batch if, and only if, every key in `expected` holds its value (None: does not exist).

        `puts` and `deletes` are all or nothing, and no other writer comes between the check and the
        write: never a check followed by a write. Deleting what is not there is no error. Returns
        False, with no put and no delete done, where an expectation does not hold.

        `objects` are stored if absent, and are durable before `puts` become visible. They do not hang
        on the conditions: they are stored after False too, so that a retry sends only the ref. After
        an error any of them may have been stored.

        `expected` and `puts` name mutable keys, `objects` names objects, `deletes` either kind; a key
        in the wrong place, or both put and deleted, raises `InvalidArgumentError`. More conditions
        than `max_expected` raise it as well. Nothing was written then.
        """

    @abstractmethod
    def close(self) -> None:
        """Let go of files and connections. Idempotent; a later call of another method raises `StoreClosedError`."""

    def sizes(self, keys: Iterable[str]) -> dict[str, int] | None:
        """The lengths of the values of those keys that exist; None if this store cannot tell a length without reading the value."""
        check_iterable(keys)
        return None

    def set_many(self, items: Mapping[str, bytes]) -> None:
        """Store several values: the mutable ones all or nothing, the objects where absent."""
        objects = {key: value for key, value in items.items() if is_object(key)}
        self.apply({}, {key: value for key, value in items.items() if key not in objects}, objects=objects)

    def delete(self, key: str) -> None:
        """Remove one key of either kind; no error where there is none."""
        self.apply({}, {}, (key,))

    def delete_many(self, keys: Iterable[str]) -> None:
        """Remove several keys of either kind, all or nothing."""
        check_iterable(keys)
        self.apply({}, {}, tuple(keys))

    def compare_and_set(self, key: str, expected: bytes | None, value: bytes) -> bool:
        """Set a mutable key if it holds `expected` (None: does not exist). Says whether it did."""
        return self.apply({key: expected}, {key: value})

    def items(self, prefix: str = "") -> Iterator[tuple[str, bytes]]:
        """Keys with their values, streaming. A key that is deleted meanwhile is left out."""
        keys = self.keys(prefix)
        while batch := tuple(islice(keys, _ITEMS_BATCH)):
            yield from self.get_many(batch).items()

    def __contains__(self, key: str) -> bool:
        return self.get(key) is not None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


# What every backend checks before it writes. These run in the path of each commit, so they compare
# sets of types and join keys rather than loop in Python where that can be helped.


def is_object(key: str) -> bool:
    """Whether `key` is of the immutable kind. `TypeError` where it is not a `str`."""
    if type(key) is not str:
        raise TypeError(f"a key must be a str, not {type(key).__name__}")
    return key.startswith(OBJECT_PREFIX)


def check_key(key: str) -> None:
    """`TypeError` unless `key` is a `str`, `InvalidArgumentError` unless it encodes to UTF-8."""
    if type(key) is not str:
        raise TypeError(f"a key must be a str, not {type(key).__name__}")
    if not key.isascii():
        _check_encodes(key)


def check_value(value: bytes) -> None:
    """`TypeError` unless `value` is exactly `bytes`: a bytearray could change after it was stored."""
    if type(value) is not bytes:
        raise TypeError(f"a value must be bytes, not {type(value).__name__}")


def check_iterable(keys: Iterable[str]) -> None:
    """`TypeError` for a lone `str` where several keys are meant: its letters would pass for keys."""
    if isinstance(keys, (str, bytes)):
        raise TypeError("keys must be an iterable of str, not one str")


def check_keys(keys: Iterable[str]) -> tuple[str, ...]:
    """The keys as a tuple, each checked as by `check_key`."""
    check_iterable(keys)
    checked = tuple(keys)
    for key in checked:
        check_key(key)
    return checked


def check_batch(
    store: KVStore,
    expected: Mapping[str, bytes | None],
    puts: Mapping[str, bytes],
    deletes: Collection[str],
    objects: Mapping[str, bytes],
) -> None:
    """Refuse what `KVStore.apply` says it refuses, before anything is written."""
    for value in expected.values():
        if value is not None:
            check_value(value)
    for value in (*puts.values(), *objects.values()):
        check_value(value)
    for key in (*expected, *puts):
        check_key(key)
        if key.startswith(OBJECT_PREFIX):
            raise InvalidArgumentError(f"{key!r} is an object: it has no expectation and is passed in objects=, not in puts")
    for key in objects:
        check_key(key)
        if not key.startswith(OBJECT_PREFIX):
            raise InvalidArgumentError(f"{key!r} is not an object: it belongs in puts, not in objects=")
    if deletes:
        _check_deletes(deletes, puts, objects)
    if store.max_expected is not None and len(expected) > store.max_expected:
        raise InvalidArgumentError(f"this store carries at most {store.max_expected} conditions in one batch, not {len(expected)}")


def _check_deletes(deletes: Collection[str], puts: Mapping[str, bytes], objects: Mapping[str, bytes]) -> None:
    if not isinstance(deletes, Collection):
        raise TypeError("deletes must be a collection: an iterator would be used up once it has been checked")
    for key in check_keys(deletes):
        if key in puts or key in objects:
            raise InvalidArgumentError(f"{key!r} is both stored and deleted in one batch")


def _check_encodes(key: str) -> None:
    try:
        key.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgumentError(f"a key must encode to UTF-8: {key!r} has a lone surrogate") from error
