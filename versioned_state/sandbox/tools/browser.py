"""The tools of browser sandboxes, which a registered factory makes. Layer: sandbox."""

from __future__ import annotations

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

browser_click = SandboxTool("browser_click", SandboxType.BROWSER, "Click an element.")
browser_close = SandboxTool("browser_close", SandboxType.BROWSER, "Close the page.")
browser_console_messages = SandboxTool("browser_console_messages", SandboxType.BROWSER, "The messages of the console.")
browser_drag = SandboxTool("browser_drag", SandboxType.BROWSER, "Drag an element to another one.")
browser_file_upload = SandboxTool("browser_file_upload", SandboxType.BROWSER, "Upload files.")
browser_handle_dialog = SandboxTool("browser_handle_dialog", SandboxType.BROWSER, "Accept or dismiss a dialog.")
browser_hover = SandboxTool("browser_hover", SandboxType.BROWSER, "Hover over an element.")
browser_navigate = SandboxTool("browser_navigate", SandboxType.BROWSER, "Go to a URL.")
browser_navigate_back = SandboxTool("browser_navigate_back", SandboxType.BROWSER, "Go back.")
browser_navigate_forward = SandboxTool("browser_navigate_forward", SandboxType.BROWSER, "Go forward.")
browser_network_requests = SandboxTool("browser_network_requests", SandboxType.BROWSER, "The requests of the page so far.")
browser_pdf_save = SandboxTool("browser_pdf_save", SandboxType.BROWSER, "Save the page as PDF.")
browser_press_key = SandboxTool("browser_press_key", SandboxType.BROWSER, "Press a key.")
browser_resize = SandboxTool("browser_resize", SandboxType.BROWSER, "Resize the window.")
browser_select_option = SandboxTool("browser_select_option", SandboxType.BROWSER, "Select an option.")
browser_snapshot = SandboxTool("browser_snapshot", SandboxType.BROWSER, "The page as a tree of accessible elements.")
browser_tab_close = SandboxTool("browser_tab_close", SandboxType.BROWSER, "Close a tab.")
browser_tab_list = SandboxTool("browser_tab_list", SandboxType.BROWSER, "List the tabs.")
browser_tab_new = SandboxTool("browser_tab_new", SandboxType.BROWSER, "Open a tab.")
browser_tab_select = SandboxTool("browser_tab_select", SandboxType.BROWSER, "Select a tab.")
browser_take_screenshot = SandboxTool("browser_take_screenshot", SandboxType.BROWSER, "Take a screenshot.")
browser_type = SandboxTool("browser_type", SandboxType.BROWSER, "Type a text into an element.")
browser_wait_for = SandboxTool("browser_wait_for", SandboxType.BROWSER, "Wait for a text or some time.")
