"""A list of messages as a conversation, whatever framework made them. Layer: server.

A message is a dict, or a typed value, with a role and a content. Its parts are read from their cells: a message of a
gigabyte costs what is shown. A part of an unknown shape is shown as a value, with a link into the state.
"""

from __future__ import annotations

from typing import Any, Final

from versioned_state.errors import StateError
from versioned_state.repository.history.commit import Commit
from versioned_state.repository.repository import Repository
from versioned_state.repository.shown import commits
from versioned_state.repository.shown.text import Budget
from versioned_state.repository.shown.values import Part, Values
from versioned_state.repository.views.snapshot import Snapshot
from versioned_state.server.page.views.reads import search_time
from versioned_state.values.keys import path_of
from versioned_state.values.paths.path import StatePath
from versioned_state.values.trees.tree import iter_items

PAGE: Final = 50
_TEXT: Final = 6000
"""Characters of one text of a message."""

_FIELDS: Final = 40
"""Fields of a message, and parts of its content, that are looked at."""

_LOOKED_AT: Final = 200
"""Keys of a state among which messages are looked for."""

_ROLES: Final = {
    "human": "user",
    "ai": "assistant",
    "model": "assistant",
    "developer": "system",
    "function": "tool",
    "toolmessage": "tool",
}
_CONTENT: Final = ("content", "parts", "text", "message")
_THINKING: Final = ("thinking", "reasoning", "reasoning_content", "redacted_thinking")


def chat(repository: Repository, budget: Budget, commit: Commit, *, path: str = "", skip: int = 0) -> dict[str, Any]:
    """Return the last messages of the list at a path, or of the first list of messages that is found.

    Args:
        skip: how many messages the pages before had, from the end.
    """
    snapshot = repository.snapshot(commit, describe=True)
    values = Values(snapshot.new_nodes(), budget)
    place = StatePath.parse(path) if path else find_messages(snapshot, values)
    data: dict[str, Any] = {
        "title": "Chat",
        "commit": commits.facts(commit, budget),
        "path": "" if place is None else str(place),
        "messages": [],
    }
    if place is None:
        return {**data, "total": 0, "next": None, "previous": None, "start": 0, "is_list": True}
    cell = snapshot.cell_at(place)
    total, _ = values.parts(cell, place, 0, 0)
    end = max(total - skip, 0)
    start = max(end - PAGE, 0)
    _, parts = values.parts(cell, place, start, end - start)
    is_list = type(snapshot.keys_at(place)) is int
    messages = [_message(values, part) for part in parts] if is_list else []
    rounds = _rounds(repository, commit, place, start, end) if is_list else {}
    for message in messages:
        origin = rounds.get(message["path"])
        message["round"] = None if origin is None else commits.facts(origin, budget)
    return {
        **data,
        "title": f"Chat in {place}",
        "messages": _paired(messages),
        "is_list": is_list,
        "total": total,
        "start": start,
        "next": skip + PAGE if start else None,
        "previous": max(skip - PAGE, 0) if skip else None,
    }


def find_messages(snapshot: Snapshot, values: Values) -> StatePath | None:
    """Return the path of the first list whose last element has a role, ``messages`` before others."""
    found = []
    for root_key, cell in iter_items(values.nodes, snapshot.tree, 0, min(_LOOKED_AT, snapshot.tree.count)):
        try:
            path = path_of(root_key)
            total, parts = values.parts(cell, path, 0, 1)
        except (StateError, ValueError):
            continue  # one of the engine's own keys, or damaged
        if total and parts[0].label == "[0]" and _role(_fields(values, parts[0]), values):
            found.append(path)
    return min(found, key=lambda path: (str(path).rpartition(".")[2] != "messages", str(path)), default=None)


def _rounds(repository: Repository, commit: Commit, path: StatePath, start: int, end: int) -> dict[str, Commit]:
    """Return the commits that messages come from, by path, if found in a moment: some may be many rounds old."""
    parts = repository.blame(path, commit, start=start, end=end, deadline=search_time())
    return {str(part.path): part.commit for part in parts if part.complete}


def _fields(values: Values, part: Part) -> dict[str, Part]:
    path = part.path or StatePath()
    return {each.label: each for each in values.parts(part.cell, path, 0, _FIELDS)[1]}


def _role(fields: dict[str, Part], values: Values) -> str:
    for name in ("role", "type", "kind"):
        text = values.text(fields[name].cell, 40) if name in fields else None
        if text is not None and (name == "role" or set(_CONTENT) & fields.keys()):
            return text[0].lower()
    return ""


