"""The state service: dicts of agents by user, session and round, each round a commit. Layer: services."""

from typing import TYPE_CHECKING

from versioned_state.lazy import lazy_names

if TYPE_CHECKING:
    from .state_service import InMemoryStateService, RedisStateService, StateService, VersionedStateService

__all__ = ["InMemoryStateService", "RedisStateService", "StateService", "VersionedStateService"]

__getattr__, __dir__ = lazy_names(__name__, dict.fromkeys(__all__, "state_service"))
