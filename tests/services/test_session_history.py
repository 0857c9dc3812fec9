"""The session history service over each store, and what is beneath: branches, commits, costs."""

from __future__ import annotations

import pytest

from tests.support.servers.redis import RedisServer
from tests.support.services.history_contract import Opened, SessionHistoryContract
from versioned_state import KVStore
from versioned_state.services.session_history import RedisSessionHistoryService, SessionHistoryService


class TestAnyStore(SessionHistoryContract):
    @pytest.fixture
    def opened(self, place: KVStore | str) -> Opened:
        return lambda **options: SessionHistoryService.over(place, **options)


class TestRedis(SessionHistoryContract):
    @pytest.fixture
    def opened(self, redis_server: RedisServer) -> Opened:
        url = redis_server.fresh_url()
        return lambda **options: RedisSessionHistoryService(url, **options)
