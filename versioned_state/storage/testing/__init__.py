"""``KVStoreContract``, the tests that every backend must pass, for a backend's tests to subclass. Layer: storage."""

from versioned_state.storage.testing.contract import KVStoreContract

__all__ = ["KVStoreContract"]
