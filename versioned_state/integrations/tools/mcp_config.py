"""The entry in the configuration of each client of MCP that starts ``vstate mcp``. Layer: integrations."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final


def _json(entry: Any) -> str:
    return json.dumps(entry, indent=2)


def _toml(command: str, arguments: list[str]) -> str:
    return f"[mcp_servers.state]\ncommand = {json.dumps(command)}\nargs = {json.dumps(arguments)}"


CONFIGS: Final[dict[str, Callable[[str, list[str]], str]]] = {
    "claude": lambda command, arguments: _json({"mcpServers": {"state": {"command": command, "args": arguments}}}),
    "cursor": lambda command, arguments: _json({"mcpServers": {"state": {"command": command, "args": arguments}}}),
    "vscode": lambda command, arguments: _json(
        {"servers": {"state": {"type": "stdio", "command": command, "args": arguments}}}
    ),
    "codex": _toml,
}
"""The text to paste for each client, as a function of the command and its arguments."""
