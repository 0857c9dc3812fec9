"""The branches of Google ADK's sessions and what is in them, for the adapter and for imports. Layer: integrations.

::

    google-adk/APP/USER/SESSION     a session: the list "events", the dict "state", and "session", which does not change
    google-adk-user/APP/USER        the dict "state" of a user
    google-adk-app/APP              the dict "state" of an app

Events and states are in the form that they have in JSON. Nothing of the ADK is imported.
"""

from __future__ import annotations

from typing import Any, Final

from versioned_state.repository.names.branch_name import branch_name

EVENTS: Final = "events"
STATE: Final = "state"
SESSION: Final = "session"

_SESSIONS: Final = "google-adk"
_OF_PARTS: Final = ("google-adk-app", "google-adk-user", _SESSIONS)


def branch_of(*ids: str) -> str:
    """Return a session's branch by app, user and session, or that of an app's or user's state by the first ids."""
    return branch_name(_OF_PARTS[len(ids) - 1], *ids)


def prefix_of(*ids: str) -> str:
    """Return the beginning of the branches of all sessions of an app, or of a user of it."""
    return branch_name(_SESSIONS, *ids) + "/"


def session_facts(app_name: str, user_id: str, session_id: str, created: float) -> dict[str, Any]:
    """Return the value of ``session``: when it began, and the ids, as the name of a branch may have a hash of one."""
    return {"app_name": app_name, "user_id": user_id, "id": session_id, "create_time": created}
