"""Storage: bytes by key. `KVStore` is the contract; everything else here is a backend or a wrapper.

    KVStore ── Memory, Disk, DiskCache, Redis, Postgres, S3, SingleProcessStore    hold bytes
            └─ Wrapper ── Cache, Encrypted, ReadOnly, Counting, Faulty             stand before another store

The lowest layer: it knows nothing of commits, trees or values.
"""

from __future__ import annotations

if __name__ == "storage":
    # The repository shows this folder at its root through a link. Imported by that name it would be a
    # second copy, whose classes are not those that the engine knows.
    raise ImportError("import versioned_state.storage, not storage")

from versioned_state.storage.base import KVStore
from versioned_state.storage.cache import Cache
from versioned_state.storage.counting import Counting, Counts
from versioned_state.storage.disk import Disk
from versioned_state.storage.diskcache import DiskCache
from versioned_state.storage.encrypted import Encrypted
from versioned_state.storage.faulty import Fault, Faulty, InjectedCrash, InjectedFaultError
from versioned_state.storage.memory import Memory
from versioned_state.storage.postgres import Postgres
from versioned_state.storage.readonly import ReadOnly
from versioned_state.storage.redis import Redis
from versioned_state.storage.s3 import S3
from versioned_state.storage.single import SingleProcessStore
from versioned_state.storage.url import open_store
from versioned_state.storage.wrapper import Wrapper

__all__ = [
    "S3",
    "Cache",
    "Counting",
    "Counts",
    "Disk",
    "DiskCache",
    "Encrypted",
    "Fault",
    "Faulty",
    "InjectedCrash",
    "InjectedFaultError",
    "KVStore",
    "Memory",
    "Postgres",
    "ReadOnly",
    "Redis",
    "SingleProcessStore",
    "Wrapper",
    "open_store",
]
