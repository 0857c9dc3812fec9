"""Messages from and to the format of OpenAI's chat completions. Layer: services."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from versioned_state.errors import InvalidArgumentError
from versioned_state.services.schemas.contents import (
    AgentContent,
    AudioContent,
    DataContent,
    ImageContent,
    RefusalContent,
    TextContent,
)
from versioned_state.services.schemas.model import MessageType, Role
from versioned_state.services.schemas.tools import FunctionCall, FunctionCallOutput


def fields_of_message(message: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a message of chat completions to the fields of a ``Message``. Raises ``InvalidArgumentError``."""
    try:
        return _fields(message)
    except (KeyError, TypeError, AttributeError) as error:
        raise InvalidArgumentError(f"not a message of chat completions: {error!r}") from error


def _fields(message: Mapping[str, Any]) -> dict[str, Any]:
    role = message["role"]
    if role == Role.TOOL:
        output = FunctionCallOutput(call_id=message["tool_call_id"], output=_plain(message["content"]))
        return {
            "type": MessageType.FUNCTION_CALL_OUTPUT,
            "role": role,
            "content": [DataContent(data=output.model_dump())],
        }
    parts = list(_parts(message.get("content")))
    calls = message.get("tool_calls")
    if calls:
        parts.extend(
            DataContent(
                data=FunctionCall(
                    call_id=call["id"], name=call["function"]["name"], arguments=call["function"]["arguments"]
                ).model_dump()
            )
            for call in calls
        )
    kind = MessageType.FUNCTION_CALL if calls else MessageType.MESSAGE
    return {"type": kind, "role": role, "content": parts}


def openai_message(kind: str, role: str | None, parts: Sequence[AgentContent]) -> dict[str, Any] | None:
    """Return the message of chat completions for this type, role and content, or None if there is none."""
    if kind == MessageType.MESSAGE:
        return {"role": role, "content": [_openai_part(part) for part in parts]}
    if kind == MessageType.FUNCTION_CALL:
        calls = [_openai_call(part.data or {}) for part in parts if isinstance(part, DataContent)]
        said = [_openai_part(part) for part in parts if not isinstance(part, DataContent)]
        return {"role": Role.ASSISTANT, **({"content": said} if said else {}), "tool_calls": calls}
    if kind == MessageType.FUNCTION_CALL_OUTPUT:
        output = next((part.data or {} for part in parts if isinstance(part, DataContent)), {})
        return {"role": Role.TOOL, "tool_call_id": output.get("call_id"), "content": output.get("output")}
    return None


def _parts(content: Any) -> Iterable[AgentContent]:
    if content is None:
        return
    if isinstance(content, str):
        yield TextContent(text=content)
        return
    for part in content:
        kind = part["type"]
        if kind == "text":
            yield TextContent(text=part["text"])
        elif kind == "image_url":
            yield ImageContent(image_url=part["image_url"]["url"])
        elif kind == "input_audio":
            yield AudioContent(data=part["input_audio"]["data"], format=part["input_audio"].get("format"))
        elif kind == "refusal":
            yield RefusalContent(refusal=part["refusal"])
        else:
            yield DataContent(data=dict(part))


def _plain(content: Any) -> str:
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


def _openai_part(part: AgentContent) -> dict[str, Any]:
    if isinstance(part, TextContent):
        return {"type": "text", "text": part.text or ""}
    if isinstance(part, ImageContent):
        return {"type": "image_url", "image_url": {"url": part.image_url}}
    if isinstance(part, AudioContent):
        return {"type": "input_audio", "input_audio": {"data": part.data, "format": part.format}}
    if isinstance(part, RefusalContent):
        return {"type": "refusal", "refusal": part.refusal}
    if isinstance(part, DataContent):
        return part.data or {}
    return {"type": "file", "file": {"file_id": part.file_id, "filename": part.filename, "file_data": part.file_data}}


def _openai_call(data: Mapping[Any, Any]) -> dict[str, Any]:
    function = {"name": data.get("name"), "arguments": data.get("arguments")}
    return {"id": data.get("call_id"), "type": "function", "function": function}
