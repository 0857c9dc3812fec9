"""Openers of one store for several processes. Those on a server need one that the tests start."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from versioned_state import KVStore
from versioned_state.storage import Disk, DiskCache, Postgres, Redis

Opener = Callable[[], KVStore]
"""Opens the one store of a test; called in each of its processes."""


def redis(request: pytest.FixtureRequest, folder: Path) -> Opener:
    server = request.getfixturevalue("redis_server")
    return partial(Redis, server.url, prefix=server.fresh_prefix())


def postgres(request: pytest.FixtureRequest, folder: Path) -> Opener:
    server = request.getfixturevalue("postgres_server")
    return partial(Postgres, server.url, schema=server.fresh_schema(), max_connections=2)


SHARED: dict[str, Callable[[pytest.FixtureRequest, Path], Opener]] = {
    "disk": lambda request, folder: partial(Disk, folder / "store", timeout=300),
    "disk cache": lambda request, folder: partial(DiskCache, folder / "store", timeout=300),
    "redis": redis,
    "postgres": postgres,
}
"""The kinds of store that several processes may have open. A kind is one line."""
