"""The service of sandboxes, by session and user. Layer: services."""

from typing import TYPE_CHECKING

from versioned_state.lazy import lazy_names

if TYPE_CHECKING:
    from versioned_state.services.sandbox.sandbox_service import SandboxService as SandboxService

    __all__: list[str]
else:
    __getattr__, __dir__, __all__ = lazy_names(__name__, {"sandbox_service": "SandboxService"})
