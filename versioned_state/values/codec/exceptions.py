"""The pickling of exceptions: by class, args and attributes, and restored without the ``__init__`` of their class.

Layer: values.

Pickle itself calls the class with ``args``. That fails if its ``__init__`` takes other arguments: the exception would
be stored, and could not be read. Traceback and context are left out; notes and the cause are kept.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

_OWN_WAYS = ("__reduce__", "__reduce_ex__", "__getstate__", "__getnewargs__", "__getnewargs_ex__", "__setstate__")


def reduce_exception(value: Any) -> Any:
    """Return a pickler's ``reducer_override`` result for an exception, or ``NotImplemented`` for any other value."""
    if not isinstance(value, BaseException):
        return NotImplemented
    cls = type(value)
    base: Any = _builtin_base(cls)
    if any(getattr(cls, name, None) is not getattr(base, name, None) for name in _OWN_WAYS):
        return NotImplemented
    reduced: Any = base.__reduce__(value)
    _, args, *state = reduced
    attributes = dict(state[0]) if state and state[0] else {}
    if value.__cause__ is not None:
        attributes["__cause__"] = value.__cause__
    elif value.__suppress_context__:
        attributes["__suppress_context__"] = True
    return (
        (cls, args, *([attributes] if attributes else []))
        if cls is base
        else (restore_exception, (cls, args, attributes))
    )


def restore_exception(cls: type[BaseException], args: tuple[Any, ...], attributes: dict[str, Any]) -> BaseException:
    """Make the exception again.

    Stored pickles call this function by its name, so its name and parameters must not change.
    """
    base: Any = _builtin_base(cls)
    value: BaseException = base.__new__(cls, *args)
    # The builtin's own __init__ sets attributes that only it can set, such as UnicodeDecodeError.start.
    # Args that were changed later may not suit it.
    with suppress(TypeError, ValueError):
        base.__init__(value, *args)
    BaseException.__setstate__(value, attributes)
    return value


def _builtin_base(cls: type[BaseException]) -> type[BaseException]:
    """Return the built-in class that an exception's class derives from."""
    return next(each for each in cls.__mro__ if each.__module__ == "builtins")