def _word(values: Values, fields: dict[str, Part], *names: str) -> str:
    for name in names:
        text = values.text(fields[name].cell, 120) if name in fields else None
        if text is not None:
            return text[0]
    return ""


def _message(values: Values, part: Part) -> dict[str, Any]:
    fields = _fields(values, part)
    role = _role(fields, values)
    plain = _ROLES.get(role, role)
    blocks: list[dict[str, Any]] = []
    for name in _THINKING:
        if name in fields:
            blocks += _texts(values, fields[name], "thinking")
    content = next((fields[name] for name in _CONTENT if name in fields), None)
    if role and content is not None:
        blocks += _content(values, content, 0)
    if "tool_calls" in fields:
        blocks += [block for call in _parts(values, fields["tool_calls"]) for block in _call(values, call)]
    if "function_call" in fields:
        blocks += _call(values, fields["function_call"])
    if not role:
        blocks = [_tree(values, part)]
    return {
        "role": plain or "value",
        "kind": plain if plain in ("user", "assistant", "tool", "system") else "other",
        "name": _word(values, fields, "name", "sender") if role else "",
        "answers": _word(values, fields, "tool_call_id") if role else "",
        "blocks": blocks,
        "index": part.label,
        "path": str(part.path),
    }


def _parts(values: Values, part: Part) -> list[Part]:
    return values.parts(part.cell, part.path or StatePath(), 0, _FIELDS)[1]


def _tree(values: Values, part: Part) -> dict[str, Any]:
    return {"type": "value", "line": values.line(part.cell, 300), "path": None if part.path is None else str(part.path)}


def _texts(values: Values, part: Part, kind: str) -> list[dict[str, Any]]:
    found = values.text(part.cell, _TEXT)
    if found is None:
        return _content(values, part, 1) if kind == "text" else [_tree(values, part)]
    return [{"type": kind, "text": found[0], "left": found[1], "path": str(part.path)}] if found[0] else []


def _content(values: Values, part: Part, depth: int) -> list[dict[str, Any]]:
    """Return the blocks of a content: of a text, of a list of parts with a type, or of a part."""
    if values.text(part.cell, 0) is not None:
        return _texts(values, part, "text")
    inner = _parts(values, part)
    if not inner:
        line = values.line(part.cell, 120)
        return [] if line in ("None", "[]", "()") else [_tree(values, part)]
    if inner[0].label.startswith("[") and depth < 3:
        return [block for each in inner for block in _content(values, each, depth + 1)]
    fields = {each.label: each for each in inner}
    kind = _word(values, fields, "type", "kind", "part_kind")
    if kind in ("text", "input_text", "output_text") and "text" in fields:
        return _texts(values, fields["text"], "text")
    if kind in _THINKING:
        found = next((fields[name] for name in (*_THINKING, "text", "summary", "content") if name in fields), None)
        return [_tree(values, part)] if found is None else _texts(values, found, "thinking")
    if kind in ("tool_use", "tool_call", "tool-call", "function_call"):
        return _call(values, part)
    if kind in ("tool_result", "tool-return", "function_call_output"):
        held = next((fields[name] for name in ("content", "output") if name in fields), None)
        blocks = [] if held is None else _content(values, held, depth + 1)
        return [
            {"type": "result", "name": _word(values, fields, "tool_use_id", "call_id", "tool_name"), "blocks": blocks}
        ]
    if "text" in fields and len(fields) <= 3:
        return _texts(values, fields["text"], "text")
    return [_tree(values, part)]


def _call(values: Values, part: Part) -> list[dict[str, Any]]:
    """Return the block of a call of a tool."""
    fields = _fields(values, part)
    inner = _fields(values, fields["function"]) if "function" in fields else fields
    arguments = next((inner[name] for name in ("arguments", "input", "args") if name in inner), None)
    found = None if arguments is None else values.text(arguments.cell, 2000)
    text = found[0] if found is not None else "" if arguments is None else values.line(arguments.cell, 1000)
    name = _word(values, inner, "name", "tool_name", "tool") or "a tool"
    id = _word(values, fields, "id", "tool_call_id", "call_id")
    return [{"type": "call", "id": id, "name": name, "text": text, "path": str(part.path), "result": None}]


def _paired(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Put the result of each call below the call that it answers, the nearest one before it, if that is on the page."""
    waiting: dict[str, list[dict[str, Any]]] = {}
    shown = []
    for message in messages:
        if message["kind"] == "tool" and (calls := waiting.get(message["answers"])):
            calls.pop()["result"] = message
            continue
        for block in message["blocks"]:
            if block["type"] == "call" and block["id"]:
                waiting.setdefault(block["id"], []).append(block)
        shown.append(message)
    return shown
