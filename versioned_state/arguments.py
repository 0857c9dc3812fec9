"""Checks of the arguments of public calls: types, options, numbers, strings and functions.

Beneath all layers but the errors.

``resolve`` checks revisions, ``Database.ref`` and ``check_name`` names, ``as_path`` paths, and ``Policies`` policies.

Each check returns the value, and raises ``InvalidArgumentError`` with the name of the argument otherwise. ``remains``
is for a call that leaves something else behind than "nothing was changed".
"""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from functools import partial
from typing import Any, Final, TypeVar, get_args, overload

from versioned_state.errors import InvalidArgumentError

T = TypeVar("T")

_LONGEST_TTL_S: Final = 10**12

_WORDS: Final[dict[Any, str]] = {
    str: "a string",
    bytes: "bytes",
    dict: "a dict",
    Mapping: "a dict",
    list: "a list",
    Callable: "a function",
    type: "a class",
    type(None): "None",
}


@overload
def instance_of(name: str, value: Any, kind: type[T], *, remains: str | None = None, hint: str = "") -> T: ...
@overload
def instance_of(name: str, value: Any, kind: Any, *, remains: str | None = None, hint: str = "") -> Any: ...
def instance_of(name: str, value: Any, kind: Any, *, remains: str | None = None, hint: str = "") -> Any:
    """Return a value of a type, or of one of the types in a union. A bool is not an int."""
    if isinstance(value, kind) and type(value) is not bool:
        return value
    kinds = get_args(kind) or (kind,)
    if type(value) is bool and bool in kinds:
        return value
    wanted = _either(
        _WORDS.get(each) or f"{'an' if each.__name__[0] in 'AEIOaeio' else 'a'} {each.__name__}" for each in kinds
    )
    raise InvalidArgumentError(f"{name} must be {wanted}, not {type(value).__name__}", remains=remains, hint=hint)


def one_of(name: str, value: T, allowed: Any, *, remains: str | None = None) -> T:
    """Return an option that is in a collection, or in a ``Literal`` type."""
    options = getattr(allowed, "__args__", None) or tuple(allowed)  # get_args() takes longer than all else here
    if value not in options:
        raise _refused(name, _either(map(repr, options)), value, remains)
    return value


def list_of(name: str, values: Any, *, remains: str | None = None) -> list[Any]:
    """Return the elements of an iterable, which must not be a single string."""
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise _refused(name, "a list", values, remains)
    return list(values)


def count(name: str, value: Any, *, least: int = 0, remains: str | None = None) -> int:
    """Return a count as an int, from any integer type but bool."""
    number = integer(name, value, remains=remains)
    if number < least:
        raise _refused(name, f"{least} or more", number, remains)
    return min(number, sys.maxsize)


def integer(name: str, value: Any, *, remains: str | None = None) -> int:
    """Return a number as an int, from any integer type but bool."""
    try:
        if type(value) is not bool:
            return operator.index(value)
    except TypeError:
        pass
    raise InvalidArgumentError(f"{name} must be an int, not {type(value).__name__}", remains=remains)


def seconds(name: str, value: Any, *, above: bool = False, endless: bool = False, remains: str | None = None) -> float:
    """Return a number of seconds: 0 or more, or above 0, and infinity only if it may be endless."""
    is_number = isinstance(value, int | float) and type(value) is not bool
    if not is_number or not (value > 0 if above else value >= 0) or (value > sys.float_info.max and not endless):
        raise _refused(name, f"a number of seconds, {'above 0' if above else '0 or more'}", value, remains)
    return math.inf if value > sys.float_info.max else float(value)


def as_ttl(value: float) -> int:
    """Return a time to live in microseconds, from a number of seconds from 0 to some thousand years."""
    if type(value) not in (int, float) or not 0 <= value <= _LONGEST_TTL_S:
        raise _refused("ttl_seconds", "a number of seconds, 0 or more", value)
    return round(value * 1_000_000)


def age(name: str, value: Any) -> timedelta:
    """Return a timedelta of 0 or more."""
    given = instance_of(name, value, timedelta, hint=f"for example {name}=timedelta(days=30)")
    if given < timedelta(0):
        raise InvalidArgumentError(f"{name} must be 0 or more, not {given}")
    return given


def string(name: str, value: Any, *, empty: bool = True, without: str = "") -> str:
    """Return a string, of no subclass.

    ``empty`` says whether it may be empty, ``without`` which characters it must not have.
    """
    if type(value) is str and (value or empty) and not (without and any(char in value for char in without)):
        return value
    if empty and not without:
        instance_of(name, value, str)
    wanted = "a string" if empty else "a string of one character or more"
    if without:
        wanted += ", without " + " and ".join("NUL" if char == "\0" else repr(char) for char in without)
    raise _refused(name, wanted, value)


def check_text(name: str, value: Any) -> None:
    """Raise ``InvalidArgumentError`` unless the value is a string or None."""
    if value is not None and type(value) is not str:
        raise InvalidArgumentError(f"{name} must be a string, not {type(value).__name__}")


def check_function(name: str, value: Any) -> None:
    """Raise ``InvalidArgumentError`` unless the value is a plain function.

    Calling an asynchronous function or a generator does nothing yet.
    """
    if not callable(value):
        raise _refused(name, "a function", value)
    import inspect  # with what it loads, a tenth of the import of Versioned

    called = value if inspect.isroutine(value) or isinstance(value, type | partial) else value.__call__
    if inspect.isgeneratorfunction(called):
        raise InvalidArgumentError(f"{name} must be a plain function, not a generator")
    if inspect.iscoroutinefunction(called) or inspect.isasyncgenfunction(called):
        raise InvalidArgumentError(f"{name} must be a plain function, not an asynchronous one")


def _refused(name: str, wanted: str, value: object, remains: str | None = None) -> InvalidArgumentError:
    try:
        found = f"{value!r:.80}"
    except ValueError:  # an int with more digits than Python writes
        found = f"that {type(value).__name__}"
    return InvalidArgumentError(f"{name} must be {wanted}, not {found}", remains=remains)


def _either(words: Iterable[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} or {last}" if first else last
