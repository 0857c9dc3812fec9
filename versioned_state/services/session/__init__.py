"""Sessions whose state, messages, memory and files change together: ``SessionService``.

Needs the extra ``services``. Layer: services.
"""

from versioned_state.services.session.session_service import SessionService, VersionedSessionService
from versioned_state.services.session.turn import Turn

__all__ = ["SessionService", "Turn", "VersionedSessionService"]
