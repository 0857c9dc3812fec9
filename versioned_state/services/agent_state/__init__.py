"""The state service: dicts of agents by user, session and round, each round a commit. Layer: services."""

from typing import TYPE_CHECKING

from versioned_state.lazy import lazy_names

if TYPE_CHECKING:
    from versioned_state.services.agent_state.state_service import (
        InMemoryStateService as InMemoryStateService,
        RedisStateService as RedisStateService,
        StateService as StateService,
        VersionedStateService as VersionedStateService,
    )

    __all__: list[str]
else:
    __getattr__, __dir__, __all__ = lazy_names(
        __name__, {"state_service": "InMemoryStateService RedisStateService StateService VersionedStateService"}
    )
