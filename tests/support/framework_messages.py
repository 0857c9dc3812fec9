"""Messages of the agent frameworks, of their real classes: always the same, so that two processes can compare theirs.

Each is a conversation in which a model asks a tool for the weather of Rome. A framework is imported when its messages
are made.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Any

from pydantic import BaseModel

QUESTION = "Will it rain in Rome?"
ANSWER = "It rains in Rome."
NEW_ANSWER = "The sun shines in Rome."
TIME = datetime(2026, 11, 22, 7, 20, tzinfo=UTC)
CALL = {"name": "weather", "arguments": '{"city": "Rome"}'}


class Forecast(BaseModel):
    """The format of the answer that the model is asked for."""

    city: str
    says: str


def langchain() -> list[Any]:
    from langchain_core.documents import Document
    from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage

    asked: Any = {
        "tool_calls": [{"name": "weather", "args": {"city": "Rome"}, "id": "call-1"}],
        "usage_metadata": {"input_tokens": 12, "output_tokens": 5, "total_tokens": 17},
        "additional_kwargs": {"refusal": None},
        "vendor": {"cached": True},  # an extra field, as integrations set them
    }
    answer = AIMessage(ANSWER, id="b", response_metadata={"model_name": "m"})
    return [
        SystemMessage("Be short.", id="s"),
        HumanMessage([{"type": "text", "text": QUESTION}], id="h", name="Ann"),
        AIMessage("", id="a", **asked),
        ToolMessage("rain", tool_call_id="call-1", artifact={"source": Document("rain", metadata={"page": 1})}),
        answer,
        answer.text,  # a subclass of str
    ]


def openai() -> list[Any]:
    """As the client makes them: not validated, with a field that the library does not know, and the request's id."""
    from openai._models import add_request_id, construct_type
    from openai.types.chat import ChatCompletion
    from openai.types.responses import Response

    message = {
        "role": "assistant",
        "content": ANSWER,
        "tool_calls": [{"id": "call-1", "type": "function", "function": CALL}],
        "reasoning": "Ask the tool.",
    }
    completion: Any = construct_type(
        type_=ChatCompletion,
        value={
            "choices": [{"index": 0, "finish_reason": "tool_calls", "message": message}],
            "id": "c",
            "object": "chat.completion",
            "created": 1795332000,
            "model": "m",
            "usage": {"prompt_tokens": 12, "completion_tokens": 5, "total_tokens": 17, "cost": 0.25},
        },
    )
    add_request_id(completion, "req-1")
    text = {"type": "output_text", "text": ANSWER, "annotations": []}
    response = construct_type(
        type_=Response,
        value={
            "id": "r",
            "object": "response",
            "created_at": 1795332000.5,
            "model": "m",
            "status": "completed",
            "output": [
                {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": [text]},
                {**CALL, "type": "function_call", "call_id": "call-1", "id": "f", "status": "completed"},
            ],
        },
    )
    return [completion, response, construct_type(type_=ChatCompletion, value={"id": 7, "choices": "not a list"})]


def openai_parsed() -> list[Any]:
    """Structured output, of parametrised generic classes, which no name leads to."""
    from openai import NOT_GIVEN
    from openai.lib._parsing._completions import parse_chat_completion
    from openai.types.chat import ChatCompletion

    message = {"role": "assistant", "content": Forecast(city="Rome", says=ANSWER).model_dump_json()}
    completion = ChatCompletion.model_validate(
        {
            "id": "c",
            "object": "chat.completion",
            "created": 1795332000,
            "model": "m",
            "choices": [{"index": 0, "finish_reason": "stop", "logprobs": None, "message": message}],
        }
    )
    return [parse_chat_completion(response_format=Forecast, input_tools=NOT_GIVEN, chat_completion=completion)]


def anthropic() -> list[Any]:
    from anthropic._models import construct_type
    from anthropic.lib._parse._response import parse_response
    from anthropic.types import Message

    fields = {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "model": "claude",
        "usage": {"input_tokens": 12, "output_tokens": 5},
    }
    call = {"type": "tool_use", "id": "call-1", "name": "weather", "input": {"city": "Rome"}}
    thought = {"type": "text", "text": ANSWER, "citations": None}
    message = construct_type(
        type_=Message, value={**fields, "content": [thought, call], "stop_reason": "tool_use", "vendor": [1]}
    )
    answer = {"type": "text", "text": Forecast(city="Rome", says=ANSWER).model_dump_json()}
    parsed = parse_response(
        output_format=Forecast,
        response=Message.model_validate({**fields, "content": [answer], "stop_reason": "end_turn"}),
    )
    return [message, parsed]


def pydantic_ai() -> list[Any]:
    from pydantic_ai.messages import (
        BinaryContent,
        ImageUrl,
        ModelRequest,
        ModelResponse,
        SystemPromptPart,
        TextPart,
        ThinkingPart,
        ToolCallPart,
        ToolReturnPart,
        UserPromptPart,
    )
    from pydantic_ai.usage import RequestUsage

    pictures: list[Any] = [
        QUESTION,
        ImageUrl(url="https://example.com/rome.png"),
        BinaryContent(data=b"\x89PNG", media_type="image/png"),
    ]
    return [
        ModelRequest(
            parts=[SystemPromptPart("Be short.", timestamp=TIME), UserPromptPart(pictures, timestamp=TIME)],
            timestamp=TIME,
        ),
        ModelResponse(
            parts=[
                ThinkingPart("Ask the tool."),
                ToolCallPart[dict[str, Any]]("weather", {"city": "Rome"}, tool_call_id="call-1"),
            ],
            usage=RequestUsage(input_tokens=12, output_tokens=5),
            model_name="m",
            timestamp=TIME,
        ),
        ModelRequest(
            parts=[ToolReturnPart("weather", {"says": "rain"}, tool_call_id="call-1", timestamp=TIME)], timestamp=TIME
        ),
        ModelResponse(parts=[TextPart(ANSWER)], model_name="m", timestamp=TIME),
    ]


def openai_agents() -> list[Any]:
    """Items of a run. Each refers to the agent that made it, strongly and weakly."""
    from agents import Agent
    from agents.items import HandoffOutputItem, MessageOutputItem, ModelResponse, ToolCallItem, ToolCallOutputItem
    from agents.usage import Usage
    from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

    forecaster: Agent[Any] = Agent(name="forecaster", instructions="Be short.")
    guide: Agent[Any] = Agent(name="guide", handoffs=[forecaster])
    text = ResponseOutputText(type="output_text", text=ANSWER, annotations=[])
    message = ResponseOutputMessage(id="m", type="message", role="assistant", status="completed", content=[text])
    call = ResponseFunctionToolCall(type="function_call", call_id="call-1", name="weather", arguments=CALL["arguments"])
    output: Any = {"type": "function_call_output", "call_id": "call-1", "output": "rain"}
    return [
        HandoffOutputItem(agent=guide, raw_item=output, source_agent=guide, target_agent=forecaster),
        ToolCallItem(agent=forecaster, raw_item=call),
        ToolCallOutputItem(agent=forecaster, raw_item=output, output="rain"),
        MessageOutputItem(agent=forecaster, raw_item=message),
        ModelResponse(
            output=[message.model_copy(deep=True)],
            usage=Usage(requests=1, input_tokens=12, output_tokens=5, total_tokens=17),
            response_id="r",
        ),
    ]


def agentscope() -> list[Any]:
    from agentscope.message import (
        AssistantMsg,
        TextBlock,
        ToolCallBlock,
        ToolResultBlock,
        ToolResultState,
        Usage,
        UserMsg,
    )

    at: Any = {"created_at": "2026-11-22 07:20:00"}
    blocks: list[Any] = [
        ToolCallBlock(id="call-1", name="weather", input=CALL["arguments"], **at),
        ToolResultBlock(
            id="call-1",
            name="weather",
            output=[TextBlock(id="r", text="rain", **at)],
            state=ToolResultState.SUCCESS,
            **at,
        ),
        TextBlock(id="t", text=ANSWER, **at),
    ]
    return [
        UserMsg(name="Ann", content=[TextBlock(id="q", text=QUESTION, **at)], id="m-1", metadata={"round": 1}, **at),
        AssistantMsg(name="guide", content=blocks, id="m-2", usage=Usage(input_tokens=12, output_tokens=5), **at),
    ]


@dataclass(frozen=True)
class Framework:
    """The messages of a framework.

    Attributes:
        packages: all that must be there for its messages to be made.
        path: where ``ANSWER`` is in them.
        classes: names that whoever reads the messages without the framework should see.
    """

    make: Callable[[], list[Any]]
    packages: tuple[str, ...]
    path: str
    classes: tuple[str, ...]

    def answer(self, messages: list[Any], text: str) -> None:
        """Change the answer in place."""
        *way, last = self.path.removeprefix("messages").replace("[", ".").replace("]", "").strip(".").split(".")
        part: Any = messages
        for step in way:
            part = part[int(step)] if step.isdigit() else getattr(part, step)
        setattr(part, last, text)


FRAMEWORKS = {
    "langchain": Framework(
        langchain, ("langchain_core",), "messages[4].content", ("HumanMessage", "AIMessage", "ToolMessage")
    ),
    "openai": Framework(
        openai, ("openai",), "messages[0].choices[0].message.content", ("ChatCompletion", "ResponseOutputMessage")
    ),
    "openai-parsed": Framework(
        openai_parsed, ("openai",), "messages[0].choices[0].message.parsed.says", ("ParsedChatCompletion", "Forecast")
    ),
    "anthropic": Framework(
        anthropic, ("anthropic",), "messages[0].content[0].text", ("Message", "ToolUseBlock", "ParsedMessage")
    ),
    "pydantic-ai": Framework(
        pydantic_ai, ("pydantic_ai",), "messages[3].parts[0].content", ("ModelRequest", "ToolCallPart")
    ),
    "openai-agents": Framework(
        openai_agents, ("agents", "openai"), "messages[3].raw_item.content[0].text", ("MessageOutputItem", "Agent")
    ),
    "agentscope": Framework(agentscope, ("agentscope",), "messages[1].content[2].text", ("Msg", "ToolCallBlock")),
}


def record(value: Any) -> Any:
    """Return a stand-in that equals another only if the values agree in classes, fields, extra fields and given fields.

    ``==`` of most frameworks asks for less. A parametrised class counts as the class itself, and a weak reference as
    the class of what it refers to.
    """
    cls = type(value)
    if cls in (list, tuple):
        return cls.__name__, [record(part) for part in value]
    if cls is dict:
        return {key: record(part) for key, part in value.items()}
    if isinstance(value, weakref.ref):
        return "weak reference", type(value()).__qualname__
    if isinstance(value, (Enum, datetime)) or not hasattr(cls, "__dict__") or cls.__module__ == "builtins":
        return cls.__qualname__, value
    name = cls.__qualname__.partition("[")[0]
    fields = {name: record(part) for name, part in getattr(value, "__dict__", {}).items() if name != "__orig_class__"}
    if not isinstance(value, BaseModel):
        return name, fields, str(value) if isinstance(value, str) else None
    return (
        name,
        fields,
        record(value.__pydantic_extra__),
        record(value.__pydantic_private__),
        frozenset(value.model_fields_set),
    )
