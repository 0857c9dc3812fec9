"""The promises of the services, over HTTP: their own contracts, with a server process for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.services.history_contract import SessionHistoryContract
from tests.support.services.memory_contract import MemoryServiceContract
from tests.support.services.served import ALL
from tests.support.services.session_contract import SessionServiceContract
from tests.support.services.state_contract import StateServiceContract
from tests.support.services.zygote import Forked, Zygote
from versioned_state.services import (
    RemoteMemoryService,
    RemoteSessionHistoryService,
    RemoteSessionService,
    RemoteStateService,
)


@pytest.fixture
def server(zygote: Zygote, tmp_path: Path) -> Iterator[Forked]:
    with zygote.serve(f"disk:{tmp_path / 'store'}", "--log-level", "error") as server:
        yield server


class TestStates(StateServiceContract):
    @pytest.fixture
    def opened(self, server: Forked) -> Any:
        return lambda: RemoteStateService(server.url, ALL)


class TestHistories(SessionHistoryContract):
    @pytest.fixture
    def opened(self, server: Forked) -> Any:
        return lambda **options: RemoteSessionHistoryService(server.url, ALL, **options)


class TestMemories(MemoryServiceContract):
    @pytest.fixture
    def opened(self, server: Forked) -> Any:
        return lambda **options: RemoteMemoryService(server.url, ALL, **options)


class TestSessions(SessionServiceContract):
    @pytest.fixture
    def opened(self, server: Forked) -> Any:
        return lambda **options: RemoteSessionService(server.url, ALL, **options)
