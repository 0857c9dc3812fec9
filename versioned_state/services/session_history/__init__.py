"""The messages of sessions: ``SessionHistoryService`` and its implementations.

Needs the extra ``services``. Layer: services.
"""

from versioned_state.services.session_history.session_history_service import (
    InMemorySessionHistoryService,
    RedisSessionHistoryService,
    SessionHistoryService,
    VersionedSessionHistoryService,
)

__all__ = [
    "InMemorySessionHistoryService",
    "RedisSessionHistoryService",
    "SessionHistoryService",
    "VersionedSessionHistoryService",
]
