"""Items of JSON as conversations: their messages, their other fields, and a summary of a message. Layer: cli."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final

from versioned_state.cli.importing.source import Item, Source
from versioned_state.errors import StateError
from versioned_state.repository.views.render import one_line
from versioned_state.values.typed.tagged import Tagged

MESSAGES_KEYS: Final = (
    "messages",
    "traj",
    "trajectory",
    "conversation",
    "conversations",
    "turns",
    "history",
    "dialogue",
    "dialog",
    "chat",
    "transcript",
)
"""Keys under which people keep a list of messages; the first one found wins."""

_SPEAKERS: Final = ("role", "from", "speaker", "sender", "author", "type")
_TEXTS: Final = ("content", "value", "text", "message", "parts", "tool_calls", "function_call")

_SUMMARY: Final = 72  # columns of a commit's message


@dataclass(frozen=True, slots=True)
class Conversation:
    """Messages, and the other fields of their object.

    Attributes:
        messages: any values of JSON; those of a stream can be read once.
        length: the number of messages, if it is known.
        where: its position in the file.
    """

    messages: Iterable[Any]
    length: int | None
    where: str
    fields: dict[str, Any] = field(default_factory=dict)


def single_conversation(source: Source, messages_key: str | None) -> tuple[Conversation | None, Iterator[Item]]:
    """Return the conversation of a source that is a list of messages or an object with one, or None if it has several.

    The second value is all items again.

    Raises:
        StateError: the source is empty.
    """
    first = next(source.items, None)
    if first is None:
        raise StateError(f"{source.name} holds no items")
    items = chain([first], source.items)
    if not source.is_list:
        return conversation_in(source, first, messages_key), items
    if messages_key is None and is_message(first.value):
        messages = (_message_in(source, item) for item in items)
        if not source.in_memory:
            return Conversation(messages, None, "the file"), iter(())
        known = list(messages)
        return Conversation(known, len(known), "the file"), iter(())
    return None, items


def conversation_in(source: Source, item: Item, messages_key: str | None) -> Conversation:
    """Return the conversation of an item that is a list of messages, or an object with one.

    Raises:
        StateError: the item is something else; the message says what.
    """
    value = item.value
    key = None
    if isinstance(value, dict):
        key = find_messages_key(value) if messages_key is None else messages_key
        if key is not None and isinstance(value.get(key), list):
            return Conversation(
                value[key], len(value[key]), item.where, {name: part for name, part in value.items() if name != key}
            )
    elif isinstance(value, list) and messages_key is None and _is_list_of_dicts(value):
        return Conversation(value, len(value), item.where)
    wanted = "a conversation" if messages_key is None else f"an object with a list under {messages_key!r}"
    raise StateError(
        f"{source.name}: {item.where} is not {wanted}, but {_describe(value)}",
        hint="--messages-key names the key of the list of messages; --per-item makes each item one state",
    )


def _message_in(source: Source, item: Item) -> Any:
    if fields_in(item.value) is None:
        raise StateError(
            f"{source.name}: {item.where} is not a message as those before it, but {_describe(item.value)}",
            hint="--per-item takes any values, and makes each item one state",
        )
    return item.value


def find_messages_key(value: dict[str, Any]) -> str | None:
    """Return the key of an object's list of messages: a usual one, or the only one whose list looks like messages."""
    for key in MESSAGES_KEYS:
        if _is_list_of_dicts(value.get(key)):
            return key
    if is_message(value):
        return None
    found = [key for key, part in value.items() if isinstance(part, list) and part and all(map(is_message, part))]
    return found[0] if len(found) == 1 else None


def _is_list_of_dicts(value: Any) -> bool:
    return isinstance(value, list) and all(fields_in(part) is not None for part in value)


def fields_in(value: Any) -> dict[str, Any] | None:
    """Return an object, or the fields of an instance, or None for any other value."""
    found = value.fields if type(value) is Tagged else value
    return found if isinstance(found, dict) else None


def is_message(value: Any) -> bool:
    """Return whether a value looks like a message: an object with a speaker and a text."""
    value = fields_in(value)
    if value is None or any(_is_list_of_dicts(value.get(key)) for key in MESSAGES_KEYS):
        return False
    return isinstance(value.get("role"), str) or (
        any(isinstance(value.get(key), str) for key in _SPEAKERS) and any(key in value for key in _TEXTS)
    )


def summarize(message: Any) -> str:
    """Return a message on one line, as in git's log: the speaker and the beginning of the text."""
    fields = fields_in(message)
    if fields is None:
        return _shorten(one_line(message, width=4 * _SUMMARY, quote=False))
    message = fields
    who = next((message[key] for key in _SPEAKERS if isinstance(message.get(key), str)), "message")
    if who == "tool" and isinstance(message.get("name"), str):
        who = f"tool {message['name']}"
    return _shorten(f"{who}: {_text(message) or _calls(message)}")


def _text(message: dict[str, Any]) -> str:
    for key in _TEXTS:
        value = message.get(key)
        if isinstance(value, list):  # parts, of which some are text
            value = " ".join(
                part["text"] for part in value if isinstance(part, dict) and isinstance(part.get("text"), str)
            )
        if isinstance(value, str) and value:
            return value
    return ""


def _calls(message: dict[str, Any]) -> str:
    calls = message.get("tool_calls") or [message.get("function_call")]
    names = []
    for call in calls if isinstance(calls, list) else []:
        function = call.get("function", call) if isinstance(call, dict) else None
        if isinstance(function, dict) and isinstance(function.get("name"), str):
            names.append(function["name"])
    return f"calls {', '.join(names)}" if names else "(no text)"


def _shorten(text: str) -> str:
    line = " ".join(text[: 4 * _SUMMARY].split())
    return line if len(line) <= _SUMMARY else line[: _SUMMARY - 1].rstrip() + "…"


def _describe(value: Any) -> str:
    match value:
        case dict():
            return f"an object with the keys {', '.join(list(value)[:8])}" if value else "an empty object"
        case list():
            return f"a list of {len(value)}"
        case str():
            return "a text"
        case None:
            return "null"
        case _:
            return repr(value)
