"""Messages and sessions: defaults, kinds of content, unknown fields, deltas, the format of chat completions."""

from __future__ import annotations

import json
import subprocess
import sys
from textwrap import dedent
from typing import Any

import pytest
from pydantic import ValidationError

from versioned_state import Memory, Versioned
from versioned_state.errors import InvalidArgumentError
from versioned_state.services.schemas.agent_schemas import (
    AudioContent,
    ContentType,
    DataContent,
    Error,
    FileContent,
    ImageContent,
    Message,
    MessageType,
    RefusalContent,
    Role,
    RunStatus,
    TextContent,
    convert_to_openai_messages,
)
from versioned_state.services.schemas.session import Session

KINDS: list[Any] = [
    TextContent(text="hi"),
    DataContent(data={"call_id": "1", 2: (3, b"4")}),
    ImageContent(image_url="https://example.org/a.png"),
    AudioContent(data="UklGRg==", format="wav"),
    FileContent(file_id="f1", filename="a.txt"),
    RefusalContent(refusal="no"),
]


def test_a_message_has_an_id_and_defaults():
    one, other = Message(), Message(role=Role.USER, content=[TextContent(text="hi")])
    assert one.id.startswith("msg_")
    assert one.id != other.id
    assert (one.type, one.object, one.status, one.role, one.content) == ("message", "message", "created", None, None)
    assert (one.metadata, one.usage, one.code, one.message, one.sequence_number, one.error) == (None,) * 6
    assert other.get_text_content() == "hi"


@pytest.mark.parametrize("content", KINDS, ids=lambda content: content.type)
def test_each_kind_of_content_is_found_by_its_type(content):
    message = Message.model_validate({"role": "assistant", "content": [content.model_dump()]})
    assert message.content == [content]
    assert type(message.content[0]) is type(content)
    assert message.content[0].object == "content"


@pytest.mark.parametrize(
    "fields",
    [
        {"role": "robot"},
        {"content": "text"},
        {"content": [{"text": "without a type"}]},
        {"content": [{"type": "smell"}]},
        {"id": 7},
        {"metadata": []},
    ],
)
def test_an_invalid_message_is_refused(fields):
    with pytest.raises(ValidationError):
        Message.model_validate(fields)


def test_fields_that_are_not_known_are_kept():
    fields = {
        "id": "msg_1",
        "priority": 3,
        "content": [{"type": "text", "text": "a", "lang": "en", "error": {"code": "1", "message": "m", "x": 2}}],
    }
    message = Message.model_validate(fields)
    assert message.model_dump(exclude_unset=True) == fields
    assert Message.model_validate_json(message.model_dump_json()) == message
    assert Session.model_validate({"id": "s", "user_id": "u", "title": "a"}).model_dump()["title"] == "a"


def test_a_session_takes_any_ids_and_keeps_what_is_not_a_message():
    session = Session(id="\ud800\0", user_id="", messages=[{"role": "user"}, {"role": "robot"}])
    assert (session.id, session.user_id) == ("\ud800\0", "")
    assert isinstance(session.messages[0], Message)
    assert session.messages[1] == {"role": "robot"}
    assert Session(id="s", user_id="u").messages is not Session(id="s", user_id="u").messages
    with pytest.raises(ValidationError):
        Session(id=7, user_id="u")  # type: ignore[arg-type]


def test_a_message_is_data_in_a_state():
    store = Memory()
    message = Message(role="user", content=KINDS, metadata={"a": (1, {2})})
    state = Versioned(store)
    state["messages"] = [message]
    state.commit()
    assert state.checkout("HEAD")["messages"] == [message]
    assert state.checkout("HEAD").at("messages[0].content[0].text") == "hi"


def test_status():
    message = Message()
    assert message.in_progress().status == RunStatus.InProgress
    assert message.created().status == RunStatus.Created
    assert message.completed().status == RunStatus.Completed
    assert message.canceled().status == RunStatus.Canceled
    assert message.rejected().status == RunStatus.Rejected
    error = Error(code="500", message="no")
    assert message.failed(error) is message
    assert (message.status, message.error) == (RunStatus.Failed, error)


