"""Services for many users: states, histories, memories and sandboxes by user and session, as coroutines. Layer: services."""

from typing import TYPE_CHECKING

from versioned_state.lazy import lazy_names

if TYPE_CHECKING:
    from versioned_state.services.remote.remote_memory_service import RemoteMemoryService
    from versioned_state.services.remote.remote_session_history_service import RemoteSessionHistoryService
    from versioned_state.services.remote.remote_state_service import RemoteStateService

__all__ = ["RemoteMemoryService", "RemoteSessionHistoryService", "RemoteStateService"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "RemoteMemoryService": "remote.remote_memory_service",
        "RemoteSessionHistoryService": "remote.remote_session_history_service",
        "RemoteStateService": "remote.remote_state_service",
    },
)
