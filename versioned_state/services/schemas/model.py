"""``Model``: the base of the models here, and the words that they share. Layer: services."""

from __future__ import annotations

from typing import Final

from pydantic import BaseModel, ConfigDict


class Model(BaseModel):
    """A model that keeps the fields that it does not know, so that what a newer release has written passes through."""

    model_config = ConfigDict(extra="allow")


class Role:
    """Who speaks."""

    ASSISTANT: Final = "assistant"
    USER: Final = "user"
    SYSTEM: Final = "system"
    TOOL: Final = "tool"


class ContentType:
    """What a part of a message is."""

    TEXT: Final = "text"
    DATA: Final = "data"
    IMAGE: Final = "image"
    AUDIO: Final = "audio"
    FILE: Final = "file"
    REFUSAL: Final = "refusal"


class RunStatus:
    """How far a message or a part of it has come."""

    Created: Final = "created"
    InProgress: Final = "in_progress"
    Completed: Final = "completed"
    Canceled: Final = "canceled"
    Failed: Final = "failed"
    Rejected: Final = "rejected"
    Unknown: Final = "unknown"
    Queued: Final = "queued"
    Incomplete: Final = "incomplete"


class MessageType:
    """What a message is."""

    MESSAGE: Final = "message"
    FUNCTION_CALL: Final = "function_call"
    FUNCTION_CALL_OUTPUT: Final = "function_call_output"
    PLUGIN_CALL: Final = "plugin_call"
    PLUGIN_CALL_OUTPUT: Final = "plugin_call_output"
    COMPONENT_CALL: Final = "component_call"
    COMPONENT_CALL_OUTPUT: Final = "component_call_output"
    MCP_LIST_TOOLS: Final = "mcp_list_tools"
    MCP_APPROVAL_REQUEST: Final = "mcp_approval_request"
    MCP_TOOL_CALL: Final = "mcp_call"
    MCP_APPROVAL_RESPONSE: Final = "mcp_approval_response"
    REASONING: Final = "reasoning"
    HEARTBEAT: Final = "heartbeat"
    ERROR: Final = "error"

    @classmethod
    def all_values(cls) -> list[str]:
        """Every type, in the order above."""
        return [value for name, value in vars(cls).items() if name.isupper()]
