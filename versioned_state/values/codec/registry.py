"""Types that their users register, so that their values are stored as a name and data, never by importing. Layer: values.

``register`` serves the whole process. Stored are ``(name, data)``; a name that this process does not know reads as
``Tagged(name, data)``, which can be stored again and loses nothing.
"""

from __future__ import annotations

import builtins
import dataclasses
import threading
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeVar

from versioned_state.errors import InvalidArgumentError
from versioned_state.values.codec.scalars import WRITERS

T = TypeVar("T")

_DATA = frozenset({*WRITERS, float, bool, type(None), list, dict, tuple, set, frozenset})


@dataclass(frozen=True, slots=True)
class Tagged:
    """A value of a type that is not registered here: its registered name and its data. Raises ``InvalidArgumentError`` for a bad name."""

    name: str
    data: Any

    def __post_init__(self) -> None:
        _check_name(self.name)

    def __hash__(self) -> int:
        return hash(self.name)


@dataclass(frozen=True, slots=True)
class Registration:
    """How values of one type become data and come back."""

    type: type
    name: str
    to_data: Callable[[Any], Any]
    from_data: Callable[[Any], Any]


_by_type: dict[type, Registration] = {}
reducers: dict[type, Callable[[Any], Any]] = {}
"""For a pickler that makes fingerprints: a registered value counts by its data, as it is stored, not by how it would pickle itself."""
_by_name: dict[str, Registration] = {}
_lock = threading.Lock()


def register(
    type: type[T],
    name: str | None = None,
    to_data: Callable[[T], Any] | None = None,
    from_data: Callable[[Any], T] | None = None,
) -> type[T]:
    """Store values of exactly this type as ``name`` and data; returns the type, so it also serves as a decorator.

    Without functions, the type must be a dataclass, a pydantic model or an Enum: their fields, dump or value are the data.
    ``name`` is part of every stored value and must stay as it is; without one it is the type's module and qualified name.
    Subclasses are types of their own.

    Args:
        to_data: makes data of a value: plain Python values, registered ones included.
        from_data: the way back. It gets exactly what ``to_data`` returned.

    Raises:
        InvalidArgumentError: the name is not a string, or is another type's; one function is missing, or there is no ready-made way; or
            the type is one of those that are data without being registered.
    """
    if not isinstance(type, builtins.type):
        raise InvalidArgumentError(f"register() takes a type, not {type!r}")
    if type in _DATA:
        raise InvalidArgumentError(
            f"{type.__qualname__} is data as it is, and cannot be registered", hint="make a subclass, or a dataclass that holds one"
        )
    if name is not None:
        _check_name(name)
    if (to_data is None) != (from_data is None):
        raise InvalidArgumentError("register() takes both to_data and from_data, or neither")
    if to_data is None or from_data is None:
        to_data, from_data = _ready_made(type)
    name = f"{type.__module__}.{type.__qualname__}" if name is None else name
    with _lock:
        known = _by_name.get(name)
        # A module that is imported again (in a notebook, after a reload) makes the same type anew.
        if known is not None and known.type is not type and known.type.__qualname__ != type.__qualname__:
            raise InvalidArgumentError(f"the name {name!r} is registered for {known.type.__qualname__}")
        registration = Registration(type, name, to_data, from_data)
        _by_type[type] = registration
        reducers[type] = lambda value: (Tagged, (registration.name, registration.to_data(value)))
        _by_name[name] = registration
    return type


def _check_name(name: Any) -> None:
    if type(name) is not str or not name:
        raise InvalidArgumentError(f"the name of a registered type is a string of one character or more, not {name!r}")


def find_by_type(type: type) -> Registration | None:
    """How values of exactly this type are stored, if it is registered."""
    return _by_type.get(type)


def find_by_name(name: str) -> Registration | None:
    """How values stored under this name are read, if it is registered here."""
    return _by_name.get(name)


def _ready_made(type: type) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    if issubclass(type, Enum):
        return (lambda member: member.value), type
    if dataclasses.is_dataclass(type):
        return _dataclass_way(type)
    if hasattr(type, "model_validate") and hasattr(type, "model_dump"):
        return _pydantic_way(type)
    raise InvalidArgumentError(f"{type.__qualname__} is not a dataclass, pydantic model or Enum: give to_data and from_data")


def _pydantic_way(type: type) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    def from_data(data: dict[str, Any]) -> Any:
        # As pydantic's own pickling does: past validation, with the fields that were set, extra and private ones.
        model: Any = object.__new__(type)
        model.__setstate__(data)
        return model

    return (lambda model: model.__getstate__()), from_data


def _dataclass_way(type: type) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    names = [field.name for field in dataclasses.fields(type)]

    def to_data(value: Any) -> dict[str, Any]:
        _refuse_more(value, names)
        return {name: getattr(value, name) for name in names if hasattr(value, name)}

    def from_data(data: dict[str, Any]) -> Any:
        # Past __init__: the stored fields come back as they were, without defaults, validation or side effects.
        value: Any = object.__new__(type)
        for name, item in data.items():
            object.__setattr__(value, name, item)
        return value

    return to_data, from_data


def _refuse_more(value: Any, names: Iterable[str] = ()) -> None:
    """Raise ``NotPlainDataError`` where an instance holds attributes besides these."""
    more = getattr(value, "__dict__", {}).keys() - set(names)
    if more:
        raise NotPlainDataError(f"it has attributes of its own: {', '.join(sorted(map(str, more)))}")


def _mapping_to_data(value: Any) -> dict[Any, Any]:
    _refuse_more(value)
    return dict(value)


_FACTORIES: dict[str, Any] = {f.__name__: f for f in (list, dict, set, tuple, int, float, str, bool, bytes)}


class NotPlainDataError(ValueError):
    """A value of a registered type that its registration cannot express as data; it is stored as an object instead."""


def _defaultdict_to_data(value: defaultdict[Any, Any]) -> list[Any]:
    factory = value.default_factory
    if factory is None:
        return [None, dict(value)]
    name = getattr(factory, "__name__", "")
    if _FACTORIES.get(name) is not factory:
        raise NotPlainDataError(f"its default factory {name or factory!r} is code")
    return [name, dict(value)]


def _defaultdict_from_data(data: list[Any]) -> defaultdict[Any, Any]:
    name, items = data
    return defaultdict(None if name is None else _FACTORIES[name], items)


def _counter_from_data(data: dict[Any, Any]) -> Counter[Any]:
    # Not Counter(data): it would refuse nothing, but goes through update(), which adds.
    counter: Counter[Any] = Counter()
    dict.update(counter, data)
    return counter


register(OrderedDict, "OrderedDict", _mapping_to_data, OrderedDict)
register(Counter, "Counter", _mapping_to_data, _counter_from_data)
register(defaultdict, "defaultdict", _defaultdict_to_data, _defaultdict_from_data)
register(deque, "deque", lambda value: [value.maxlen, list(value)], lambda data: deque(data[1], data[0]))
