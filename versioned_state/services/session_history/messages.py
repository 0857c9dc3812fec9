"""Messages as data: each a dict of the fields that were set, so that paths lead into it. Layer: services."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from pydantic import BaseModel, ValidationError

from versioned_state.agents.modules.containers import ATOMS, captured_whole
from versioned_state.errors import InvalidArgumentError
from versioned_state.services.schemas.agent_schemas import Content, Error, Message
from versioned_state.services.schemas.session import Session

_FIRST: Final = ("id", "type", "role")
"""The fields that a reader of a diff looks for first. The others follow in the order of their class."""

_ALWAYS: Final = {"id", "type"}
"""Fields that each stored message or content must have, even with the default: an id is new in each message."""

_OURS: Final = Message.__module__.rpartition(".")[0] + "."
_MISSING: Final = object()


@dataclass(frozen=True)
class CheckedMessages:
    """Messages that ``as_messages`` has checked, perhaps on another thread: services take them in place of messages."""

    pairs: list[tuple[Message, dict[str, Any]]]


def as_messages(given: object) -> list[tuple[Message, dict[str, Any]]]:
    """Check the messages of a caller, one or a list.

    Returns each with its stored form, which shares no container with it.

    Raises:
        InvalidArgumentError: one of them is not a message; the error names its place and its fields, and none of its
            values.
        LimitExceededError: one holds itself.
    """
    if isinstance(given, CheckedMessages):
        return given.pairs
    listed = given if isinstance(given, list | tuple) else [given]
    messages = []
    for at, each in enumerate(listed):
        try:
            messages.append(_message(each))
        except ValidationError as error:
            raise invalid(f"message {at}" if listed is given else "the message", error) from None
    return messages


def _message(given: object) -> tuple[Message, dict[str, Any]]:
    if isinstance(given, Message):
        data = data_of(given)
        Message.model_validate(data)  # a field that was assigned later may be anything
        return given, data
    # A message of AgentScope Runtime itself has other classes and the same fields.
    message = Message.model_validate(given.model_dump() if isinstance(given, BaseModel) else given)
    return message, data_of(message)


def invalid(what: str, error: ValidationError) -> InvalidArgumentError:
    """Return the error that names the invalid fields, without their values."""
    found = [
        ": ".join(filter(None, (".".join(map(str, each["loc"])), each["msg"])))
        for each in error.errors(include_url=False, include_input=False, include_context=False)
    ]
    shown = "; ".join(found[:3]) + (f" and {len(found) - 3} more" if len(found) > 3 else "")
    hint = ""
    for each in error.errors(include_url=False):
        if not each["loc"] and error.title == "Message":
            hint = 'for example Message(role="user", content=[TextContent(text="hello")])'
        elif each["loc"] == ("content",) and each["type"] == "list_type":
            hint = "Message.from_openai_message(message) takes a message of chat completions, whose content is a text"
    return InvalidArgumentError(f"{what} is not valid: {shown}", hint=hint)


def data_of(model: BaseModel) -> dict[str, Any]:
    """Return the fields of a message, or of a part of one, that were set, and the unknown ones."""
    cls = type(model)
    values, given = model.__dict__, model.model_fields_set
    data: dict[str, Any] = {}
    for name, default in _fields(cls):
        if name in given or name in _ALWAYS or values.get(name) != default:
            data[name] = _value(values.get(name))
    if model.__pydantic_extra__:
        for name, value in model.__pydantic_extra__.items():
            data[name] = captured_whole(value)
    return data


def _value(value: Any) -> Any:
    if type(value) in ATOMS:
        return value
    if isinstance(value, Content | Error):
        return data_of(value)
    if type(value) is list:
        return [_value(each) for each in value]
    return captured_whole(value)


@cache
def _fields(cls: type[BaseModel]) -> tuple[tuple[str, Any], ...]:
    """Return a class's fields, each with its default in the class that reads it: ours, perhaps a base of a caller's."""
    ours = next(base for base in cls.__mro__ if base.__module__.startswith(_OURS))
    assert issubclass(ours, BaseModel)
    names = [
        *(name for name in _FIRST if name in cls.model_fields),
        *(name for name in cls.model_fields if name not in _FIRST),
    ]
    return tuple((name, ours.model_fields[name].default if name in ours.model_fields else _MISSING) for name in names)


# Between a server and its clients


def document_of(message: Message | dict[str, Any]) -> dict[str, Any]:
    """Return a message as a dict of the fields that were set."""
    return message if isinstance(message, dict) else data_of(message)


def session_document(session: Session) -> dict[str, Any]:
    """Return a session as a dict."""
    return {
        "id": session.id,
        "user_id": session.user_id,
        "messages": [document_of(message) for message in session.messages],
    }


def session_of(document: dict[str, Any]) -> Session:
    """Return the session of such a dict."""
    return Session(id=document["id"], user_id=document["user_id"], messages=document["messages"])
