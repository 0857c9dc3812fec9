"""The state service over each store, and what is beneath: branches, commits, history."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.servers.postgres import PostgresServer
from tests.support.servers.redis import RedisServer
from tests.support.services.state_contract import Opened, StateServiceContract, TypedStates
from versioned_state import Memory
from versioned_state.services.agent_state import RedisStateService, StateService
from versioned_state.storage import Postgres


class TestMemory(StateServiceContract, TypedStates):
    @pytest.fixture
    def opened(self) -> Opened:
        store = Memory()
        return lambda: StateService.over(store)


class TestDisk(StateServiceContract, TypedStates):
    @pytest.fixture
    def opened(self, tmp_path: Path) -> Opened:
        return lambda: StateService.over(f"disk:{tmp_path / 'store'}")


class TestRedis(StateServiceContract):
    @pytest.fixture
    def opened(self, redis_server: RedisServer) -> Opened:
        url = redis_server.fresh_url()
        return lambda: RedisStateService(redis_url=url)


class TestPostgres(StateServiceContract):
    @pytest.fixture
    def opened(self, postgres_server: PostgresServer) -> Iterator[Opened]:
        store = Postgres(postgres_server.url, schema=postgres_server.fresh_schema())
        yield lambda: StateService.over(store)
        store.close()
