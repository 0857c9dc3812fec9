"""The tools of browser sandboxes, which a registered factory makes. Layer: sandbox."""

from __future__ import annotations

from typing import Final

from versioned_state.sandbox.enums import SandboxType
from versioned_state.sandbox.tools.tool import SandboxTool

__all__ = [
    "browser_click",
    "browser_close",
    "browser_console_messages",
    "browser_drag",
    "browser_file_upload",
    "browser_handle_dialog",
    "browser_hover",
    "browser_navigate",
    "browser_navigate_back",
    "browser_navigate_forward",
    "browser_network_requests",
    "browser_pdf_save",
    "browser_press_key",
    "browser_resize",
    "browser_select_option",
    "browser_snapshot",
    "browser_tab_close",
    "browser_tab_list",
    "browser_tab_new",
    "browser_tab_select",
    "browser_take_screenshot",
    "browser_type",
    "browser_wait_for",
]

browser_click: Final = SandboxTool("browser_click", SandboxType.BROWSER, "Click an element.")
browser_close: Final = SandboxTool("browser_close", SandboxType.BROWSER, "Close the page.")
browser_console_messages: Final = SandboxTool(
    "browser_console_messages", SandboxType.BROWSER, "The messages of the console."
)
browser_drag: Final = SandboxTool("browser_drag", SandboxType.BROWSER, "Drag an element to another one.")
browser_file_upload: Final = SandboxTool("browser_file_upload", SandboxType.BROWSER, "Upload files.")
browser_handle_dialog: Final = SandboxTool("browser_handle_dialog", SandboxType.BROWSER, "Accept or dismiss a dialog.")
browser_hover: Final = SandboxTool("browser_hover", SandboxType.BROWSER, "Hover over an element.")
browser_navigate: Final = SandboxTool("browser_navigate", SandboxType.BROWSER, "Go to a URL.")
browser_navigate_back: Final = SandboxTool("browser_navigate_back", SandboxType.BROWSER, "Go back.")
browser_navigate_forward: Final = SandboxTool("browser_navigate_forward", SandboxType.BROWSER, "Go forward.")
browser_network_requests: Final = SandboxTool(
    "browser_network_requests", SandboxType.BROWSER, "The requests of the page so far."
)
browser_pdf_save: Final = SandboxTool("browser_pdf_save", SandboxType.BROWSER, "Save the page as PDF.")
browser_press_key: Final = SandboxTool("browser_press_key", SandboxType.BROWSER, "Press a key.")
browser_resize: Final = SandboxTool("browser_resize", SandboxType.BROWSER, "Resize the window.")
browser_select_option: Final = SandboxTool("browser_select_option", SandboxType.BROWSER, "Select an option.")
browser_snapshot: Final = SandboxTool(
    "browser_snapshot", SandboxType.BROWSER, "The page as a tree of accessible elements."
)
browser_tab_close: Final = SandboxTool("browser_tab_close", SandboxType.BROWSER, "Close a tab.")
browser_tab_list: Final = SandboxTool("browser_tab_list", SandboxType.BROWSER, "List the tabs.")
browser_tab_new: Final = SandboxTool("browser_tab_new", SandboxType.BROWSER, "Open a tab.")
browser_tab_select: Final = SandboxTool("browser_tab_select", SandboxType.BROWSER, "Select a tab.")
browser_take_screenshot: Final = SandboxTool("browser_take_screenshot", SandboxType.BROWSER, "Take a screenshot.")
browser_type: Final = SandboxTool("browser_type", SandboxType.BROWSER, "Type a text into an element.")
browser_wait_for: Final = SandboxTool("browser_wait_for", SandboxType.BROWSER, "Wait for a text or some time.")