def test_a_stream_of_deltas_becomes_one_part():
    message = Message(role="assistant")
    begun = message.add_delta_content(TextContent(text="he", delta=True))
    assert begun is not None
    assert (begun.index, begun.msg_id, begun.status) == (0, message.id, RunStatus.InProgress)
    message.add_delta_content(TextContent(text="llo", delta=True, index=0))
    message.add_delta_content(DataContent(data={"name": "f", "arguments": None, "n": [1]}))
    message.add_delta_content(DataContent(data={"name": None, "arguments": "{", "n": [2]}, delta=True, index=1))
    message.add_delta_content(DataContent(data={"arguments": "}", "n": 3}, delta=True, index=1))
    assert message.get_text_content() == "hello"
    assert message.content is not None
    assert isinstance(message.content[1], DataContent)
    assert message.content[1].data == {"name": "f", "arguments": "{}", "n": [1, 2]}
    whole = message.content_completed(0)
    assert isinstance(whole, TextContent)
    assert (whole.text, whole.index, whole.msg_id, whole.status) == ("hello", 0, message.id, RunStatus.Completed)
    assert message.content[0].status is None
    assert message.content_completed(2) is None
    assert message.add_delta_content(TextContent(text="x", index=0)) is None


def test_a_delta_without_its_part_changes_nothing():
    message = Message(content=[TextContent(text="a")])
    with pytest.raises(IndexError):
        message.add_delta_content(TextContent(text="b", delta=True, index=1))
    with pytest.raises(ValueError, match="part 0 of the message is text, and the delta is image"):
        message.add_delta_content(ImageContent(image_url="b", delta=True, index=0))
    assert message.content == [TextContent(text="a")]


def test_whole_parts_are_copied():
    message = Message()
    given = DataContent(data={"a": [1]})
    assert message.add_content(given) is given
    assert (given.index, given.status) == (0, RunStatus.Completed)
    assert given.data is not None
    given.data["a"].append(2)
    assert message.content == [DataContent(data={"a": [1]})]
    assert "content" in message.model_fields_set
    assert message.add_content(given) is None


def test_images_and_audio():
    message = Message(content=KINDS)
    assert message.get_image_content() == ["https://example.org/a.png"]
    assert message.get_audio_content() == ["UklGRg=="]
    assert Message().get_image_content() == Message().get_audio_content() == []
    assert Message().get_text_content() is None


CHAT: list[dict[str, Any]] = [
    {
        "role": "user",
        "content": [{"type": "text", "text": "what?"}, {"type": "image_url", "image_url": {"url": "data:,"}}],
    },
    {
        "role": "assistant",
        "content": [{"type": "text", "text": "I look"}],
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "a cat"},
    {"role": "assistant", "content": [{"type": "text", "text": "A cat."}]},
]


def test_chat_completions_there_and_back():
    messages = [Message.from_openai_message(message) for message in CHAT]
    assert [message.type for message in messages] == [
        MessageType.MESSAGE,
        MessageType.FUNCTION_CALL,
        MessageType.FUNCTION_CALL_OUTPUT,
        MessageType.MESSAGE,
    ]
    assert convert_to_openai_messages(messages) == CHAT
    assert convert_to_openai_messages([Message(type=MessageType.REASONING)]) == []
    assert Message.from_openai_message({"role": "user", "content": "hi"}).get_text_content() == "hi"
    assert Message.from_openai_message({"role": "assistant", "content": None, "tool_calls": None}).content == []
    assert Message.from_openai_message(messages[0]) is messages[0]
    assert Message.from_openai_message(messages[0].model_dump()) == messages[0]
    kinds = [
        content.type
        for content in Message.from_openai_message(
            {
                "role": "user",
                "content": [
                    {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}},
                    {"type": "refusal", "refusal": "no"},
                    {"type": "file", "file": {"file_id": "f"}},
                ],
            }
        ).content
        or ()
    ]
    assert kinds == [ContentType.AUDIO, ContentType.REFUSAL, ContentType.DATA]
    wrongs: list[dict[str, Any]] = [
        {},
        {"role": "tool"},
        {"role": "user", "content": [{"text": "a"}]},
        {"role": "user", "content": [3]},
    ]
    for wrong in wrongs:
        with pytest.raises(InvalidArgumentError, match="not a message of chat completions"):
            Message.from_openai_message(wrong)


def test_all_types():
    assert MessageType.all_values()[:3] == ["message", "function_call", "function_call_output"]
    assert len(MessageType.all_values()) == 14


def test_without_pydantic_the_error_names_the_extra():
    program = """
        import json, sys
        sys.modules["pydantic"] = None
        try:
            import versioned_state.services.schemas.agent_schemas
        except ImportError as error:
            print(json.dumps([type(error).__name__, f"{error} {error.hint}"]))
    """
    said = subprocess.run([sys.executable, "-c", dedent(program)], check=True, capture_output=True, text=True).stdout
    kind, text = json.loads(said)
    assert kind == "MissingDependencyError"
    assert "pip install 'versioned-state[services]'" in text
