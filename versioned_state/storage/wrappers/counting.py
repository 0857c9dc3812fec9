"""``Counting``, which counts the calls, objects and bytes that pass through a store. Layer: storage."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from versioned_state.storage.base import KVStore, is_object
from versioned_state.storage.call_lock import CallLock
from versioned_state.storage.wrapper import Wrapper


@dataclass(frozen=True)
class Counts:
    """Calls, objects and bytes that passed through a store. The bytes are those of values, without keys."""

    gets: int = 0
    sets: int = 0
    get_manys: int = 0
    listings: int = 0
    applies: int = 0
    objects_read: int = 0
    objects_written: int = 0
    bytes_read: int = 0
    bytes_written: int = 0

    @property
    def round_trips(self) -> int:
        """The number of calls of any kind. On a network store each is a round trip, and a long listing several."""
        return self.gets + self.sets + self.get_manys + self.listings + self.applies

    def __str__(self) -> str:
        """Return all counts in one line, for a log: ``2 round trips (get_many 1, apply 1); read …``."""
        calls = {
            "get": self.gets,
            "get_many": self.get_manys,
            "keys": self.listings,
            "set": self.sets,
            "apply": self.applies,
        }
        made = ", ".join(f"{name} {count:,}" for name, count in calls.items() if count)
        return (
            f"{self.round_trips:,} round trips ({made or 'none'}); "
            f"read {self.objects_read:,} objects, {self.bytes_read:,} bytes in all; "
            f"wrote {self.objects_written:,} objects, {self.bytes_written:,} bytes in all"
        )


class Counting(Wrapper):
    """A store that counts calls, objects and bytes. A call that raises counts too, with the bytes passed to it."""

    def __init__(self, store: KVStore) -> None:
        super().__init__(store)
        self._lock = CallLock()
        self._counts = Counts()

    @property
    def counts(self) -> Counts:
        """The counts since the start or the last ``reset()``, as an immutable value."""
        return self._counts

    def reset(self) -> Counts:
        """Start from zero again, and return the counts until now."""
        with self._lock:
            counts, self._counts = self._counts, Counts()
        return counts

    def get(self, key: str) -> bytes | None:
        self._add(gets=1)
        value = self.store.get(key)
        if value is not None:
            self._add(objects_read=int(is_object(key)), bytes_read=len(value))
        return value

    def set(self, key: str, value: bytes) -> None:
        self._add(sets=1, objects_written=int(is_object(key)), bytes_written=_size((value,)))
        self.store.set(key, value)

    def get_many(self, keys: Iterable[str]) -> dict[str, bytes]:
        self._add(get_manys=1)
        found = self.store.get_many(keys)
        self._add(objects_read=sum(map(is_object, found)), bytes_read=_size(found.values()))
        return found

    def sizes(self, keys: Iterable[str]) -> dict[str, int] | None:
        self._add(get_manys=1)
        return self.store.sizes(keys)

    def keys(self, prefix: str = "") -> Iterator[str]:
        self._add(listings=1)
        return self.store.keys(prefix)

    def page(self, prefix: str = "", *, after: str | None = None, limit: int, reverse: bool = False) -> list[str]:
        self._add(listings=1)
        return self.store.page(prefix, after=after, limit=limit, reverse=reverse)

    def apply(
        self,
        expected: Mapping[str, bytes | None],
        puts: Mapping[str, bytes],
        deletes: Collection[str] = (),
        *,
        objects: Mapping[str, bytes] | None = None,
    ) -> bool:
        written = objects or {}
        self._add(applies=1, objects_written=len(written), bytes_written=_size(puts.values()) + _size(written.values()))
        return self.store.apply(expected, puts, deletes, objects=objects)

    def __contains__(self, key: str) -> bool:
        self._add(gets=1)
        return key in self.store

    def _add(self, **more: int) -> None:
        with self._lock:
            self._counts = replace(
                self._counts, **{name: getattr(self._counts, name) + count for name, count in more.items()}
            )


def _size(values: Iterable[object]) -> int:
    # The store refuses a value of another type, so only bytes are counted.
    return sum(len(value) for value in values if isinstance(value, bytes))
