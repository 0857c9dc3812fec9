"""Tools, their calls and their results, as data of messages. Layer: services."""

from __future__ import annotations

from typing import Any

from versioned_state.services.schemas.model import Model


class FunctionParameters(Model):
    """The parameters of a function, as a JSON schema of type ``object``."""

    type: str
    properties: dict[str, Any]
    required: list[str] | None


class FunctionTool(Model):
    """A function that a model may call."""

    name: str
    description: str
    parameters: FunctionParameters | dict[str, Any]


class Tool(Model):
    """A tool that a model may use."""

    type: str | None = "function"
    function: FunctionTool | None = None


class FunctionCall(Model):
    """A call by a model. Its arguments are JSON as the model wrote it, which may be malformed."""

    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None


class FunctionCallOutput(Model):
    """The result of a call."""

    call_id: str
    name: str | None = None
    output: str


class ToolCall(Model):
    """A call of a tool. Its arguments are JSON."""

    arguments: str
    call_id: str
    name: str


class ToolCallOutput(Model):
    """The result of a tool, as JSON."""

    call_id: str
    output: str


class McpCall(Model):
    """A call of a tool of an MCP server."""

    id: str
    arguments: str
    name: str
    server_label: str
    error: str | None = None
    output: str | None = None


class McpListToolsTool(Model):
    """A tool that an MCP server offers."""

    input_schema: Any
    name: str
    annotations: Any = None
    description: str | None = None


class McpListTools(Model):
    """The tools that an MCP server offers."""

    id: str
    server_label: str
    tools: list[McpListToolsTool]
    error: str | None = None


class McpApprovalRequest(Model):
    """A request to approve a call of a tool of an MCP server."""

    id: str
    arguments: str
    name: str
    server_label: str
