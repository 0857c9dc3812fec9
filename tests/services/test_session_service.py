"""The session service over stores, and its services by their own contracts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import pytest

from tests.support.services.history_contract import SessionHistoryContract
from tests.support.services.memory_contract import MemoryServiceContract
from tests.support.services.session_contract import SessionServiceContract
from tests.support.services.state_contract import StateServiceContract
from versioned_state import KVStore, Memory
from versioned_state.services import SessionService


class TestSessionService(SessionServiceContract):
    @pytest.fixture
    def opened(self, local_place: KVStore | str) -> Callable[..., SessionService]:
        return lambda **options: SessionService.over(local_place, **options)


class _Part:
    """A part of a session service as a service of its own, which starts and stops the whole."""

    def __init__(self, service: SessionService, name: str) -> None:
        self._service = service
        self._name = name

    def __getattr__(self, call: str) -> Any:
        whole = self._service
        return getattr(whole if call in {"start", "stop", "health"} else getattr(whole, self._name), call)

    async def __aenter__(self) -> Self:
        await self._service.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._service.stop()


@pytest.mark.long  # the contract holds for the parts as it does for the separate services
class TestStates(StateServiceContract):
    @pytest.fixture
    def opened(self, tmp_path: Path) -> Callable[..., Any]:
        return lambda **options: _Part(SessionService.over(f"disk:{tmp_path / 'store'}", **options), "state")


@pytest.mark.long  # the contract holds for the parts as it does for the separate services
class TestHistories(SessionHistoryContract):
    @pytest.fixture
    def opened(self, tmp_path: Path) -> Callable[..., Any]:
        return lambda **options: _Part(SessionService.over(f"disk:{tmp_path / 'store'}", **options), "history")


@pytest.mark.long  # the contract holds for the parts as it does for the separate services
class TestMemories(MemoryServiceContract):
    @pytest.fixture
    def opened(self, tmp_path: Path) -> Callable[..., Any]:
        return lambda **options: _Part(SessionService.over(f"disk:{tmp_path / 'store'}", **options), "memory")


@pytest.mark.long  # the contract holds for the parts as it does for the separate services
class TestMemoriesInTheState(MemoryServiceContract):
    @pytest.fixture
    def opened(self) -> Callable[..., Any]:
        store = Memory()
        return lambda **options: _Part(SessionService.over(store, **options), "memory")
