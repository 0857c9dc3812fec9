"""Services for many users: states, histories, memories and sandboxes by user and session, as coroutines. Layer: services."""

from versioned_state.lazy import lazy_names

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "RemoteMemoryService": "remote.remote_memory_service",
        "RemoteSessionHistoryService": "remote.remote_session_history_service",
        "RemoteStateService": "remote.remote_state_service",
    },
)
