"""The tools of mobile sandboxes, which a registered factory makes. Layer: sandbox."""

from __future__ import annotations

from typing import Final

from versioned_state.sandbox.enums import SandboxType
from versioned_state.sandbox.tools.tool import SandboxTool

__all__ = [
    "adb_use",
    "mobile_get_screen_resolution",
    "mobile_get_screenshot",
    "mobile_input_text",
    "mobile_key_event",
    "mobile_swipe",
    "mobile_tap",
]

adb_use: Final = SandboxTool("adb_use", SandboxType.MOBILE, "Do any action on the device.")
mobile_get_screen_resolution: Final = SandboxTool(
    "mobile_get_screen_resolution", SandboxType.MOBILE, "The resolution of the screen."
)
mobile_get_screenshot: Final = SandboxTool("mobile_get_screenshot", SandboxType.MOBILE, "Take a screenshot.")
mobile_input_text: Final = SandboxTool("mobile_input_text", SandboxType.MOBILE, "Type a text.")
mobile_key_event: Final = SandboxTool("mobile_key_event", SandboxType.MOBILE, "Press a key.")
mobile_swipe: Final = SandboxTool("mobile_swipe", SandboxType.MOBILE, "Swipe from one point to another.")
mobile_tap: Final = SandboxTool("mobile_tap", SandboxType.MOBILE, "Tap a point.")
