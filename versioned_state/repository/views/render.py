"""Values as text for display: short, on one line, without control characters. Layer: repository."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import date, datetime, time
from fractions import Fraction
from typing import Any, Final

from versioned_state.repository.views.tables import summary
from versioned_state.values.codec.pickles import type_name_of
from versioned_state.values.typed.reflection import mro_of, namespace_of
from versioned_state.values.typed.registry import find_layout, take_apart
from versioned_state.values.typed.tagged import Notes, Tagged

WIDTH: Final = 100

_TIMES: Final = (datetime, date, time)

_BREAK: Final = re.compile(r"\n\s*")
"""A line break of a ``repr``, such as that of an array, and the indentation behind it."""

LONG_INT: Final = 4096
"""Bits beyond which an int shows in hex: Python refuses to write or read about 14,000 bits in decimal."""


def escape(text: str) -> str:
    """Return a text with every control character written out, so that no value can drive the terminal that shows it."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char == " " else _written_out(char) for char in text)


def _written_out(char: str) -> str:
    return char.encode("unicode_escape").decode() if not "\ud800" <= char <= "\udfff" else f"\\u{ord(char):04x}"


def one_line(value: Any, *, width: int = WIDTH, quote: bool = True) -> str:
    """Return a value's repr on one line, cut to about ``width`` characters, and the size of the rest.

    Cost: the characters shown.
    """
    if type(value) is str:
        cut = value[: width + 1]
        text = escape(repr(cut)) if quote else escape(cut)
        return text if len(value) <= width else f"{text[:width]}… ({len(value)} characters)"
    if type(value) in (bytes, bytearray) and len(value) > width:
        return f"{value[: width // 4]!r}… ({len(value)} bytes)"
    text = escape(short_repr(value, width))
    return text if len(text) <= width else text[:width] + "…"


def short_repr(value: Any, budget: int) -> str:
    """Return a value's ``repr``, but stop after about ``budget`` characters.

    No million elements are written out to show ten.
    """
    cls = type(value)
    if cls is dict:
        return joined(
            "{",
            "}",
            (f"{short_repr(k, budget)}: {short_repr(v, budget)}" for k, v in value.items()),
            len(value),
            budget,
        )
    if cls is list:
        return joined("[", "]", (short_repr(part, budget) for part in value), len(value), budget)
    if cls is tuple:
        return joined(
            "(", ",)" if len(value) == 1 else ")", (short_repr(part, budget) for part in value), len(value), budget
        )
    if cls in (set, frozenset) and value:
        # Sorted, since the order of a set differs from process to process.
        text = joined("{", "}", sorted(short_repr(part, budget) for part in value), len(value), budget)
        return text if cls is set else f"frozenset({text})"
    if cls is str and len(value) > budget:
        return repr(value[:budget]) + "…"
    if cls is Fraction:
        return f"Fraction({int_text(value.numerator)}, {int_text(value.denominator)})"
    if cls is range:
        step = "" if value.step == 1 else f", {int_text(value.step)}"
        return f"range({int_text(value.start)}, {int_text(value.stop)}{step})"
    if cls is int:
        return int_text(value)
    if cls in _TIMES:
        return str(value.isoformat())
    if cls is Tagged:
        return typed_repr(value.name, value.fields, value.notes, budget)
    try:
        return summary(value) or _BREAK.sub(" ", repr(value))
    except Exception as error:  # noqa: BLE001 - code of the value's own type, over a value that may hold anything
        return described(value, budget, error)


def _is_empty(value: Any) -> bool:
    return value is None or (type(value) in (str, list, dict) and not value)


