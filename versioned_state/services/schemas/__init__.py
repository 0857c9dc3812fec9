"""Messages and sessions as pydantic models, under the names of AgentScope Runtime.

Needs the extra ``services``. Layer: services.
"""

from __future__ import annotations

from versioned_state.errors import MissingDependencyError

try:
    import pydantic as _pydantic  # noqa: F401 - each module of this folder needs it
except ImportError as _missing:
    raise MissingDependencyError("versioned_state.services.schemas", extra="services") from _missing
