"""The service of sandboxes, by session and user. Layer: services."""

from typing import TYPE_CHECKING

from versioned_state.lazy import lazy_names

if TYPE_CHECKING:
    from .sandbox_service import SandboxService

__all__ = ["SandboxService"]

__getattr__, __dir__ = lazy_names(__name__, {"SandboxService": "sandbox_service"})
