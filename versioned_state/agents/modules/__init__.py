"""Agents as trees of modules, and sessions that keep them; the counterpart of AgentScope's ``module`` and ``session``. Layer: agents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from versioned_state.lazy import lazy_names

if TYPE_CHECKING:
    from versioned_state.agents.modules.json_session import JSONSession
    from versioned_state.agents.modules.module import StateModule
    from versioned_state.agents.modules.session import SessionBase
    from versioned_state.agents.modules.versioned_session import VersionedSession

__all__ = ["JSONSession", "SessionBase", "StateModule", "VersionedSession"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "StateModule": "module",
        "SessionBase": "session",
        "JSONSession": "json_session",
        "VersionedSession": "versioned_session",
    },
)
