"""The tools of GUI sandboxes, which a registered factory makes. Layer: sandbox."""

from __future__ import annotations

from typing import Final

from versioned_state.sandbox.enums import SandboxType
from versioned_state.sandbox.tools.tool import SandboxTool

__all__ = ["computer_use"]

computer_use: Final = SandboxTool(
    "computer_use", SandboxType.GUI, "Use the mouse and keyboard of a desktop, and look at it."
)
