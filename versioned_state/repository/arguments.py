"""Checks of the numbers, strings and functions that callers pass to public calls. Layer: repository.

``resolve`` checks revisions, ``Database.ref`` and ``check_name`` names, ``as_path`` paths, and ``Policies`` policies.
"""

from __future__ import annotations

import inspect
import operator
import sys
from datetime import timedelta
from functools import partial
from typing import Any, Final

from versioned_state.errors import InvalidArgumentError

DEFAULT_EXPIRE: Final = timedelta(days=30)
"""How long the reflog keeps commits that nothing else leads to; git's default."""

_LONGEST_TTL_S: Final = 10**12


def count(name: str, value: Any, *, least: int = 0) -> int:
    """A count as an int, from any integer type but bool. Raises ``InvalidArgumentError`` for other types, and below ``least``."""
    number = integer(name, value)
    if number < least:
        raise InvalidArgumentError(f"{name} is {least} or more, not {number}", remains="nothing was changed")
    return min(number, sys.maxsize)


def integer(name: str, value: Any) -> int:
    """A number as an int, from any integer type but bool. Raises ``InvalidArgumentError`` for other types."""
    try:
        if type(value) is not bool:
            return operator.index(value)
    except TypeError:
        pass
    raise InvalidArgumentError(f"{name} is a number, not {type(value).__name__}", remains="nothing was changed")


def age(name: str, value: Any) -> timedelta:
    """A timedelta of 0 or more. Raises ``InvalidArgumentError`` for other types, and below 0."""
    if not isinstance(value, timedelta):
        hint = f"for example {name}=timedelta(days=30)"
        raise InvalidArgumentError(f"{name} is a timedelta, not {type(value).__name__}", remains="nothing was changed", hint=hint)
    if value < timedelta(0):
        raise InvalidArgumentError(f"{name} is 0 or more, not {value}", remains="nothing was changed")
    return value


def check_text(name: str, value: Any) -> None:
    """Raise ``InvalidArgumentError`` unless the value is a string or None."""
    if value is not None and type(value) is not str:
        raise InvalidArgumentError(f"{name} is a string, not {type(value).__name__}", remains="nothing was changed")


def check_function(name: str, value: Any) -> None:
    """Raise ``InvalidArgumentError`` unless the value is a plain function: calling an asynchronous one or a generator does nothing yet."""
    if not callable(value):
        raise InvalidArgumentError(f"{name} is a function, not {value!r:.80}", remains="nothing was changed")
    called = value if inspect.isroutine(value) or isinstance(value, type | partial) else value.__call__
    if inspect.isgeneratorfunction(called):
        raise InvalidArgumentError(f"{name} is a plain function, not a generator", remains="nothing was changed")
    if inspect.iscoroutinefunction(called) or inspect.isasyncgenfunction(called):
        raise InvalidArgumentError(f"{name} is a plain function, not an asynchronous one", remains="nothing was changed")


def as_ttl(seconds: float) -> int:
    """A time to live in microseconds. Raises ``InvalidArgumentError`` unless it is a number of seconds from 0 to some thousand years."""
    if type(seconds) not in (int, float) or not 0 <= seconds <= _LONGEST_TTL_S:
        raise InvalidArgumentError(f"ttl_seconds is a number of seconds, 0 or more, not {seconds!r:.80}", remains="nothing was changed")
    return round(seconds * 1_000_000)
