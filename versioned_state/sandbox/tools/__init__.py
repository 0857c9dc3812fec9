"""The tools of sandboxes, as objects that say which type of sandbox they need. Layer: sandbox.

A module for each type of sandbox: ``base``, ``filesystem``, ``browser``, ``gui``, ``mobile``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from versioned_state.lazy import lazy_names

if TYPE_CHECKING:
    from versioned_state.sandbox.tools.tool import SandboxTool as SandboxTool

    __all__: list[str]
else:
    __getattr__, __dir__, __all__ = lazy_names(__name__, {"tool": "SandboxTool"})
