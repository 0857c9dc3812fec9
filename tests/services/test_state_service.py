"""The state service over each store, and what is beneath: branches, commits, history."""

from __future__ import annotations

import pytest

from tests.support.servers.redis import RedisServer
from tests.support.services.state_contract import Opened, StateServiceContract, TypedStates
from versioned_state import KVStore
from versioned_state.services.agent_state import RedisStateService, StateService


class TestAnyStore(StateServiceContract):
    @pytest.fixture
    def opened(self, place: KVStore | str) -> Opened:
        return lambda: StateService.over(place)


class TestTypedStates(TypedStates):
    @pytest.fixture
    def opened(self, local_place: KVStore | str) -> Opened:
        return lambda: StateService.over(local_place)


class TestRedis(StateServiceContract):
    @pytest.fixture
    def opened(self, redis_server: RedisServer) -> Opened:
        url = redis_server.fresh_url()
        return lambda: RedisStateService(redis_url=url)
