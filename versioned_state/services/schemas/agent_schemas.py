"""``Message``, and the names that belong to it. Layer: services."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias, cast
from uuid import uuid4

from pydantic import BaseModel, Field

from versioned_state.services.schemas.contents import (
    AgentContent,
    AudioContent,
    Content,
    DataContent,
    Error,
    Event,
    FileContent,
    ImageContent,
    RefusalContent,
    TextContent,
)
from versioned_state.services.schemas.model import ContentType, MessageType, Role, RunStatus
from versioned_state.services.schemas.openai_format import fields_of_message, openai_message
from versioned_state.services.schemas.tools import (
    FunctionCall,
    FunctionCallOutput,
    FunctionParameters,
    FunctionTool,
    McpApprovalRequest,
    McpCall,
    McpListTools,
    McpListToolsTool,
    Tool,
    ToolCall,
    ToolCallOutput,
)

__all__ = [
    "AgentContent",
    "AgentRole",
    "AudioContent",
    "Content",
    "ContentType",
    "DataContent",
    "Error",
    "Event",
    "FileContent",
    "FunctionCall",
    "FunctionCallOutput",
    "FunctionParameters",
    "FunctionTool",
    "ImageContent",
    "McpApprovalRequest",
    "McpCall",
    "McpListTools",
    "McpListToolsTool",
    "Message",
    "MessageType",
    "RefusalContent",
    "Role",
    "RunStatus",
    "TextContent",
    "Tool",
    "ToolCall",
    "ToolCallOutput",
    "convert_to_openai_messages",
]

AgentRole: TypeAlias = Literal["assistant", "system", "user", "tool"]


class Message(Event):
    """A message of a conversation: the role of its author, and its parts.

    Unknown fields are kept.
    """

    id: str = Field(default_factory=lambda: f"msg_{uuid4()}")
    object: str = "message"
    type: str = MessageType.MESSAGE
    status: str = RunStatus.Created
    role: AgentRole | None = None
    # a million errors would take a gigabyte
    content: Annotated[list[AgentContent], Field(fail_fast=True)] | None = None
    code: str | None = None
    message: str | None = None
    usage: dict[Any, Any] | None = None
    metadata: dict[Any, Any] | None = None

    @staticmethod
    def from_openai_message(message: BaseModel | Mapping[str, Any]) -> Message:
        """Convert a message in the format of OpenAI's chat completions, or of this class, to a ``Message``.

        Raises:
            InvalidArgumentError: the message has neither format, or lacks a field.
            ValidationError: a field is invalid (pydantic's error, a ``ValueError``).
        """
        if isinstance(message, Message):
            return message
        fields = message.model_dump() if isinstance(message, BaseModel) else message
        if fields.get("type") in MessageType.all_values():
            return Message.model_validate(fields)
        return Message.model_validate(fields_of_message(fields))

    def get_text_content(self) -> str | None:
        """Return the first text of the message, or None."""
        return next((part.text for part in self.content or () if isinstance(part, TextContent)), None)

    def get_image_content(self) -> list[str]:
        """Return the URLs of the images, in order."""
        return [
            part.image_url
            for part in self.content or ()
            if isinstance(part, ImageContent) and part.image_url is not None
        ]

    def get_audio_content(self) -> list[str]:
        """Return the audio parts, in base64, in order."""
        return [part.data for part in self.content or () if isinstance(part, AudioContent) and part.data is not None]

    def add_content(self, new_content: AgentContent) -> AgentContent | None:
        """Append a complete part.

        Returns:
            The given part, completed, with its place in this message. None if it has a place already, and nothing was
            appended.
        """
        if new_content.index is not None:
            return None
        self._append(new_content.model_copy(deep=True), new_content)
        return new_content.completed()

    def add_delta_content(self, new_content: AgentContent) -> AgentContent | None:
        """Append the beginning of a part (without ``index``), or continue the part at ``index`` (with ``delta=True``).

        Joins text, image URLs and base64, and in data the texts and lists under the same key.

        Returns:
            The given part, in progress, with its place in this message. None if it has a place and is not a delta.

        Raises:
            IndexError: there is no part at ``index``. Nothing was changed.
            ValueError: the part at ``index`` is of another type. Nothing was changed.
        """
        if new_content.index is None:
            begun = new_content.model_copy(deep=True, update={"delta": None, "index": None, "msg_id": None})
            self._append(begun, new_content)
            return new_content.in_progress()
        if not new_content.delta:
            return None
        part = (self.content or [])[new_content.index]
        if part.type != new_content.type:
            raise ValueError(
                f"part {new_content.index} of the message is {part.type}, and the delta is {new_content.type}"
            )
        _continue(part, new_content)
        new_content.msg_id = self.id
        return new_content.in_progress()

    def content_completed(self, content_index: int) -> AgentContent | None:
        """Return a completed copy of a part, with its place in this message, or None if there is no such part."""
        parts = self.content or []
        if content_index >= len(parts):
            return None
        update = {"delta": False, "index": content_index, "msg_id": self.id}
        return parts[content_index].model_copy(deep=True, update=update).completed()

    def _append(self, part: AgentContent, given: AgentContent) -> None:
        # Assigned, and not only appended to: for a model, a field is set by assignment.
        self.content = [*(self.content or ()), part]
        given.index = len(self.content) - 1
        given.msg_id = self.id


def convert_to_openai_messages(messages: list[Message]) -> list[dict[str, Any]]:
    """Convert messages, calls and results to the format of OpenAI's chat completions, and leave out other types."""
    converted = (openai_message(message.type, message.role, message.content or []) for message in messages)
    return [each for each in converted if each is not None]


_JOINED = {
    ContentType.TEXT: "text",
    ContentType.IMAGE: "image_url",
    ContentType.AUDIO: "data",
    ContentType.REFUSAL: "refusal",
}


def _continue(part: AgentContent, delta: AgentContent) -> None:
    name = _JOINED.get(part.type)
    if name is not None:
        joined = [text for text in (getattr(part, name), getattr(delta, name)) if text is not None]
        if joined:
            setattr(part, name, "".join(joined))
    elif isinstance(part, DataContent) and isinstance(delta, DataContent):
        data = part.data = dict(part.data or {})
        for key, new in (delta.data or {}).items():
            old = data.get(key)
            if isinstance(new, str | list) and isinstance(old, type(new)):
                data[key] = cast("Any", old) + new
            elif old is None:
                data[key] = new