def typed_repr(name: str, fields: Any, notes: Notes, budget: int) -> str:
    """Return a typed value as its class would show it.

    Examples: ``Message(content='hi')``, ``Status.OPEN``, ``Rows([1, 2], source='db')``.
    """
    full_name, name = name, short_name(name)
    more = attributes_in(notes)
    if are_fields(fields):
        parts = fields if not more else {**fields, **more}
        if notes is None or "tuple" not in notes:
            # Empty fields come last: most fields of a framework's message are empty, and a line is short.
            rank = field_rank(full_name)
            parts = dict(sorted(parts.items(), key=lambda item: (_is_empty(item[1]), rank(item[0]))))
        return joined(
            f"{name}(", ")", (f"{key}={short_repr(part, budget)}" for key, part in parts.items()), len(parts), budget
        )
    if type(fields) is str and fields.isidentifier() and not more:
        return f"{name}.{fields}"
    return f"{name}({short_repr(fields, budget // 2 if more else budget)}{attributes_repr(more, budget // 2)})"


def field_rank(name: str) -> Callable[[str], int]:
    """Return the order in which the fields of a typed value are shown, as a number for each.

    A line shows the first few only. The order is that in which the class declares them, if this process has loaded it;
    nothing is imported. Of other classes, only the names are known: who and what come first, times and ids last.
    """
    declared = _declared(name)
    if declared:
        return lambda field: declared.get(field, len(declared))
    return lambda field: _TELLING.get(field, len(_TELLING) + (_BY_THE_WAY.search(field) is not None))


def _declared(name: str) -> dict[str, int]:
    layout = find_layout(name, "loaded")
    if layout is None:
        return {}
    for cls in mro_of(layout.cls):
        held = namespace_of(cls)
        for attribute in ("__dataclass_fields__", "__pydantic_fields__"):
            if type(held.get(attribute)) is dict:
                return {field: index for index, field in enumerate(held[attribute])}
        if "__attrs_attrs__" in held:
            return {field.name: index for index, field in enumerate(held["__attrs_attrs__"])}
    return {}


_TELLING: Final = {
    name: index
    for index, name in enumerate(
        "role sender speaker author name title type kind status action tool content text message value result".split()
    )
}
"""Fields that say who and what, in the order in which they are read."""

_BY_THE_WAY: Final = re.compile(
    r"(?:^|_)(?:id|uuid|at|on|time|timestamp|date|datetime|created|updated|version|hash)$|^(?:id|model)_"
)
"""Fields that tell less than the others."""


def are_fields(data: Any) -> bool:
    """Return whether the data of a typed value are fields by name, or look the same."""
    return type(data) is dict and all(type(key) is str and key.isidentifier() for key in data)


def attributes_repr(attributes: dict[str, Any], budget: int) -> str:
    """Return attributes in the form that follows the elements of a container, each after a comma."""
    if not attributes:
        return ""
    return joined(
        ", ", "", (f"{key}={short_repr(part, budget)}" for key, part in attributes.items()), len(attributes), budget
    )


def attributes_in(notes: Notes) -> dict[str, Any]:
    """Return the attributes of an instance whose data is the value of a built-in type."""
    fields = None if notes is None else notes.get("fields")
    return fields if type(fields) is dict else {}


def short_name(name: str) -> str:
    """Return the name of a type without its module."""
    return name.rpartition(":")[2]


def int_text(value: int) -> str:
    """Return an int in decimal, or a long one in hex."""
    return hex(value) if value.bit_length() > LONG_INT else repr(value)


def described(value: Any, budget: int, error: Exception) -> str:
    """Return a value whose own repr raises: its data if its type is registered, else its type."""
    with suppress(Exception):
        record = take_apart(value)
        if record is not None:
            return typed_repr(*record, budget)
    return f"<{type_name_of(value)}, whose repr raises {type(error).__name__}>"


def joined(start: str, end: str, parts: Iterable[str], count: int, budget: int) -> str:
    """Return parts between brackets, as many as the budget takes, and their count if there are more."""
    shown: list[str] = []
    size = 0
    for part in parts:
        shown.append(part)
        size += len(part) + 2
        if size > budget and len(shown) < count:
            return start + ", ".join(shown) + f", … ({count})"
    return start + ", ".join(shown) + end
