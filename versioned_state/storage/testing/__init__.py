"""``KVStoreContract``: the tests that every backend must pass; a backend's tests subclass it. Layer: storage."""

from versioned_state.storage.testing.contract import KVStoreContract

__all__ = ["KVStoreContract"]
