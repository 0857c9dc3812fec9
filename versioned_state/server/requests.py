"""The parts of a request: parameters out of its query, ids of any characters among them. Layer: server.

Ids are in the query, percent-encoded as UTF-8 (a lone surrogate as the three bytes that UTF-8 would give it): a path with them could be
cut or joined on its way, by whoever takes ``%2F`` for ``/`` or removes ``..``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any, Final
from urllib.parse import unquote_to_bytes

from versioned_state.server.answers import malformed

_MOST_PARAMETERS: Final = 64
_INTEGER: Final = re.compile(r"-?[0-9]{1,4000}")
_NUMBER: Final = re.compile(r"-?[0-9]{1,300}(\.[0-9]{1,300})?([eE][-+]?[0-9]{1,3})?")


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a query: how it is read, its schema in OpenAPI, and what it means."""

    name: str
    read: Callable[[str], Any]
    schema: Mapping[str, Any]
    description: str


def _integer(text: str) -> int:
    if not _INTEGER.fullmatch(text):
        raise ValueError("an integer")
    return int(text)


def _count(text: str) -> int:
    number = _integer(text)
    if number < 0:
        raise ValueError("an integer from 0 up")
    return number


def _number(text: str) -> float:
    number = float(text) if _NUMBER.fullmatch(text) else float("nan")
    if not isfinite(number):
        raise ValueError("a number")
    return number


def integer(name: str, description: str) -> Parameter:
    """A parameter that is an integer."""
    return Parameter(name, _integer, {"type": "integer"}, description)


def count(name: str, description: str) -> Parameter:
    """A parameter that is an integer from 0 up."""
    return Parameter(name, _count, {"type": "integer", "minimum": 0}, description)


def number(name: str, description: str) -> Parameter:
    """A parameter that is a number."""
    return Parameter(name, _number, {"type": "number"}, description)


def text(name: str, description: str) -> Parameter:
    """A parameter that is any text."""
    return Parameter(name, str, {"type": "string"}, description)


USER: Final = text("user_id", "The user; needed if the token is for every user.")
SESSION: Final = text("session_id", "The session.")


def split_query(query: bytes) -> dict[str, list[str]]:
    """The parameters of a query, each with all its values. Raises ``RefusalError`` if it is not UTF-8, or if there are too many."""
    found: dict[str, list[str]] = {}
    items = query.split(b"&", _MOST_PARAMETERS)
    if len(items) > _MOST_PARAMETERS:
        raise malformed(f"the query has more than {_MOST_PARAMETERS} parameters", 400)
    for item in items:
        if item:
            name, _, value = item.partition(b"=")
            found.setdefault(_text(name), []).append(_text(value))
    return found


def _text(raw: bytes) -> str:
    try:
        return unquote_to_bytes(raw.replace(b"+", b" ")).decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        raise malformed("the query is not percent-encoded UTF-8", 400) from None


def arguments_of(query: Mapping[str, list[str]], parameters: tuple[Parameter, ...]) -> dict[str, Any]:
    """The arguments in a query. Raises ``RefusalError`` for one that is unknown, given twice or malformed; no value is shown."""
    known = {parameter.name: parameter for parameter in parameters}
    arguments = {}
    for name, values in query.items():
        parameter = known.get(name)
        if parameter is None:
            raise malformed(f"there is no such parameter; there are {', '.join(known) or 'none'}")
        if len(values) > 1:
            raise malformed(f"the parameter {name} is there {len(values)} times")
        try:
            arguments[name] = parameter.read(values[0])
        except ValueError as error:
            raise malformed(f"the parameter {name} is not {error}") from None
    return arguments
