"""The object that the layers above keep in memory for a store while it is open, shared by all its users.

Layer: storage.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol, TypeVar, cast
from weakref import WeakKeyDictionary

from versioned_state.storage.base import KVStore


class Kept(Protocol):
    """Something that is kept for a store."""

    def forget(self) -> None:
        """Release the memory, because the store was closed."""


K = TypeVar("K", bound=Kept)

_kept: Final[WeakKeyDictionary[KVStore, Kept]] = WeakKeyDictionary()


def kept_for(store: KVStore, make: Callable[[], K]) -> K:
    """Return the object that is kept for this store object, made by ``make`` at the first call.

    Only one module may keep one.

    A wrapper is a store of its own, since it may read other bytes than the store below. Stores of a class that compares
    its instances share nothing: two of them may be equal and have other content.
    """
    if type(store).__eq__ is not object.__eq__:
        return make()
    found = _kept.get(store)
    return cast("K", _kept.setdefault(store, make()) if found is None else found)


def drop_kept(store: KVStore) -> None:
    """Release what is kept for a store that is closed.

    A store that does not call this keeps it until it is collected.
    """
    kept: Any = _kept.pop(store, None) if type(store).__eq__ is object.__eq__ else None
    if kept is not None:
        kept.forget()
