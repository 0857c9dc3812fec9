"""Agents as trees of modules, and sessions that keep them, as AgentScope's ``module`` and ``session`` do.

Layer: agents.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from versioned_state.lazy import lazy_names

if TYPE_CHECKING:
    from versioned_state.agents.modules.json_session import JSONSession as JSONSession
    from versioned_state.agents.modules.module import StateModule as StateModule
    from versioned_state.agents.modules.session import SessionBase as SessionBase
    from versioned_state.agents.modules.versioned_session import VersionedSession as VersionedSession

    __all__: list[str]
else:
    __getattr__, __dir__, __all__ = lazy_names(
        __name__,
        {
            "json_session": "JSONSession",
            "module": "StateModule",
            "session": "SessionBase",
            "versioned_session": "VersionedSession",
        },
    )
