"""The choice of the index for a store. Layer: services."""

from __future__ import annotations

from versioned_state.services.memory.indexes.in_state import InState
from versioned_state.services.memory.indexes.index import WordIndex
from versioned_state.storage import Cache, Disk, KVStore
from versioned_state.storage.wrapper import Wrapper
from versioned_state.storage.wrappers.counting import Counting


def index_of(store: KVStore) -> WordIndex:
    """Return SQLite's full-text search beside a ``Disk``, PostgreSQL's in a ``Postgres``, else an index in the state.

    An encrypted store has its index in the state, where it is encrypted too. So does a store with another wrapper,
    whose effect is unknown.
    """
    while isinstance(store, Cache | Counting):
        store = store.store
    if isinstance(store, Disk):
        from versioned_state.services.memory.indexes.full_text import FullText

        return FullText.beside(store) or InState()
    if not isinstance(store, Wrapper) and type(store).__name__ == "Postgres":
        from versioned_state.services.memory.indexes.postgres_text import PostgresText
        from versioned_state.storage.postgres.store import Postgres

        if isinstance(store, Postgres):
            return PostgresText(store)
    return InState()
