"""The session history service over each store, and what is beneath: branches, commits, costs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.servers.postgres import PostgresServer
from tests.support.servers.redis import RedisServer
from tests.support.services.history_contract import Opened, SessionHistoryContract
from versioned_state import Memory
from versioned_state.services.session_history import RedisSessionHistoryService, SessionHistoryService
from versioned_state.storage import Postgres


class TestMemory(SessionHistoryContract):
    @pytest.fixture
    def opened(self) -> Opened:
        store = Memory()
        return lambda **options: SessionHistoryService.over(store, **options)


class TestDisk(SessionHistoryContract):
    @pytest.fixture
    def opened(self, tmp_path: Path) -> Opened:
        return lambda **options: SessionHistoryService.over(f"disk:{tmp_path / 'store'}", **options)


class TestRedis(SessionHistoryContract):
    @pytest.fixture
    def opened(self, redis_server: RedisServer) -> Opened:
        url = redis_server.fresh_url()
        return lambda **options: RedisSessionHistoryService(url, **options)


class TestPostgres(SessionHistoryContract):
    @pytest.fixture
    def opened(self, postgres_server: PostgresServer) -> Iterator[Opened]:
        store = Postgres(postgres_server.url, schema=postgres_server.fresh_schema())
        yield lambda **options: SessionHistoryService.over(store, **options)
        store.close()
