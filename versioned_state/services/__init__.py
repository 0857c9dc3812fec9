"""Services for many users: states, histories, memories and sandboxes by user and session, as coroutines.

Layer: services.
"""

from typing import TYPE_CHECKING

from versioned_state.lazy import lazy_names

if TYPE_CHECKING:
    from versioned_state.services.remote.remote_memory_service import RemoteMemoryService as RemoteMemoryService
    from versioned_state.services.remote.remote_session_history_service import (
        RemoteSessionHistoryService as RemoteSessionHistoryService,
    )
    from versioned_state.services.remote.remote_session_service import RemoteSessionService as RemoteSessionService
    from versioned_state.services.remote.remote_state_service import RemoteStateService as RemoteStateService
    from versioned_state.services.session.session_service import SessionService as SessionService

    __all__: list[str]
else:
    __getattr__, __dir__, __all__ = lazy_names(
        __name__,
        {
            "remote.remote_memory_service": "RemoteMemoryService",
            "remote.remote_session_history_service": "RemoteSessionHistoryService",
            "remote.remote_session_service": "RemoteSessionService",
            "remote.remote_state_service": "RemoteStateService",
            "session.session_service": "SessionService",
        },
    )
