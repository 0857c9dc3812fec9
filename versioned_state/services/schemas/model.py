"""``Model``, the base of the models here, and the constants that they share. Layer: services."""

from __future__ import annotations

from typing import ClassVar, Final

from pydantic import BaseModel, ConfigDict


class Model(BaseModel):
    """A model that keeps unknown fields, so that data of newer releases is preserved."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="allow")


class Role:
    """The role of a message's author."""

    ASSISTANT: Final = "assistant"
    USER: Final = "user"
    SYSTEM: Final = "system"
    TOOL: Final = "tool"


class ContentType:
    """The kind of a part of a message."""

    TEXT: Final = "text"
    DATA: Final = "data"
    IMAGE: Final = "image"
    AUDIO: Final = "audio"
    FILE: Final = "file"
    REFUSAL: Final = "refusal"


class RunStatus:
    """The status of a message or of a part of it."""

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
    """The kind of a message."""

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
        """Return all types, in the order above."""
        return [value for name, value in vars(cls).items() if name.isupper()]
