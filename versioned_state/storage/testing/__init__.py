"""``KVStoreContract``: the tests that any backend passes; a backend's own tests subclass it. Layer: storage."""

from versioned_state.storage.testing.contract import KVStoreContract

__all__ = ["KVStoreContract"]
