"""The memory service over each store."""

from __future__ import annotations

import pytest

from tests.support.servers.redis import RedisServer
from tests.support.services.memory_contract import MemoryServiceContract, Opened
from versioned_state import KVStore
from versioned_state.services.memory import MemoryService, RedisMemoryService


class TestAnyStore(MemoryServiceContract):
    @pytest.fixture
    def opened(self, place: KVStore | str) -> Opened:
        return lambda: MemoryService.over(place)


class TestRedis(MemoryServiceContract):
    @pytest.fixture
    def opened(self, redis_server: RedisServer) -> Opened:
        url = redis_server.fresh_url()
        return lambda: RedisMemoryService(redis_url=url)
