"""Storage: bytes by key. ``KVStore`` is the contract; everything else here is a backend or a wrapper.

    KVStore ─┬ Backend ── Memory, Disk, DiskCache, Redis, Postgres, S3, SingleProcessStore    hold bytes
             ├ Wrapper ── Cache, Encrypted, ReadOnly, Counting, Faulty             over another store
             └ Tiered                                                              over several

The lowest layer: it knows nothing of commits, trees or values.
"""

from __future__ import annotations

if __name__ == "storage":
    # The repository shows this folder at its root through a link. Imported by that name it would be a
    # second copy, whose classes are not those that the engine knows.
    raise ImportError("import versioned_state.storage, not storage")

from typing import TYPE_CHECKING

from versioned_state.lazy import lazy_names

if TYPE_CHECKING:
    from versioned_state.storage.backend import Backend
    from versioned_state.storage.base import KVStore
    from versioned_state.storage.local.disk import Disk
    from versioned_state.storage.local.diskcache import DiskCache
    from versioned_state.storage.local.memory import Memory
    from versioned_state.storage.local.single_process import SingleProcessStore
    from versioned_state.storage.postgres.store import Postgres
    from versioned_state.storage.redis.store import Redis
    from versioned_state.storage.s3.store import S3
    from versioned_state.storage.url import open_store
    from versioned_state.storage.wrapper import Wrapper
    from versioned_state.storage.wrappers.cache import Cache
    from versioned_state.storage.wrappers.counting import Counting, Counts
    from versioned_state.storage.wrappers.encrypted.store import Encrypted
    from versioned_state.storage.wrappers.faulty import Fault, Faulty, InjectedCrash, InjectedFaultError
    from versioned_state.storage.wrappers.readonly import ReadOnly
    from versioned_state.storage.wrappers.tiered import Tier, Tiered

__all__ = [
    "S3",
    "Backend",
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
    "Tier",
    "Tiered",
    "Wrapper",
    "open_store",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "Backend": "backend",
        "KVStore": "base",
        "Disk": "local.disk",
        "DiskCache": "local.diskcache",
        "Memory": "local.memory",
        "SingleProcessStore": "local.single_process",
        "Postgres": "postgres.store",
        "Redis": "redis.store",
        "S3": "s3.store",
        "open_store": "url",
        "Wrapper": "wrapper",
        "Cache": "wrappers.cache",
        "Counting": "wrappers.counting",
        "Counts": "wrappers.counting",
        "Encrypted": "wrappers.encrypted.store",
        "Fault": "wrappers.faulty",
        "Faulty": "wrappers.faulty",
        "InjectedCrash": "wrappers.faulty",
        "InjectedFaultError": "wrappers.faulty",
        "ReadOnly": "wrappers.readonly",
        "Tier": "wrappers.tiered",
        "Tiered": "wrappers.tiered",
    },
)
