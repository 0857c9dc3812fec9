"""``Packing``: the values that a store would not give back as they are, as bytes of LangGraph's serializer.

Layer: integrations.

An adapter's repository never pickles, and makes instances of trusted classes only. So a value of another class is
packed, as LangGraph's own savers pack every value.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from itertools import chain
from typing import Any, Final

from versioned_state import is_data, register
from versioned_state.values.codec.trust import TrustedClasses
from versioned_state.values.typed.registry import find_layout, layout_of

_LEAVES: Final = frozenset({str, int, float, bool, bytes, type(None)})
_TEXT: Final = frozenset({str})
_EMPTY: Final = frozenset({dict, list, tuple})
_SEVERAL: Final = (list, tuple, set, frozenset, deque)
_NAMES: Final = frozenset({"__dict__", "__pydantic_fields_set__"})
"""Slots with the fields that are looked at anyway, and with names."""

_NO_FIELDS: Final[dict[str, Any]] = {}


@dataclass(frozen=True, slots=True)
class Packed:
    """A value as its serializer wrote it.

    Attributes:
        format: the serializer's name of the format.
        content: its bytes.
    """

    format: str
    content: bytes


register(Packed, "langgraph.Packed")

Dump = Callable[[Any], tuple[str, bytes]]
Load = Callable[[tuple[str, bytes]], Any]
Parts = Callable[[Any], Iterable[Any]]


class Packing:
    """Turns values into data that the store gives back as they are, and these into values.

    Args:
        dump, load: the serializer's ``dumps_typed`` and ``loads_typed``.
        classes: the classes that the repository trusts.
        whole: pack every value.
    """

    def __init__(self, dump: Dump, load: Load, classes: TrustedClasses | None, *, whole: bool) -> None:
        self._dump = dump
        self._load = load
        self._classes = classes
        self._whole = whole
        self._parts: dict[type, Parts] = {Packed: _nothing}

    def dump(self, value: Any) -> Any:
        """Return a value, or another one in which the parts of classes that are not trusted are packed."""
        if self._whole:
            return self._packed(value)
        if type(value) in _LEAVES:
            return value
        if self._is_read_back(value):
            return value
        # Part by part, so that an element of a list keeps its path, and its bytes if the others change.
        if type(value) is list:
            return [self.dump(each) for each in value]
        if type(value) is dict:
            return (
                {key: self.dump(each) for key, each in value.items()}
                if all(map(self._is_read_back, value))
                else self._packed(value)
            )
        return self._packed(value)

    def dump_data(self, value: Any) -> Any:
        """Return a value like ``dump``, or packed as a whole if any of it is not data. Cost: as for storing it."""
        dumped = self.dump(value)
        return dumped if is_data(dumped) else self._packed(value)

    def load(self, value: Any) -> Any:
        """Return the value of what ``dump`` returned."""
        cls = type(value)
        if cls is Packed:
            return self._load((value.format, value.content))
        if cls is list:
            return [self.load(each) for each in value] if _has_packed(value) else value
        if cls is dict:
            return {key: self.load(each) for key, each in value.items()} if _has_packed(value.values()) else value
        return value

    def _packed(self, value: Any) -> Packed:
        return Packed(*self._dump(value))

    def _is_read_back(self, value: Any) -> bool:
        """Return whether all of a value would be read as what it is."""
        rest = [value]
        seen: set[int] = set()
        while rest:
            each = rest.pop()
            cls = type(each)
            if cls in _LEAVES or id(each) in seen:
                continue
            seen.add(id(each))
            parts = self._parts.get(cls)
            if parts is None:
                parts = self._parts[cls] = _parts_of(cls) if self._is_trusted(cls) else _untrusted
            if parts is _untrusted:
                return False
            # Most parts are leaves or empty, and only the others are looked into.
            rest += [part for part in parts(each) if type(part) not in _LEAVES and (type(part) not in _EMPTY or part)]
        return True

    def _is_trusted(self, cls: type) -> bool:
        layout = layout_of(cls)
        # A class without a layout is built in, or its values are objects, which a commit refuses.
        return layout is None or find_layout(layout.name, self._classes or "registered") is layout


def _nothing(_: Any) -> Iterable[Any]:
    return ()


def _untrusted(_: Any) -> Iterable[Any]:
    """Stand for the parts of an instance of a class that is not trusted."""
    return ()


def _parts_of(cls: type) -> Parts:
    """Return what gives the parts of a value of a class: keys and elements, or the fields of an instance."""
    if issubclass(cls, dict):
        return _entries
    if issubclass(cls, _SEVERAL):
        return iter
    if issubclass(cls, Enum):
        return _nothing
    slots = [name for name in getattr(cls, "__slots__", ()) if type(name) is str and name not in _NAMES]
    return _fields if not slots else lambda value: [*_fields(value), *[getattr(value, name, None) for name in slots]]


def _entries(value: Any) -> Iterable[Any]:
    return value.values() if _TEXT.issuperset(map(type, value)) else chain(value, value.values())


def _fields(value: Any) -> Iterable[Any]:
    return getattr(value, "__dict__", _NO_FIELDS).values()


def _has_packed(values: Any) -> bool:
    """Return whether any of some values, or a part of their lists and dicts, is packed."""
    for value in values:
        cls = type(value)
        if cls is Packed or (cls is list and _has_packed(value)) or (cls is dict and _has_packed(value.values())):
            return True
    return False
