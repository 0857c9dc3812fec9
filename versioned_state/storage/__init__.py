"""Storage: bytes by key. ``KVStore`` is the contract. Everything else here is a backend or a wrapper.

    KVStore ─┬ Backend ── Memory, Disk, DiskCache, Redis, Postgres, S3, SingleProcessStore    hold bytes
             ├ Wrapper ── Cache, Encrypted, ReadOnly, Counting, Faulty             over another store
             └ Tiered                                                              over several

The lowest layer: there are no commits, trees or values in it.
"""

from __future__ import annotations

if __name__ == "storage":
    # The repository shows this folder at its root through a link. Imported by that name it would be a
    # second copy, whose classes are not those of the engine.
    raise ImportError("import versioned_state.storage, not storage")

from typing import TYPE_CHECKING

from versioned_state.lazy import lazy_names

if TYPE_CHECKING:
    from versioned_state.storage.backend import Backend as Backend
    from versioned_state.storage.base import KVStore as KVStore
    from versioned_state.storage.local.disk import Disk as Disk
    from versioned_state.storage.local.diskcache import DiskCache as DiskCache
    from versioned_state.storage.local.memory import Memory as Memory
    from versioned_state.storage.local.single_process import SingleProcessStore as SingleProcessStore
    from versioned_state.storage.postgres.store import Postgres as Postgres
    from versioned_state.storage.redis.store import Redis as Redis
    from versioned_state.storage.s3.store import S3 as S3
    from versioned_state.storage.url import open_store as open_store
    from versioned_state.storage.wrapper import Wrapper as Wrapper
    from versioned_state.storage.wrappers.cache import Cache as Cache
    from versioned_state.storage.wrappers.counting import Counting as Counting, Counts as Counts
    from versioned_state.storage.wrappers.encrypted.store import Encrypted as Encrypted
    from versioned_state.storage.wrappers.faulty import (
        Fault as Fault,
        Faulty as Faulty,
        InjectedCrash as InjectedCrash,
        InjectedFaultError as InjectedFaultError,
    )
    from versioned_state.storage.wrappers.readonly import ReadOnly as ReadOnly
    from versioned_state.storage.wrappers.tiered import Tier as Tier, Tiered as Tiered

    __all__: list[str]
else:
    __getattr__, __dir__, __all__ = lazy_names(
        __name__,
        {
            "backend": "Backend",
            "base": "KVStore",
            "local.disk": "Disk",
            "local.diskcache": "DiskCache",
            "local.memory": "Memory",
            "local.single_process": "SingleProcessStore",
            "postgres.store": "Postgres",
            "redis.store": "Redis",
            "s3.store": "S3",
            "url": "open_store",
            "wrapper": "Wrapper",
            "wrappers.cache": "Cache",
            "wrappers.counting": "Counting Counts",
            "wrappers.encrypted.store": "Encrypted",
            "wrappers.faulty": "Fault Faulty InjectedCrash InjectedFaultError",
            "wrappers.readonly": "ReadOnly",
            "wrappers.tiered": "Tier Tiered",
        },
    )
