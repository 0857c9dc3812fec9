"""`Redis` keeps the promises of `KVStore`, on a real server."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.servers.redis import RedisServer
from tests.support.waiting import eventually
from versioned_state.storage import Cache, KVStore
from versioned_state.storage.redis.store import Redis
from versioned_state.storage.testing.contract import KVStoreContract


class OnRedis(KVStoreContract):
    tells_sizes = True
    persistent = True
    shared = True
    forks = True

    @pytest.fixture(autouse=True)
    def _server(self, redis_server: RedisServer) -> None:
        self.server = redis_server

    def open_store(self, place: Path) -> KVStore:
        return Redis(self.server.url, prefix=str(place), client_name=str(place), timeout=60)

    def check_closed(self, place: Path) -> None:
        assert eventually(lambda: self.server.connections(str(place)) == 0)


class TestRedis(OnRedis):
    pass


class TestCacheOverRedis(OnRedis):
    def open_store(self, place: Path) -> KVStore:
        return Cache(super().open_store(place), max_bytes=100_000)
