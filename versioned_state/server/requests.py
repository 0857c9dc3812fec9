"""The parameters in the query of a request, among them ids of any characters. Layer: server.

Ids are in the query, percent-encoded as UTF-8 (a lone surrogate as the three bytes that UTF-8 would give it). In a
path, a proxy could change them by decoding ``%2F`` or removing ``..``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Final
from urllib.parse import unquote_to_bytes

from pydantic import Field, TypeAdapter, ValidationError

from versioned_state.server.answers import malformed

_MOST_PARAMETERS: Final = 64

Count = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(ge=1)]
Number = Annotated[float, Field(allow_inf_nan=False)]


@cache
def adapter(kind: Any) -> TypeAdapter[Any]:
    """Return the adapter that checks values of a type and has its schema."""
    return TypeAdapter(kind)


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a query: its type and its meaning."""

    name: str
    kind: Any
    description: str

    def read(self, text: str) -> Any:
        """Return the value of a text, in which a number is as JSON writes it.

        Raises ``RefusalError``, which does not show it.
        """
        if self.kind is str:
            return text
        try:
            return adapter(self.kind).validate_json(text, strict=True)
        except ValidationError as error:
            raise malformed(f"the parameter {self.name} is not valid: {error.errors()[0]['msg']}") from None


USER: Final = Parameter("user_id", str, "The user. Required if the token is for every user.")
SESSION: Final = Parameter("session_id", str, "The session.")


def split_query(query: bytes) -> dict[str, list[str]]:
    """Return the parameters of a query, each with all its values.

    Raises ``RefusalError`` if it is not UTF-8, or if there are too many.
    """
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
    """Return the arguments in a query.

    Raises ``RefusalError``, which shows no value, for one that is unknown, repeated or malformed.
    """
    known = {parameter.name: parameter for parameter in parameters}
    arguments = {}
    for name, values in query.items():
        parameter = known.get(name)
        if parameter is None:
            raise malformed(f"unknown parameter; the parameters are {', '.join(known) or 'none'}")
        if len(values) > 1:
            raise malformed(f"the parameter {name} is given {len(values)} times")
        arguments[name] = parameter.read(values[0])
    return arguments
