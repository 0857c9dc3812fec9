"""``Wrapper``, a ``KVStore`` over a ``KVStore`` that changes nothing: the base of cache, counters and faults.

Layer: storage.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from versioned_state.storage.base import KVStore
from versioned_state.storage.kept import drop_kept


class Wrapper(KVStore):
    """A store that passes every call on to ``store``.

    ``set`` and the like are calls of ``apply``. Closing it closes ``store``.

    It is ``private`` if ``store`` is, unless its class has ``private = False``.
    """

    private: bool = True

    def __init__(self, store: KVStore) -> None:
        self.store = store
        self.private = store.private and type(self).private
        self.max_expected: int | None = store.max_expected

    def __repr__(self) -> str:
        return f"<{type(self).__name__} over {self.store!r}>"

    def get(self, key: str) -> bytes | None:
        return self.store.get(key)

    def get_many(self, keys: Iterable[str]) -> dict[str, bytes]:
        return self.store.get_many(keys)

    def sizes(self, keys: Iterable[str]) -> dict[str, int] | None:
        return self.store.sizes(keys)

    def keys(self, prefix: str = "") -> Iterator[str]:
        return self.store.keys(prefix)

    def page(self, prefix: str = "", *, after: str | None = None, limit: int, reverse: bool = False) -> list[str]:
        return self.store.page(prefix, after=after, limit=limit, reverse=reverse)

    def drop_derived(self, sources: Collection[str] | None = None) -> None:
        self.store.drop_derived(sources)

    def apply(
        self,
        expected: Mapping[str, bytes | None],
        puts: Mapping[str, bytes],
        deletes: Collection[str] = (),
        *,
        objects: Mapping[str, bytes] | None = None,
    ) -> bool:
        return self.store.apply(expected, puts, deletes, objects=objects)

    def close(self) -> None:
        drop_kept(self)
        self.store.close()

    def __contains__(self, key: str) -> bool:
        return key in self.store
