"""Values of the command line: JSON as ``get --json`` prints it, and what fits the replaced value's type. Layer: cli.

No class is imported, so a typed value is known by its stored name and fields alone.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

from versioned_state.cli.shared.hints import not_json, shortened
from versioned_state.errors import InvalidArgumentError, StateError
from versioned_state.records import dataclass
from versioned_state.repository.views.json_form import from_json, text_reader
from versioned_state.repository.views.render import are_fields, one_line, short_name
from versioned_state.values.codec.arrays import is_array, is_scalar
from versioned_state.values.codec.pickles import ObjectInfo
from versioned_state.values.typed.layout import NotPlainDataError
from versioned_state.values.typed.registry import take_apart
from versioned_state.values.typed.tagged import Tagged

_NOTHING: Final = object()

_JSON: Final = (str, int, float, bool, list, dict)
_NUMBERS: Final = (Decimal, Fraction, complex)
_SCALARS: Final = (str, int, float, bool, type(None))
_LITERAL_HINT: Final = "--literal takes it as it stands; vstate get --json shows how values are written"


class MisfitError(InvalidArgumentError):
    """A value that is not of the type of the one in whose place it comes."""


@dataclass(frozen=True, slots=True)
class Given:
    """A value as it was typed.

    Attributes:
        text: the text.
        value: the value that it stands for, or ``_NOTHING`` if it is not JSON.
        error: why it is not JSON.
    """

    text: str
    value: Any
    error: Exception | None = None

    def parsed(self, *, hint: str) -> Any:
        """Return the value. Raises ``InvalidArgumentError``, with this hint, if the text is not JSON."""
        if self.error is not None:
            raise InvalidArgumentError(not_json(self.text, self.error), hint=hint) from self.error
        return self.value


def given(text: str, *, as_text: bool = False, literal: bool = False) -> Given:
    """Return a value that was typed: JSON, in which a form such as ``{"$Decimal": "2.5"}`` is the value it stands for.

    Args:
        as_text: it is a string, whatever it looks like.
        literal: nothing in it is a form.

    Raises:
        InvalidArgumentError: an object in it has a key that begins with ``$``, and is not a form.
    """
    if as_text:
        return Given(text, text)
    try:
        value = json.loads(text)
        return Given(text, value if literal else read_forms(value))
    except (ValueError, RecursionError) as error:
        if isinstance(error, StateError):
            raise
        return Given(text, _NOTHING, error)


def read_forms(value: Any) -> Any:
    """Return the value that JSON with forms stands for. The hint of its error names ``--literal``."""
    try:
        return from_json(value)
    except InvalidArgumentError as error:
        error.hint = _LITERAL_HINT
        raise


def fitted(held: Any, it: Given, *, is_field: bool, hint: str) -> Any:
    """Return the given value as one of the type of the value that is held in its place.

    A value of a type that JSON has may be replaced by any other, unless it is a field of an instance. None, and an
    object that cannot be read, say nothing about the type.

    Args:
        hint: the way out if the text is not JSON.

    Raises:
        MisfitError: it is not of that type.
        InvalidArgumentError: the text is not JSON, and the type takes no other.
    """
    cls: Any = type(held)
    if cls in (type(None), ObjectInfo) or (cls in _JSON and not is_field):
        return it.parsed(hint=hint)
    return _fit(held, it.value, it.text, it)


def forced(held: Any, it: Given, *, hint: str) -> Any:
    """Return the given value, whatever it replaces.

    Only a text that replaces a member of an Enum is the name of a member.
    """
    if type(held) is Tagged and type(held.fields) is str and (it.error is not None or type(it.value) is str):
        return Tagged(held.name, it.text.strip() if it.error is not None else it.value, held.notes)
    return it.parsed(hint=hint)


def _fit(held: Any, value: Any, text: str, it: Given | None = None) -> Any:
    """Return a value as one of the type of ``held``.

    Args:
        text: the value as it was typed, or its digits.
        it: what was typed, if this is the whole of it.
    """
    cls: Any = type(held)
    if cls in (type(None), ObjectInfo):
        return value
    if type(value) is cls and cls is not Tagged:
        return _checked_time(held, value)
    if cls is str and value is _NOTHING:
        return text
    if cls is float and type(value) is int:
        return float(value)
    if cls in _SCALARS or cls in (list, dict):
        return _refuse(held, value, it)
    if is_array(held) or is_scalar(held):
        return _of_numpy(held, value, it)
    reader = text_reader(cls)
    if reader is not None:
        return _read(held, value, text, reader, it)
    if cls in (tuple, set, frozenset, deque) and type(value) is list:
        return _made(held, value, it, lambda: deque(value, held.maxlen) if cls is deque else cls(value))
    if cls in (OrderedDict, Counter, defaultdict) and type(value) is dict:
        return _made(held, value, it, lambda: cls(held.default_factory, value) if cls is defaultdict else cls(value))
    record = None
    with suppress(NotPlainDataError):
        record = take_apart(held)
    return _refuse(held, value, it) if record is None else _instance(Tagged(*record), value, text, it)


def _read(held: Any, value: Any, text: str, reader: Any, it: Given | None) -> Any:
    """Return the value of a text, or for a number of the digits as they were typed."""
    if value is _NOTHING or type(value) is str or (type(held) in _NUMBERS and type(value) in (int, float)):
        typed = value if type(value) is str else text.strip()
        return _made(held, value, it, lambda: _checked_time(held, reader(typed)))
    return _refuse(held, value, it)


def _made(held: Any, value: Any, it: Given | None, make: Callable[[], Any]) -> Any:
    try:
        return make()
    except MisfitError:
        raise
    except (ValueError, TypeError, ArithmeticError, StateError) as error:
        return _refuse(held, value, it, f": {error}")


def _checked_time(held: Any, value: Any) -> Any:
    """Return a date or time. One without a time zone cannot be compared with one that has it."""
    if isinstance(held, dt.datetime | dt.time) and (held.tzinfo is None) != (value.tzinfo is None):
        wanted = (
            "has no time zone" if held.tzinfo is None else f"has a time zone: {value.isoformat()}+00:00 is one in UTC"
        )
        raise MisfitError(f"the value there {wanted}", hint=_FORCE)
    return value


def _of_numpy(held: Any, value: Any, it: Given | None) -> Any:
    import numpy as np

    def make() -> Any:
        made = np.array(value, held.dtype)
        if made.shape != held.shape:
            raise ValueError(f"its shape is {made.shape}, not {held.shape}")
        return made if is_array(held) else made[()]

    return _refuse(held, value, it) if value is _NOTHING or type(value) in (str, dict) else _made(held, value, it, make)


def _instance(held: Tagged, value: Any, text: str, it: Given | None) -> Any:
    """Return an instance of the same class with other data: other fields, another member of an Enum."""
    if type(value) is Tagged:
        return value if value.name == held.name else _refuse(held, value, it)
    data = held.fields
    if are_fields(data) and type(value) is dict:
        if value.keys() != data.keys():
            return _refuse(held, value, it, f", whose fields are {', '.join(data)}")
        return Tagged(
            held.name, {key: _fit(part, value[key], _digits(value[key])) for key, part in data.items()}, held.notes
        )
    if type(data) is str and (value is _NOTHING or type(value) is str):
        name = value if type(value) is str else text.strip()
        if data.isupper() and data.isidentifier() and not (name.isupper() and name.isidentifier()):
            like = re.sub(r"\W+", "_", name.upper())
            raise MisfitError(
                f"{shortened(name)!r} does not look like a member of {short_name(held.name)}, as {data} is",
                hint=f"a member is set by its name, which may be {like}; --force sets {shortened(name)}",
            )
        return Tagged(held.name, name, held.notes)
    try:
        return Tagged(held.name, _fit(data, value, text, it), held.notes)
    except MisfitError:
        return _refuse(held, value, it)


def _digits(value: Any) -> str:
    return value if type(value) is str else repr(value)


_FORCE: Final = "--force sets it anyway"


def _refuse(held: Any, value: Any, it: Given | None, reason: str = "") -> Any:
    typed = "" if it is None else shortened(it.text)
    shown = one_line(value, width=60) if it is None else typed if it.error is None else repr(typed)
    raise MisfitError(f"{shown} is not of the type of the value there, {_type_name(held)}{reason}", hint=_FORCE)


def _type_name(value: Any) -> str:
    with suppress(NotPlainDataError):
        record = take_apart(value)
        if record is not None:
            return short_name(record[0])
    return type(value).__name__
