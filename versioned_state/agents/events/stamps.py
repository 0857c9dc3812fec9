"""Stamps: the time, place and commit of an event as attributes of the caller's own instance. Layer: agents.

The attributes are not fields, so equality, ``repr`` and the stored form of the event are those of its class. An
instance with a ``__dict__`` has them there. An instance with slots becomes an instance of a subclass that adds four
slots and reports the caller's class as its own.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from datetime import datetime
from functools import lru_cache
from typing import Any, Final, NamedTuple


class Stamp(NamedTuple):
    """The time, agent, calls and commit of an event, as the attributes of ``Event``."""

    timestamp: datetime
    agent_name: str
    full_namespace: str
    commit_hash: str | None


NAMES: Final = Stamp._fields

_FIELDS: Final = ("__dataclass_fields__", "model_fields", "__attrs_attrs__", "_fields")
"""Where dataclasses, pydantic models, attrs classes and NamedTuples have their fields."""


def stamped(event: Any, stamp: Stamp) -> Any:
    """Return the event with its stamp as attributes. A field of the class with one of these names keeps its own value.

    This may change the event: pass one without other references.
    """
    if getattr(type(event), "_stamped_class", None) is not None:
        return event
    attributes = getattr(event, "__dict__", None)
    cls: Any = type(event)
    if type(attributes) is not dict:
        event = _recast(event, _subclass(cls), cls)
        attributes = getattr(event, "__dict__", None)
        cls = type(event)
    own = _own_names(cls)
    for name, value in zip(NAMES, stamp, strict=True):
        if name in own:
            continue
        if type(attributes) is dict:
            attributes.setdefault(name, value)
        else:
            object.__setattr__(event, name, value)
    return event


def unstamped(event: Any) -> Any:
    """Return the event without its stamp: itself, or a copy if it was read from a log and is emitted again."""
    cls: Any = type(event)
    base = getattr(cls, "_stamped_class", None)
    if base is not None:
        return _recast(event, base, base)
    attributes = getattr(event, "__dict__", None)
    if type(attributes) is not dict or attributes.keys().isdisjoint(NAMES):
        return event
    own = _own_names(cls)
    stamps = [name for name in NAMES if name in attributes and name not in own]
    if not stamps or (
        not _has_fields(cls) and (len(stamps) < len(NAMES) or type(attributes["timestamp"]) is not datetime)
    ):
        return event  # a class without fields may have an attribute of one of these names itself
    plain = copy.copy(event)
    for name in stamps:
        del plain.__dict__[name]
    return plain


def _has_fields(cls: type) -> bool:
    return any(hasattr(cls, attribute) for attribute in _FIELDS)


@lru_cache(maxsize=256)
def _own_names(cls: Any) -> frozenset[str]:
    """Return the attributes of a stamp that are fields of a class."""
    fields: set[str] = set()
    for attribute in _FIELDS:
        found = getattr(cls, attribute, ())
        if isinstance(found, dict | tuple):
            fields.update(each if isinstance(each, str) else each.name for each in found)
    if getattr(cls, "_stamped_class", None) is None:
        fields.update(_slots(cls))
    return frozenset(fields.intersection(NAMES))


def _slots(cls: type) -> Iterator[str]:
    """Iterate over the names of the slots of a class and its bases."""
    for base in cls.__mro__:
        slots = base.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name in ("__dict__", "__weakref__"):
                continue
            private = name.startswith("__") and not name.endswith("__")
            yield f"_{base.__name__.lstrip('_')}{name}" if private else name


@lru_cache(maxsize=256)
def _subclass(cls: Any) -> Any:
    """Return the subclass of a slotted class whose instances carry a stamp."""
    body: dict[str, Any] = {
        "__module__": cls.__module__,
        "__qualname__": cls.__qualname__,
        "__doc__": cls.__doc__,
        "__class__": property(lambda _: cls),
        "__reduce_ex__": _reduce,
        "_stamped_class": cls,
    }
    if not issubclass(cls, tuple):  # a tuple cannot have slots, and gets a dict
        body["__slots__"] = tuple(name for name in NAMES if name not in _own_names(cls))
    meta: Any = type(cls)
    return meta(cls.__name__, (cls,), body)


def _recast(event: Any, cls: Any, slotted: type) -> Any:
    """Return an event as an instance of another class, with the slots of one that both are made of."""
    made: Any = tuple.__new__(cls, event) if isinstance(event, tuple) else object.__new__(cls)
    for name in _slots(slotted):
        if hasattr(event, name):
            object.__setattr__(made, name, getattr(event, name))
    return made


def _reduce(event: Any, _protocol: int) -> tuple[Any, ...]:
    # A copy or an unpickled event is of the caller's class, and is stamped again.
    cls = type(event)._stamped_class
    return _restamp, (_recast(event, cls, cls), tuple(getattr(event, name) for name in NAMES))


def _restamp(event: Any, stamp: tuple[Any, ...]) -> Any:
    return stamped(event, Stamp(*stamp))
