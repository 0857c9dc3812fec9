"""The memory service over each store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.servers.postgres import PostgresServer
from tests.support.servers.redis import RedisServer
from tests.support.services.memory_contract import MemoryServiceContract, Opened
from versioned_state import Memory
from versioned_state.services.memory import MemoryService, RedisMemoryService
from versioned_state.storage import Postgres


class TestMemory(MemoryServiceContract):
    @pytest.fixture
    def opened(self) -> Opened:
        store = Memory()
        return lambda: MemoryService.over(store)


class TestDisk(MemoryServiceContract):
    @pytest.fixture
    def opened(self, tmp_path: Path) -> Opened:
        return lambda: MemoryService.over(f"disk:{tmp_path / 'store'}")


class TestRedis(MemoryServiceContract):
    @pytest.fixture
    def opened(self, redis_server: RedisServer) -> Opened:
        url = redis_server.fresh_url()
        return lambda: RedisMemoryService(redis_url=url)


class TestPostgres(MemoryServiceContract):
    @pytest.fixture
    def opened(self, postgres_server: PostgresServer) -> Iterator[Opened]:
        store = Postgres(postgres_server.url, schema=postgres_server.fresh_schema())
        yield lambda: MemoryService.over(store)
        store.close()
